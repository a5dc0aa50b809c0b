//! The events of this run: each is appended once, and then goes to every receiver that wants it.
//!
//! ```text
//!                 ┌─▶ queue of the broker ──┐
//!   append ──log──┼─▶ queue of a webhook ───┼──done──▶ table in state.db
//!                 └─▶ table in state.db ────┘
//! ```
//!
//! The queues have the events in memory, each within its own limits. No receiver waits for another one, and none for the disk.

use std::{collections::BTreeMap, sync::Arc};

use spotter_core::Event;

use crate::{
    event_table::{EventReceiver, FoundEvents, OfferEvent},
    logged_event::LoggedEvent,
    store::{StateStore, StoreShared},
};

/// See the module's documentation. Clones share one log. The default one keeps nothing on a disk.
#[derive(Clone, Debug, Default)]
pub struct EventLog {
    pub(crate) shared: Arc<StoreShared>,
    /// The address of the page that shows events.
    page: Option<Arc<str>>,
    /// Its thread writes as long as there is a log.
    _store: Option<StateStore>,
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
        let log = EventLog {
            shared: Arc::clone(store.shared()),
            page: None,
            _store: Some(store.clone()),
        };
        let found = store.take_found();
        Self { log, found }
    }
}

impl EventLog {
    /// Events from now on link this page, which ends with a slash.
    pub fn link(&mut self, page: &str) {
        self.page = Some(page.into());
    }

    pub fn page(&self) -> Option<&str> {
        self.page.as_deref()
    }

    /// Gives events from now on to these webhooks, and keeps none for others.
    pub fn set_webhooks(&self, webhooks: BTreeMap<EventReceiver, OfferEvent>) {
        self.shared
            .change(|state| state.events.set_webhooks(webhooks));
    }

    /// An event happened. The broker waits for it, and each webhook that wants it.
    pub fn append(&self, event: LoggedEvent) -> Arc<LoggedEvent> {
        self.shared.change(|state| state.events.append(event, true))
    }

    /// No receiver gets this end of a track, and the next run has no reason to end the track.
    pub fn end_track(&self, end: &Event) {
        let end = LoggedEvent::new(String::new(), end, None);
        self.shared.change(|state| state.events.append(end, false));
    }

    /// The receiver has these events, or dropped them.
    pub fn done(&self, receiver: &EventReceiver, numbers: impl IntoIterator<Item = u64>) {
        let numbers = numbers.into_iter();
        self.shared
            .change(|state| state.events.done(receiver, numbers));
    }

    /// Stores a picture with its event.
    pub fn add_picture(&self, number: u64, jpeg: Arc<[u8]>) {
        self.shared
            .change(|state| state.events.add_picture(number, jpeg));
    }

    /// The stored picture of an event.
    pub async fn picture(&self, number: u64) -> Option<Vec<u8>> {
        self.shared.event_picture(number).await
    }

    /// Returns when all that was appended survives a power failure, or when it is known that the disk fails.
    pub async fn written(&self) {
        self.shared.pending().finished().await;
    }
}
