//! Pauses between attempts.

use std::time::Duration;

/// Pauses that double from the first to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
}

impl Backoff {
    pub const fn of_seconds(first: u64, longest: u64) -> Self {
        Self {
            first: Duration::from_secs(first),
            longest: Duration::from_secs(longest),
        }
    }

    /// The pause after the `failures`-th failure in a row (from 1). `random`, uniform in 0..1, varies it by up to 20 % within the limits, so
    /// that many clients do not try at the same time. It is spread evenly: clamping would give half of them the very same one.
    pub fn pause(self, failures: u32, random: f64) -> Duration {
        let doubled = self
            .first
            .saturating_mul(1 << (failures.max(1) - 1).min(16));
        let middle = doubled.min(self.longest);
        let least = middle.mul_f64(0.8).max(self.first);
        let most = middle.mul_f64(1.2).min(self.longest);
        least + (most - least).mul_f64(random.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_within_their_limits() {
        let backoff = Backoff::of_seconds(1, 60);
        for (failures, least_s, most_s) in [
            (0, 1.0, 1.2),
            (1, 1.0, 1.2),
            (2, 1.6, 2.4),
            (6, 25.6, 38.4),
            (7, 48.0, 60.0),
            (u32::MAX, 48.0, 60.0),
        ] {
            let ends = [0.0, 1.0].map(|random| backoff.pause(failures, random).as_secs_f64());
            assert!((ends[0] - least_s).abs() < 1e-6, "{failures}: {ends:?}");
            assert!((ends[1] - most_s).abs() < 1e-6, "{failures}: {ends:?}");
        }
    }
}
