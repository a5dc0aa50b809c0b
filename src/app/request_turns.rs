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

/// Requests inside an engine, of which all but one are free texts that are being written. The engine writes texts beside the looks of
/// cameras, the oldest first: more of them would delay the cameras' own texts.
const INSIDE_MAX: usize = 4;
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

/// The requests of one engine: one has a permit at a time, the others write their free texts.
#[derive(Clone)]
pub struct EngineRequests {
    pub queue: Arc<RequestQueue>,
    inside: Arc<Semaphore>,
    /// Of the one request that has a permit of the engine, or waits to have one.
    short: Arc<Semaphore>,
    has_permit: Arc<AtomicBool>,
}

/// A request that is inside; another one may begin when it is dropped, or has given its permit back.
pub struct RequestInside {
    _inside: OwnedSemaphorePermit,
    /// `None` when at most its free text is left.
    short: Option<OwnedSemaphorePermit>,
    has_permit: Arc<AtomicBool>,
}

impl EngineRequests {
    pub fn new(queue: &Arc<RequestQueue>) -> Self {
        Self {
            queue: Arc::clone(queue),
            inside: Arc::new(Semaphore::new(INSIDE_MAX)),
            short: Arc::new(Semaphore::new(1)),
            has_permit: Arc::default(),
        }
    }

    /// Waits until a request may begin. `None`: never, because the semaphores are not closed.
    pub async fn enter(&self) -> Option<RequestInside> {
        let inside = Arc::clone(&self.inside).acquire_owned().await.ok()?;
        let short = Arc::clone(&self.short).acquire_owned().await.ok()?;
        Some(RequestInside {
            _inside: inside,
            short: Some(short),
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

    /// Another request may have set the flag since.
    pub fn gave_permit_back(&mut self) {
        if self.short.is_some() {
            self.has_permit.store(false, Ordering::Relaxed);
        }
        self.short = None;
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
