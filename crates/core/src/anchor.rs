//! Our UTC time as a distance from monotonic time, so that a step of the machine's clock moves no age. Pure.

use std::time::Duration;

use super::{Mono, WallTime};

/// The machine's UTC time is read again after so long.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// What the two clocks of a machine run apart within a minute is less: time services slew by 500 ppm, which is 30 ms.
const STEP_S: f64 = 0.1;

/// One reading of both clocks. Until the next, UTC passes as monotonic time does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClockAnchor {
    read_at: Mono,
    wall: WallTime,
}

impl WallClockAnchor {
    /// Both clocks at one moment.
    pub const fn new(read_at: Mono, wall: WallTime) -> Self {
        Self { read_at, wall }
    }

    /// UTC at `now`, which may also lie before the reading.
    pub const fn wall_at(&self, now: Mono) -> WallTime {
        let passed_ns = now.as_nanos() as i64 - self.read_at.as_nanos() as i64;
        WallTime::from_unix_nanos(self.wall.unix_nanos().saturating_add(passed_ns))
    }

    /// The clocks should be read again.
    pub fn is_due(&self, now: Mono) -> bool {
        now.since(self.read_at) >= READ_AGAIN_AFTER
    }

    /// Takes a new reading. The signed seconds that UTC was set by since the last one; `None` when it was not set, or a
    /// little at a time.
    pub fn read_again(&mut self, read_at: Mono, wall: WallTime) -> Option<f64> {
        let step_s = wall.seconds_since(self.wall_at(read_at));
        *self = Self::new(read_at, wall);
        (step_s.abs() >= STEP_S).then_some(step_s)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START_MS: i64 = 1_790_000_000_000;

    fn at(ms: u64) -> Mono {
        Mono::from_nanos(ms * 1_000_000)
    }

    // Faults: C38.
    #[test]
    fn clock_step_is_reported_once_and_slew_never() {
        let mut anchor = WallClockAnchor::new(at(0), WallTime::from_unix_millis(START_MS));
        let mut steps = Vec::new();
        for minute in 1..=60_u64 {
            let now = at(minute * 60_000);
            assert!(anchor.is_due(now) && !anchor.is_due(now.before(Duration::from_millis(1))));
            // 500 ppm slower, and set back by an hour after 30 minutes.
            let slewed_ms = minute * 60_000 - minute * 30;
            let set_ms = if minute > 30 { -3_600_000 } else { 0 };
            let wall = WallTime::from_unix_millis(START_MS + slewed_ms as i64 + set_ms);
            let step = anchor.read_again(now, wall);
            steps.extend(step.map(|step_s| (minute, step_s.round())));
            assert_eq!(anchor.wall_at(now), wall);
        }
        assert_eq!(steps, [(31, -3600.0)]);
    }

    proptest! {
        /// Between two readings of the machine's clock, two UTC times differ by as much as their monotonic times, for every
        /// step of that clock.
        #[test]
        fn ages_are_monotonic_between_readings(
            read_ms in 0_u64..1_000_000, wall_ms in 0_i64..4_000_000_000_000,
            one_ms in 0_u64..2_000_000, later_ms in 0_u64..60_000,
        ) {
            let anchor = WallClockAnchor::new(at(read_ms), WallTime::from_unix_millis(wall_ms));
            let (one, other) = (anchor.wall_at(at(one_ms)), anchor.wall_at(at(one_ms + later_ms)));
            prop_assert_eq!(other.unix_nanos() - one.unix_nanos(), later_ms as i64 * 1_000_000);
        }
    }
}
