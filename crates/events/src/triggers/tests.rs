use std::time::Duration;

use proptest::prelude::*;

use super::*;
use spotter_core::{
    AnswerBody, Frame, Task,
    testing::{answer_to, asked, frame_at, look_at, rate},
};

const HOLD_S: u64 = 20;
const AT_MOST_S: u64 = 100;

fn at(seconds: u64) -> Mono {
    Mono::default().after(Duration::from_secs(1000 + seconds))
}

fn id(text: &str) -> TriggerId {
    TriggerId::new(text).unwrap()
}

fn trigger(text: &str) -> TriggerConfig {
    TriggerConfig {
        id: id(text),
        source: TriggerSource::Http,
        hold: Duration::from_secs(HOLD_S),
        at_most: Duration::from_secs(AT_MOST_S),
    }
}

fn gate(triggers: &[&str]) -> CameraConfig {
    CameraConfig {
        triggers: triggers.iter().map(|text| trigger(text)).collect(),
        ..spotter_config::testing::camera("gate", Vec::new())
    }
}

fn active(set: &TriggerSet, second: u64) -> Vec<String> {
    let reports = set.reports(at(second)).flat_map(|(_, reports)| reports);
    let active = reports.filter(|report| report.is_active);
    active.map(|report| report.id.to_string()).collect()
}

#[test]
fn change_keeps_what_has_the_same_source() {
    let mut cameras = [gate(&["bell", "app"])];
    let mut set = TriggerSet::new(&cameras);
    let before = cameras.clone();
    for name in ["bell", "app"] {
        let gate = &cameras[0].id;
        set.signal(gate, &id(name), TriggerSignal::Momentary, at(0))
            .unwrap();
    }
    let motion = TriggerSource::Onvif("motion".into());
    cameras[0].triggers[1].source = motion.clone();
    cameras[0].triggers[0].hold = Duration::from_secs(1);
    let changed = ConfigChange::between(&before, &cameras);
    assert_eq!(set.apply(&changed), [motion]);
    assert_eq!(active(&set, 1), ["bell"]);
    let before = cameras.clone();
    cameras[0].triggers.clear();
    set.apply(&ConfigChange::between(&before, &cameras));
    assert_eq!(set.reports(at(1)).count(), 0);
}

#[test]
fn signal_for_an_unknown_trigger_names_those_that_exist() {
    let gate = gate(&["bell", "app"]);
    let mut set = TriggerSet::new(std::slice::from_ref(&gate));
    let yard = CameraId::new("yard").unwrap();
    let mut say = |camera: &CameraId, trigger: &str| {
        let signal = set.signal(camera, &id(trigger), TriggerSignal::Momentary, at(0));
        signal.unwrap_err().to_string()
    };
    let no_camera = "no camera yard has triggers; those that have some: gate";
    assert_eq!(say(&yard, "bell"), no_camera);
    let no_trigger = "camera gate has no trigger horn; it has bell, app";
    assert_eq!(say(&gate.id, "horn"), no_trigger);
}

/// The looks of the only camera.
fn looks(set: &TriggerSet, second: u64) -> TriggeredLooks {
    set.looks(at(second)).next().unwrap().1
}

fn frame(camera: &CameraId, number: u64) -> Frame {
    Frame {
        number,
        ..frame_at(camera, Duration::ZERO)
    }
}

fn person(revision: u32) -> std::sync::Arc<Prompt> {
    let object = "person".to_owned();
    asked("person", revision, Task::Detect { object })
}

fn answered(frame: &Frame, revision: u32) -> LookNews {
    LookNews::Answer {
        frame: frame.clone(),
        model_size: (1, 1),
        since_last: Default::default(),
        answer: answer_to(&person(revision), AnswerBody::Boxes(Vec::new())),
        follow_up: None,
    }
}

fn late(frame: &Frame, revision: u32) -> LookNews {
    let look = look_at(frame.clone(), &[person(revision)]);
    LookNews::Ended(Outcome::Late(look))
}

#[test]
fn requested_looks_are_taken_until_their_time_without_a_trigger() {
    let gate = gate(&["bell"]);
    let mut set = TriggerSet::new(std::slice::from_ref(&gate));
    assert_eq!(looks(&set, 0), TriggeredLooks::None);
    set.request_looks(&gate.id, at(10));
    assert_eq!(set.next_end(at(0)), Some(at(10)));
    assert_eq!(looks(&set, 9), TriggeredLooks::All);
    assert!(active(&set, 9).is_empty());
    assert_eq!(looks(&set, 10), TriggeredLooks::None);
    // A trigger goes on after them, and a change of another value changes nothing.
    set.request_looks(&gate.id, at(25));
    set.signal(&gate.id, &id("bell"), TriggerSignal::Momentary, at(20))
        .unwrap();
    let faster = CameraConfig {
        rate: rate(7.0),
        ..gate.clone()
    };
    set.apply(&ConfigChange::between(&[gate], &[faster]));
    assert_eq!(looks(&set, 39), TriggeredLooks::All);
    assert_eq!(looks(&set, 40), TriggeredLooks::None);
}

#[test]
fn one_requested_look_ends_with_its_answers() {
    let gate = gate(&["bell"]);
    let mut set = TriggerSet::new(std::slice::from_ref(&gate));
    let ended = |frame: &Frame| LookNews::Ended(Outcome::Answered(frame.clone()));
    let end = |is_answered| {
        Some(RequestedLookEnd {
            camera: gate.id.clone(),
            is_answered,
        })
    };
    let frames: Vec<Frame> = (1..4).map(|number| frame(&gate.id, number)).collect();
    // Without a request, looks end and nothing follows.
    for news in [
        answered(&frames[0], 1),
        ended(&frames[0]),
        late(&frames[0], 1),
    ] {
        assert_eq!(set.on_look(&news), None);
    }
    set.request_one_look(&gate.id, at(30));
    assert_eq!(set.next_end(at(0)), Some(at(30)));
    assert_eq!(looks(&set, 0), TriggeredLooks::One);
    // The look of a question that is asked once is another one.
    for news in [
        answered(&frames[1], Prompt::ONCE),
        ended(&frames[1]),
        late(&frames[1], Prompt::ONCE),
        answered(&frames[2], 1),
        LookNews::ShortAnswered(frames[2].clone()),
        ended(&frames[1]),
    ] {
        assert_eq!(set.on_look(&news), None, "{news:?}");
    }
    assert_eq!(set.on_look(&late(&frames[1], 1)), end(false));
    assert_eq!(looks(&set, 29), TriggeredLooks::One);
    assert_eq!(set.on_look(&ended(&frames[2])), end(true));
    assert_eq!(looks(&set, 1), TriggeredLooks::None);
    // Without an answer it ends by time.
    set.request_one_look(&gate.id, at(30));
    assert_eq!(looks(&set, 30), TriggeredLooks::None);
}

proptest! {
    // Faults: K17.
    /// The trigger's time, counted from the list of all signals.
    #[test]
    fn trigger_is_active_exactly_in_the_time_of_its_signals(
        steps in prop::collection::vec((0u8..3, 1u64..60), 1..40),
    ) {
        let gate = gate(&["bell"]);
        let mut set = TriggerSet::new(std::slice::from_ref(&gate));
        let (mut second, mut until, mut is_on, mut activations) = (0, 0, false, 0);
        for (step, pause) in steps {
            let (was_active, was_on) = (second < until, is_on);
            let signal = match step {
                0 => {
                    until = until.max(second + HOLD_S);
                    TriggerSignal::Momentary
                }
                1 => {
                    (until, is_on) = (second + AT_MOST_S, true);
                    TriggerSignal::On
                }
                _ => {
                    // The end was lost and `at_most` was over, or it is the second end: it begins nothing.
                    until = if was_on && was_active { second + HOLD_S } else { until };
                    is_on = false;
                    TriggerSignal::Off
                }
            };
            activations += u64::from(!was_active && second < until);
            set.signal(&gate.id, &id("bell"), signal, at(second)).unwrap();
            for later in second..second + pause {
                prop_assert_eq!(!active(&set, later).is_empty(), later < until);
                prop_assert_eq!(set.next_end(at(later)), (later < until).then(|| at(until)));
            }
            second += pause;
        }
        let (_, reports) = set.reports(at(second)).next().unwrap();
        prop_assert_eq!(reports[0].activations, activations);
        // It ends by itself.
        prop_assert!(active(&set, second + AT_MOST_S).is_empty());
    }
}
