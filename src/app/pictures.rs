//! SnapshotRequests of looks that are published: of events, and of a camera when somebody asks for one.
//!
//! Belongs here: of which look, with what drawn into it, for whom. Does not belong here: how many are made at a time
//! (`snapshots`) and how (`snapshot`).

use std::collections::{BTreeMap, HashSet};

use super::{
    snapshot::Mark,
    snapshots::{
        FinishedSnapshot, SnapshotCounters, SnapshotOrder, SnapshotPurpose, Snapshots, is_worth_one,
    },
};
use spotter_core::{CameraId, Event, Frame, Mono, PromptId, config::CameraConfig};
use spotter_mqtt::Update;

/// All cameras' pictures. Needs a tokio runtime.
pub struct SnapshotRequests {
    snapshots: Snapshots,
    prompts: BTreeMap<CameraId, Vec<SnapshotPrompt>>,
    /// Somebody wants a picture of the next look at these.
    wanted: HashSet<CameraId>,
    /// The broker keeps those of events.
    retain: bool,
}

/// A prompt of a camera, as far as pictures are concerned.
struct SnapshotPrompt {
    id: PromptId,
    words: String,
    /// Its events have pictures.
    pictured: bool,
}

impl SnapshotRequests {
    /// Of these cameras. With `retain` the broker keeps the last picture of each prompt's events.
    pub fn new(cameras: &[CameraConfig], retain: bool) -> Self {
        Self {
            snapshots: Snapshots::default(),
            prompts: cameras.iter().map(snapshot_prompts).collect(),
            wanted: HashSet::new(),
            retain,
        }
    }

    /// What became of those that were wanted.
    pub fn counters(&self) -> SnapshotCounters {
        self.snapshots.counters()
    }

    /// These are the cameras from now on, as they are now; `retain` as in [`SnapshotRequests::new`].
    pub fn change(&mut self, cameras: &[CameraConfig], retain: bool) {
        self.retain = retain;
        self.prompts = cameras.iter().map(snapshot_prompts).collect();
        let prompts = &self.prompts;
        self.snapshots
            .keep(|camera, prompt| find(prompts, camera, prompt).is_some());
        self.wanted.retain(|camera| prompts.contains_key(camera));
    }

    /// A picture of the next look at the camera is wanted, with everything that it shows.
    pub fn want(&mut self, camera: &CameraId) {
        self.wanted.insert(camera.clone());
    }

    /// Begins a picture of an event's thing, when its prompt wants one and this is the moment for it.
    pub fn event(&mut self, frame: &Frame, event: &Event, now: Mono) -> bool {
        let prompt = find(&self.prompts, &event.camera, &event.prompt);
        let Some(prompt) = prompt.filter(|prompt| prompt.pictured && is_worth_one(event.step))
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

    /// Begins a picture of a look, when somebody wants one.
    pub fn look(&mut self, frame: &Frame, marks: Vec<Mark>, now: Mono) {
        let camera = &frame.camera;
        let first = self.prompts.get(camera).and_then(|all| all.first());
        let Some(prompt) = first.filter(|_| self.wanted.remove(camera)) else {
            return;
        };
        let shot = SnapshotOrder {
            camera: camera.clone(),
            purpose: SnapshotPurpose::Asked(prompt.id.clone()),
            picture: frame.picture.clone(),
            marks,
        };
        if self.snapshots.begin(shot, now).is_err() {
            // The next look will do.
            self.wanted.insert(camera.clone());
        }
    }

    /// The next picture that is made; never ready while none is being made. Dropping the future loses nothing.
    pub async fn next(&mut self) -> FinishedSnapshot {
        self.snapshots.next().await
    }

    /// What is published of it. `None`, and the log says why, for one that could not be made; and for one of a prompt that is
    /// gone, whose topics are cleared.
    pub fn update(&self, taken: FinishedSnapshot) -> Option<Update> {
        let camera = taken.camera;
        // What somebody asked for shows no event, and is not to take the place of one.
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
        pictured: prompt.snapshot,
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
