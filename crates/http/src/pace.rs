//! How long a client may keep a connection waiting.

use std::time::Duration;

/// A client may stop for so long.
pub const PAUSE_MAX: Duration = Duration::from_secs(10);
/// On average it moves at least so many bytes in a second: a picture of 10 MB takes five minutes at most.
const BYTES_PER_SECOND_MIN: u64 = 32_000;

/// The time that a client may still keep us waiting. Waiting takes it, and each byte gives some back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPace {
    left: Duration,
}

impl Default for ClientPace {
    fn default() -> Self {
        Self { left: PAUSE_MAX }
    }
}

impl ClientPace {
    /// Zero when the client is too slow.
    pub fn left(&self) -> Duration {
        self.left
    }

    /// The client kept us waiting for `time` and then moved `bytes`.
    pub fn moved(&mut self, time: Duration, bytes: usize) {
        let given = Duration::from_nanos(
            (bytes as u64).saturating_mul(1_000_000_000 / BYTES_PER_SECOND_MIN),
        );
        let left = self.left.saturating_sub(time).saturating_add(given);
        self.left = left.min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds until a client is too slow that moves `bytes` each second; `None`: never within an hour.
    fn seconds_until_too_slow(bytes: usize) -> Option<u32> {
        let mut pace = ClientPace::default();
        (1..=3600).find(|_| {
            if pace.left() <= Duration::from_secs(1) {
                return true;
            }
            pace.moved(Duration::from_secs(1), bytes);
            false
        })
    }

    #[test]
    fn client_below_the_minimum_speed_is_too_slow_soon() {
        assert_eq!(seconds_until_too_slow(0), Some(10));
        assert_eq!(seconds_until_too_slow(1), Some(11));
        assert_eq!(seconds_until_too_slow(16_000), Some(19));
        assert_eq!(seconds_until_too_slow(32_000), None);
        assert_eq!(seconds_until_too_slow(10_000_000), None);
    }

    #[test]
    fn fast_bytes_before_allow_no_longer_pause() {
        let mut pace = ClientPace::default();
        pace.moved(Duration::ZERO, usize::MAX);
        assert_eq!(pace.left(), PAUSE_MAX);
        pace.moved(Duration::MAX, 0);
        assert_eq!(pace.left(), Duration::ZERO);
    }
}
