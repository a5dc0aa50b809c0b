//! The way to the broker. This folder is the only code that knows an MQTT client library.
//!
//! ```text
//!   task    one tokio task: connects, pumps the outbox, settles acknowledgements, stops cleanly
//!   policy  pure: what the end of a connection means, when and how to try again
//!   link    one connection with MQTT 5 or 3.1.1 behind one face
//!   tls     who is trusted
//! ```
//!
//! Does not belong here: what is worth sending (`outbox`) and what it says (`message`).

mod link;
mod policy;
#[cfg(test)]
mod rig;
mod task;
#[cfg(test)]
mod tests;
mod tls;

pub(super) use link::Settings;
pub use policy::BrokerState;
pub(super) use task::{Shared, Task};
pub use tls::TlsError;
pub(super) use tls::tls_from_config;
