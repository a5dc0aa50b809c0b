//! What happens with news of looks: answers reach the tracker as in the daemon, and what became of each look is recorded.

use std::collections::BTreeMap;

use spotter_config::CameraConfig;
use spotter_core::{Answer, CameraId, Frame, Look, LookNews, Mono, Outcome};
use spotter_events::track::Tracker;

/// How a look ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookEnd {
    /// All its short answers were published.
    Answered,
    Late,
}

/// A look that was begun.
#[derive(Clone, Copy, Debug)]
pub struct LookRecord {
    pub camera: usize,
    pub received: Mono,
    pub ended: Mono,
    pub end: LookEnd,
    /// Of a late look, what its answer would have had.
    pub has_objects: bool,
}

/// A free text that was published.
#[derive(Clone, Copy, Debug)]
pub struct TextRecord {
    pub received: Mono,
    pub ended: Mono,
}

pub struct LookLog {
    pub records: Vec<LookRecord>,
    pub texts: Vec<TextRecord>,
    tracker: Tracker,
    cameras: Vec<CameraId>,
    /// Looks with published answers that are not recorded yet, by camera and frame: whether they have objects.
    open: BTreeMap<(CameraId, u64), bool>,
}

impl LookLog {
    pub fn new(cameras: &[CameraConfig]) -> Self {
        Self {
            records: Vec::new(),
            texts: Vec::new(),
            tracker: Tracker::new("capacity".into(), cameras),
            cameras: cameras.iter().map(|camera| camera.id.clone()).collect(),
            open: BTreeMap::new(),
        }
    }

    pub fn cameras(&self) -> &[CameraId] {
        &self.cameras
    }

    /// News of a look at `now`. `would_find`: whether a look that came too late has objects.
    pub fn add(&mut self, news: LookNews, now: Mono, would_find: impl FnOnce(&Look) -> bool) {
        let key = |frame: &Frame| (frame.camera.clone(), frame.number);
        match news {
            LookNews::Answer { frame, answer, .. } => {
                self.tracker.update(&frame, &answer);
                match answer.prompt.task.is_free_text() {
                    true => self.texts.push(TextRecord {
                        received: frame.times.received,
                        ended: now,
                    }),
                    false => {
                        *self.open.entry(key(&frame)).or_default() |= has_objects(&answer);
                    }
                }
            }
            LookNews::ShortAnswered(frame) => {
                let has_objects = self.open.remove(&key(&frame)).unwrap_or_default();
                self.record(&frame, now, LookEnd::Answered, has_objects);
            }
            LookNews::Piece { .. } | LookNews::Ended(Outcome::Answered(_)) => {}
            LookNews::Ended(Outcome::Late(look) | Outcome::Failed(look, _)) => {
                self.tracker.unanswered(&look.frame, &look.prompts);
                let had_objects = self.open.remove(&key(&look.frame)).unwrap_or_default();
                let has_objects = had_objects || would_find(&look);
                self.record(&look.frame, now, LookEnd::Late, has_objects);
            }
        }
    }

    fn record(&mut self, frame: &Frame, ended: Mono, end: LookEnd, has_objects: bool) {
        let camera = self.cameras.iter().position(|id| *id == frame.camera);
        self.records.push(LookRecord {
            camera: camera.unwrap_or_default(),
            received: frame.times.received,
            ended,
            end,
            has_objects,
        });
    }
}

pub fn has_objects(answer: &Answer) -> bool {
    answer.body.count() > Some(0)
}
