//! Signals of all sources, with a broker that is not there.

use std::{sync::Arc, time::Duration};

use super::*;
use crate::app::testing;
use spotter_core::{Clock, Look, ManualClock, Outcome, Share, Task};

const CAMERAS: &str = "node.name = \"edge1\"\nmqtt.url = \"mqtt://127.0.0.1:1\"\n[api]\n\
    [camera.gate]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n\
    trigger.bell = { mqtt = \"bell\", key = \"action\", value = \"single\", for = \"5s\" }\n\
    trigger.app = { http = true, for = \"5s\" }\n\
    [camera.yard]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n\
    trigger.bell = { mqtt = \"bell\", for = \"1s\" }\n\
    [camera.roof]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n";

fn triggers() -> (Triggers, Vec<CameraConfig>) {
    let config = testing::config(CAMERAS);
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let handles = testing::handles(&config, &clock);
    (Triggers::start(&config.cameras, handles), config.cameras)
}

fn at(seconds: u64) -> Mono {
    Mono::default().after(Duration::from_secs(seconds))
}

fn message(payload: &str) -> Inbound {
    Inbound {
        topic: "bell".into(),
        payload: payload.into(),
        retained: false,
        reply_to: None,
    }
}

fn followed(triggers: &mut Triggers, second: u64) -> Vec<(String, TriggeredLooks)> {
    let notices = triggers.follow(at(second)).into_iter();
    let switches = notices.filter_map(|notice| match notice {
        StageNotice::LookSwitched(camera, looks) => Some((camera.to_string(), looks)),
        _ => None,
    });
    switches.collect()
}

fn switches(expected: &[(&str, TriggeredLooks)]) -> Vec<(String, TriggeredLooks)> {
    let owned = |(camera, looks): &(&str, TriggeredLooks)| ((*camera).to_owned(), *looks);
    expected.iter().map(owned).collect()
}

#[tokio::test]
async fn message_triggers_every_camera_that_reads_its_topic() {
    let (mut triggers, cameras) = triggers();
    let both = |looks| switches(&[("gate", looks), ("yard", looks)]);
    assert_eq!(followed(&mut triggers, 1), both(TriggeredLooks::None));
    assert!(followed(&mut triggers, 1).is_empty());
    assert!(triggers.on_message(&message("{\"action\":\"single\"}"), at(1)));
    assert_eq!(followed(&mut triggers, 1), both(TriggeredLooks::All));
    // One of them wants JSON with another value.
    assert!(triggers.on_message(&message("no JSON"), at(2)));
    assert!(followed(&mut triggers, 2).is_empty());
    assert_eq!(
        followed(&mut triggers, 3),
        switches(&[("yard", TriggeredLooks::None)])
    );
    // After a change of a camera, the other stages get its state again.
    let mut changed = cameras.clone();
    changed[0].prompts[0].min_score = Share::nearest(0.7);
    triggers.change(&ConfigChange::between(&cameras, &changed));
    assert!(
        followed(&mut triggers, 5).is_empty(),
        "a score starts nothing"
    );
    changed[0].width = 640;
    triggers.change(&ConfigChange::between(&cameras, &changed));
    let again = switches(&[("gate", TriggeredLooks::All)]);
    assert_eq!(followed(&mut triggers, 5), again);
    assert_eq!(
        followed(&mut triggers, 6),
        switches(&[("gate", TriggeredLooks::None)])
    );
    triggers.change(&ConfigChange::between(&changed, &cameras[2..]));
    assert!(followed(&mut triggers, 7).is_empty());
    assert!(!triggers.on_message(&message("{}"), at(7)));
}

#[tokio::test(start_paused = true)]
async fn end_of_a_trigger_wakes_the_loop_at_its_time() {
    let (mut triggers, _) = triggers();
    let is_awake = async |triggers: &mut Triggers, now: Mono| {
        tokio::select! {
            biased;
            () = triggers.next_end(now) => true,
            () = sleep(Duration::from_millis(50)) => false,
        }
    };
    let before_end = Mono::default().after(Duration::from_millis(5_999));
    assert!(!is_awake(&mut triggers, before_end).await, "none is active");
    assert!(triggers.on_message(&message("{\"action\":\"single\"}"), at(1)));
    assert!(is_awake(&mut triggers, before_end).await);
    // The loop was busy meanwhile.
    assert!(is_awake(&mut triggers, at(8)).await);
    triggers.follow(at(8));
    assert!(!is_awake(&mut triggers, at(8)).await, "it has ended");
}

#[tokio::test]
async fn late_requested_look_is_requested_again() {
    let (mut triggers, cameras) = triggers();
    followed(&mut triggers, 1);
    let gate = &cameras[0].id;
    triggers
        .set
        .request_one_look(gate, at(1).after(ONE_LOOK_LIMIT));
    let one = switches(&[("gate", TriggeredLooks::One)]);
    assert_eq!(followed(&mut triggers, 1), one);
    assert!(followed(&mut triggers, 2).is_empty());
    let frame = testing::frame(gate, 1, at(2));
    let task = Task::Detect {
        object: "person".into(),
    };
    let still = Look::still(frame.picture.clone(), [task]);
    let look = Look { frame, ..still };
    assert!(triggers.on_look(&LookNews::Ended(Outcome::Late(look))));
    assert_eq!(followed(&mut triggers, 2), one);
    // No other one came.
    assert_eq!(
        followed(&mut triggers, 31),
        switches(&[("gate", TriggeredLooks::None)])
    );
    triggers.set.request_looks(gate, at(49));
    assert_eq!(
        followed(&mut triggers, 40),
        switches(&[("gate", TriggeredLooks::All)])
    );
    assert_eq!(
        followed(&mut triggers, 49),
        switches(&[("gate", TriggeredLooks::None)])
    );
}
