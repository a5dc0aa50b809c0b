//! Time in which a device worked.

use std::time::Duration;

use spotter_core::Mono;
use spotter_engine::scheduler::{
    backend::{SlotId, StepTimes},
    cost::{TimeSpan, working},
};

/// Time between `from` and `to` in which the device worked ([`working`]) on at least one of the steps.
pub(super) fn busy(steps: &[(SlotId, StepTimes)], from: Mono, to: Mono) -> Duration {
    let mut spans: Vec<TimeSpan> = steps.iter().flat_map(|(_, times)| working(times)).collect();
    spans.sort_by_key(|span| span.began);
    let mut sum = Duration::ZERO;
    let mut until = from;
    for span in spans {
        let (began, ended) = (span.began.max(until), span.ended.min(to));
        sum += ended.since(began);
        until = until.max(ended);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: u64) -> Mono {
        Mono::from_nanos(ms * 1_000_000)
    }

    fn step(started: u64, rows: u64) -> (SlotId, StepTimes) {
        let times = StepTimes {
            started: at(started),
            rows: ms(rows),
            ..StepTimes::default()
        };
        (SlotId(0), times)
    }

    #[test]
    fn steps_that_overlap_count_once_and_only_inside() {
        let steps = [
            step(0, 10),
            step(5, 10),
            step(20, 5),
            step(24, 1),
            step(40, 10),
        ];
        assert_eq!(busy(&steps, at(0), at(100)), ms(15 + 5 + 10));
        assert_eq!(busy(&steps, at(8), at(45)), ms(7 + 5 + 5));
        assert_eq!(busy(&steps, at(60), at(70)), ms(0));
    }

    #[test]
    fn a_wait_for_masks_is_no_work() {
        let (slot, times) = step(0, 10);
        let masked = StepTimes {
            mask_wait: ms(4),
            sampling: ms(1),
            ..times
        };
        assert_eq!(busy(&[(slot, masked)], at(0), at(100)), ms(11));
    }
}
