//! The RTSP conversation with a camera, between the camera and GStreamer's rtspsrc.
//!
//! rtspsrc of GStreamer 1.20 and 1.22 logs in with MD5 alone, follows redirects without a limit, forgets the login there, asks for
//! `rtsp://` within TLS, does not accept a SETUP answer without `interleaved=` and does not tell the session's timeout. Its
//! signals cannot mend that: no signal shows an answer of the camera, and `before-send` gives a message that the safe bindings can
//! add a header to and not read. A short conversation before it, over a socket of our own, could not either: most cameras give a
//! nonce to one connection, and what follows a SETUP is seen by rtspsrc alone. So rtspsrc connects to an [`RtspRelay`] on
//! loopback, which has the connection to the camera: it repeats requests with a login, follows redirects, completes answers,
//! keeps the session alive, and passes everything else as it is.
//!
//! `message`, `dialogue`, `login` and `budget` are pure; `relay` and `connection` have the sockets, by GIO, so that TLS is that of
//! rtspsrc: cameras are too old for stricter libraries.

mod budget;
mod connection;
mod dialogue;
mod login;
mod message;
mod relay;

pub use budget::ConnectionBudget;
pub use connection::register_socket_types;
pub use relay::{RelayReport, RelaySettings, RtspRelay};
