//! A camera that visitors come to, one after the other, and a history of it.

use std::{sync::Arc, time::Duration};

use spotter_config::{CameraConfig, HistoryConfig};
use spotter_core::{
    AnswerBody, CameraId, Clock, Event, FoundObject, ManualClock, Mono, NormBox, Prompt,
    ScoreSource, WallTime,
    testing::{answer_to, frame_at},
};
use spotter_events::track::Tracker;
use spotter_history::History;
use spotter_state::StateStore;
use tempfile::TempDir;

/// From the begin of a visit to that of the next one.
pub const VISIT: Duration = Duration::from_mins(30);
/// Looks that see a visitor, one a second.
pub const LOOKS: usize = 10;
const LOOKS_OF_NOTHING: usize = 15;

pub struct CameraVisitor {
    pub place: NormBox,
    /// Of each look.
    pub scores: [f64; LOOKS],
}

/// When these visitors have been there.
pub fn after(visitors: usize, camera: &CameraId) -> WallTime {
    let frame = frame_at(camera, VISIT * visitors as u32);
    frame.times.received_wall
}

/// The events of the camera's first prompt when these visitors come.
pub fn run(tracker: &mut Tracker, camera: &CameraConfig, visitors: &[CameraVisitor]) -> Vec<Event> {
    let prompt = &camera.prompts[0];
    let asked = Arc::new(Prompt {
        view: camera.view_of(prompt),
        ..Prompt::new(prompt.id.clone(), 1, prompt.task.clone())
    });
    let mut events = Vec::new();
    for (number, visitor) in (0..).zip(visitors) {
        for second in 0..LOOKS + LOOKS_OF_NOTHING {
            let found = visitor.scores.get(second).map(|score| FoundObject {
                place: visitor.place,
                score: *score,
                source: ScoreSource::TokenProb,
                sharpness: 0.5,
            });
            let body = AnswerBody::Boxes(Vec::from_iter(found));
            let at = VISIT * number + Duration::from_secs(second as u64);
            let frame = frame_at(&camera.id, at);
            let tracked = tracker.update(&frame, &answer_to(&asked, body)).unwrap();
            events.extend(tracked.change.events);
        }
    }
    events
}

/// A history that keeps a week.
pub fn week_of_history(folder: &TempDir, now: WallTime) -> History {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(now));
    let store = StateStore::open(folder.path(), Arc::clone(&clock)).unwrap();
    let config = HistoryConfig {
        near: 0,
        keep: Duration::from_hours(24 * 7),
        size: 1 << 30,
        judged: 1 << 30,
    };
    History::start(&store, &config, |_| Ok(vec![0]), clock).unwrap()
}

/// Each question takes it so long.
pub struct SlowClock(pub ManualClock, pub Duration);

impl Clock for SlowClock {
    fn now(&self) -> Mono {
        self.0.advance(self.1);
        self.0.now()
    }

    fn wall(&self) -> WallTime {
        self.0.wall()
    }
}
