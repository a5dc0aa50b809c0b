//! How many looks may be inside the engine. Pure.
//!
//! More looks in flight keep the device busier, up to a knee; beyond it they only make answers older, and an answer that is too
//! late was work for nothing. The knee follows from what steps cost, so it differs by device, resolution, prompts and objects.
//!
//! A look that has many objects takes many steps, and each image that joins them makes it older. So no look begins while one is
//! *in a hurry*, which is one that runs for longer than a part of the bound. The part is chosen together with the number.
//!
//! ```text
//!   answered ─▶ Pace (costs of steps, steps of looks) ─▶    forecasts for 1, 2, 3, … looks in flight, early and late hurry
//!            ─▶ age less its forecast, share of old ages ─▶ the highest rate whose ages keep to the bound
//! ```

use std::time::Duration;

use crate::scheduler::pace::{Forecast, Forecaster, Pace};

/// An answer may be as old as this many looks alone where that is more than the budget.
const LOOKS_ALONE: f64 = 2.5;
/// A look that runs for longer than one of these parts of the bound is in a hurry. A small part keeps ages low, a large one raises
/// the rate.
const HURRY_PARTS: [f64; 5] = [0.3, 0.4, 0.5, 0.65, 0.9];
/// The part that a fixed number of looks has, and a learned one before the first answer.
const HURRY_PART: f64 = 0.5;
/// Another setting is chosen only when it raises the rate by this factor and keeps ages below this part of the bound, so that the
/// setting does not oscillate.
const GAIN: f64 = 1.02;
const CHANGE_BELOW: f64 = 0.97;
/// The setting stays while ages keep below this part of the bound.
const KEEP_BELOW: f64 = 0.99;
/// The number changes by at most this, or a part of it, at once: of many looks, few more are worth nothing.
const LARGEST_CHANGE: usize = 2;
const LARGEST_CHANGE_PART: usize = 3;
/// Ages over which the forecast's error is averaged: they scatter as much as they are old.
const ERROR_MEMORY: f64 = 64.0;
/// The 95th percentile of ages is to be this part of the bound. Each answer corrects the forecasts of it by a step, parts of the bound,
/// within these limits: answers of a box with little to do are always young, which says nothing about one with much to do.
const OLD_ABOVE: f64 = 0.98;
const EXCESS_STEP: f64 = 0.005;
const LEAST_EXCESS: f64 = -0.1;
const LARGEST_EXCESS: f64 = 0.2;
/// The number is chosen again after this many answers; the first ones each count.
const CHOOSE_EVERY: u64 = 6;

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

/// How many looks may be in flight, and for which part of the bound one may run before it is in a hurry.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LookSetting {
    looks: usize,
    hurry_part: f64,
}

/// The limit now.
#[derive(Clone, Copy, Debug)]
pub struct LookLimit {
    rule: LookRule,
    setting: LookSetting,
    hurry_after: Duration,
    /// Forecast mean age at this setting.
    expected: Option<Duration>,
    /// Ages less the forecast, seconds: the frame's wait for a permit, the host's work.
    error_s: f64,
    /// The part of the bound by which forecasts of the 95th percentile turned out too low; negative: too high.
    excess_part: f64,
    answers: u64,
}

impl LookLimit {
    pub fn new(rule: LookRule) -> Self {
        Self {
            rule,
            setting: LookSetting {
                looks: rule.first(),
                hurry_part: HURRY_PART,
            },
            hurry_after: Duration::MAX,
            expected: None,
            error_s: 0.0,
            excess_part: 0.0,
            answers: 0,
        }
    }

    /// Looks that may be in flight.
    pub fn looks(&self) -> usize {
        self.setting.looks
    }

    /// A look that runs for longer keeps others from beginning until it is answered.
    pub fn hurry_after(&self) -> Duration {
        self.hurry_after
    }

    /// A look was answered at this age, counted from the reception of its frame. A step has room for `images_max`.
    pub fn answered(&mut self, age: Duration, pace: &Pace, images_max: usize) {
        let Some(alone) = pace.look_alone() else {
            return;
        };
        let bound = self.rule.budget.max(alone.mul_f64(LOOKS_ALONE));
        self.answers += 1;
        if let Some(expected) = self.expected {
            let weight = (self.answers as f64).min(ERROR_MEMORY);
            self.error_s += (age.as_secs_f64() - expected.as_secs_f64() - self.error_s) / weight;
        }
        // In balance when one answer in twenty is older.
        self.excess_part += match age > bound.mul_f64(OLD_ABOVE) {
            true => 0.95 * EXCESS_STEP,
            false => -0.05 * EXCESS_STEP,
        };
        self.excess_part = self.excess_part.clamp(LEAST_EXCESS, LARGEST_EXCESS);
        let is_due = self.answers <= 2 * CHOOSE_EVERY || self.answers.is_multiple_of(CHOOSE_EVERY);
        if let InFlight::Learned(most) = self.rule.in_flight
            && let Some(forecaster) = pace.forecaster(images_max).filter(|_| is_due)
        {
            let chosen = self.choose(bound, most, &forecaster);
            (self.setting, self.expected) = (chosen.0, Some(chosen.1.mean));
        }
        self.hurry_after = bound.mul_f64(self.setting.hurry_part);
    }

    /// The setting with the highest rate, of those near the present one whose ages keep to the bound.
    fn choose(
        &self,
        bound: Duration,
        most: usize,
        forecaster: &Forecaster,
    ) -> (LookSetting, Forecast) {
        let forecast = |looks, hurry_part| {
            let setting = LookSetting { looks, hurry_part };
            (
                setting,
                forecaster.forecast(looks, bound.mul_f64(hurry_part)),
            )
        };
        let keeps = |forecast: &Forecast, part: f64| {
            let age_s = forecast.p95.as_secs_f64() + self.error_s.max(0.0);
            age_s <= (part - self.excess_part) * bound.as_secs_f64()
        };
        let LookSetting { looks, hurry_part } = self.setting;
        let change = LARGEST_CHANGE.max(looks / LARGEST_CHANGE_PART);
        let fewest = looks.saturating_sub(change).max(1);
        let near = [
            fewest,
            looks.saturating_sub(1).max(1),
            looks,
            looks + 1,
            looks + change,
        ];
        let near = near.map(|looks| looks.min(most));
        let near = near
            .into_iter()
            .flat_map(|looks| HURRY_PARTS.map(|hurry_part| (looks, hurry_part)));
        let best = near
            .map(|(looks, hurry_part)| forecast(looks, hurry_part))
            .filter(|(_, next)| keeps(next, CHANGE_BELOW))
            .max_by(|(_, a), (_, b)| a.looks_per_s.total_cmp(&b.looks_per_s));
        let now = forecast(looks, hurry_part);
        match best {
            Some(best) if !keeps(&now.1, KEEP_BELOW) => best,
            Some(best) if best.1.looks_per_s > GAIN * now.1.looks_per_s => best,
            None if !keeps(&now.1, KEEP_BELOW) => forecast(fewest, HURRY_PART),
            _ => now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use spotter_core::duration_from_secs;

    fn rule() -> LookRule {
        LookRule {
            in_flight: InFlight::Learned(12),
            budget: Duration::from_millis(250),
        }
    }

    /// A device on which an image and a step cost this, milliseconds, with looks of these numbers of steps.
    fn pace(image_ms: f64, step_ms: f64, steps: &[u32]) -> Pace {
        let ms = |ms: f64| duration_from_secs(ms * 1e-3);
        let mut pace = Pace::default();
        for _ in 0..20 {
            pace.step(&[], ms(step_ms));
            pace.step(&[12], ms(image_ms + step_ms));
        }
        steps.iter().for_each(|&steps| pace.look(steps));
        pace
    }

    /// Answers as old as forecast: one in twenty as the 95th percentile, and the mean of all.
    fn answer(limit: &mut LookLimit, pace: &Pace, count: usize) {
        for _ in 0..count {
            let forecaster = pace.forecaster(4).expect("looks are known");
            let forecast = forecaster.forecast(limit.looks(), limit.hurry_after());
            let age = match limit.answers % 20 {
                19 => forecast.p95,
                _ => (20 * forecast.mean).saturating_sub(forecast.p95) / 19,
            };
            limit.answered(age, pace, 4);
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

    /// Another clock, other objects: what is chosen twenty answers later has the rate of what is chosen after hundreds.
    #[test]
    fn change_of_costs_or_objects_is_followed_within_twenty_answers() {
        let few: Vec<u32> = (0..40).map(|i| 2 + i % 4 * 2).collect();
        let many: Vec<u32> = few.iter().map(|steps| 8 * steps).collect();
        for (image_ms, step_ms, steps) in [(20.0, 1.0, &many), (40.0, 2.0, &few), (10.0, 0.5, &few)]
        {
            let mut pace = pace(20.0, 1.0, &few);
            let mut limit = LookLimit::new(rule());
            answer(&mut limit, &pace, 100);
            let look = |limit: &mut LookLimit, pace: &mut Pace, looks: usize| {
                for look in 0..looks {
                    let steps = steps[look % steps.len()];
                    let ms = |ms: f64| duration_from_secs(ms * 1e-3);
                    pace.step(&[12], ms(image_ms + step_ms));
                    (1..steps).for_each(|_| pace.step(&[], ms(step_ms)));
                    pace.look(steps);
                    answer(limit, pace, 1);
                }
            };
            look(&mut limit, &mut pace, 20);
            let early = limit;
            look(&mut limit, &mut pace, 600);
            let forecaster = pace.forecaster(4).expect("looks are known");
            let [early, late] =
                [early, limit].map(|limit| forecaster.forecast(limit.looks(), limit.hurry_after()));
            let ratio = early.looks_per_s / late.looks_per_s;
            assert!(
                (0.9..1.1).contains(&ratio),
                "{image_ms} {step_ms}: {early:?} {late:?}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(spotter_core::testing::cases(48)))]

        /// On a device that does not change, the number may grow or shrink where ages show that the forecasts are off, but after twenty
        /// answers it turns back at most twice in 400.
        #[test]
        fn the_number_does_not_oscillate(
            image_ms in 1.0..400.0_f64,
            step_ms in 0.5..40.0_f64,
            steps in prop::collection::vec(1_u32..60, 32),
        ) {
            let pace = pace(image_ms, step_ms, &steps);
            let mut limit = LookLimit::new(rule());
            answer(&mut limit, &pace, 20);
            let mut directions = Vec::new();
            for _ in 0..400 {
                let before = limit.looks();
                answer(&mut limit, &pace, 1);
                directions.push(limit.looks().cmp(&before));
            }
            directions.retain(|direction| direction.is_ne());
            directions.dedup();
            prop_assert!(directions.len() <= 3, "{directions:?}: {limit:?}");
        }
    }
}
