//! The connection to the broker. This folder is the only code that knows an MQTT client library.
//!
//! ```text
//!   reconnect      one tokio task: one connection after the other, with a pause in between
//!   shared         what it shares with the publisher's handles, and the state that it shows
//!   policy         pure: after the end of a connection, when and how to connect again
//!   connection     one connection: sends what the outbox has, handles answers, subscribes, stops
//!   client         one interface to MQTT 5 and 3.1.1 (`v5`, `v311`; `ends`: why a connection ended)
//!   reader         a connection that only reads: no will, nothing published
//!   liveness       pure: whether the broker still answers
//!   timing         pauses and time limits
//!   tls            which certificates are trusted
//! ```
//!
//! Does not belong here: what is sent when (`delivery`) and the payloads (`contract`).

mod client;
mod connection;
mod ends;
mod liveness;
mod open;
mod policy;
mod reader;
mod reconnect;
#[cfg(test)]
mod rig;
pub(super) mod shared;
pub(super) mod target;
#[cfg(test)]
pub(crate) mod tests;
mod timing;
mod tls;
mod v311;
mod v5;

pub use policy::{AwayCause, BrokerState};
pub use reader::{ReadError, TopicReader};
pub(super) use reconnect::keep_connected;
pub use target::Identity;
#[cfg(test)]
pub(super) use timing::ConnectionTiming;
pub use tls::TlsError;
pub(super) use tls::Trust;
