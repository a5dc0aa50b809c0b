//! Switching and losing cameras, and their published health.
//!
//! Faults: C54.

use super::*;
use crate::app::testing;
use spotter_cameras::ingest::{
    Failure, FrameSink, Opener, Progress, Source, SourceEvent, SourceOutlet,
};
use spotter_control::ConfigStore;
use spotter_core::{AdapterId, Clock, ManualClock, StreamFault, StripShape, SystemClock};

const CONFIG: &str = "mqtt.url = \"mqtt://127.0.0.1:1\"\n[camera.gate]\nurl = \"test://\"\n\
    prompt.person.detect = \"person\"\n";

const ABSENT: ScriptedSource = ScriptedSource(&[]);

/// A source that shows this and goes on; without anything, a camera that does not answer.
struct ScriptedSource(&'static [SourceEvent]);

impl Opener for ScriptedSource {
    fn open(&self, outlet: SourceOutlet) -> Result<Arc<dyn Source>, Failure> {
        if self.0.is_empty() {
            return Err(Failure::new(StreamFault::Unreachable, "test"));
        }
        for event in self.0 {
            outlet.events.try_send(event.clone()).unwrap();
        }
        Ok(Arc::new(Over))
    }
}

fn watched(
    opener: impl Opener + 'static,
    camera: &config::CameraConfig,
) -> (SupervisedCamera, watch::Receiver<Health>) {
    let clock = Arc::new(SystemClock::new());
    let handle = ingest::spawn_with(Arc::new(opener), camera, clock, FrameSink::new(drop));
    let health = handle.health();
    (SupervisedCamera::new(camera, handle), health)
}

fn supervisor(camera: SupervisedCamera, clock: &Arc<dyn Clock>) -> CameraSupervisor {
    let config = testing::config(CONFIG);
    let handles = testing::handles(&config, clock);
    CameraSupervisor {
        cameras: vec![camera],
        ..CameraSupervisor::start(&[], None, handles)
    }
}

/// The cameras that were switched by this second.
fn switched(cameras: &mut CameraSupervisor, config: &mut ConfigStore) -> Vec<(CameraId, bool)> {
    let (now, wall) = (cameras.handles.clock.now(), cameras.handles.clock.wall());
    let mut context = StageContext::new(config, now, wall);
    cameras.tick(&mut context);
    let notices = std::iter::from_fn(|| context.next_notice());
    let switched = notices.filter_map(|notice| match notice {
        StageNotice::CameraSwitched { camera, is_on } => Some((camera, is_on)),
        _ => None,
    });
    switched.collect()
}

async fn until(health: &mut watch::Receiver<Health>, is_so: impl Fn(Phase) -> bool) {
    let reached = health.wait_for(|health| is_so(health.phase)).await;
    reached.unwrap();
}

fn is_off(phase: Phase) -> bool {
    phase == Phase::Disabled
}

#[tokio::test]
async fn schedule_switches_off_at_once_and_on_when_connecting() {
    let file = testing::config(&(CONFIG.to_owned() + "schedule = \"Mon-Sun 18:00-06:00 UTC\"\n"));
    // A second before six in the evening of 22 August 2026.
    let manual = ManualClock::at(WallTime::from_unix_millis(1_787_421_599_000));
    let clock: Arc<dyn Clock> = Arc::new(manual.clone());
    let mut config = testing::config_store(&file, &*clock);
    let camera = &file.cameras[0];
    let (watched, mut health) = watched(ABSENT, camera);
    let mut cameras = supervisor(watched, &clock);
    let off = [(camera.id.clone(), false)];
    assert_eq!(switched(&mut cameras, &mut config), off);
    until(&mut health, is_off).await;
    assert_eq!(switched(&mut cameras, &mut config), [], "once");
    assert_eq!(cameras.troubles().count(), 0);
    reason_is(&cameras.cameras[0], "schedule");

    manual.advance(Duration::from_secs(1));
    let mut on = switched(&mut cameras, &mut config);
    until(&mut health, |phase| !is_off(phase)).await;
    on.extend(switched(&mut cameras, &mut config));
    assert_eq!(on, [(camera.id.clone(), true)]);
    assert!(cameras.cameras[0].off.is_none());

    manual.advance(Duration::from_secs(12 * 3600 - 1));
    let none = switched(&mut cameras, &mut config);
    assert_eq!(none, [], "absent is not off");
    manual.advance(Duration::from_secs(1));
    assert_eq!(switched(&mut cameras, &mut config), off);
}

/// Published state and reason.
fn published(watched: &SupervisedCamera) -> (Phase, Option<String>) {
    let health = watched.health.borrow();
    let message = health_message(&health, watched.reason(&health).as_ref());
    (message.state, message.reason)
}

fn reason_is(watched: &SupervisedCamera, code: &str) {
    let (state, reason) = published(watched);
    let reason = reason.unwrap();
    assert_eq!(state.as_str(), "disabled");
    assert!(reason.starts_with(&format!("{code}: ")), "{reason}");
}

struct Over;

impl Source for Over {
    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn rewind(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn stop(&self) {}
}

#[tokio::test]
async fn camera_that_is_off_reports_reason() {
    let camera = spotter_config::testing::camera("gate", Vec::new());
    let (mut watched, mut health) = watched(
        ScriptedSource(&[SourceEvent::FirstFrame, SourceEvent::Ended]),
        &camera,
    );
    until(&mut health, |phase| phase == Phase::Ended).await;
    reason_is(&watched, "ended");

    watched.camera.enabled = false;
    watched.follow_schedule(WallTime::default());
    until(&mut health, is_off).await;
    reason_is(&watched, "switched_off");
    let digest = |watched: &SupervisedCamera| {
        let health = watched.health.borrow();
        HealthDigest::new(&health, watched.reason(&health).as_ref(), Mono::default())
    };
    let before = digest(&watched);
    watched.off = Some(Off::Schedule);
    assert!(digest(&watched).is_due_after(Some(&before)));
}

#[tokio::test]
async fn lost_camera_and_other_decoder_are_published_at_once() {
    let camera = spotter_config::testing::camera("gate", Vec::new());
    let (_, health) = watched(ABSENT, &camera);
    let health = health.borrow().clone();
    let streaming = |losses, frames| Health {
        phase: Phase::Streaming,
        losses,
        frames,
        ..health.clone()
    };
    let at = |seconds| Mono::default().after(Duration::from_secs(seconds));
    let with = |health: &Health, now| HealthDigest::new(health, None, at(now));
    let first = with(&streaming(4, 100), 100);
    assert!(first.is_due_after(None));
    let is_due = |health: &Health, now| with(health, now).is_due_after(Some(&first));
    assert!(!is_due(&streaming(4, 115), 101), "only frames came");
    assert!(is_due(&streaming(5, 115), 101), "it streams again");
    assert!(is_due(&streaming(4, 900), 160), "once a minute");
    let mut other_decoder = streaming(4, 100);
    other_decoder.stream.decoder = Some("avdec_h264".into());
    assert!(is_due(&other_decoder, 101));
    let decoder = health_message(&other_decoder, None).decoder;
    assert_eq!(decoder.as_deref(), Some("avdec_h264"));
}

#[test]
fn eight_abandoned_pipelines_need_a_new_process() {
    let ids: Vec<CameraId> = ["gate", "yard", "dock"]
        .map(|id| CameraId::new(id).unwrap())
        .into();
    let judge = |left: [u32; 3]| too_many_abandoned(ids.iter().zip(left));
    assert_eq!(judge([3, 0, 4]), None);
    let why = judge([3, 0, 5]).unwrap();
    assert!(
        why.contains("8 camera pipelines") && why.contains("gate 3, dock 5"),
        "{why}"
    );
}

#[tokio::test]
async fn camera_too_slow_for_strips_says_so_while_it_streams() {
    let camera = spotter_config::testing::camera("gate", Vec::new());
    let (watched, mut health) = watched(ScriptedSource(&[SourceEvent::FirstFrame]), &camera);
    until(&mut health, |phase| phase == Phase::Streaming).await;
    let since = health.borrow().since;
    let manual = ManualClock::at(since.plus_seconds(35.0));
    let clock: Arc<dyn Clock> = Arc::new(manual.clone());
    let mut cameras = supervisor(watched, &clock);
    let shortage = StripShortage {
        prompts: vec![PromptId::new("scene").unwrap()],
        shape: StripShape {
            frames: 9,
            over: Duration::from_secs(4),
        },
        frame_every: Duration::from_secs(3),
    };
    let shortages = [(camera.id.clone(), shortage)];
    cameras.set_shortages(&shortages);
    assert_eq!(
        cameras.troubles().count(),
        0,
        "it may still fill its strips"
    );
    manual.advance(Duration::from_secs(2));
    cameras.set_shortages(&shortages);
    let text = "no_strips: no question about a strip is asked (scene): 9 frames over 4 s need a frame every 1 s, the camera sends \
                one every 3 s; set a longer over or fewer frames";
    let reason = (Phase::Streaming, Some(text.to_owned()));
    assert_eq!(published(&cameras.cameras[0]), reason);
    let troubles = Vec::from_iter(cameras.troubles().map(|trouble| trouble.text));
    assert_eq!(troubles, [format!("camera gate: {text}")]);
    cameras.set_shortages(&[]);
    assert_eq!(published(&cameras.cameras[0]), (Phase::Streaming, None));
    assert_eq!(cameras.troubles().count(), 0);
}

#[tokio::test]
async fn each_broken_adapter_is_published_at_once() {
    let prompts = ["dog", "plate"].map(spotter_config::testing::prompt);
    let mut camera = spotter_config::testing::camera("gate", prompts.into());
    for prompt in &mut camera.prompts {
        prompt.adapter = AdapterId::new(prompt.id.as_str()).ok();
    }
    let (mut watched, mut health) = watched(ScriptedSource(&[SourceEvent::FirstFrame]), &camera);
    until(&mut health, |phase| phase == Phase::Streaming).await;
    for (index, expected) in [
        (0, "prompt dog is not asked: adapter dog: it is cut off"),
        (
            1,
            "prompt dog is not asked: adapter dog: it is cut off; prompt plate is not asked: adapter plate: it is cut off",
        ),
    ] {
        let reason = watched.reason(&watched.health.borrow());
        let digest = HealthDigest::new(&health.borrow(), reason.as_ref(), Mono::default());
        watched.published = Some(digest);
        watched.apply(&CameraChange::Settings(camera.clone()), None);
        assert!(watched.published.is_some(), "nothing has changed");
        camera.prompts[index].adapter_fault = Some("it is cut off".into());
        watched.apply(&CameraChange::Settings(camera.clone()), None);
        assert!(watched.published.is_none());
        let (_, reason) = published(&watched);
        assert_eq!(reason, Some(format!("broken_adapter: {expected}")));
    }
}
