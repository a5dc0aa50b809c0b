//! When discovery records are published again after a start of Home Assistant. Pure: takes `now` and a random number.

use std::time::Duration;

use spotter_core::Mono;

/// All nodes receive the start at the same moment; a random pause spreads their records.
const DELAY_MAX: Duration = Duration::from_secs(5);

/// A start of Home Assistant that is not answered yet.
#[derive(Debug, Default)]
pub struct Rebirth {
    due: Option<Mono>,
}

impl Rebirth {
    /// Home Assistant started at `now`; `chance` is 0..1.
    pub fn started(&mut self, now: Mono, chance: f64) {
        let delay = DELAY_MAX.mul_f64(chance.clamp(0.0, 1.0));
        self.due.get_or_insert(now.after(delay));
    }

    /// True once when the records must be published again.
    pub fn take(&mut self, now: Mono) -> bool {
        self.due.take_if(|at| *at <= now).is_some()
    }

    /// When [`take`](Self::take) returns true.
    pub fn next_at(&self) -> Option<Mono> {
        self.due
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
        let mut rebirth = Rebirth::default();
        assert_eq!(rebirth.next_at(), None);
        rebirth.started(at(1000), 0.5);
        rebirth.started(at(2000), 0.0); // Two of them are one.
        assert!(!rebirth.take(at(3499)));
        assert_eq!(rebirth.next_at(), Some(at(3500)));
        assert!(rebirth.take(at(3500)) && !rebirth.take(at(9000)));
        for chance in [-1.0, 0.0, 0.999, 7.0] {
            rebirth.started(at(10_000), chance);
            assert!(rebirth.next_at() >= Some(at(10_000)));
            assert!(rebirth.take(at(15_000)), "{chance}");
        }
    }
}
