//! Looks against a real engine whose device waits at a gate.

use std::sync::mpsc;

use super::*;
use crate::app::test_support::{frame, no_limits};
use spotter_cameras::sampler::Sampler;
use spotter_core::{Clock as _, FrameCounters, ManualClock, config::CameraConfig, testing};
use spotter_engine::{
    scheduler::backend::{
        Backend, BackendError, BackendLimits, PageId, RowMask, SlotId, Step, StepResult,
    },
    service::handle,
    sim::SimBackend,
    testing::simulated,
};

const PERMITS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(60);

/// A device whose every step waits until the gate is opened, which is for ever.
struct Gated {
    device: SimBackend,
    gate: mpsc::Receiver<()>,
}

impl Backend for Gated {
    fn limits(&self) -> BackendLimits {
        self.device.limits()
    }
    fn launch(&mut self, slot: SlotId, step: Step) -> Result<(), BackendError> {
        let _ = self.gate.recv();
        self.device.launch(slot, step)
    }
    fn finalize(&mut self, slot: SlotId, masks: Vec<RowMask>) -> Result<(), BackendError> {
        self.device.finalize(slot, masks)
    }
    fn commit(&mut self, slot: SlotId) -> Result<StepResult, BackendError> {
        self.device.commit(slot)
    }
    fn release(&mut self, pages: &[PageId]) {
        self.device.release(pages);
    }
}

/// Two cameras and an engine of [`PERMITS`] permits, whose device waits until the sender is dropped.
struct Site {
    clock: ManualClock,
    cameras: Vec<CameraConfig>,
    sampler: Arc<Sampler>,
    looks: LooksInFlight,
    gate: mpsc::Sender<()>,
    frames: u64,
}

impl Site {
    async fn open() -> Self {
        let clock = ManualClock::default();
        clock.advance(PATIENCE);
        let cameras = ["gate", "yard"]
            .map(|id| testing::camera(id, vec![testing::prompt("person")]))
            .to_vec();
        let sampler = Sampler::new(&cameras, Arc::new(clock.clone()));
        let share = sampler.share(no_limits());
        let ids: Vec<_> = cameras.iter().map(|camera| camera.id.clone()).collect();
        sampler.assign(&share, &ids);
        let (gate, closed) = mpsc::channel();
        let engine_clock = Arc::new(clock.clone());
        let device = move || Gated {
            device: simulated::device(1),
            gate: closed,
        };
        let build = move || Ok((simulated::engine(device(), engine_clock), PERMITS));
        let (engine, _) = handle::start(build).await.unwrap();
        Self {
            looks: LooksInFlight::new(engine, share),
            clock,
            cameras,
            sampler,
            gate,
            frames: 0,
        }
    }

    /// A frame of the camera, on which its prompt is due; then the looks go on as far as they can.
    async fn frame(&mut self, camera: usize) {
        self.clock.advance(Duration::from_secs(2));
        self.frames += 1;
        let camera = &self.cameras[camera].id;
        let now = self.clock.now();
        self.sampler.camera_sink(camera).unwrap()(frame(camera, self.frames, now));
        tokio::select! {
            biased;
            news = self.looks.news() => panic!("the gate is closed: {news:?}"),
            () = async {} => {}
        }
    }

    fn sum(&self, of: impl Fn(&FrameCounters) -> u64) -> u64 {
        let counters = self.sampler.counters();
        counters.iter().map(|(_, frames)| of(frames)).sum()
    }
}

fn expect_settled(sampler: &Sampler) {
    for (camera, frames) in sampler.counters() {
        assert!(
            frames.balanced() && frames.in_flight == 0,
            "{camera}: {frames:?}"
        );
    }
}

/// Camera and number of the frame of an answered look.
fn answered(news: &LookNews) -> Option<(String, u64)> {
    match news {
        LookNews::Answer { .. } | LookNews::ShortAnswered(_) => None,
        LookNews::Ended(Outcome::Answered(frame)) => Some((frame.camera.to_string(), frame.number)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn looks_in_flight_equal_the_permits() {
    let mut site = Site::open().await;
    for camera in [0, 1, 0, 0, 1] {
        site.frame(camera).await;
    }
    assert_eq!(site.sum(|frames| frames.in_flight), PERMITS as u64);
    assert_eq!(site.sum(|frames| frames.waiting), 2);

    drop(site.gate);
    let mut seen = Vec::new();
    while seen.len() < 5 {
        let news = timeout(PATIENCE, site.looks.news()).await;
        for news in news.unwrap().unwrap() {
            site.sampler.news(&news);
            seen.extend(answered(&news));
        }
    }
    for (camera, frames) in [("gate", vec![1, 3, 4]), ("yard", vec![2, 5])] {
        let of_camera = seen.iter().filter(|(of, _)| of == camera);
        assert_eq!(of_camera.map(|(_, n)| *n).collect::<Vec<_>>(), frames);
    }
    expect_settled(&site.sampler);
}

#[tokio::test]
async fn finish_waits_for_begun_looks_and_begins_no_other() {
    let mut site = Site::open().await;
    for camera in [0, 1, 0, 0] {
        site.frame(camera).await;
    }
    drop(site.gate);
    let last = site.looks.finish(PATIENCE).await;
    let mut seen: Vec<_> = last.iter().filter_map(answered).collect();
    seen.sort();
    let expected = [("gate", 1), ("gate", 3), ("yard", 2)];
    assert_eq!(seen, expected.map(|(camera, n)| (camera.to_owned(), n)));
    last.iter().for_each(|news| site.sampler.news(news));
    expect_settled(&site.sampler);
    assert_eq!(site.sampler.counters()[0].1.waiting, 1);
}
