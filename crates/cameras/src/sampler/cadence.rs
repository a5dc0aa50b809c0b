//! When the next look is due.

use std::time::Duration;

use spotter_core::{LookRate, Mono};

/// A steady pace: one look per period, on the first frame that arrives when it is due.
///
/// The due times form a grid, so a look that comes a frame late does not delay the ones after it. A look that is more
/// than half a period late moves the grid, for two reasons: after a pause there is no burst to catch up, and with a
/// camera about as slow as the pace the grid settles half a period away from its frames, where jitter cannot make it
/// miss one. It follows that `k + 1` looks take at least `k - 1/2` periods, and two looks at least half a one.
///
/// The first look is due at once, at a start that of all cameras. Each grid then begins at a phase of its own: cameras that stayed
/// in step would fill the engine with one look of each, and leave it idle for the rest of the period.
#[derive(Clone, Copy, Debug)]
pub struct Cadence {
    period: Duration,
    /// Part of a period, below 1.
    phase: f64,
    due: Mono,
    last: Option<Mono>,
}

impl Cadence {
    /// The first look is due at once, the second half a period and `phase` periods later.
    pub fn new(rate: LookRate, phase: f64) -> Self {
        Self {
            period: rate.period(),
            phase,
            due: Mono::default(),
            last: None,
        }
    }

    /// Another pace from now on: the next look is due one new period after the last one.
    pub fn set_rate(&mut self, rate: LookRate) {
        let period = rate.period();
        if let Some(last) = self.last.filter(|_| period != self.period) {
            self.due = last.after(period);
        }
        self.period = period;
    }

    /// The next look is due at once.
    pub fn make_due(&mut self) {
        self.due = Mono::default();
    }

    /// When the next look is due; in the past when it is overdue.
    pub fn due(&self) -> Mono {
        self.due
    }

    /// Time from look to look.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Is a look due now?
    pub fn is_due(&self, now: Mono) -> bool {
        self.due <= now
    }

    pub fn looked(&mut self, now: Mono) {
        let soonest = now.after(self.period / 2);
        self.due = match self.last {
            None => soonest.after(self.period.mul_f64(self.phase)),
            Some(_) => soonest.max(self.due.after(self.period)),
        };
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spotter_core::testing::rate;

    use super::*;

    const MS: u64 = 1_000_000;

    /// Looks taken when frames arrive at these times.
    fn looks(rate_hz: f64, frames_ns: impl IntoIterator<Item = u64>) -> Vec<u64> {
        looks_at_phase(rate_hz, 0.0, frames_ns)
    }

    fn looks_at_phase(
        rate_hz: f64,
        phase: f64,
        frames_ns: impl IntoIterator<Item = u64>,
    ) -> Vec<u64> {
        let mut cadence = Cadence::new(rate(rate_hz), phase);
        let mut taken = Vec::new();
        for at in frames_ns {
            let now = Mono::from_nanos(at);
            if cadence.is_due(now) {
                cadence.looked(now);
                taken.push(at);
            }
        }
        taken
    }

    #[test]
    fn camera_at_the_look_rate_loses_no_frame_to_jitter() {
        let jitter_ms = [0, 30, 5, 45, 12, 38, 22, 1];
        let frames = (0..600).map(|n| 5_000 * MS + n * 1000 * MS + jitter_ms[n as usize % 8] * MS);
        assert!(looks(1.0, frames.clone()).len() >= 599);
        // One more may be lost until the grid of another phase is away from the frames.
        for phase in [0.3, 0.5, 0.99] {
            let taken = looks_at_phase(1.0, phase, frames.clone()).len();
            assert!(taken >= 598, "{taken} at {phase}");
        }
    }

    #[test]
    fn an_outage_is_not_caught_up() {
        let before = (0..50).map(|n| n * 40 * MS);
        let after = (0..50).map(|n| 3_600_000 * MS + n * 40 * MS);
        let taken = looks(1.0, before.chain(after));
        // Two seconds of frames after an hour: the overdue one, and the two that were due in these two seconds.
        let late = taken.iter().filter(|&&t| t >= 3_600_000 * MS).count();
        assert!(late <= 3, "{late} looks in 2 s");
    }

    proptest! {
        #[test]
        fn the_rate_is_never_exceeded(
            rate_hz in 0.05f64..30.0,
            phase in 0.0f64..1.0,
            gaps_ms in prop::collection::vec(1u64..3000, 2..300),
        ) {
            let frames = gaps_ms.iter().scan(0, |at, gap| { *at += gap * MS; Some(*at) });
            let taken = looks_at_phase(rate_hz, phase, frames);
            let period_ns = 1e9 / rate_hz;
            for (i, &first) in taken.iter().enumerate() {
                for (k, &last) in taken[i..].iter().enumerate().skip(1) {
                    let least_ns = (k as f64 - 0.5) * period_ns;
                    prop_assert!((last - first) as f64 >= least_ns - 100.0 * k as f64);
                }
            }
        }
    }
}
