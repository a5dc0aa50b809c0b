//! Which looks become snapshots: those that begin or improve an event, and the next look of a camera after the command
//! `snapshot`. `snapshots` limits how many are encoded, `snapshot` draws and encodes.

use std::collections::{BTreeMap, HashSet};

use super::{
    snapshot::Mark,
    snapshots::{
        FinishedSnapshot, SnapshotCounters, SnapshotOrder, SnapshotPurpose, Snapshots, is_worth_one,
    },
};
use spotter_core::{CameraId, Event, Frame, Mono, PromptId, config::CameraConfig};
use spotter_mqtt::Update;

/// Snapshot orders of all cameras. Needs a tokio runtime.
pub struct SnapshotRequests {
    snapshots: Snapshots,
    prompts: BTreeMap<CameraId, Vec<SnapshotPrompt>>,
    /// Cameras whose next look is wanted by a command.
    wanted: HashSet<CameraId>,
    /// Snapshots of events are published as retained.
    retain: bool,
}

struct SnapshotPrompt {
    id: PromptId,
    words: String,
    has_snapshots: bool,
}

impl SnapshotRequests {
    /// `retain`: the broker keeps the last snapshot of each prompt's events.
    pub fn new(cameras: &[CameraConfig], retain: bool) -> Self {
        Self {
            snapshots: Snapshots::default(),
            prompts: cameras.iter().map(snapshot_prompts).collect(),
            wanted: HashSet::new(),
            retain,
        }
    }

    pub fn counters(&self) -> SnapshotCounters {
        self.snapshots.counters()
    }

    /// Applies a new configuration; orders of removed prompts are dropped.
    pub fn change(&mut self, cameras: &[CameraConfig], retain: bool) {
        self.retain = retain;
        self.prompts = cameras.iter().map(snapshot_prompts).collect();
        let prompts = &self.prompts;
        self.snapshots
            .keep(|camera, prompt| find(prompts, camera, prompt).is_some());
        self.wanted.retain(|camera| prompts.contains_key(camera));
    }

    /// Requests a snapshot of the camera's next look with all its objects.
    pub fn request(&mut self, camera: &CameraId) {
        self.wanted.insert(camera.clone());
    }

    /// Orders a snapshot of an event's object if its prompt has snapshots and the step is worth one. True if it was ordered.
    pub fn event(&mut self, frame: &Frame, event: &Event, now: Mono) -> bool {
        let prompt = find(&self.prompts, &event.camera, &event.prompt);
        let Some(prompt) = prompt.filter(|prompt| prompt.has_snapshots && is_worth_one(event.step))
        else {
            return false;
        };
        let shot = SnapshotOrder {
            camera: event.camera.clone(),
            purpose: SnapshotPurpose::Event(prompt.id.clone()),
            picture: frame.picture.clone(),
            marks: vec![Mark::of(event.location, &prompt.words, event.score)],
        };
        self.snapshots.begin(shot, now).is_ok()
    }

    /// Orders a snapshot of a look that a command waits for.
    pub fn look(&mut self, frame: &Frame, marks: Vec<Mark>, now: Mono) {
        let camera = &frame.camera;
        let first = self.prompts.get(camera).and_then(|all| all.first());
        let Some(prompt) = first.filter(|_| self.wanted.remove(camera)) else {
            return;
        };
        let shot = SnapshotOrder {
            camera: camera.clone(),
            purpose: SnapshotPurpose::Command(prompt.id.clone()),
            picture: frame.picture.clone(),
            marks,
        };
        if self.snapshots.begin(shot, now).is_err() {
            // The next look is used instead.
            self.wanted.insert(camera.clone());
        }
    }

    /// The next finished snapshot; pending while none is encoded. Cancel safe.
    pub async fn next(&mut self) -> FinishedSnapshot {
        self.snapshots.next().await
    }

    /// The message of a snapshot. `None` if the encoding failed, which is logged, or if the prompt was removed meanwhile.
    pub fn update(&self, taken: FinishedSnapshot) -> Option<Update> {
        let camera = taken.camera;
        // A command's snapshot shows no event and must not replace the retained one of an event.
        let retain = self.retain && matches!(taken.purpose, SnapshotPurpose::Event(_));
        let prompt = taken.purpose.prompt().clone();
        find(&self.prompts, &camera, &prompt)?;
        match taken.jpeg {
            Ok(jpeg) => Some(Update::Snapshot {
                camera,
                prompt,
                jpeg: jpeg.into(),
                retain,
            }),
            Err(error) => {
                tracing::warn!(%camera, %prompt, "no snapshot: {error}");
                None
            }
        }
    }
}

fn snapshot_prompts(camera: &CameraConfig) -> (CameraId, Vec<SnapshotPrompt>) {
    let prompts = camera.prompts.iter().map(|prompt| SnapshotPrompt {
        id: prompt.id.clone(),
        words: prompt.task.text().to_owned(),
        has_snapshots: prompt.snapshot,
    });
    (camera.id.clone(), prompts.collect())
}

fn find<'a>(
    prompts: &'a BTreeMap<CameraId, Vec<SnapshotPrompt>>,
    camera: &CameraId,
    id: &PromptId,
) -> Option<&'a SnapshotPrompt> {
    prompts.get(camera)?.iter().find(|prompt| prompt.id == *id)
}
