//! The next frame of a camera for a person who looks at it, beside the looks of the engine.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use super::mask::Mask;
use crate::lock;
use spotter_core::Picture;

/// A frame's picture, as large as it can be had, with the mask that was in force when it arrived.
pub struct NextFrame {
    picture: Picture,
    camera_size: (u32, u32),
    mask: Arc<Mask>,
}

impl NextFrame {
    /// What may be seen of it. As [`Self::unmasked`].
    pub fn masked(self) -> Option<Picture> {
        self.copied(&self.mask)
    }

    /// A copy on the host without the mask, so that the decoder gets its buffer back. Blocks for some milliseconds; `None` when a picture on a device
    /// cannot be fetched.
    pub fn unmasked(self) -> Option<Picture> {
        self.copied(&Mask::default())
    }

    fn copied(&self, mask: &Mask) -> Option<Picture> {
        let picture = &self.picture;
        picture.fetch().then(|| mask.painted_copy(picture))
    }

    /// Pixels across and down that the camera sent, before Spotter scaled the frame.
    pub fn camera_size(&self) -> (u32, u32) {
        self.camera_size
    }
}

/// Those who wait for the next frame of one camera.
#[derive(Default)]
pub struct FrameRequests(Mutex<Vec<oneshot::Sender<NextFrame>>>);

impl FrameRequests {
    pub fn add(&self) -> oneshot::Receiver<NextFrame> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = lock(&self.0);
        // A camera without frames collects none whose receivers are gone.
        waiting.retain(|sender| !sender.is_closed());
        waiting.push(sender);
        receiver
    }

    pub fn is_waiting(&self) -> bool {
        lock(&self.0).iter().any(|sender| !sender.is_closed())
    }

    /// A frame came from ingest, or its picture before it is scaled.
    pub fn put(
        &self,
        picture: &Picture,
        camera_size: (u32, u32),
        mask: impl FnOnce() -> Arc<Mask>,
    ) {
        let waiting = std::mem::take(&mut *lock(&self.0));
        if waiting.is_empty() {
            return;
        }
        let mask = mask();
        for sender in waiting {
            // The receiver may be gone.
            let _ = sender.send(NextFrame {
                picture: picture.clone(),
                camera_size,
                mask: Arc::clone(&mask),
            });
        }
    }
}
