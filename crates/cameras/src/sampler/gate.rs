//! The motion gate: frames of a quiet scene are not worth a look.

use spotter_core::{Mono, config::MotionConfig};

/// What the gate decides about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateDecision {
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
pub struct MotionGate {
    rules: MotionConfig,
    moved: Option<Mono>,
    looked: Option<Mono>,
}

impl MotionGate {
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

    /// Does `decide` need a measured change? Measuring costs time, so a gate that is off asks for none.
    pub fn is_on(&self) -> bool {
        self.rules.on
    }

    /// Decides about a frame in which `changed` (share of the picture, 0..1) differs from the last one looked at. A frame that
    /// passes counts as looked at.
    pub fn decide(&mut self, changed: f64, now: Mono) -> GateDecision {
        let decision = self.decision(changed, now);
        if decision == GateDecision::Moved {
            self.moved = Some(now);
        }
        if decision != GateDecision::Closed {
            self.looked = Some(now);
        }
        decision
    }

    fn decision(&self, changed: f64, now: Mono) -> GateDecision {
        let Some(looked) = self.looked.filter(|_| self.rules.on) else {
            return if self.rules.on {
                GateDecision::Overdue
            } else {
                GateDecision::Ungated
            };
        };
        if changed >= self.rules.threshold {
            GateDecision::Moved
        } else if self
            .moved
            .is_some_and(|moved| now.since(moved) < self.rules.hold)
        {
            GateDecision::Held
        } else if now.since(looked) >= self.rules.at_least_every {
            GateDecision::Overdue
        } else {
            GateDecision::Closed
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
        let mut gate = MotionGate::new(rules(true));
        assert_eq!(
            gate.decide(0.0, at(0)),
            GateDecision::Overdue,
            "never looked"
        );
        assert_eq!(gate.decide(0.019, at(1)), GateDecision::Closed);
        assert_eq!(gate.decide(0.02, at(2)), GateDecision::Moved);
        assert_eq!(gate.decide(0.0, at(11)), GateDecision::Held);
        assert_eq!(gate.decide(0.0, at(12)), GateDecision::Closed);
        assert_eq!(
            gate.decide(0.0, at(40)),
            GateDecision::Closed,
            "29 s after the look"
        );
        assert_eq!(gate.decide(0.0, at(41)), GateDecision::Overdue);
        assert_eq!(gate.decide(0.0, at(42)), GateDecision::Closed);
    }

    #[test]
    fn a_gate_that_is_off_lets_everything_pass() {
        let mut gate = MotionGate::new(rules(false));
        for second in 0..3 {
            assert_eq!(gate.decide(0.0, at(second)), GateDecision::Ungated);
        }
    }
}
