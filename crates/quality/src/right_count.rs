//! What a number of judged alarms says about all alarms.

/// How many of the judged alarms are right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RightCount {
    pub right: u32,
    /// At least as many.
    pub judged: u32,
}

/// Two shares between which another one probably is, 0..1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareInterval {
    pub low: f64,
    pub high: f64,
}

/// Half the width of 95 % of a normal distribution, in standard deviations.
const Z_95: f64 = 1.959_964;
/// A statement of [`RightCount::shows_at_least`] is false at most so often.
const FALSE_AT_MOST: f64 = 0.1;

impl RightCount {
    pub fn wrong(self) -> u32 {
        self.judged.saturating_sub(self.right)
    }

    /// The share of right ones, 0..1; `None` without a judged one.
    pub fn share(self) -> Option<f64> {
        (self.judged > 0).then(|| f64::from(self.right) / f64::from(self.judged))
    }

    /// 95 % interval of the share of right ones among all alarms (Wilson, "Probable inference, the law of succession, and statistical
    /// inference", 1927).
    pub fn interval(self) -> ShareInterval {
        let Some(share) = self.share() else {
            return ShareInterval {
                low: 0.0,
                high: 1.0,
            };
        };
        let n = f64::from(self.judged);
        let per_alarm = Z_95 * Z_95 / n;
        let centre = share + per_alarm / 2.0;
        let reach = Z_95 * (share * (1.0 - share) / n + per_alarm / (4.0 * n)).sqrt();
        ShareInterval {
            low: ((centre - reach) / (1.0 + per_alarm)).max(0.0),
            high: ((centre + reach) / (1.0 + per_alarm)).min(1.0),
        }
    }

    /// True when the one-sided 90 % bound of Clopper and Pearson (1934) for the share of right ones among all alarms is at least `target`: if only
    /// the share `target` were right, at most one of ten samples would have so many right ones. So `ln 0.1 / ln target` alarms are
    /// the fewest that can show it: 11 for 0.8, 22 for 0.9.
    pub fn shows_at_least(self, target: f64) -> bool {
        self.judged > 0 && self.chance_of_as_many(target) <= FALSE_AT_MOST
    }

    /// The chance that a sample of this size has at least so many right ones, when this `share` of all is right (0 < `share` < 1).
    fn chance_of_as_many(self, share: f64) -> f64 {
        let n = f64::from(self.judged);
        // Of all judged ones right; then of one less, and so on, each from the last one.
        let mut ln_chance = n * share.ln();
        let mut sum = ln_chance.exp();
        for right in (self.right..self.judged).rev().map(f64::from) {
            ln_chance += ((right + 1.0) / (n - right) * (1.0 - share) / share).ln();
            sum += ln_chance.exp();
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count(right: u32, judged: u32) -> RightCount {
        RightCount { right, judged }
    }

    #[test]
    fn interval_is_that_of_published_examples() {
        // Newcombe, "Two-sided confidence intervals for the single proportion", 1998, table I, method 3.
        for (right, judged, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let ShareInterval { low: l, high: h } = count(right, judged).interval();
            assert!((l - low).abs() < 5e-5 && (h - high).abs() < 5e-5, "{l} {h}");
        }
    }

    #[test]
    fn fewest_alarms_that_show_a_target_are_all_right() {
        for (target, fewest) in [(0.8, 11), (0.9, 22)] {
            assert!(count(fewest, fewest).shows_at_least(target));
            assert!(!count(fewest - 1, fewest - 1).shows_at_least(target));
            assert!(!count(fewest - 1, fewest).shows_at_least(target));
        }
        assert!(!count(0, 0).shows_at_least(0.8));
        // Too small for a floating-point number: all 5000 right.
        assert!(count(4100, 5000).shows_at_least(0.8) && !count(4010, 5000).shows_at_least(0.8));
    }

    proptest! {
        #[test]
        fn chance_is_the_sum_of_binomial_terms(judged in 1u32..60, right in 0u32..60, share in 0.05f64..0.95) {
            let right = right.min(judged);
            let choose = |k: u32| (0..k).fold(1.0, |c, i| c * f64::from(judged - i) / f64::from(i + 1));
            let term = |k: u32| choose(k) * share.powi(k as i32) * (1.0 - share).powi((judged - k) as i32);
            let expected: f64 = (right..=judged).map(term).sum();
            let chance = count(right, judged).chance_of_as_many(share);
            prop_assert!((chance - expected).abs() < 1e-9, "{chance} {expected}");
        }

        #[test]
        fn interval_has_the_share_and_narrows_with_more_alarms(right in 0u32..500, wrong in 0u32..500) {
            let few = count(right, right + wrong);
            let many = count(4 * right, 4 * (right + wrong));
            let (ShareInterval { low, high }, share) = (few.interval(), few.share().unwrap_or(0.5));
            prop_assert!((0.0..=1.0).contains(&low) && low <= share + 1e-12 && share <= high + 1e-12 && high <= 1.0);
            prop_assert!(many.interval().high - many.interval().low <= high - low);
        }
    }
}
