//! Events for other receivers than the broker: webhooks.
//!
//! An event is in the feed once it is certain that this node is the owner of its camera, whether the broker is available or not. In a
//! fleet, an uncertain event and those that follow it on its topic are held until the node is certain or the broker has shown no newer
//! owner; with a newer owner they are discarded.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::mpsc;

use crate::{event, spool::SpooledEvent};
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
pub(super) type FeedReader = Arc<Mutex<Option<mpsc::Receiver<PublishedEvent>>>>;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct EventFeed {
    sender: Option<mpsc::Sender<PublishedEvent>>,
    /// The topics of held events, by number.
    held: BTreeMap<u64, Arc<str>>,
    /// Dropped because too many wait for the reader.
    pub(super) dropped: u64,
}

impl EventFeed {
    pub(super) fn new() -> (Self, FeedReader) {
        let (sender, events) = mpsc::channel(FEED_KEPT);
        let feed = Self {
            sender: Some(sender),
            ..Self::default()
        };
        (feed, Arc::new(Mutex::new(Some(events))))
    }

    /// A new event.
    pub(super) fn offer(&mut self, topic: &Arc<str>, kept: &Arc<SpooledEvent>) {
        if self.has_to_wait(topic, kept) {
            self.held.insert(kept.number, Arc::clone(topic));
        } else {
            self.send(kept);
        }
    }

    /// An event of an earlier run, in which it was in the feed if it did not have to wait.
    pub(super) fn restore(&mut self, topic: &Arc<str>, kept: &Arc<SpooledEvent>) {
        if self.has_to_wait(topic, kept) {
            self.held.insert(kept.number, Arc::clone(topic));
        }
    }

    fn has_to_wait(&self, topic: &Arc<str>, kept: &SpooledEvent) -> bool {
        kept.uncertain || self.held.values().any(|held| held == topic)
    }

    /// A held event is this node's for certain, or the broker has no newer owner.
    pub(super) fn release(&mut self, kept: &Arc<SpooledEvent>) {
        if self.held.remove(&kept.number).is_some() {
            self.send(kept);
        }
    }

    /// The event is not kept any more.
    pub(super) fn forget(&mut self, number: u64) {
        self.held.remove(&number);
    }

    fn send(&mut self, kept: &Arc<SpooledEvent>) {
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
pub(super) fn take_reader(reader: &FeedReader) -> Option<mpsc::Receiver<PublishedEvent>> {
    reader.lock().unwrap_or_else(PoisonError::into_inner).take()
}
