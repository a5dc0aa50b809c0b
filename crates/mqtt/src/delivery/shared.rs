//! The outbox, shared between the stages that publish and the connection.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

use super::Outbox;

/// What the task shares with the stages that publish. The lock is held for a map operation, never across an await. A channel
/// instead of it would be a second queue with its own rule for losses.
#[derive(Debug)]
pub(crate) struct Shared {
    outbox: Mutex<Outbox>,
    changed: Notify,
    turns: AtomicU64,
    /// Filters that the broker rejected on this connection.
    rejected: Mutex<BTreeSet<String>>,
}

impl Shared {
    pub(crate) fn new(outbox: Outbox) -> Self {
        Self {
            outbox: Mutex::new(outbox),
            changed: Notify::new(),
            turns: AtomicU64::new(0),
            rejected: Mutex::default(),
        }
    }

    pub(crate) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn rejected_filters(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.rejected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Rises while the task runs.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    pub(crate) fn turn(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for a call of [`wake`](Self::wake).
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}
