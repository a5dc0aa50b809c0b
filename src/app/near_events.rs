//! Objects below `min_score` that would have started an event with half of it: for the history alone, where a person judges them. They are no events:
//! nothing publishes them.

use spotter_config::{CameraConfig, ConfigChange, PromptConfig};
use spotter_core::{
    Answer, CameraId, EndReason, Event, EventStep, Frame, Location, Mono, Share, WallTime,
};
use spotter_events::track::{PromptChange, TrackedAnswer, Tracker};
use spotter_history::{History, HistoryMessage};
use spotter_quality::{AnsweringModel, Series};

/// Of `min_score`: with less, the pictures of a day would be of what the model itself takes for nothing.
const SCORE_SHARE: f64 = 0.5;

/// A second tracker, which gets what the tracker of the alarms gets. It asks nothing.
pub struct NearEvents {
    tracker: Tracker,
    model: AnsweringModel,
    /// `None`: nothing is tracked.
    history: Option<History>,
}

/// A look at a prompt, after the tracker of the alarms.
pub struct AlarmLook<'a> {
    pub frame: &'a Frame,
    pub answer: &'a Answer,
    pub prompt: &'a PromptConfig,
    /// Where objects are that have an alarm.
    pub alarms: Vec<Location>,
}

impl NearEvents {
    /// `boot` identifies this run of the daemon.
    pub fn new(
        boot: &str,
        cameras: &[CameraConfig],
        model: AnsweringModel,
        history: Option<History>,
    ) -> Self {
        let mut near = Self {
            // No camera has capital letters in its name.
            tracker: Tracker::new(format!("{boot}-NEAR").into(), &[]),
            model,
            history,
        };
        for camera in cameras {
            near.configure_camera(camera, WallTime::default());
        }
        near
    }

    pub fn look(&mut self, look: &AlarmLook<'_>) {
        let AlarmLook { frame, answer, .. } = look;
        let (Some(history), Some(tracked)) = (&self.history, self.tracker.update(frame, answer))
        else {
            return;
        };
        let TrackedAnswer { body, change, .. } = tracked;
        let objects = body.objects();
        let has_alarm = |event: &Event| {
            let mut alarms = look.alarms.iter();
            event.step == EventStep::New && alarms.any(|alarm| alarm.is_same_place(&event.location))
        };
        for event in change.events.iter().filter(|event| !has_alarm(event)) {
            let series = Series::new(look.prompt, &self.model);
            history.event(&HistoryMessage {
                event,
                words: look.prompt.task.text(),
                series: series.as_str(),
                frame: Some(frame),
                objects,
                is_near: true,
            });
        }
        history.looks(objects);
    }

    /// An alarm starts: its object is no near one any more.
    pub fn alarm_started(&self, alarm: &Event) {
        let Some(history) = &self.history else {
            return;
        };
        let is_of_prompt =
            |event: &&Event| (&event.camera, &event.prompt) == (&alarm.camera, &alarm.prompt);
        let open = self.tracker.open_events().filter(is_of_prompt);
        for event in open.filter(|event| event.location.is_same_place(&alarm.location)) {
            history.withdraw(&event.track);
        }
    }

    pub fn configure(&mut self, change: &ConfigChange, wall: WallTime) {
        for removed in change.removed() {
            let ended = self.tracker.remove(removed, EndReason::Disabled, wall);
            self.store_ends(ended);
        }
        for camera in change.configured() {
            self.configure_camera(camera, wall);
        }
    }

    fn configure_camera(&mut self, camera: &CameraConfig, wall: WallTime) {
        if self.history.is_some() {
            let ended = self.tracker.configure(&near_camera(camera), wall);
            self.store_ends(ended);
        }
    }

    /// As the tracker of the alarms: its answers are ignored until it is resumed.
    pub fn suspend(&mut self, camera: &CameraId, reason: EndReason, wall: WallTime) {
        let ended = self.tracker.suspend(camera, reason, wall);
        self.store_ends(ended);
    }

    pub fn resume(&mut self, camera: &CameraId) {
        self.tracker.resume(camera);
    }

    pub fn lose(&mut self, camera: &CameraId, reason: EndReason, wall: WallTime) {
        let ended = self.tracker.lose(camera, reason, wall);
        self.store_ends(ended);
    }

    pub fn tick(&mut self, now: Mono, wall: WallTime) {
        let ended = self.tracker.tick(now, wall);
        self.store_ends(ended);
    }

    pub fn shutdown(&mut self, wall: WallTime) {
        let ended = self.tracker.shutdown(wall);
        self.store(ended);
    }

    fn store_ends(&self, changes: Vec<PromptChange>) {
        self.store(changes.into_iter().flat_map(|change| change.events));
    }

    /// Messages of events that the history knows, or has none of.
    fn store(&self, events: impl IntoIterator<Item = Event>) {
        let Some(history) = &self.history else {
            return;
        };
        for event in events {
            history.event(&HistoryMessage {
                event: &event,
                words: "",
                series: "",
                frame: None,
                objects: &[],
                is_near: true,
            });
        }
    }
}

/// The camera with those prompts that have objects below `min_score`. `verify` is not asked: an object has its place in the queue without it.
fn near_camera(camera: &CameraConfig) -> CameraConfig {
    let mut near = camera.clone();
    near.prompts
        .retain(|prompt| prompt.task.shape().has_objects() && prompt.min_score.get() > 0.0);
    for prompt in &mut near.prompts {
        prompt.min_score = Share::nearest(prompt.min_score.get() * SCORE_SHARE);
        (prompt.verify, prompt.describe) = (None, None);
        prompt.lines.clear();
        prompt.dwell.clear();
    }
    near
}
