//! The events of this run: each is appended once, and then goes to every receiver that wants it.
//!
//! ```text
//!                 ┌─▶ queue of the broker ──┐
//!   append ──log──┼─▶ queue of a webhook ───┼──done──▶ table in state.db
//!                 └─▶ table in state.db ────┘
//! ```
//!
//! The queues have the events in memory, each within its own limits. No receiver waits for another one, and none for the disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use spotter_core::{Epoch, Event};

use crate::{
    event_table::{Appended, EventChanges, EventReceiver, FoundEvents, LoggedEvent},
    store::StateStore,
};

/// Gives an event to a receiver; false when that does not want it. Called under the lock of the log, so it must not call the log.
pub type OfferEvent = Arc<dyn Fn(&Arc<LoggedEvent>) -> bool + Send + Sync>;

/// See the module's documentation. Clones share one log. The default one keeps nothing on a disk.
#[derive(Clone, Debug, Default)]
pub struct EventLog(Arc<Mutex<LogState>>);

#[derive(Default)]
struct LogState {
    store: Option<StateStore>,
    next_number: u64,
    webhooks: BTreeMap<EventReceiver, OfferEvent>,
    /// Without a store.
    unwritten: EventChanges,
}

/// A log, and what earlier runs left in it.
#[derive(Debug, Default)]
pub struct OpenedEvents {
    pub log: EventLog,
    pub found: FoundEvents,
}

impl OpenedEvents {
    /// The log of the database. Called once.
    pub fn of(store: &StateStore) -> Self {
        Self::new(Some(store.clone()), store.take_found())
    }

    pub(crate) fn new(store: Option<StateStore>, found: FoundEvents) -> Self {
        let state = LogState {
            store,
            next_number: found.next_number,
            ..LogState::default()
        };
        let log = EventLog(Arc::new(Mutex::new(state)));
        Self { log, found }
    }
}

impl EventLog {
    /// Gives events from now on to these webhooks, and keeps none for others.
    pub fn set_webhooks(&self, webhooks: BTreeMap<EventReceiver, OfferEvent>) {
        let mut log = self.lock();
        let receivers = webhooks.keys().cloned();
        let receivers = receivers.chain([EventReceiver::broker()]).collect();
        log.webhooks = webhooks;
        log.write(EventChanges {
            receivers: Some(receivers),
            ..EventChanges::default()
        });
    }

    /// An event happened. The broker waits for it, and each webhook that wants it. `id` names its message; `epoch` is that of a fleet's camera.
    pub fn append(&self, id: String, event: Event, epoch: Option<Epoch>) -> Arc<LoggedEvent> {
        self.lock().append(id, event, epoch, true)
    }

    /// No receiver gets this end of a track, and the next run has no reason to end the track.
    pub fn end_track(&self, end: Event) {
        self.lock().append(String::new(), end, None, false);
    }

    /// The receiver has these events, or dropped them.
    pub fn done(&self, receiver: &EventReceiver, numbers: impl IntoIterator<Item = u64>) {
        let done = |number| (number, BTreeSet::from([receiver.clone()]));
        self.lock().write(EventChanges {
            done: numbers.into_iter().map(done).collect(),
            ..EventChanges::default()
        });
    }

    /// Stores a picture with its event.
    pub fn add_picture(&self, number: u64, jpeg: Arc<[u8]>) {
        self.lock().write(EventChanges {
            pictures: BTreeMap::from([(number, jpeg)]),
            ..EventChanges::default()
        });
    }

    /// The stored picture of an event.
    pub async fn picture(&self, number: u64) -> Option<Vec<u8>> {
        let store = self.lock().store.clone();
        store?.event_picture(number).await
    }

    /// Returns when all that was appended survives a power failure, or when it is known that the disk fails.
    pub async fn written(&self) {
        let store = self.lock().store.clone();
        if let Some(store) = store {
            store.pending().finished().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn take_changes(&self) -> EventChanges {
        std::mem::take(&mut self.lock().unwritten)
    }
}

impl LogState {
    fn append(
        &mut self,
        id: String,
        event: Event,
        epoch: Option<Epoch>,
        is_sent: bool,
    ) -> Arc<LoggedEvent> {
        let mut logged = LoggedEvent {
            number: self.next_number,
            bytes: 0,
            id,
            event,
            epoch,
        };
        self.next_number += 1;
        // Numbers, texts and lists under text keys always serialise.
        let body = serde_json::to_string(&logged).unwrap_or_default();
        logged.bytes = body.len() as u64;
        let logged = Arc::new(logged);
        let mut waiting = BTreeSet::new();
        if is_sent {
            let webhooks = self.webhooks.iter();
            let accepted = webhooks.filter(|(_, offer)| offer(&logged));
            waiting.extend(accepted.map(|(receiver, _)| receiver.clone()));
            waiting.insert(EventReceiver::broker());
        }
        let appended = Appended {
            logged: Arc::clone(&logged),
            body,
            waiting,
        };
        self.write(EventChanges {
            appended: BTreeMap::from([(logged.number, appended)]),
            ..EventChanges::default()
        });
        logged
    }

    fn write(&mut self, changes: EventChanges) {
        match &self.store {
            Some(store) => store.write_events(changes),
            None => self.unwritten.merge(changes),
        }
    }
}

impl fmt::Debug for LogState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let webhooks: Vec<_> = self.webhooks.keys().collect();
        f.debug_struct("LogState")
            .field("next_number", &self.next_number)
            .field("webhooks", &webhooks)
            .finish_non_exhaustive()
    }
}
