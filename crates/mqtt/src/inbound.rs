//! What comes from the broker: messages on topics that we subscribed to, as they came. What they mean is not known here.

/// A message of somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbound {
    /// Its topic.
    pub topic: String,
    /// Whatever was sent; nobody has checked it.
    pub payload: Vec<u8>,
    /// It is old: the broker kept it and gave it to us because we subscribed.
    pub retained: bool,
    /// Where its sender wants the answer (MQTT 5); `None` = the usual topic.
    pub reply_to: Option<ReplyTo>,
}

/// Where the answer to a request goes (MQTT 5, response topic and correlation data).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplyTo {
    /// The topic that the sender listens on.
    pub topic: String,
    /// Bytes that it knows its request by, given back as they came.
    pub correlation: Option<Vec<u8>>,
}
