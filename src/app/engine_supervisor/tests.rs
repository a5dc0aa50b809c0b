//! Several engines on simulated devices, of which some break.
//!
//! Faults: C55, D10, D11.

use std::{collections::BTreeMap, future::pending};

use tokio::time::timeout;

use super::*;
use crate::app::testing::{fragile_engines, frame};
use spotter_core::{CameraId, LookFailure, ManualClock, Outcome, testing::rate};
use spotter_engine::model::ModelConfig;

const PATIENCE: Duration = Duration::from_secs(60);
const ALWAYS: usize = usize::MAX;

fn camera(index: usize, rate_hz: f64) -> CameraConfig {
    let mut prompt = spotter_config::testing::prompt("person");
    prompt.rate = rate(rate_hz);
    let camera = spotter_config::testing::camera(&format!("c{index}"), vec![prompt]);
    CameraConfig {
        rate: rate(rate_hz),
        ..camera
    }
}

/// Cameras c0 … on engines that break after the given numbers of steps.
struct Site {
    clock: ManualClock,
    cameras: Vec<CameraId>,
    engines: EngineSupervisor,
    frames: u64,
    answered: BTreeMap<CameraId, u64>,
    lost: Vec<EngineLoss>,
    /// Looks that failed with their engine.
    failed: u64,
}

impl Site {
    async fn open(cameras: usize, steps: &[usize]) -> Self {
        let clock = ManualClock::default();
        clock.advance(PATIENCE);
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let cameras: Vec<CameraConfig> = (0..cameras).map(|index| camera(index, 1.0)).collect();
        let sampler = Sampler::new(&cameras, Arc::clone(&shared));
        let slots = fragile_engines(steps, &sampler, &shared).await;
        let parts = EngineParts {
            adapter_slots: 0,
            sampler,
            readiness: Readiness::new(Arc::clone(&shared)),
            clock: shared,
            open_engines: Arc::new(|_| Box::pin(pending())),
            costs: CostBasis::new(ModelConfig::default(), None, 1, 2),
            requests: Arc::default(),
        };
        let engines = EngineSupervisor::start(parts, slots, &cameras);
        Self {
            clock,
            cameras: cameras.iter().map(|camera| camera.id.clone()).collect(),
            engines,
            frames: 0,
            answered: BTreeMap::new(),
            lost: Vec::new(),
            failed: 0,
        }
    }

    /// A frame of every camera; then events until each of them is answered or failed with its engine.
    async fn round(&mut self) {
        self.deliver();
        self.end_looks().await;
    }

    async fn end_looks(&mut self) {
        let mut open = self.cameras.clone();
        while !open.is_empty() {
            let notices = timeout(PATIENCE, self.engines.next()).await.unwrap();
            for notice in notices {
                match notice {
                    StageNotice::Looks(news) => {
                        let ended = self.ended(news);
                        open.retain(|camera| !ended.contains(camera));
                    }
                    StageNotice::EngineLost(loss) => self.lost.push(loss),
                    _ => {}
                }
            }
        }
    }

    fn deliver(&mut self) {
        self.clock.advance(Duration::from_secs(2));
        self.frames += 1;
        for camera in &self.cameras {
            let frame = frame(camera, self.frames, self.clock.now());
            self.engines.sampler().camera_sink(camera).unwrap()(frame);
        }
    }

    /// The cameras whose looks ended.
    fn ended(&mut self, news: Vec<LookNews>) -> Vec<CameraId> {
        let mut ended = Vec::new();
        for news in news {
            ended.push(match news {
                LookNews::Ended(Outcome::Answered(frame)) => {
                    assert_eq!(frame.number, self.frames);
                    *self.answered.entry(frame.camera.clone()).or_default() += 1;
                    frame.camera
                }
                LookNews::Ended(Outcome::Failed(look, LookFailure::EngineStopped)) => {
                    self.failed += 1;
                    look.frame.camera
                }
                LookNews::Ended(other) => panic!("an engine that runs answers: {other:?}"),
                _ => continue,
            });
        }
        ended
    }

    /// The engine of each camera.
    fn labels(&self) -> Vec<String> {
        self.engines.assignment().into_values().collect()
    }

    fn answered(&self) -> Vec<u64> {
        let cameras = self.cameras.iter();
        cameras
            .map(|c| self.answered.get(c).copied().unwrap_or(0))
            .collect()
    }
}

#[tokio::test]
async fn failed_device_gives_its_cameras_to_the_other() {
    let mut site = Site::open(4, &[ALWAYS, 5]).await;
    for _ in 0..10 {
        site.round().await;
    }
    let [loss] = &site.lost[..] else {
        panic!("one engine is lost");
    };
    assert!(!loss.is_last);
    assert_eq!(loss.reason, "engine on cuda 1: device: it fell off the bus");
    let ids: Vec<String> = loss.cameras.iter().map(ToString::to_string).collect();
    assert_eq!(ids, ["c0", "c3"]);
    assert_eq!(site.labels(), ["cuda 0"; 4]);
    // Only the looks in flight at the loss are missing.
    let answered = site.answered();
    assert_eq!([answered[1], answered[2]], [10, 10], "{answered:?}");
    assert!(answered[0] >= 9 && answered[3] >= 9, "{answered:?}");
    assert_eq!(site.engines.running().count, 1);
    for (camera, frame_counters) in site.engines.sampler().counters() {
        assert!(
            frame_counters.balanced() && frame_counters.in_flight == 0,
            "{camera}: {frame_counters:?}"
        );
    }
    site.engines.close(false).await;
}

#[tokio::test]
async fn cameras_return_with_looks_in_flight_elsewhere() {
    let mut site = Site::open(6, &[ALWAYS, 3]).await;
    let before = site.labels();
    while site.lost.is_empty() {
        site.round().await;
    }
    assert_eq!(site.labels(), ["cuda 0"; 6]);
    // Looks on the engine that has them now.
    site.deliver();
    let shared: Arc<dyn Clock> = Arc::new(site.clock.clone());
    let mut slots = fragile_engines(&[ALWAYS, ALWAYS], site.engines.sampler(), &shared).await;
    slots.remove(0);
    let card = crate::app::testing::card();
    site.engines.opened(1, Ok(OpenedEngines { slots, card }));
    assert_eq!(site.labels(), before);
    site.end_looks().await;
    let answered = site.answered();
    site.round().await;
    let after: Vec<u64> = answered.iter().map(|count| count + 1).collect();
    assert_eq!(site.answered(), after);
}

#[tokio::test]
async fn settings_move_no_camera_and_another_list_is_dealt() {
    let mut site = Site::open(4, &[ALWAYS, ALWAYS]).await;
    let before = site.labels();
    let mut cameras: Vec<_> = (0..4).map(|index| camera(index, 1.0)).collect();
    let mut change = |cameras: &[CameraConfig], was: &[CameraConfig]| {
        site.engines.change(&ConfigChange::between(was, cameras));
        site.labels()
    };
    let was = cameras.clone();
    cameras[0].prompts[0].revision += 1;
    assert_eq!(change(&cameras, &was), before);
    // All cameras of an engine are removed.
    let mut labels = before.iter();
    let was = cameras.clone();
    cameras.retain(|_| labels.next().is_some_and(|label| label == "cuda 0"));
    let after = change(&cameras, &was);
    assert!(
        ["cuda 0", "cuda 1"]
            .iter()
            .all(|label| after.iter().any(|has| has == label)),
        "{after:?}"
    );
}
