//! The motion gate: frames of a quiet scene are not worth a look.

use spotter_core::{Mono, config::MotionConfig};

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

    /// Does [`MotionGate::passes`] need a measured change? Measuring costs time, so a gate that is off asks for none.
    pub fn is_on(&self) -> bool {
        self.rules.on
    }

    /// True when a frame is worth a look in which `changed` (share of the picture, 0..1) differs from the last one looked at: it
    /// moves, moved not long ago, or nothing was looked at for long. A frame that passes counts as looked at.
    pub fn passes(&mut self, changed: f64, now: Mono) -> bool {
        let rules = self.rules;
        let passes = match self.looked.filter(|_| rules.on) {
            None => true,
            Some(_) if changed >= rules.threshold => {
                self.moved = Some(now);
                true
            }
            Some(looked) => {
                let held = self
                    .moved
                    .is_some_and(|moved| now.since(moved) < rules.hold);
                held || now.since(looked) >= rules.at_least_every
            }
        };
        if passes {
            self.looked = Some(now);
        }
        passes
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
    fn gate_opens_for_motion_holds_and_closes() {
        let mut gate = MotionGate::new(rules(true));
        for (second, changed, passes) in [
            (0, 0.0, true), // never looked
            (1, 0.019, false),
            (2, 0.02, true),
            (11, 0.0, true), // held
            (12, 0.0, false),
            (40, 0.0, false), // 29 s after the look
            (41, 0.0, true),
            (42, 0.0, false),
        ] {
            assert_eq!(gate.passes(changed, at(second)), passes, "{second}");
        }
    }

    #[test]
    fn gate_that_is_off_passes_every_frame() {
        let mut gate = MotionGate::new(rules(false));
        assert!((0..3).all(|second| gate.passes(0.0, at(second))));
    }
}
