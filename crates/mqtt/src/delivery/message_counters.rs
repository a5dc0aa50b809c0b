//! Counters of messages.

/// Messages since the start, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounters {
    /// States acknowledged by the broker.
    pub states_acked: u64,
    /// Stream messages handed to the client library.
    pub streams_sent: u64,
    /// Empty detections that docs/mqtt.md section 2 leaves out; they are not losses.
    pub empties_skipped: u64,
    /// Dropped: there was no connection.
    pub dropped_offline: u64,
    /// Dropped: replaced by a newer one of the topic while it waited.
    pub dropped_replaced: u64,
    /// Dropped: too many topics waited.
    pub dropped_full: u64,
    /// Dropped: waited longer than 5 s.
    pub dropped_expired: u64,
    /// Dropped: larger than docs/mqtt.md section 1 allows, or rejected by the client library.
    pub dropped_refused: u64,
    /// States that the broker rejected, or that are too large for it; each is retried when it changes, after a minute and
    /// after each connect.
    pub states_declined: u64,
    /// Events acknowledged by the broker.
    pub events_acked: u64,
    /// Events that the broker rejected; each counts once, and is retried while it is kept.
    pub events_declined: u64,
    /// Events dropped: more, or more bytes, were waiting than the configuration keeps.
    pub events_over_bound: u64,
    /// Events dropped: older than the configuration keeps them.
    pub events_too_old: u64,
    /// Events dropped: another node of the fleet is the owner of the camera, and perhaps was when they happened.
    pub events_of_older_epoch: u64,
    /// Updates of a fleet's cameras that this node does not own; they are not losses.
    pub not_owned: u64,
    /// Replies acknowledged by the broker.
    pub replies_acked: u64,
    /// Replies dropped: the connection ended, the broker rejected them, or too many waited.
    pub replies_dropped: u64,
    /// Messages to this node that were dropped because the inbox was full.
    pub inbound_dropped: u64,
    /// Retained commands, which are never executed.
    pub inbound_retained: u64,
}

impl MessageCounters {
    /// `mqtt_dropped` in docs/mqtt.md section 2: messages that are never sent.
    pub fn dropped(&self) -> u64 {
        self.drops().iter().map(|(_, count)| count).sum()
    }

    /// Dropped messages by reason.
    pub fn drops(&self) -> [(&'static str, u64); 9] {
        [
            ("offline", self.dropped_offline),
            ("replaced", self.dropped_replaced),
            ("full", self.dropped_full),
            ("expired", self.dropped_expired),
            ("refused", self.dropped_refused),
            ("spool_full", self.events_over_bound),
            ("spool_old", self.events_too_old),
            ("older_epoch", self.events_of_older_epoch),
            ("reply", self.replies_dropped),
        ]
    }
}
