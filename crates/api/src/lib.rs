//! The local HTTP API: other programs ask about pictures of their own, in the shapes of Moondream Station and of OpenAI, and trigger cameras.
//!
//! ```text
//!   client ──POST /v1/detect──▶ serve: token, rate, body, picture ──▶ RequestQueue ◀── each engine, when no camera has a look due
//!          ◀──────────────────────────── answer ◀──────────────────────────────────────┘
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`serve`] | the routes, and the way of a request through them |
//! | [`skills`], [`chat`] | requests to tasks, answers to JSON. Pure |
//! | [`events`] | answers as server-sent events, while they are written |
//! | [`history`] | which stored events a request deletes |
//! | [`trigger_call`] | calls that trigger a camera |
//! | [`counters`] | what became of requests |
//!
//! Belongs here: what HTTP clients send and get. Does not belong here: when an engine begins a request (`app::looks`).

mod chat;
mod counters;
mod error;
mod events;
mod history;
mod serve;
mod skills;
mod trigger_call;

pub use serve::ServedApi;
pub use skills::{outline_json, reasoning_json};
pub use trigger_call::{RefusedCall, TriggerRequest};
