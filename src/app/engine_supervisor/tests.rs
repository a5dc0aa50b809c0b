//! Several engines on simulated devices, of which some break.

use std::collections::BTreeMap;

use tokio::time::timeout;

use super::*;
use crate::app::test_support::{fragile_engines, frame};
use spotter_core::ManualClock;

const PATIENCE: Duration = Duration::from_secs(60);
const ALWAYS: usize = usize::MAX;

/// Cameras c0 … on engines that break after the given numbers of steps.
struct Site {
    clock: ManualClock,
    cameras: Vec<CameraId>,
    engines: EngineSupervisor,
    frames: u64,
    /// Looks that were answered, and that the desk would have warned of.
    answered: BTreeMap<CameraId, u64>,
    lost: Vec<(String, Vec<CameraId>, String)>,
}

impl Site {
    async fn open(cameras: usize, steps: &[usize]) -> Self {
        let clock = ManualClock::default();
        clock.advance(PATIENCE);
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let camera = |i| {
            let prompts = vec![spotter_core::testing::prompt("person")];
            spotter_core::testing::camera(&format!("c{i}"), prompts)
        };
        let cameras: Vec<CameraConfig> = (0..cameras).map(camera).collect();
        let sampler = Sampler::new(&cameras, Arc::clone(&shared));
        let slots = fragile_engines(&cameras, steps, &sampler, &shared).await;
        let never: Arc<OpenEngines> = Arc::new(|_| Box::pin(pending()));
        Self {
            clock,
            cameras: camera_ids(&cameras),
            engines: EngineSupervisor::new(sampler, slots, shared, never),
            frames: 0,
            answered: BTreeMap::new(),
            lost: Vec::new(),
        }
    }

    /// A frame of every camera; then news until each of them is answered, or has no engine any more.
    async fn round(&mut self) {
        self.clock.advance(Duration::from_secs(2));
        self.frames += 1;
        let gone: Vec<CameraId> = self.lost.iter().flat_map(|lost| lost.1.clone()).collect();
        let mut open: Vec<CameraId> = self.cameras.clone();
        open.retain(|camera| !gone.contains(camera));
        for camera in &open {
            let frame = frame(camera, self.frames, self.clock.now());
            self.engines.sink(camera).unwrap()(frame);
        }
        while !open.is_empty() {
            match timeout(PATIENCE, self.engines.next()).await.unwrap() {
                EngineEvent::Looks(news) => {
                    for news in news {
                        self.engines.sampler().news(&news);
                        let LookNews::Ended(outcome) = news else {
                            continue;
                        };
                        let frame = outcome.answered().expect("an engine that runs answers");
                        assert_eq!(frame.number, self.frames);
                        *self.answered.entry(frame.camera.clone()).or_default() += 1;
                        open.retain(|camera| *camera != frame.camera);
                    }
                }
                EngineEvent::Lost(loss) => {
                    open.retain(|camera| !loss.cameras.contains(camera));
                    let (label, reason) = (loss.label.clone(), loss.reason.clone());
                    self.lost.push((label, loss.cameras.clone(), reason));
                    loss.settle(self.engines.sampler(), PATIENCE).await;
                }
                EngineEvent::Reopened(_) => panic!("nothing is opened again"),
            }
        }
    }

    fn answered(&self) -> Vec<u64> {
        let cameras = self.cameras.iter();
        cameras
            .map(|c| self.answered.get(c).copied().unwrap_or(0))
            .collect()
    }
}

#[tokio::test]
async fn each_engine_answers_its_own_cameras() {
    let mut site = Site::open(5, &[ALWAYS, ALWAYS]).await;
    for _ in 0..4 {
        site.round().await;
    }
    assert_eq!(site.answered(), [4; 5]);
    let assignment = site.engines.assignment();
    let labels: Vec<&str> = assignment.values().map(String::as_str).collect();
    assert_eq!(labels, ["cuda 0", "cuda 1", "cuda 0", "cuda 1", "cuda 0"]);
    let frame_counters = site.engines.sampler().counters();
    let cameras = frame_counters.iter();
    let order: Vec<&str> = cameras.map(|(camera, _)| camera.as_str()).collect();
    assert_eq!(order, ["c0", "c1", "c2", "c3", "c4"], "as configured");
}

#[tokio::test]
async fn failed_device_stops_its_own_cameras_only() {
    let mut site = Site::open(4, &[ALWAYS, 5]).await;
    for _ in 0..10 {
        site.round().await;
    }
    let [(label, cameras, reason)] = &site.lost[..] else {
        panic!("one engine was lost: {:?}", site.lost);
    };
    assert_eq!(label, "cuda 1");
    assert_eq!(reason, "device: it fell off the bus");
    let ids: Vec<String> = cameras.iter().map(ToString::to_string).collect();
    assert_eq!(ids, ["c1", "c3"]);
    assert!(!site.engines.all_lost());
    let answered = site.answered();
    assert_eq!([answered[0], answered[2]], [10, 10], "{answered:?}");
    assert!(answered[1] + answered[3] < 20, "{answered:?}");
    let beats: Vec<bool> = site.engines.progress().map(|(_, b)| b.is_some()).collect();
    assert_eq!(beats, [true, false]);
    for (camera, frame_counters) in site.engines.sampler().counters() {
        assert!(
            frame_counters.balanced() && frame_counters.in_flight == 0,
            "{camera}: {frame_counters:?}"
        );
        let failed = frame_counters.failed > 0;
        assert!(
            !failed || cameras.contains(&camera),
            "{camera}: {frame_counters:?}"
        );
    }
    site.engines.close().await;
}

#[tokio::test]
async fn all_devices_failed_is_reported() {
    let mut site = Site::open(2, &[7, 3]).await;
    while !site.engines.all_lost() {
        site.round().await;
    }
    let labels: Vec<&str> = site.lost.iter().map(|lost| &*lost.0).collect();
    assert_eq!(labels, ["cuda 1", "cuda 0"]);
    assert_eq!(site.engines.gpus(), [""; 0]);
}
