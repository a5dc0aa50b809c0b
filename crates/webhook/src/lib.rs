//! Posts events as JSON to receivers over HTTP (docs/webhooks.md): at least once, in order, signed.
//!
//! ```text
//!                            ┌ a task for each webhook ────────────────────────────────────────┐
//!   WebhookEvent ─Webhooks─▶ │ inbox ──▶ store: a file per event ──▶ queue: pure ──▶ client    │ ──HTTP──▶ receiver
//!   WebhookPicture  filter   │           <state_dir>/webhooks/NAME   post, wait      a thread   │
//!                            └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A webhook has one request at a time, which its receiver has to answer before the next one: that keeps the order. A slow or dead
//! receiver delays its own webhook alone.
//!
//! **Why a file per event, and not the journal of `spotter_mqtt::spool`:** the journal has all waiting events in memory, which pictures of
//! up to 256 KiB must not be, and it knows of events what only MQTT needs (open tracks). Here the memory has a number, a time and a length
//! per event. A file that is written and removed within a few seconds, as with a receiver that answers, mostly never reaches the disk.
//!
//! Belongs here: order, retries, bounds, signatures, HTTP. Does not belong here: the payload of an event (`spotter_mqtt`), which arrives as
//! JSON; only its keys `delayed` and `snapshot_jpeg` are set here.

mod client;
mod queue;
mod signature;
mod status;
mod store;
mod task;
mod timing;
mod webhook_event;
mod webhooks;

pub use client::WebhookTlsError;
pub use status::{WebhookCounters, WebhookState, WebhookStatus};
pub use webhook_event::{WebhookEvent, WebhookPicture};
pub use webhooks::Webhooks;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
