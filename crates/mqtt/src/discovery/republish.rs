//! When discovery records are published again after a start of Home Assistant. Pure: takes `now` and a random number.

use std::time::Duration;

use spotter_core::Mono;

/// All nodes receive the start at the same moment; a random pause spreads their records.
const DELAY_MAX: Duration = Duration::from_secs(5);

/// A start of Home Assistant that is not answered yet.
#[derive(Debug, Default)]
pub struct RepublishTimer {
    due: Option<Mono>,
}

impl RepublishTimer {
    /// Home Assistant started at `now`; `chance` is 0..1.
    pub fn started(&mut self, now: Mono, chance: f64) {
        let delay = DELAY_MAX.mul_f64(chance.clamp(0.0, 1.0));
        self.due.get_or_insert(now.after(delay));
    }

    /// True once when the records must be published again.
    pub fn take(&mut self, now: Mono) -> bool {
        self.due.take_if(|at| *at <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Mono {
        Mono::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn a_start_is_answered_once_within_five_seconds() {
        let mut republish_timer = RepublishTimer::default();
        assert!(!republish_timer.take(at(500)));
        republish_timer.started(at(1000), 0.5);
        republish_timer.started(at(2000), 0.0); // Two of them are one.
        assert!(!republish_timer.take(at(3499)));
        assert!(republish_timer.take(at(3500)) && !republish_timer.take(at(9000)));
        for chance in [-1.0, 0.0, 0.999, 7.0] {
            republish_timer.started(at(10_000), chance);
            assert!(!republish_timer.take(at(9_999)));
            assert!(republish_timer.take(at(15_000)), "{chance}");
        }
    }
}
