//! A scripted camera, mainly for faults, over real sockets on loopback.
//!
//! `conversation`, `message`, `play` and `paint` are pure, `tape` encodes once with GStreamer, only `server` has sockets.
//! `spotter_street::rtsp` has a camera without faults, with GStreamer's own server.

pub mod conversation;
mod message;
pub mod paint;
pub mod play;
pub mod script;
pub mod server;
pub mod tape;
