//! Which cameras have a session: read where a camera may be given to another node.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use spotter_core::CameraId;

/// The cameras that are connected or watched, and those whose session is still being closed. Clones share them.
#[derive(Clone, Default)]
pub struct CameraSessions(Arc<Mutex<BTreeSet<CameraId>>>);

impl CameraSessions {
    pub fn has(&self, camera: &CameraId) -> bool {
        self.lock().contains(camera)
    }

    pub fn lock(&self) -> MutexGuard<'_, BTreeSet<CameraId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
