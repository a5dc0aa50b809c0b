//! The line of the quickest reports: how far a camera's clock leads our monotonic one, and how fast that changes. Pure.
//!
//! A report that travelled longer seems to lead less, so the true line is above all points. Of all lines with no point above
//! them, this is the one that the points are nearest to in the sum.
//! Reports that were held up on their way are below and change nothing.

use spotter_core::{Mono, WallTime};

/// No quartz is worse; a steeper line is noise.
const SLOPE_LIMIT: f64 = 500e-6;
/// A slope over less time is noise.
const SLOPE_AFTER_S: f64 = 60.0;

/// The camera's time against ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockLine {
    origin: Mono,
    lead_ns: i64,
    slope: Option<f64>,
}

impl ClockLine {
    /// Through the quickest of the reports, each with its sender's time and its arrival, oldest first; `None` of none.
    pub fn above(reports: impl Iterator<Item = (WallTime, Mono)>) -> Option<Self> {
        let mut reports = reports.peekable();
        let &(first, origin) = reports.peek()?;
        let base_ns = lead_ns(first, origin);
        let points: Vec<(f64, f64)> = reports
            .map(|(ntp, arrived)| {
                let x = arrived.since(origin).as_secs_f64();
                (x, (lead_ns(ntp, arrived) - base_ns) as f64 * 1e-9)
            })
            .collect();
        let spans = points.last().is_some_and(|last| last.0 >= SLOPE_AFTER_S);
        let slope = spans.then(|| nearest_slope(&points));
        let at_origin_s = height_at_origin(&points, slope.unwrap_or(0.0));
        Some(Self {
            origin,
            lead_ns: base_ns + (at_origin_s * 1e9) as i64,
            slope,
        })
    }

    /// What the camera's clock showed at `at`.
    pub fn sender_time(&self, at: Mono) -> WallTime {
        let passed_ns = at.as_nanos() as i64 - self.origin.as_nanos() as i64;
        let drifted_ns = passed_ns as f64 * self.slope.unwrap_or(0.0);
        let ours_ns = at.as_nanos() as i64;
        WallTime::from_unix_nanos(ours_ns.saturating_add(self.lead_ns) + drifted_ns as i64)
    }

    /// Seconds that the camera gains in a second; `None` when it is too early to tell.
    pub fn slope(&self) -> Option<f64> {
        self.slope
    }
}

fn lead_ns(ntp: WallTime, arrived: Mono) -> i64 {
    ntp.unix_nanos().saturating_sub(arrived.as_nanos() as i64)
}

/// Where the lowest line of this slope with no point above it is at the origin.
fn height_at_origin(points: &[(f64, f64)], slope: f64) -> f64 {
    let heights = points.iter().map(|(x, y)| y - slope * x);
    heights.fold(f64::NEG_INFINITY, f64::max)
}

/// The slope within the limit whose lowest line is nearest to the points: it is the lowest at their mean time. That height is convex in the
/// slope, so that thirds without the least one can be left out.
fn nearest_slope(points: &[(f64, f64)]) -> f64 {
    let mean_x = points.iter().map(|point| point.0).sum::<f64>() / points.len() as f64;
    let height = |slope: f64| height_at_origin(points, slope) + slope * mean_x;
    let (mut low, mut high) = (-SLOPE_LIMIT, SLOPE_LIMIT);
    // To a millionth of the limit.
    for _ in 0..40 {
        let third = (high - low) / 3.0;
        match height(low + third) < height(high - third) {
            true => high -= third,
            false => low += third,
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START_S: f64 = 1_790_000_000.0;

    fn ntp(seconds: f64) -> WallTime {
        WallTime::from_unix_nanos((START_S * 1e9) as i64).plus_seconds(seconds)
    }

    fn mono(seconds: f64) -> Mono {
        Mono::from_nanos((seconds * 1e9) as u64)
    }

    #[test]
    fn a_single_report_is_a_level_line() {
        let line = ClockLine::above([(ntp(7.0), mono(5.0))].into_iter()).unwrap();
        assert_eq!(line.sender_time(mono(9.0)), ntp(11.0));
        assert_eq!(line.slope(), None);
        assert_eq!(ClockLine::above(std::iter::empty()), None);
    }

    proptest! {
        /// Reports of a drifting camera are delayed at random, some for seconds; the line is as near as the quickest ones.
        #[test]
        fn held_up_reports_do_not_move_it(
            lead_s in -100_000.0..100_000.0_f64, drift_ppm in -400.0..400.0_f64,
            delays_ms in prop::collection::vec(prop_oneof![4 => 0.0..20.0_f64, 1 => 0.0..900.0_f64], 60),
        ) {
            let reports: Vec<_> = delays_ms.iter().enumerate().map(|(n, delay_ms)| {
                let sent_s = n as f64 * 5.0;
                let at_camera_s = sent_s + lead_s + sent_s * drift_ppm * 1e-6;
                // The quickest of each half of the window took nothing.
                let delay_ms = if n == 10 || n == 50 { 0.0 } else { *delay_ms };
                (ntp(at_camera_s), mono(sent_s + delay_ms * 1e-3))
            }).collect();
            let line = ClockLine::above(reports.iter().copied()).unwrap();
            for (ntp, arrived) in &reports {
                prop_assert!(ntp.seconds_since(line.sender_time(*arrived)) < 1e-6, "a point is above the line");
            }
            for (at_s, within_s) in [(50.0, 0.021), (250.0, 0.021), (300.0, 0.03)] {
                let truth = ntp(at_s + lead_s + at_s * drift_ppm * 1e-6);
                let off_s = line.sender_time(mono(at_s)).seconds_since(truth);
                prop_assert!(off_s.abs() < within_s, "{off_s} at {at_s}");
            }
            let off_ppm = line.slope().unwrap() * 1e6 - drift_ppm;
            prop_assert!(off_ppm.abs() < 150.0, "{off_ppm}");
        }
    }
}
