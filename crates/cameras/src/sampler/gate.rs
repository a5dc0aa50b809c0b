//! The motion gate: frames of a quiet scene are not worth a look.

use spotter_config::MotionConfig;
use spotter_core::Mono;

/// Memory of one camera's gate. One that has seen nothing lets the first frame pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct MotionGate {
    moved: Option<Mono>,
    looked: Option<Mono>,
}

impl MotionGate {
    /// True when a frame is worth a look in which `changed` (share of the picture, 0..1) differs from the last one looked at: it
    /// moves, moved not long ago, or nothing was looked at for long. A frame that passes counts as looked at.
    pub fn passes(&mut self, rules: &MotionConfig, changed: f64, now: Mono) -> bool {
        let moves = changed >= rules.threshold;
        let passes = match self.looked.filter(|_| rules.on) {
            None => true,
            Some(looked) => {
                if moves {
                    self.moved = Some(now);
                }
                let is_held = |moved| now.since(moved) < rules.hold;
                let is_old = now.since(looked) >= rules.at_least_every;
                moves || is_old || self.moved.is_some_and(is_held)
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
        let mut gate = MotionGate::default();
        let rules = MotionConfig {
            on: true,
            threshold: 0.02,
            hold: Duration::from_secs(10),
            at_least_every: Duration::from_secs(30),
        };
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
            assert_eq!(gate.passes(&rules, changed, now), passes, "{second}");
        }
    }
}
