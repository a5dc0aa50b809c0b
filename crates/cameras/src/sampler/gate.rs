//! The motion gate: frames of a quiet scene are not worth a look.

use spotter_core::{Mono, config::MotionConfig};

/// What the gate says about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The gate is switched off, every frame passes.
    Ungated,
    /// Enough of the picture changed.
    Moved,
    /// Nothing moved now, but not long ago.
    Held,
    /// Nothing moved for long: a look is taken to be sure.
    Overdue,
    /// Not worth a look.
    Closed,
}

/// Memory of one camera's gate.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    rules: MotionConfig,
    moved: Option<Mono>,
    looked: Option<Mono>,
}

impl Gate {
    /// A gate that has seen nothing: its first frame passes.
    pub fn new(rules: MotionConfig) -> Self {
        Self {
            rules,
            moved: None,
            looked: None,
        }
    }

    /// Other rules from now on; what moved when is remembered.
    pub fn set_rules(&mut self, rules: MotionConfig) {
        self.rules = rules;
    }

    /// Does `judge` need a measured change? Measuring costs time, so a gate that is off asks for none.
    pub fn is_on(&self) -> bool {
        self.rules.on
    }

    /// Judges a frame in which `changed` (share of the picture, 0..1) differs from the last one looked at. A frame that
    /// passes counts as looked at.
    pub fn judge(&mut self, changed: f64, now: Mono) -> Verdict {
        let verdict = self.verdict(changed, now);
        if verdict == Verdict::Moved {
            self.moved = Some(now);
        }
        if verdict != Verdict::Closed {
            self.looked = Some(now);
        }
        verdict
    }

    fn verdict(&self, changed: f64, now: Mono) -> Verdict {
        let Some(looked) = self.looked.filter(|_| self.rules.on) else {
            return if self.rules.on {
                Verdict::Overdue
            } else {
                Verdict::Ungated
            };
        };
        if changed >= self.rules.threshold {
            Verdict::Moved
        } else if self
            .moved
            .is_some_and(|moved| now.since(moved) < self.rules.hold)
        {
            Verdict::Held
        } else if now.since(looked) >= self.rules.at_least_every {
            Verdict::Overdue
        } else {
            Verdict::Closed
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::default().after(Duration::from_secs(seconds))
    }

    fn rules(on: bool) -> MotionConfig {
        MotionConfig {
            on,
            threshold: 0.02,
            hold: Duration::from_secs(10),
            at_least_every: Duration::from_secs(30),
        }
    }

    #[test]
    fn opens_for_motion_holds_and_closes() {
        let mut gate = Gate::new(rules(true));
        assert_eq!(gate.judge(0.0, at(0)), Verdict::Overdue, "never looked");
        assert_eq!(gate.judge(0.019, at(1)), Verdict::Closed);
        assert_eq!(gate.judge(0.02, at(2)), Verdict::Moved);
        assert_eq!(gate.judge(0.0, at(11)), Verdict::Held);
        assert_eq!(gate.judge(0.0, at(12)), Verdict::Closed);
        assert_eq!(
            gate.judge(0.0, at(40)),
            Verdict::Closed,
            "29 s after the look"
        );
        assert_eq!(gate.judge(0.0, at(41)), Verdict::Overdue);
        assert_eq!(gate.judge(0.0, at(42)), Verdict::Closed);
    }

    #[test]
    fn a_gate_that_is_off_lets_everything_pass() {
        let mut gate = Gate::new(rules(false));
        for second in 0..3 {
            assert_eq!(gate.judge(0.0, at(second)), Verdict::Ungated);
        }
    }
}
