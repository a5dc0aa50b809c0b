//! How long a look may wait and work.
//!
//! ```text
//!   received ──── budget ────▶ start_by ──── patience ────▶ answer_by
//!             waits, or is late          works, or is stopped
//! ```

use std::time::Duration;

use spotter_core::Mono;

/// Patience in looks as they were measured at the start. The look that was measured had the device for itself, and a grey
/// picture in which there is little to find; an answer with fifty objects takes ten times as long on a small device, and what is
/// stopped was work for nothing. How old answers become usually is the engine's matter (`look_limit`).
const PATIENCE_LOOKS: u32 = 20;

/// The limits of every look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimits {
    budget: Duration,
    patience: Duration,
}

impl TimeLimits {
    /// `budget` is the age, counted from a frame's first packet, at which work on it must have begun; the work may then
    /// take as long again, or twenty times as long as `measured`, the time of one look on this machine: a slow processor with a
    /// large model shall answer late rather than never. `None` when it could not be measured.
    pub fn new(budget: Duration, measured: Option<Duration>) -> Self {
        let looks = measured.unwrap_or_default().saturating_mul(PATIENCE_LOOKS);
        Self {
            budget,
            patience: budget.max(looks),
        }
    }

    /// When work on a frame must have begun.
    pub fn start_by(&self, received: Mono) -> Mono {
        received.after(self.budget)
    }

    /// When it must be answered.
    pub fn answer_by(&self, received: Mono) -> Mono {
        self.start_by(received).after(self.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_slow_machine_has_more_patience_but_no_larger_budget() {
        let received = Mono::default().after(ms(10_000));
        for (measured, patience) in [
            (None, ms(250)),
            (Some(ms(10)), ms(250)),
            (Some(ms(30_000)), ms(600_000)),
            (Some(Duration::MAX), Duration::MAX),
        ] {
            let limits = TimeLimits::new(ms(250), measured);
            let start_by = received.after(ms(250));
            assert_eq!(limits.start_by(received), start_by);
            let answer_by = start_by.after(patience);
            assert_eq!(limits.answer_by(received), answer_by, "{measured:?}");
        }
    }
}
