//! A device that breaks, one after the other; and a broker that rejects the login.
//!
//! Faults: C55.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
};

use tokio::sync::watch;

use super::*;
use spotter_engine::{
    open::ModelDevice, scheduler::backend::BackendError, testing::simulated::FaultyDevice,
};

const BROKEN: &str = "device: it fell off the bus";

/// Two engines on devices that can be broken.
#[derive(Clone)]
struct TwoEngines {
    scene: Scene,
    is_broken: [Arc<AtomicBool>; 2],
    /// The first one may be opened again.
    allowed: watch::Receiver<bool>,
}

impl TwoEngines {
    async fn open(mut self, plan: EnginePlan) -> anyhow::Result<OpenedEngines> {
        let mut slots = Vec::new();
        let count = match plan.only {
            Some(_) => 1,
            None => 2,
        };
        if count == 1 {
            self.allowed.wait_for(|allowed| *allowed).await?;
        }
        for (index, is_broken) in self.is_broken.into_iter().enumerate().take(count) {
            let fault = move |_| {
                let is_broken = is_broken.load(Ordering::Relaxed);
                is_broken.then(|| BackendError::Device("it fell off the bus".into()))
            };
            let scene = self.scene.clone();
            let device = || FaultyDevice::new(Box::new(SceneDevice::new(scene)), fault);
            let mut slot = slot(&plan, &format!("cuda {index}"), device).await?;
            slot.device = Some(ModelDevice::Cpu("simulated".into()));
            slots.push(slot);
        }
        let card = testing::card();
        Ok(OpenedEngines { slots, card })
    }
}

/// The cameras whose looks each of two engines ended in the last seconds.
pub(super) fn looked_at(testbed: &Testbed) -> [BTreeSet<String>; 2] {
    let status = testbed.status();
    [0, 1].map(|index| {
        let bars = status["engines"][index]["bars"].as_array().cloned();
        let cameras = bars.unwrap_or_default().into_iter();
        let cameras = cameras.map(|bar| bar["camera"].as_str().unwrap().to_owned());
        cameras.collect()
    })
}

// Faults: D10.
#[test]
fn cameras_of_lost_engine_move_and_return_until_last_fails() {
    let test =
        "app::daemon::testbed::engines::cameras_of_lost_engine_move_and_return_until_last_fails";
    alone_with_errors(test, &[BROKEN], cameras_move());
}

async fn cameras_move() {
    let (_servers, testbed) = testbed_with_good_cameras().await;
    let (allow, allowed) = watch::channel(false);
    let two = TwoEngines {
        scene: testbed.scene.clone(),
        is_broken: Default::default(),
        allowed,
    };
    let broken = two.is_broken.clone();
    let engines: Arc<OpenEngines> = Arc::new(move |plan| Box::pin(two.clone().open(plan)));
    let looked_at = || looked_at(&testbed);
    let scenario = async {
        host::all_see(&testbed).await;
        let count = |cameras: BTreeSet<String>| cameras.len();
        until("each has two", || looked_at().map(count) == [2, 2]).await;
        let before = looked_at();
        let mut received = ReceivedJson::default();
        broken[0].store(true, Ordering::Relaxed);
        let is_end = |event: &Value| event["reason"] == "engine_lost";
        for camera in &before[0] {
            let topic = format!("cam/{camera}/event/thing");
            received.one(&testbed, &topic, is_end).await;
        }
        let all = CAMERAS.map(str::to_owned).into();
        let moved = [BTreeSet::new(), all];
        until("one engine has all cameras", || looked_at() == moved).await;
        until("all see it again", || host::all_present(&testbed)).await;
        let trouble = format!("engine on cuda 0: {BROKEN}; opened again automatically");
        assert!(testbed.health_says(&trouble));
        broken[0].store(false, Ordering::Relaxed);
        allow.send_replace(true);
        until("the cameras return", || looked_at() == before).await;
        assert!(!testbed.health_says("engine on"));
        received.receive(&testbed);
        let mut numbers = BTreeMap::<&str, Vec<u64>>::new();
        for (topic, json) in &received.0 {
            if topic.contains("/det/") {
                let number = json["seq"].as_u64().unwrap();
                numbers.entry(topic).or_default().push(number);
            }
        }
        for (topic, numbers) in numbers {
            assert!(numbers.is_sorted_by(|a, b| a < b), "{topic}: {numbers:?}");
        }
        broken[1].store(true, Ordering::Relaxed);
        until("the other one is lost", || looked_at()[1].is_empty()).await;
        broken[0].store(true, Ordering::Relaxed);
    };
    let run = testbed.run(machine_clock(), engines);
    let (ended, ()) = tokio::join!(timeout(3 * PATIENCE, run), scenario);
    let why = ended.expect("it ends").unwrap_err().to_string();
    assert_eq!(why, format!("engine on cuda 0: {BROKEN}"));
}

// Faults: B23.
#[test]
fn reload_connects_at_once_to_a_broker_that_rejected_before() {
    let test =
        "app::daemon::testbed::engines::reload_connects_at_once_to_a_broker_that_rejected_before";
    alone_with_errors(test, &["broker rejected the connection"], connects_again());
}

async fn connects_again() {
    let (_servers, testbed) = testbed_with_good_cameras().await;
    let answer = |connack| testbed.broker.script(|script| script.connack = connack);
    let until_state = async |expected: &str| {
        let is_so = || {
            let status = testbed.status();
            let state = status["broker"]["state"].as_str();
            state.is_some_and(|state| state.starts_with(expected))
        };
        until(expected, is_so).await;
    };
    const BAD_LOGIN: u8 = 0x86;
    answer(BAD_LOGIN);
    let scenario = async {
        // The same file, and another one.
        for rate in ["rate = 5", "rate = 4"] {
            until_state("connection rejected").await;
            answer(0);
            testbed.reload(&testbed.text().replace("rate = 5", rate));
            // Its own retry comes after five minutes.
            until_state("online").await;
            answer(BAD_LOGIN);
            testbed.broker.cut();
        }
        signal("-TERM");
    };
    let (report, ()) = testbed.run_while(machine_clock(), scenario).await;
    assert!(report.balanced(), "{report}");
}
