//! Pauses and limits of a webhook; tests use shorter ones.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct WebhookTiming {
    /// After the first failed request; each further pause is twice as long.
    pub(crate) first_pause: Duration,
    pub(crate) longest_pause: Duration,
    /// An event waits for its picture for this time at most. A picture takes some tens of milliseconds.
    pub(crate) picture_within: Duration,
    /// An event that waited longer is posted as `delayed`.
    pub(crate) delayed_after: Duration,
    /// Time for the last requests at a stop.
    pub(crate) stop_within: Duration,
}

impl Default for WebhookTiming {
    fn default() -> Self {
        Self {
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
            picture_within: Duration::from_secs(3),
            delayed_after: Duration::from_secs(5),
            stop_within: Duration::from_secs(2),
        }
    }
}
