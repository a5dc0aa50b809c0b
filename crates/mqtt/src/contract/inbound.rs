//! Messages on subscribed topics, as they arrived. `command` interprets them.

/// A message of another client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbound {
    pub topic: String,
    /// The bytes of the message, not checked.
    pub payload: Vec<u8>,
    /// The broker had retained it before this subscription.
    pub retained: bool,
    /// Where its sender expects the reply (MQTT 5); `None` = the topic `reply` of the node, or of the fleet.
    pub reply_to: Option<ReplyTo>,
}

/// Response topic and correlation data of a request (MQTT 5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplyTo {
    pub topic: String,
    /// Repeated in the reply.
    pub correlation: Option<Vec<u8>>,
}
