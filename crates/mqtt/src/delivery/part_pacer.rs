//! Numbers and paces the parts of texts. Pure: takes `now`.
//!
//! A model writes more parts a second than a camera may send messages. They are sent at half of the rates, with equal pauses, so that detections
//! have the other half and no reader waits for the end of a second.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use spotter_core::{CameraId, Mono, PublishedText, TextPart};

/// Time between two parts of a camera.
const OF_CAMERA_EVERY: Duration = Duration::from_millis(100);
/// Time between two parts of the node.
const OF_NODE_EVERY: Duration = Duration::from_millis(10);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct PartPacer {
    /// The number of the next part of each text that has no last one yet.
    numbers: BTreeMap<PublishedText, u64>,
    /// When the last part was sent.
    sent_at: Option<Mono>,
    sent_of_camera_at: HashMap<CameraId, Mono>,
}

impl PartPacer {
    /// The number of a part that is sent or dropped now: a consumer sees a dropped one by the gap.
    pub(super) fn number(&mut self, part: &TextPart) -> u64 {
        if part.is_last {
            return self.numbers.remove(&part.of).unwrap_or(0);
        }
        let next = self.numbers.entry(part.of.clone()).or_default();
        *next += 1;
        *next - 1
    }

    pub(super) fn ready_at(&self, camera: &CameraId, now: Mono) -> Mono {
        let of_camera = self.sent_of_camera_at.get(camera);
        let of_camera = of_camera.map(|at| at.after(OF_CAMERA_EVERY));
        let of_node = self.sent_at.map(|at| at.after(OF_NODE_EVERY));
        of_camera.max(of_node).unwrap_or(now)
    }

    pub(super) fn count(&mut self, camera: &CameraId, now: Mono) {
        self.sent_at = Some(now);
        self.sent_of_camera_at.insert(camera.clone(), now);
    }
}
