//! What docs/page.md says about the time of a preview.
//!
//! `cargo test --release -p spotter-review measurement -- --ignored --nocapture`

use std::{sync::Arc, time::Duration};

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg32;
use spotter_config::testing;
use spotter_core::{
    AnswerBody, FoundObject, ManualClock, NormBox, Prompt, ScoreSource, WallTime,
    testing::{answer_to, frame_at},
};
use spotter_events::track::Tracker;
use spotter_history::HistoryMessage;

use super::*;
use crate::testing::week_of_history;

const LOOKS_A_SECOND: u64 = 4;
const AWAY: u64 = 60 * LOOKS_A_SECOND;

/// Things that stay and tremble by a step of the model in one of so many looks.
struct StayingThings {
    things: u32,
    moves_each: u64,
    /// Looks, after which they are away for a while: the next record has events again.
    stay: u64,
    random: Pcg32,
    found: Vec<FoundObject<NormBox>>,
}

impl StayingThings {
    fn look(&mut self, look: u64) -> Vec<FoundObject<NormBox>> {
        if look % (self.stay + AWAY) >= self.stay {
            return Vec::new();
        }
        if look.is_multiple_of(self.moves_each) || self.found.is_empty() {
            let random = &mut self.random;
            let mut thing = |number: u32| {
                let step: f64 = random.random_range(-1..=1).into();
                let x = f64::from(number + 1) / f64::from(self.things + 1) + step / 1024.0;
                FoundObject {
                    place: NormBox::from_centre(x, 0.6, 0.4 / f64::from(self.things), 0.2),
                    score: random.random_range(0.6..0.9),
                    source: ScoreSource::Calibrated,
                    sharpness: 0.5,
                }
            };
            self.found = (0..self.things).map(&mut thing).collect();
        }
        self.found.clone()
    }
}

/// Of this thread: other programs may run meanwhile.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanos = text.split_once(' ').unwrap().0;
    Duration::from_nanos(nanos.parse().unwrap())
}

/// Records of two stays, and the time of the preview, which no clock ends.
fn measure(things: u32, moves_each: u64, stay: u64) {
    let camera = testing::camera("gate", vec![testing::prompt("car")]);
    let folder = tempfile::tempdir().unwrap();
    let prompt = &camera.prompts[0];
    let asked = Arc::new(Prompt {
        view: camera.view_of(prompt),
        ..Prompt::new(prompt.id.clone(), 1, prompt.task.clone())
    });
    let mut tracker = Tracker::recording("b7c1".into(), std::slice::from_ref(&camera));
    let mut staying = StayingThings {
        things,
        moves_each,
        stay,
        random: Pcg32::seed_from_u64(1),
        found: Vec::new(),
    };
    let at = |look: u64| {
        frame_at(
            &camera.id,
            Duration::from_millis(1000 / LOOKS_A_SECOND * look),
        )
    };
    let history = week_of_history(&folder, WallTime::default());
    let (mut looks, mut bytes) = (0, 0);
    while looks < 2 * (stay + AWAY) {
        let found = AnswerBody::Boxes(staying.look(looks));
        let tracked = tracker
            .update(&at(looks), &answer_to(&asked, found))
            .unwrap();
        for event in &tracked.change.events {
            history.event(&HistoryMessage {
                is_near: false,
                event,
                words: "car",
                series: "",
                frame: None,
                objects: &[],
            });
        }
        let chunks = tracker.take_records();
        let more: usize = chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        (bytes, looks) = (bytes + more, looks + 1);
        history.records(chunks);
    }
    std::thread::sleep(Duration::from_secs(3));
    let keys =
        "zone.left.polygon = [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]\nprompt.car.zones = ['left']";
    let shapes = CameraShapes(keys.parse().unwrap());
    let clock = ManualClock::at(at(looks).times.received_wall);
    let start = cpu_time();
    let shown = preview(history.reader(), &camera, &shapes, &clock).unwrap();
    let time = cpu_time() - start;
    println!(
        "{things} things, moving each {moves_each}: {looks} looks, {bytes} bytes, {time:?}, {} us a look: {shown:?}",
        time.as_micros() / u128::from(looks)
    );
    assert_eq!(history.status().records_dropped, 0);
}

#[test]
#[ignore = "a measurement"]
fn time_of_the_longest_preview() {
    for (things, moves_each, stay) in [(1, 1, 11_000), (5, 1, 2500), (20, 1, 600), (20, 50, 10_000)]
    {
        measure(things, moves_each, stay);
    }
}
