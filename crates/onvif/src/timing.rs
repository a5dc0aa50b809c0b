//! Pauses and limits of a camera's events; tests use shorter ones.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct OnvifTiming {
    /// What a subscription is asked for; it is renewed after half of what the camera grants.
    pub(crate) subscription: Duration,
    /// The camera may keep a request for messages open for this time.
    pub(crate) pull: Duration,
    /// As `pull`, for the first request of a connection, whose answer shows that it works.
    pub(crate) first_pull: Duration,
    /// Between the beginnings of two requests for messages, when the first one had none. Some cameras answer at once.
    pub(crate) empty_gap: Duration,
    /// As `empty_gap`, when it had messages.
    pub(crate) full_gap: Duration,
    /// For an answer, beyond the time that the camera may keep the request.
    pub(crate) answer_within: Duration,
    /// After the second failure in a row; each further pause is twice as long.
    pub(crate) first_pause: Duration,
    pub(crate) longest_pause: Duration,
    /// The same for a missing or rejected login.
    pub(crate) first_login_pause: Duration,
    pub(crate) longest_login_pause: Duration,
    /// The least pause when the camera has too many subscriptions: old ones have to expire.
    pub(crate) full_pause: Duration,
    /// For the end of the subscription when the events are not wanted any more.
    pub(crate) release_within: Duration,
}

impl Default for OnvifTiming {
    fn default() -> Self {
        Self {
            subscription: Duration::from_secs(120),
            pull: Duration::from_secs(20),
            first_pull: Duration::from_secs(1),
            empty_gap: Duration::from_secs(1),
            full_gap: Duration::from_millis(100),
            answer_within: Duration::from_secs(10),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
            first_login_pause: Duration::from_secs(30),
            longest_login_pause: Duration::from_secs(300),
            full_pause: Duration::from_secs(15),
            release_within: Duration::from_secs(2),
        }
    }
}
