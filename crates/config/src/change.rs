//! What differs between two sets of cameras. It is made once for a change, and every stage gets it instead of the cameras.

use std::collections::BTreeMap;

use super::tables::camera::CameraConfig;
use spotter_core::{CameraId, LookRate, Share};

/// The cameras that are different now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigChange(BTreeMap<CameraId, CameraChange>);

/// What is different at a camera; each kind includes those below it.
#[derive(Clone, Debug, PartialEq)]
pub enum CameraChange {
    Added(CameraConfig),
    Removed,
    /// Its pictures come from elsewhere, or are decoded in another way.
    Source(CameraConfig),
    /// Its prompts, zones, lines or triggers are others, or mean something else.
    Prompts(CameraConfig),
    /// Values alone that a command may change, but for the words of prompts; or whether their adapters can be used.
    Settings(CameraConfig),
}

impl CameraChange {
    /// As it is now; `None`: it is not there any more.
    pub fn camera(&self) -> Option<&CameraConfig> {
        match self {
            Self::Added(camera)
            | Self::Source(camera)
            | Self::Prompts(camera)
            | Self::Settings(camera) => Some(camera),
            Self::Removed => None,
        }
    }

    fn between(before: &CameraConfig, after: &CameraConfig) -> Option<Self> {
        if before == after {
            return None;
        }
        let kind = if !is_same_stream(before, after) {
            Self::Source
        } else if without_settings(before) != without_settings(after) {
            Self::Prompts
        } else {
            Self::Settings
        };
        Some(kind(after.clone()))
    }
}

impl ConfigChange {
    pub fn between(before: &[CameraConfig], after: &[CameraConfig]) -> Self {
        let known = before.iter().map(|camera| (&camera.id, camera));
        let mut gone: BTreeMap<_, _> = known.collect();
        let mut changes = BTreeMap::new();
        for camera in after {
            let change = match gone.remove(&camera.id) {
                Some(before) => CameraChange::between(before, camera),
                None => Some(CameraChange::Added(camera.clone())),
            };
            changes.extend(change.map(|change| (camera.id.clone(), change)));
        }
        changes.extend(
            gone.into_keys()
                .map(|id| (id.clone(), CameraChange::Removed)),
        );
        Self(changes)
    }

    /// Nothing is different.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn cameras(&self) -> impl Iterator<Item = (&CameraId, &CameraChange)> {
        self.0.iter()
    }

    pub fn removed(&self) -> impl Iterator<Item = &CameraId> {
        let gone = self
            .0
            .iter()
            .filter(|(_, change)| change.camera().is_none());
        gone.map(|(id, _)| id)
    }

    /// Those that are new or different, as they are now.
    pub fn configured(&self) -> impl Iterator<Item = &CameraConfig> {
        self.0.values().filter_map(CameraChange::camera)
    }

    /// Topics are used that were not used before, or are not used any more, or mean something else.
    pub fn has_other_topics(&self) -> bool {
        let is_of_values = |change: &CameraChange| matches!(change, CameraChange::Settings(_));
        !self.0.values().all(is_of_values)
    }
}

/// Whether two configurations connect to a camera and decode it in the same way.
fn is_same_stream(a: &CameraConfig, b: &CameraConfig) -> bool {
    let stream = |camera: &CameraConfig| {
        let (stall, first_frame) = (camera.stall, camera.first_frame);
        (camera.frame_width(), stall, first_frame, camera.decode)
    };
    a.source == b.source && stream(a) == stream(b)
}

fn without_settings(camera: &CameraConfig) -> CameraConfig {
    let mut camera = camera.clone();
    let rate = LookRate::nearest(1.0);
    (camera.enabled, camera.motion.on, camera.rate) = (true, false, rate);
    for prompt in &mut camera.prompts {
        (prompt.enabled, prompt.rate, prompt.min_score) = (true, rate, Share::nearest(0.0));
        prompt.adapter_fault = None;
    }
    camera
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{camera, prompt};
    use spotter_core::{
        Task,
        testing::{rate, share},
    };

    fn gate(change: impl FnOnce(&mut CameraConfig)) -> CameraConfig {
        let mut gate = camera("gate", vec![prompt("person")]);
        change(&mut gate);
        gate
    }

    #[test]
    fn each_change_of_a_camera_has_its_kind() {
        let before = gate(|_| {});
        let between = |before: &[CameraConfig], after: &[CameraConfig]| {
            let change = ConfigChange::between(before, after);
            change.0.into_values().collect::<Vec<_>>()
        };
        let one = std::slice::from_ref(&before);
        assert_eq!(between(one, one), []);
        assert_eq!(between(&[], one), [CameraChange::Added(before.clone())]);
        assert_eq!(between(one, &[]), [CameraChange::Removed]);
        type Kind = fn(CameraConfig) -> CameraChange;
        type Edit = fn(&mut CameraConfig);
        let source: [Edit; 1] = [|gate| gate.width = 640];
        let prompts: [Edit; 1] = [|gate| {
            let object = "person with a hat".into();
            gate.prompts[0].task = Task::Detect { object };
        }];
        let settings: [Edit; 6] = [
            |gate| gate.enabled = false,
            |gate| gate.rate = rate(2.5),
            |gate| gate.motion.on = !gate.motion.on,
            |gate| gate.prompts[0].enabled = false,
            |gate| gate.prompts[0].adapter_fault = Some("its file is cut off".into()),
            |gate| gate.prompts[0].min_score = share(0.5),
        ];
        let kinds: [(Kind, &[Edit]); 3] = [
            (CameraChange::Source, &source),
            (CameraChange::Prompts, &prompts),
            (CameraChange::Settings, &settings),
        ];
        for (kind, edits) in kinds {
            for edit in edits {
                let after = [gate(edit)];
                assert_eq!(between(one, &after), after.map(kind));
            }
        }
    }
}
