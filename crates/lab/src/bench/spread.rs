//! Many times as their median and tail.

use std::fmt;

use serde::Serialize;

/// The middle and the tail of many times, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Half of the times are this or less.
    pub median_ms: f64,
    /// 95 of 100 are this or less.
    pub p95_ms: f64,
}

impl Spread {
    /// By nearest rank; zeros without any times.
    pub(crate) fn of(times_ms: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = times_ms.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Self {
            median_ms: percentile(&sorted, 50),
            p95_ms: percentile(&sorted, 95),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} / {:.1}", self.median_ms, self.p95_ms)
    }
}

/// Nearest rank: the smallest value that `percent` of all do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_ranks() {
        let spread = Spread::of((1..=20).rev().map(f64::from));
        assert_eq!((spread.median_ms, spread.p95_ms), (10.0, 19.0));
        assert_eq!(Spread::of([7.0]).p95_ms, 7.0);
        assert_eq!(Spread::of([]), Spread::default());
    }
}
