//! How many looks may be inside the engine. Pure.
//!
//! More looks in flight keep the device busier, up to a knee; beyond it they only make answers older, and an answer that is too
//! late was work for nothing. The knee follows from what steps cost, so it differs by device, resolution, prompts and objects.
//!
//! ```text
//!   answered ─▶ Pace (costs of steps, steps of looks) ─▶ forecasts for 1, 2, 3, … looks in flight
//!            ─▶ age less its forecast ─────────────────▶ the most that keep to the bound, and raise the rate
//! ```

use std::time::Duration;

use crate::scheduler::pace::{Forecast, Pace};

/// An answer may be as old as this many looks alone where that is more than the budget.
const LOOKS_ALONE: f64 = 2.5;
/// A look that runs for longer than this part of the bound is in a hurry.
const HURRY: f64 = 0.5;
/// A further look in flight has to raise the rate by this factor.
const GAIN: f64 = 1.01;
/// The number rises only where ages stay below this part of the bound, so that it does not oscillate.
const RAISE_BELOW: f64 = 0.95;
/// Ages over which the forecast's error is averaged.
const ERROR_MEMORY: f64 = 16.0;
/// The number is chosen again after this many answers; the first ones each count.
const CHOOSE_EVERY: u64 = 4;

/// How many looks may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlight {
    Fixed(usize),
    /// As many as give the highest rate at which the 95th percentile of ages keeps to the bound; this many at most.
    Learned(usize),
}

/// How many looks an engine takes at once, and how old answers may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookRule {
    pub in_flight: InFlight,
    /// The bound of ages is this, or 2.5 looks alone if that is more.
    pub budget: Duration,
}

impl LookRule {
    /// Always `looks`, however old their answers become.
    pub fn fixed(looks: usize) -> Self {
        Self {
            in_flight: InFlight::Fixed(looks),
            budget: Duration::MAX,
        }
    }

    /// The highest number that it allows.
    pub fn most(self) -> usize {
        match self.in_flight {
            InFlight::Fixed(looks) | InFlight::Learned(looks) => looks.max(1),
        }
    }

    /// The number before the first answer.
    pub fn first(self) -> usize {
        match self.in_flight {
            InFlight::Fixed(_) => self.most(),
            InFlight::Learned(_) => 1,
        }
    }
}

/// The limit now.
#[derive(Clone, Copy, Debug)]
pub struct LookLimit {
    rule: LookRule,
    looks: usize,
    hurry_after: Duration,
    /// Ages less the forecast, seconds: the frame's wait for a permit, the host's work.
    error_s: f64,
    answers: u64,
}

impl LookLimit {
    pub fn new(rule: LookRule) -> Self {
        Self {
            rule,
            looks: rule.first(),
            hurry_after: Duration::MAX,
            error_s: 0.0,
            answers: 0,
        }
    }

    /// Looks that may be in flight.
    pub fn looks(&self) -> usize {
        self.looks
    }

    /// A look that runs for longer gets steps without new images until it is answered.
    pub fn hurry_after(&self) -> Duration {
        self.hurry_after
    }

    /// A look was answered at this age, counted from the reception of its frame. A step has room for `images_max`.
    pub fn answered(&mut self, age: Duration, pace: &Pace, images_max: usize) {
        let Some(alone) = pace.look_alone() else {
            return;
        };
        let bound = self.rule.budget.max(alone.mul_f64(LOOKS_ALONE));
        self.hurry_after = bound.mul_f64(HURRY);
        let InFlight::Learned(most) = self.rule.in_flight else {
            return;
        };
        self.answers += 1;
        if self.answers > 2 * CHOOSE_EVERY && !self.answers.is_multiple_of(CHOOSE_EVERY) {
            return;
        }
        let forecast = |looks| pace.forecast(looks, images_max, self.hurry_after);
        let Some(now) = forecast(self.looks) else {
            return;
        };
        let weight = (self.answers as f64).min(ERROR_MEMORY / CHOOSE_EVERY as f64);
        self.error_s += (age.as_secs_f64() - now.mean.as_secs_f64() - self.error_s) / weight;
        self.looks = self.choose(bound, most, forecast);
    }

    /// The smallest number with the highest rate, of those whose ages keep to the bound.
    fn choose(
        &self,
        bound: Duration,
        most: usize,
        forecast: impl Fn(usize) -> Option<Forecast>,
    ) -> usize {
        let (mut chosen, mut rate) = (1, 0.0);
        for looks in 1..=most {
            let Some(next) = forecast(looks) else {
                break;
            };
            let part = if looks > self.looks { RAISE_BELOW } else { 1.0 };
            let age_s = next.p95.as_secs_f64() + self.error_s.max(0.0);
            if looks > 1 && age_s > part * bound.as_secs_f64() {
                break;
            }
            if next.looks_per_s >= GAIN * rate {
                (chosen, rate) = (looks, next.looks_per_s);
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule() -> LookRule {
        LookRule {
            in_flight: InFlight::Learned(12),
            budget: Duration::from_millis(250),
        }
    }

    /// A device on which an image and a step cost this, milliseconds, with looks of these numbers of steps.
    fn pace(image_ms: f64, step_ms: f64, steps: &[u32]) -> Pace {
        let ms = |ms: f64| Duration::from_secs_f64(ms * 1e-3);
        let mut pace = Pace::default();
        for _ in 0..20 {
            pace.step(0, ms(step_ms));
            pace.step(1, ms(image_ms + step_ms));
        }
        steps.iter().for_each(|&steps| pace.look(steps));
        pace
    }

    /// Answers as old as forecast.
    fn answer(limit: &mut LookLimit, pace: &Pace, count: usize) {
        for _ in 0..count {
            let forecast = pace.forecast(limit.looks(), 4, limit.hurry_after());
            limit.answered(forecast.expect("looks are known").mean, pace, 4);
        }
    }

    #[test]
    fn fast_device_takes_many_looks_slow_device_few() {
        let mut fast = LookLimit::new(rule());
        answer(&mut fast, &pace(5.0, 0.9, &[2, 5, 8, 1]), 20);
        assert!(fast.looks() >= 6, "{fast:?}");
        let mut slow = LookLimit::new(rule());
        answer(&mut slow, &pace(200.0, 6.5, &[2, 5, 8, 1]), 20);
        assert!((1..=2).contains(&slow.looks()), "{slow:?}");
    }

    #[test]
    fn old_answers_lower_the_number() {
        let pace = pace(20.0, 1.0, &[2, 5, 8, 1]);
        let mut limit = LookLimit::new(rule());
        answer(&mut limit, &pace, 20);
        let before = limit.looks();
        for _ in 0..20 {
            limit.answered(Duration::from_millis(400), &pace, 4);
        }
        assert!(limit.looks() < before, "{before} {limit:?}");
    }

    #[test]
    fn fixed_number_is_never_changed() {
        let pace = pace(200.0, 6.5, &[2, 5, 8, 1]);
        let mut limit = LookLimit::new(LookRule::fixed(8));
        answer(&mut limit, &pace, 40);
        assert_eq!(
            (
                limit.looks(),
                limit.hurry_after() > Duration::from_secs(1_000_000)
            ),
            (8, true)
        );
    }

    proptest! {
        /// Within twenty answers of a device that does not change, the number is found and stays.
        #[test]
        fn the_number_does_not_oscillate(
            image_ms in 1.0..400.0_f64,
            step_ms in 0.5..40.0_f64,
            steps in prop::collection::vec(1_u32..60, 32),
        ) {
            let pace = pace(image_ms, step_ms, &steps);
            let mut limit = LookLimit::new(rule());
            answer(&mut limit, &pace, 20);
            let found = limit.looks();
            let mut changes = 0;
            for _ in 0..60 {
                let before = limit.looks();
                answer(&mut limit, &pace, 1);
                changes += usize::from(limit.looks() != before);
            }
            prop_assert!(changes <= 1, "{changes} changes from {found}: {limit:?}");
        }
    }
}
