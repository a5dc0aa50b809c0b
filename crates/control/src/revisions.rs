//! Revisions: a number for each prompt that rises with each change of its text, so that an answer names the text it is for.

use std::{collections::BTreeMap, num::NonZeroU32};

use serde::{Deserialize, Serialize};

use spotter_config::CameraConfig;
use spotter_core::{CameraId, PromptId, Task};

/// Removed prompts keep their number, because a prompt of the same name may be added while answers to the old text are in
/// flight. Beyond this number they are forgotten.
const REMOVED_MAX: usize = 1000;

#[derive(Clone, Debug, Default)]
pub struct Revisions(BTreeMap<(CameraId, PromptId), (Task, NonZeroU32)>);

/// A revision as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevisionRecord {
    camera: CameraId,
    prompt: PromptId,
    task: Task,
    revision: NonZeroU32,
}

impl Revisions {
    /// Continues with the numbers of an earlier run.
    pub fn from_records(records: Vec<RevisionRecord>) -> Self {
        let entry = |k: RevisionRecord| ((k.camera, k.prompt), (k.task, k.revision));
        Self(records.into_iter().map(entry).collect())
    }

    /// The numbers above 1 of one camera's prompts; `None` = of all.
    pub fn records(&self, of: Option<&CameraId>) -> Vec<RevisionRecord> {
        let changed = self.0.iter().filter(|((camera, _), (_, revision))| {
            *revision > NonZeroU32::MIN && of.is_none_or(|of| of == camera)
        });
        let records = changed.map(|((camera, prompt), (task, revision))| RevisionRecord {
            camera: camera.clone(),
            prompt: prompt.clone(),
            task: task.clone(),
            revision: *revision,
        });
        records.collect()
    }

    /// Takes over the numbers of one camera's prompts.
    pub fn replace_camera(&mut self, camera: &CameraId, records: Vec<RevisionRecord>) {
        let records = records
            .into_iter()
            .filter(|record| record.camera == *camera);
        self.0.extend(Self::from_records(records.collect()).0);
    }

    /// Sets the revision of every prompt.
    pub fn number(&mut self, cameras: &mut [CameraConfig]) {
        for camera in &mut *cameras {
            for prompt in &mut camera.prompts {
                let key = (camera.id.clone(), prompt.id.clone());
                let first = || (prompt.task.clone(), NonZeroU32::MIN);
                let (task, revision) = self.0.entry(key).or_insert_with(first);
                if *task != prompt.task {
                    task.clone_from(&prompt.task);
                    *revision = revision.saturating_add(1);
                }
                prompt.revision = revision.get();
            }
        }
        let here: usize = cameras.iter().map(|camera| camera.prompts.len()).sum();
        if self.0.len() > here + REMOVED_MAX {
            self.0.retain(|(camera, prompt), _| {
                let of = cameras.iter().find(|known| known.id == *camera);
                of.is_some_and(|camera| camera.prompts.iter().any(|known| known.id == *prompt))
            });
        }
    }
}
