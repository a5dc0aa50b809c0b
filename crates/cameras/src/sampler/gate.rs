//! The motion gate: frames of a quiet scene are not worth a look.

use spotter_config::MotionConfig;
use spotter_core::Mono;

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

    /// Its next frame passes, as its first one did.
    pub fn restart(&mut self) {
        (self.moved, self.looked) = (None, None);
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

    #[test]
    fn gate_opens_for_motion_holds_and_closes() {
        let mut gate = MotionGate::new(MotionConfig {
            on: true,
            threshold: 0.02,
            hold: Duration::from_secs(10),
            at_least_every: Duration::from_secs(30),
        });
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
            let now = Mono::default().after(Duration::from_secs(second));
            assert_eq!(gate.passes(changed, now), passes, "{second}");
        }
    }
}
