//! Events for other receivers than the broker: webhooks.
//!
//! An event is in the feed when it happens, whether the broker is available or not.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use crate::{contract::event, delivery::spool::SpooledEvent};
use spotter_core::Event;

/// Events that wait for their reader; after a crash, each open track ends at once.
const FEED_KEPT: usize = 8192;

/// An event with the id of its message.
#[derive(Clone, Debug)]
pub struct PublishedEvent(Arc<SpooledEvent>);

impl PublishedEvent {
    /// Id of the message, the same each time it is sent.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    pub fn event(&self) -> &Event {
        &self.0.event
    }

    /// The payload of the message, as sent without delay.
    pub fn to_json(&self) -> Vec<u8> {
        event::to_json(&self.0.event, &self.0.id, self.0.epoch, false)
    }
}

/// Reads the feed.
pub(crate) type FeedReader = Arc<Mutex<Option<mpsc::Receiver<PublishedEvent>>>>;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct EventFeed {
    sender: Option<mpsc::Sender<PublishedEvent>>,
    /// Dropped because too many wait for the reader.
    pub(crate) dropped: u64,
}

impl EventFeed {
    pub(crate) fn new() -> (Self, FeedReader) {
        let (sender, events) = mpsc::channel(FEED_KEPT);
        let feed = Self {
            sender: Some(sender),
            ..Self::default()
        };
        (feed, Arc::new(Mutex::new(Some(events))))
    }

    /// A new event.
    pub(crate) fn offer(&mut self, kept: &Arc<SpooledEvent>) {
        let Some(sender) = &self.sender else {
            return;
        };
        match sender.try_send(PublishedEvent(Arc::clone(kept))) {
            // Without a reader, no one misses it.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            Err(mpsc::error::TrySendError::Full(_)) => self.dropped += 1,
        }
    }
}

/// The reader, once.
pub(crate) fn take_reader(reader: &FeedReader) -> Option<mpsc::Receiver<PublishedEvent>> {
    reader.lock().unwrap_or_else(PoisonError::into_inner).take()
}
