//! What waits for the decoder. Pure: takes `now`.
//!
//! Nothing between the network and the decoder throws frames away: when the machine is short of time they wait in the jitter
//! buffer, more and more of them, and each picture is older than the one before. So a frame that waited for too long is not decoded, nor is
//! one that builds on it. That costs hardly any time, so the next key frame, or the one after it, is a new one.
//!
//! Faults: C48.

use std::time::Duration;

use super::gate::patience;
use spotter_core::Mono;

/// A frame that waited for longer is left out. The jitter buffer waits for a lost packet for 200 ms, and then gives what came
/// behind it at once; a decoder that is fast enough on the whole is to get through that, and through a large key frame.
pub const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Finds late frames, in the order of decoding.
#[derive(Debug, Default)]
pub struct Backlog {
    /// No key frame came in time since.
    late_since: Option<Mono>,
}

impl Backlog {
    /// A frame is there that `waited` for us. True when it is to be left out. One that builds on such a frame is known to the
    /// gate. A key frame that is late is better than none for as long as one is awaited after a loss.
    pub fn is_late(
        &mut self,
        key: bool,
        waited: Duration,
        gop: Option<Duration>,
        now: Mono,
    ) -> bool {
        let late = waited > LONGEST_WAIT;
        if late {
            let since = *self.late_since.get_or_insert(now);
            if !key || now.since(since) < patience(gop) {
                return true;
            }
        }
        if key {
            self.late_since = None;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ingest::{
        arrivals::Arrivals,
        clock::ClockReading,
        gate::{FrameGate, Gap},
    };
    use spotter_core::WallTime;

    /// A camera, the elements before the decoder, and a slow decoder.
    #[derive(Clone, Copy, Debug)]
    struct DecodeLine {
        interval: Duration,
        gop: u32,
        /// Frames that the elements hold back.
        held: u32,
        decoding: Duration,
        decoding_keys: Duration,
    }

    /// A frame that was decoded.
    struct Decoded {
        key: bool,
        began: Duration,
        /// How much earlier it could have been decoded.
        behind: Duration,
    }

    impl DecodeLine {
        fn run(&self, frames: u32) -> Vec<Decoded> {
            let (mut arrivals, mut gate) = (Arrivals::default(), FrameGate::default());
            let mut backlog = Backlog::default();
            let (mut time, mut arrived, mut decoded) = (Duration::ZERO, 0, Vec::new());
            // Known from the second key frame on.
            let gop = (self.gop < frames).then_some(self.interval * self.gop);
            for n in 0..frames {
                let there = self.interval * (n + self.held);
                time = time.max(there);
                while self.interval * arrived <= time {
                    let now = at(self.interval * arrived);
                    arrivals.packet(arrived, reading(now));
                    arrived += 1;
                }
                let (key, now, pts) = (n % self.gop == 0, at(time), self.interval * n);
                arrivals.timed(n, pts, reading(now));
                let arrival = arrivals.mark_key(Some(pts), key).unwrap();
                let waited = arrivals.waited(&arrival, now);
                let late = backlog.is_late(key, waited, gop, now);
                let gap = late.then_some(Gap::Late);
                if gate.pass(key, gap, gop, now).is_err() {
                    continue;
                }
                decoded.push(Decoded {
                    key,
                    began: time,
                    behind: time - there,
                });
                time += match key {
                    true => self.decoding_keys,
                    false => self.decoding,
                };
                arrivals.take(Some(pts));
            }
            decoded
        }
    }

    fn reading(mono: Mono) -> ClockReading {
        let wall = WallTime::default();
        ClockReading { mono, wall }
    }

    fn at(time: Duration) -> Mono {
        Mono::from_nanos(1).after(time)
    }

    fn longest_without_key(decoded: &[Decoded]) -> Duration {
        let keys = decoded.iter().filter(|one| one.key);
        let keys: Vec<Duration> = keys.map(|one| one.began).collect();
        let steps = keys.windows(2).map(|two| two[1] - two[0]);
        steps.max().unwrap_or(Duration::MAX)
    }

    const MS: fn(u64) -> Duration = Duration::from_millis;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(spotter_core::testing::cases(100)))]

        /// However slow the decoder is: what it decodes waited for no longer than it may, key frames come through every now and
        /// then, and a decoder that is fast enough gets everything.
        #[test]
        fn delay_does_not_grow_and_no_stream_starves(
            interval in 10_u64..1000, gop in 1_u32..100, held in 0_u32..=2,
            slowness in 0.0..20.0_f64, keys in 1.0..5.0_f64,
        ) {
            let interval = MS(interval);
            let decoding = interval.mul_f64(slowness);
            let decoding_keys = decoding.mul_f64(keys);
            let line = DecodeLine { interval, gop, held, decoding, decoding_keys };
            let frames = gop * 4 + 500;
            let decoded = line.run(frames);
            let limit = LONGEST_WAIT + interval * 3;
            for one in &decoded {
                prop_assert!(one.behind <= limit, "{:?} at {:?}", one.behind, one.began);
            }
            let without = longest_without_key(&decoded);
            let limit = interval * gop * 3 + LONGEST_WAIT * 2 + decoding_keys * 2;
            prop_assert!(without <= limit, "{without:?} without a key frame");
            if decoding_keys + decoding * (gop - 1) <= interval * gop && decoding_keys <= LONGEST_WAIT {
                prop_assert_eq!(decoded.len(), frames as usize);
            }
        }
    }

    /// A camera that refreshes its pictures bit by bit is watched again when they are new, as after a loss.
    #[test]
    fn a_stream_without_key_frames_comes_back() {
        let line = DecodeLine {
            interval: MS(50),
            gop: u32::MAX,
            held: 0,
            decoding: MS(60),
            decoding_keys: MS(60),
        };
        let decoded = line.run(10_000);
        assert!(decoded.iter().all(|one| one.behind <= MS(700)));
        let dark = decoded.windows(2).map(|two| two[1].began - two[0].began);
        assert!(dark.max().unwrap() <= Duration::from_secs(11));
        assert!(decoded.len() > 1000, "{}", decoded.len());
    }
}
