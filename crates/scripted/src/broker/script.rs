//! What a scripted broker is told to do.

use std::time::Duration;

use super::codec::Term;

/// What the broker does. May be changed while it runs.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Answers MQTT 5 with "unsupported", as an old broker does.
    pub is_old: bool,
    /// Code of CONNACK; 0 accepts.
    pub connack: u8,
    /// Refuses clients that want a retained will, with code 0x9a.
    pub refuses_retained_wills: bool,
    pub terms: Vec<Term>,
    pub acknowledges: Acknowledges,
    /// SUBSCRIBE for these is refused with 0x87 (MQTT 5) or 0x80.
    pub refused_filters: Vec<String>,
    /// Neither reads nor writes; the connection stays open.
    pub is_half_open: bool,
    /// Reads so many bytes, then rests.
    pub reads_slowly: Option<(usize, Duration)>,
    /// Closes after so many bytes from the client, counted in each connection.
    pub cut_after_read: Option<usize>,
    /// Closes after so many bytes to the client; what is beyond them is not sent.
    pub cut_after_written: Option<usize>,
    /// Sent right after CONNACK, as it is.
    pub greeting: Vec<u8>,
    /// It is no broker at all.
    pub instead: Option<Instead>,
}

/// What a server does that is no broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instead {
    /// Sends back what comes.
    Echo,
    /// Answers whatever comes with this.
    Say(Vec<u8>),
}

/// How QoS 1 messages are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledges {
    #[default]
    Always,
    Never,
    Late(Duration),
    /// With this code; MQTT 3.1.1 has none and acknowledges.
    With(u8),
}
