//! Switching, losing and telling of cameras.

use super::*;
use crate::{
    domain::SystemClock,
    ingest::{Failure, Fault, Opener, Outlet, Source},
    testing,
};

/// A camera that does not answer.
struct Absent;

impl Opener for Absent {
    fn open(&self, _: u32, _: Outlet) -> Result<Arc<dyn Source>, Failure> {
        Err(Failure::new(Fault::Unreachable, "test"))
    }
}

#[tokio::test]
async fn switching_is_told_once_off_at_once_and_on_when_it_is_tried_again() {
    let camera = testing::camera("gate", Vec::new());
    let clock = Arc::new(SystemClock::new());
    let handle = ingest::spawn_with(Arc::new(Absent), &camera, clock, Arc::new(|_| {}));
    let mut health = handle.health();
    let mut watched = Watched::new(&camera, handle);
    watched.enable(true).await;
    assert_eq!(watched.switched(), None, "absent is not off");

    watched.enable(false).await;
    let off = Switched::Off(camera.id.clone());
    assert_eq!(watched.switched(), Some(off));
    let heard = health.wait_for(|health| health.phase == Phase::Disabled);
    assert!(heard.await.is_ok());
    assert_eq!(watched.switched(), None);

    watched.enable(true).await;
    let heard = health.wait_for(|health| health.phase != Phase::Disabled);
    assert!(heard.await.is_ok());
    assert_eq!(watched.switched(), Some(Switched::On(camera.id.clone())));
    assert_eq!(watched.switched(), None);
}

#[tokio::test]
async fn a_camera_without_an_engine_is_off_and_says_why() {
    let camera = testing::camera("gate", Vec::new());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let sink = Arc::new(|_| {});
    let handle = ingest::spawn_with(Arc::new(Absent), &camera, Arc::clone(&clock), sink);
    let mut health = handle.health();
    let mut cameras = Cameras {
        here: vec![Watched::new(&camera, handle)],
        leaving: JoinSet::new(),
    };
    let yard = CameraId::new("yard").unwrap();
    cameras.lose(&[yard], "another engine");
    assert!(cameras.here[0].engine_lost.is_none());

    cameras.lose(std::slice::from_ref(&camera.id), "engine on cuda 1: gone");
    let watched = &mut cameras.here[0];
    watched.follow_schedule(clock.wall()).await;
    assert!(
        health
            .wait_for(|health| health.phase == Phase::Disabled)
            .await
            .is_ok()
    );
    assert_eq!(watched.switched(), Some(Switched::Lost(camera.id.clone())));
    let told = message(&health.borrow(), watched.reason(&health.borrow()));
    assert_eq!(told.state, "disabled");
    let reason = "engine_lost: engine on cuda 1: gone";
    assert_eq!(told.reason.as_deref(), Some(reason));
    let troubles: Vec<String> = cameras.troubles().collect();
    assert_eq!(troubles, [format!("camera gate: {reason}")]);
}

fn streaming(losses: u64, frames: u64) -> Health {
    Health {
        phase: Phase::Streaming,
        failure: None,
        since: WallTime::default(),
        attempts: 0,
        next_retry: None,
        stream: ingest::StreamInfo::default(),
        frames,
        rtp_lost: 0,
        rtp_foreign: 0,
        frames_corrupt: 0,
        frames_late: 0,
        losses,
        reconnects: 0,
        stalls: 0,
        reconnects_1h: 0,
        stalls_1h: 0,
        abandoned: 0,
        clock: ingest::ClockHealth::default(),
    }
}

#[test]
fn a_camera_that_was_away_between_two_ticks_is_told() {
    let at = |seconds| Mono::default().after(Duration::from_secs(seconds));
    let told = (Essence::of(&streaming(4, 100), false), at(100));
    let is_news = |health: &Health, now| Essence::of(health, false).is_news(Some(&told), now);
    assert!(Essence::of(&streaming(4, 100), false).is_news(None, at(100)));
    assert!(!is_news(&streaming(4, 115), at(101)), "only frames came");
    assert!(is_news(&streaming(5, 115), at(101)), "it streams again");
    assert!(is_news(&streaming(4, 900), at(160)), "once a minute");
}
#[test]
fn after_eight_abandoned_pipelines_a_new_process_is_needed() {
    let ids: Vec<CameraId> = ["gate", "yard", "dock"]
        .map(|id| CameraId::new(id).unwrap())
        .into();
    let judge = |left: [u32; 3]| too_many_abandoned(ids.iter().zip(left));
    assert_eq!(judge([3, 0, 4]), None);
    let why = judge([3, 0, 5]).unwrap();
    assert!(
        why.contains("8 pipelines") && why.contains("gate 3, dock 5"),
        "{why}"
    );
}
