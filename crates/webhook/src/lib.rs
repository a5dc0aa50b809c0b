//! Posts events as JSON to receivers over HTTP (docs/webhooks.md): at least once, in order, signed.
//!
//! ```text
//!   EventLog ──offer──▶ PostQueue ──▶ a task for each webhook ──▶ client, a thread ──HTTP──▶ receiver
//!            ◀──done───  pure: post, wait or drop
//! ```
//!
//! A webhook has one request at a time, which its receiver has to answer before the next one: that keeps the order. A slow or dead
//! receiver delays its own webhook alone.
//!
//! Belongs here: order, retries, bounds, signatures, HTTP. Does not belong here: the payload of an event and what is on the disk
//! (`spotter_state`).

mod client;
mod queue;
mod signature;
mod status;
mod task;
mod timing;
mod webhooks;

pub use client::UnusableWebhook;
pub use status::{WebhookCounters, WebhookState, WebhookStatus};
pub use webhooks::Webhooks;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
