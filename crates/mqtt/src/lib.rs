//! What Spotter publishes: topics, payloads, and the connection to the broker (docs/mqtt.md).
//!
//! ```text
//!   contract               delivery                  link
//!   Update ──▶ Message ──▶ Outbox ──▶ Outgoing ──▶   MQTT
//!   (values)   topic, QoS, what is due now,          the only code
//!              retain      pure, takes `now`         that knows a client library
//! ```
//!
//! Each layer imports those before it alone; [`Publisher`] and [`Announcer`] join them.
//!
//! Belongs here: JSON, topic names, delivery rules. This is the only crate that knows payloads, but for that of an event, which is stored
//! as it is sent (`spotter_state`). Does not belong here: the values of states; they arrive as an [`Update`]. A detection becomes JSON when the client library accepts it, so that its
//! time of publication is true.

mod announcer;
mod contract;
mod delivery;
mod link;
mod publisher;

pub use announcer::Announcer;
pub use contract::*;
pub use delivery::{MessageCounters, SentDetection};
pub use link::{AwayCause, BrokerState, Identity, ReadError, TlsError, TopicReader};
pub use publisher::Publisher;

#[cfg(test)]
mod schema_tests;
#[cfg(test)]
mod testing;
