//! What a scripted broker is told to do.

use std::time::Duration;

use super::codec::Term;

/// What the broker does. May be changed while it runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    /// Answers MQTT 5 with "unsupported", as an old broker does.
    pub(crate) is_old: bool,
    /// Code of CONNACK; 0 accepts.
    pub(crate) connack: u8,
    /// Refuses clients that want a retained will, with code 0x9a.
    pub(crate) refuses_retained_wills: bool,
    pub(crate) terms: Vec<Term>,
    pub(crate) acknowledges: Acknowledges,
    /// SUBSCRIBE for these is refused with 0x87 (MQTT 5) or 0x80.
    pub(crate) refused_filters: Vec<String>,
    /// Neither reads nor writes; the connection stays open.
    pub(crate) is_half_open: bool,
    /// Reads so many bytes, then rests.
    pub(crate) reads_slowly: Option<(usize, Duration)>,
    /// Closes after so many bytes from the client, counted in each connection.
    pub(crate) cut_after_read: Option<usize>,
    /// Closes after so many bytes to the client; what is beyond them is not sent.
    pub(crate) cut_after_written: Option<usize>,
    /// Closes on a larger packet, as a 3.1.1 broker does that cannot say so before.
    pub(crate) packet_max_untold: Option<usize>,
    /// Sent right after CONNACK, as it is.
    pub(crate) greeting: Vec<u8>,
    /// It is no broker at all.
    pub(crate) instead: Option<Instead>,
}

/// What a server does that is no broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Instead {
    /// Sends back what comes.
    Echo,
    /// Answers whatever comes with this.
    Say(Vec<u8>),
}

/// How QoS 1 messages are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Acknowledges {
    #[default]
    Always,
    Never,
    Late(Duration),
    /// With this code; MQTT 3.1.1 has none and acknowledges.
    With(u8),
}
