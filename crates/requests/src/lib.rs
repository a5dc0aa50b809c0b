//! What the HTTP API and the status page ask the engines beside the cameras.
//!
//! ```text
//!   API: a picture of a client ────────┐
//!   page: words tried on a picture ────┴──▶ RequestQueue ◀── each engine, when no camera has a look due
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`queue`] | requests that wait for an engine |
//! | [`data_url`] | a picture in a URL |
//!
//! Does not belong here: when an engine begins a request (`app::looks`).

pub mod data_url;
mod queue;

pub use queue::{
    AskedRequest, BegunRequest, RequestNews, RequestQueue, RequestReply, UnansweredRequest,
};
