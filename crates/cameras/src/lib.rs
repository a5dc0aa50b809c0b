//! Reads cameras with GStreamer and chooses the frames that are looked at.

pub mod ingest;
pub mod sampler;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A poisoned lock means that a thread panicked; what it guards is still the best there is.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test helpers panic with what is wrong"
)]
pub mod testing;
