//! The HTTP listener of the status page and of the API: how many connections there are, how long a client may keep one waiting, and
//! which host names are answered.
//!
//! ```text
//!   accept ──▶ OpenConnections: all, each network ──▶ hyper: head within 10 s ──▶ router ──▶ read_body: minimum speed, memory
//!                                                          ◀── PacedStream: minimum speed of the reader ◀──┘
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`access`] | whose token a request has, and how often each client may ask. Pure |
//! | [`listener`] | binds, accepts, serves a router, closes |
//! | [`connections`] | how many connections there are, of each network and in all. Pure |
//! | [`network`] | which addresses count as one client. Pure |
//! | [`pace`] | how long a client may keep a connection waiting. Pure |
//! | [`stream`] | a connection whose reader has a minimum speed |
//! | [`body`] | the body of a request: bounded in length, memory and time |
//! | [`answer`] | answers in JSON, and when to ask again |
//! | [`sender`] | who sent a request, where proxies are between. Pure |
//! | [`names`] | names under which this machine is called, against DNS rebinding. Pure |
//!
//! Does not belong here: routes, and what a token allows.

mod access;
mod answer;
mod body;
mod connections;
mod listener;
mod names;
mod network;
mod pace;
mod sender;
mod stream;

pub use access::{AccessTokens, RequestRates, TokenClient, bearer_token};
pub use answer::{ask_again_after, json_answer};
pub use body::{BodyError, BodyMemory, HeldBody, read_body};
pub use listener::{ClientAddress, ServedListener, bind};
pub use names::{HostNames, is_loopback_name};
pub use network::ClientNetwork;
pub use sender::{RequestSender, TrustedProxies};
