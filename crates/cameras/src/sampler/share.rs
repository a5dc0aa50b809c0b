//! What one engine takes looks from: the cameras that it has.

use std::{
    pin::pin,
    sync::{Arc, Mutex},
};

use tokio::sync::Notify;

use super::{limits::TimeLimits, sampled_camera::SampledCamera};
use crate::lock;
use spotter_core::{Clock, Look, Mono};

/// Pixels of a thumbnail: no camera sends so few.
const SMALL_PIXELS: usize = 160 * 120;

/// The cameras of one engine, as [`Sampler::assign`](super::Sampler::assign) set them. Who has a permit of the engine
/// asks for a frame that is [due](CameraShare::due).
pub struct CameraShare {
    /// Held for a copy of the list or its replacement.
    cameras: Mutex<Arc<[Arc<SampledCamera>]>>,
    arrived: Arc<Notify>,
    limits: TimeLimits,
    clock: Arc<dyn Clock>,
}

impl CameraShare {
    pub(super) fn new(limits: TimeLimits, clock: Arc<dyn Clock>) -> Self {
        Self {
            cameras: Mutex::default(),
            arrived: Arc::new(Notify::new()),
            limits,
            clock,
        }
    }

    pub(super) fn assign(&self, cameras: Arc<[Arc<SampledCamera>]>) {
        *lock(&self.cameras) = Arc::clone(&cameras);
        for sampled in cameras.iter() {
            sampled.notifies(&self.arrived);
        }
    }

    /// Waits for a frame that is due: that of the camera which has waited longest. Dropping the future loses nothing.
    pub async fn due(&self) -> DueFrame {
        loop {
            // Queued before looking, so that each frame that arrives after the look wakes a caller of its own.
            let mut arrived = pin!(self.arrived.notified());
            arrived.as_mut().enable();
            if let Some(due) = self.try_due() {
                return due;
            }
            arrived.await;
        }
    }

    /// As [`CameraShare::due`], without waiting.
    pub fn try_due(&self) -> Option<DueFrame> {
        let cameras = Arc::clone(&lock(&self.cameras));
        let due = cameras
            .iter()
            .map(|sampled| sampled.slot(|slot| slot.due_since()));
        let camera = &cameras[longest_overdue(due)?];
        Some(DueFrame {
            camera: Arc::clone(camera),
            limits: self.limits,
            clock: Arc::clone(&self.clock),
        })
    }
}

/// A camera with a frame that is due.
pub struct DueFrame {
    camera: Arc<SampledCamera>,
    limits: TimeLimits,
    clock: Arc<dyn Clock>,
}

impl DueFrame {
    /// The look at the camera's newest frame; `None` when it was late, gated or unreadable, or another one took it. Call it while
    /// holding an engine's permit. Copies a frame from a device, measures motion, paints masks, draws strips: some milliseconds of a
    /// large picture.
    pub fn take(&self) -> Option<Look> {
        self.camera.take(self.limits, self.clock.now())
    }

    /// The work of [`DueFrame::take`] is shorter than a switch of threads. A simulation in virtual time needs that: no clock waits for a thread.
    pub fn is_small(&self) -> bool {
        let size = self.camera.slot(|slot| slot.waiting_size());
        size.is_none_or(|(width, height)| width * height <= SMALL_PIXELS)
    }
}

/// Of several cameras, given since when each has had a look due (`None` = it has nothing for the engine), the index of
/// the one that waits longest. A camera that was served is due later than all that waited, so of `n` cameras at most
/// `n - 1` go before one that is due, however fast they are.
fn longest_overdue(due_since: impl IntoIterator<Item = Option<Mono>>) -> Option<usize> {
    let due = due_since.into_iter().enumerate();
    let due = due.filter_map(|(index, since)| Some((since?, index)));
    due.min().map(|(_, index)| index)
}
