//! When an engine begins requests of the HTTP API, beside the looks of its cameras.
//!
//! A camera goes first whenever both could begin. A request that has begun is not interrupted, and a camera's look that becomes due
//! meanwhile may have to wait for its permit. For as long as cameras have waited in this way, the engine must afterwards be idle
//! before it begins another request: so requests use time that the cameras leave, and no more.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::RequestQueue;

/// A longer wait of the cameras is not paid back: they were probably slow by themselves.
const OWED_MAX: Duration = Duration::from_mins(1);

/// The time that requests owe the cameras. Pure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwedTime(Duration);

impl OwedTime {
    /// The engine must be idle for so long before it begins a request.
    pub fn get(self) -> Duration {
        self.0
    }

    /// A camera's look waited for a permit while a request had one.
    pub fn camera_waited(&mut self, time: Duration) {
        self.0 = (self.0 + time).min(OWED_MAX);
    }

    /// The engine had a free permit, and no camera a look for it.
    pub fn engine_idled(&mut self, time: Duration) {
        self.0 = self.0.saturating_sub(time);
    }
}

/// The requests of one engine, one at a time: a free text is written beside the looks of cameras, as theirs are.
#[derive(Clone)]
pub struct EngineRequests {
    pub queue: Arc<RequestQueue>,
    /// Of the one request that may be inside.
    inside: Arc<Semaphore>,
    /// It has a permit of the engine.
    has_permit: Arc<AtomicBool>,
}

/// A request that is inside; another one may begin when it is dropped.
pub struct RequestInside {
    _inside: OwnedSemaphorePermit,
    has_permit: Arc<AtomicBool>,
}

impl EngineRequests {
    pub fn new(queue: &Arc<RequestQueue>) -> Self {
        Self {
            queue: Arc::clone(queue),
            inside: Arc::new(Semaphore::new(1)),
            has_permit: Arc::default(),
        }
    }

    /// Waits until no request is inside. `None`: never, because the semaphore is not closed.
    pub async fn enter(&self) -> Option<RequestInside> {
        let inside = Arc::clone(&self.inside).acquire_owned().await.ok()?;
        Some(RequestInside {
            _inside: inside,
            has_permit: Arc::clone(&self.has_permit),
        })
    }

    pub fn has_permit(&self) -> bool {
        self.has_permit.load(Ordering::Relaxed)
    }
}

impl RequestInside {
    pub fn took_permit(&self) {
        self.has_permit.store(true, Ordering::Relaxed);
    }

    pub fn gave_permit_back(&self) {
        self.has_permit.store(false, Ordering::Relaxed);
    }
}

impl Drop for RequestInside {
    fn drop(&mut self) {
        self.gave_permit_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_owe_cameras_what_they_waited_until_the_engine_idles() {
        let ms = Duration::from_millis;
        let mut owed = OwedTime::default();
        owed.engine_idled(ms(500));
        assert_eq!(owed.get(), ms(0), "idle time is not saved up");
        owed.camera_waited(ms(120));
        owed.camera_waited(ms(30));
        owed.engine_idled(ms(100));
        assert_eq!(owed.get(), ms(50));
        owed.engine_idled(ms(60));
        assert_eq!(owed.get(), ms(0));
        owed.camera_waited(Duration::from_hours(1));
        assert_eq!(owed.get(), OWED_MAX);
    }
}
