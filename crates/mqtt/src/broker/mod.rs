//! The way to the broker. This folder is the only code that knows an MQTT client library.
//!
//! ```text
//!   task    one tokio task: one connection after the other, with a rest in between
//!   policy  pure: what the end of a connection means, when and how to try again
//!   open    one connection: pumps the outbox, settles answers, listens, stops cleanly
//!   link    one connection with MQTT 5 or 3.1.1 behind one face (`v5`, `v311`; `ends`: why it ended)
//!   pulse, terms, subscriptions   pure: whether the broker is alive, its limits, the filters to subscribe to
//!   tls     which certificates are trusted
//! ```
//!
//! Does not belong here: what is worth sending (`outbox`) and what it says (`message`).

mod ends;
mod link;
mod open;
mod policy;
mod pulse;
#[cfg(test)]
mod rig;
mod subscriptions;
mod task;
mod terms;
#[cfg(test)]
mod tests;
mod timing;
mod tls;
mod v311;
mod v5;

pub(super) use link::Settings;
pub use policy::BrokerState;
pub(super) use task::{BrokerTask, Shared};
pub(super) use timing::ConnectionTiming;
pub use tls::TlsError;
pub(super) use tls::Trust;
