//! The latency account of a published detection: where the time between reception and publication went.

use std::time::Duration;

use super::{CaptureSource, Detection, Mono};

/// Names of the stages, in order.
pub const STAGES: [&str; 8] = [
    "decode", "wait", "prep", "vision", "prompt", "generate", "post", "out",
];

/// Stage times in tenths of a millisecond. The moments are rounded and then subtracted, so the stages add up to the
/// total exactly, with any rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// In the order of [`STAGES`].
    pub stages_tenth_ms: [u64; 8],
    /// From reception to publication.
    pub total_tenth_ms: u64,
    /// Capture to reception, when the capture time can be trusted.
    pub camera_tenth_ms: Option<i64>,
}

impl Latency {
    /// The account of a detection that is published at `now`.
    pub fn of(detection: &Detection, now: Mono) -> Self {
        let (times, stages) = (&detection.frame.times, &detection.stages);
        let ends = [
            times.decoded,
            stages.taken,
            stages.prepared,
            stages.encoded,
            stages.prefilled,
            stages.generated,
            detection.finished,
            now,
        ];
        let camera_s = times.capture.and_then(|capture| match capture.source {
            CaptureSource::Rtcp | CaptureSource::File => {
                Some(times.received_wall.seconds_since(capture.wall))
            }
            CaptureSource::Arrival => None,
        });
        Self::from_moments(times.received, ends, camera_s)
    }

    fn from_moments(received: Mono, ends: [Mono; 8], camera_s: Option<f64>) -> Self {
        let mut stages_tenth_ms = [0; 8];
        let mut previous = 0;
        for (stage, end) in stages_tenth_ms.iter_mut().zip(ends) {
            // A moment before its predecessor is a stage that took no time; the account stays whole.
            let tenth_ms = tenths(end.since(received)).max(previous);
            *stage = tenth_ms - previous;
            previous = tenth_ms;
        }
        Self {
            stages_tenth_ms,
            total_tenth_ms: previous,
            camera_tenth_ms: camera_s.map(|seconds| (seconds * 10_000.0).round() as i64),
        }
    }
}

fn tenths(time: Duration) -> u64 {
    ((time.as_nanos() + 50_000) / 100_000) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn stages_of_any_moments_add_up_to_the_total(
            moments in prop::array::uniform8(0u64..3_000_000_000),
            received in 0u64..1_000_000_000,
        ) {
            let ends = moments.map(Mono::from_nanos);
            let latency = Latency::from_moments(Mono::from_nanos(received), ends, None);
            prop_assert_eq!(latency.stages_tenth_ms.iter().sum::<u64>(), latency.total_tenth_ms);
        }
    }
}
