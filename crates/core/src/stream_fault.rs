use strum::{IntoStaticStr, VariantArray};

/// Why a camera does not stream. The kind decides how soon it is tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum StreamFault {
    /// No connection: refused, no route, unknown host.
    #[default]
    Unreachable,
    /// The camera has no such stream (404) or the file is not there.
    NotFound,
    /// The login was refused. Many cameras lock an account after repeated tries, so these are rare.
    AuthFailed,
    /// The camera has no free session or bandwidth (453, 503).
    TooManySessions,
    /// No video in a codec that can be decoded here.
    Unsupported,
    /// The file or device has no video.
    NotVideo,
    /// Connected, but no good picture came in time.
    NoFrame,
    /// It streamed, then no good picture came for the configured time.
    Stalled,
    /// The camera ended the stream.
    Disconnected,
    /// What the camera sent is not RTSP, or it answered with an error of its own.
    Protocol,
    /// The certificate was not accepted.
    Tls,
    /// A device node or an element of this machine does not work.
    Device,
}

impl StreamFault {
    /// The short code of `reason` in docs/mqtt.md section 2.
    pub fn code(self) -> &'static str {
        self.into()
    }
}
