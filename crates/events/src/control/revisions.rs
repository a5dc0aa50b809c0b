//! Which words of a prompt an answer belongs to: a number that rises with each change of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use spotter_core::{CameraId, PromptId, Task, config::CameraConfig};

/// Prompts that are gone are remembered, so that their number goes on when they come back while answers to the old words may
/// still be under way. Beyond so many they are forgotten.
const GONE_MAX: usize = 1000;

/// The numbers of all prompts.
#[derive(Clone, Debug, Default)]
pub struct Revisions(BTreeMap<(CameraId, PromptId), (Task, u32)>);

/// What is kept of a number over a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    camera: CameraId,
    prompt: PromptId,
    task: Task,
    revision: u32,
}

impl Revisions {
    /// Goes on where an earlier run stood.
    pub fn from_kept(kept: Vec<Kept>) -> Self {
        let entry = |k: Kept| ((k.camera, k.prompt), (k.task, k.revision));
        Self(kept.into_iter().map(entry).collect())
    }

    /// The numbers above the first, to be kept.
    pub fn kept(&self) -> Vec<Kept> {
        let changed = self.0.iter().filter(|(_, (_, revision))| *revision > 1);
        changed
            .map(|((camera, prompt), (task, revision))| Kept {
                camera: camera.clone(),
                prompt: prompt.clone(),
                task: task.clone(),
                revision: *revision,
            })
            .collect()
    }

    /// Numbers the prompts of the cameras as they are now.
    pub fn number(&mut self, cameras: &mut [CameraConfig]) {
        for camera in &mut *cameras {
            for prompt in &mut camera.prompts {
                let key = (camera.id.clone(), prompt.id.clone());
                let first = || (prompt.task.clone(), 1);
                let (task, revision) = self.0.entry(key).or_insert_with(first);
                if *task != prompt.task {
                    task.clone_from(&prompt.task);
                    *revision = revision.saturating_add(1);
                }
                prompt.revision = *revision;
            }
        }
        let here: usize = cameras.iter().map(|camera| camera.prompts.len()).sum();
        if self.0.len() > here + GONE_MAX {
            self.0.retain(|(camera, prompt), _| {
                let of = cameras.iter().find(|known| known.id == *camera);
                of.is_some_and(|camera| camera.prompts.iter().any(|known| known.id == *prompt))
            });
        }
    }
}
