//! What became of messages, counted.

/// What became of messages since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// States acknowledged by the broker.
    pub states_acked: u64,
    /// Stream messages handed to the client library.
    pub streams_sent: u64,
    /// Empty detections that the contract says not to send; nothing is lost by them.
    pub empties_skipped: u64,
    /// Dropped: the broker was away.
    pub dropped_offline: u64,
    /// Dropped: a newer one of the topic came while it waited.
    pub dropped_replaced: u64,
    /// Dropped: too many topics waited.
    pub dropped_full: u64,
    /// Dropped: waited longer than 5 s.
    pub dropped_expired: u64,
    /// Dropped: larger than the contract allows, or refused by the client library.
    pub dropped_refused: u64,
}

impl Tally {
    /// `mqtt_dropped` of the contract.
    pub fn dropped(&self) -> u64 {
        self.dropped_offline
            + self.dropped_replaced
            + self.dropped_full
            + self.dropped_expired
            + self.dropped_refused
    }
}
