//! How often a request that failed is repeated. Pure.

use std::time::Duration;

/// Attempts in a row without a new byte, after which the hub counts as unreachable.
const ATTEMPTS: u32 = 5;
/// The longest pause, also when the hub asks for a longer one.
const LONGEST: Duration = Duration::from_secs(60);

/// Counts attempts without progress; pauses double from the first.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    first_pause: Duration,
    failed: u32,
}

impl Patience {
    pub fn new(first_pause: Duration) -> Self {
        Self {
            first_pause,
            failed: 0,
        }
    }

    /// The pause before the next attempt; `None` when there were enough. `asked` is what the hub asks for (`Retry-After`).
    pub fn pause(&mut self, has_progressed: bool, asked: Option<Duration>) -> Option<Duration> {
        self.failed = if has_progressed { 1 } else { self.failed + 1 };
        if self.failed >= ATTEMPTS {
            return None;
        }
        let doubled = self.first_pause * 2u32.pow(self.failed - 1);
        Some(asked.unwrap_or(doubled).min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_end_unless_bytes_arrive() {
        let second = Duration::from_secs(1);
        let mut patience = Patience::new(second);
        let pauses: Vec<_> = (0..5).map(|_| patience.pause(false, None)).collect();
        let expected = [Some(1), Some(2), Some(4), Some(8), None];
        assert_eq!(pauses, expected.map(|s| s.map(Duration::from_secs)));
        assert_eq!(patience.pause(true, None), Some(second));
        assert_eq!(patience.pause(false, Some(second * 3)), Some(second * 3));
        assert_eq!(patience.pause(false, Some(second * 3600)), Some(LONGEST));
    }
}
