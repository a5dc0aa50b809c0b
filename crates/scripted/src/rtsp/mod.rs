//! A camera that does what a script says, the wrong things above all, over real sockets on loopback.
//!
//! `conversation`, `message`, `play` and `paint` are pure, `tape` encodes once with GStreamer, `server` is the only one with
//! sockets. GStreamer's own server, which never does wrong, is in `demo`.

pub mod conversation;
mod message;
pub mod paint;
pub mod play;
pub mod script;
pub mod server;
pub mod tape;
