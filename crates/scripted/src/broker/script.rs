//! Behaviour of a scripted broker.

use std::time::Duration;

use super::codec::Term;

/// Can be changed while the broker runs.
#[derive(Clone, Debug, Default)]
pub struct BrokerScript {
    /// Does not support MQTT 5, as an old broker.
    pub is_old: bool,
    /// What an old broker answers to MQTT 5.
    pub old_answer: OldAnswer,
    /// Code of CONNACK; 0 accepts.
    pub connack: u8,
    /// Rejects clients with a retained will, with code 0x9a.
    pub refuses_retained_wills: bool,
    pub terms: Vec<Term>,
    pub acknowledges: Acknowledges,
    /// SUBSCRIBE for these is rejected with 0x87 (MQTT 5) or 0x80.
    pub refused_filters: Vec<String>,
    /// Neither reads nor writes; the connection stays open.
    pub is_half_open: bool,
    /// Reads this number of bytes at a time, after a pause each.
    pub reads_slowly: Option<(usize, Duration)>,
    /// Closes after this number of bytes from the client, counted in each connection.
    pub cut_after_read: Option<usize>,
    /// Closes after this number of bytes to the client; the rest is not sent.
    pub cut_after_written: Option<usize>,
    /// Bytes that are sent right after CONNACK.
    pub greeting: Vec<u8>,
    /// A server that is no broker.
    pub instead: Option<Instead>,
}

/// How a broker that does not support MQTT 5 answers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OldAnswer {
    /// In its own format, then it closes.
    #[default]
    Refusal,
    /// In the format of MQTT 5.
    RefusalOf5,
    /// In its own format, as if it accepted.
    Acceptance,
    Nothing,
}

/// Behaviour of a server that is no broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instead {
    /// Sends back what it receives.
    Echo,
    /// Answers everything with these bytes.
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
