//! Which frames and pictures are whole, as far as can be known, and come in time. Pure: takes `now`.
//!
//! What builds on a frame that is not whole is smeared until the next key frame. So there are two gates. The first is
//! before the decoder and knows what was lost on the way; the second is behind it and knows the decoder's errors and
//! warnings. Bytes that were changed on the way are known to the decoder at most, and FFmpeg's conceals most of them silently:
//! the checksums of TCP and UDP are the only guard against those.
//!
//! Faults: C35.

use std::time::Duration;

use spotter_core::Mono;

/// A camera that sends no key frame for so long, or for two of its measured distances, refreshes its pictures bit by bit.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait for a key frame before there are taken to be none.
pub fn patience(gop: Option<Duration>) -> Duration {
    gop.map_or(PATIENCE, |gop| PATIENCE.max(gop.saturating_mul(2)))
}

/// Why a frame is not to be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gap {
    /// Something of it is missing, or of what it builds on.
    Lost,
    /// It waited for the decoder for too long, or what it builds on did.
    Late,
}

/// Before the decoder: takes frames in the order of decoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameGate {
    #[default]
    New,
    /// Something is missing, and no key frame, whole or not, came since.
    Closed {
        /// When something was missing first, or the last key frame was not whole.
        since: Mono,
        gap: Gap,
    },
    /// All that the next frame may build on is there.
    Open,
    /// There are no key frames. What the decoder does not find fault with counts as whole.
    Refreshing,
}

impl FrameGate {
    /// A frame came, with or without a gap in it or before it.
    ///
    /// # Errors
    ///
    /// It is not to be decoded.
    pub fn pass(
        &mut self,
        key: bool,
        gap: Option<Gap>,
        gop: Option<Duration>,
        now: Mono,
    ) -> Result<(), Gap> {
        *self = match (*self, gap) {
            (_, None) if key => Self::Open,
            (Self::Open | Self::Refreshing, None) => return Ok(()),
            (closed @ Self::Closed { .. }, _) if !key => closed,
            (_, gap) => Self::Closed {
                since: now,
                gap: gap.unwrap_or(Gap::Lost),
            },
        };
        if let Self::Closed { since, .. } = *self
            && gap.is_none()
            && now.since(since) >= patience(gop)
        {
            *self = Self::Refreshing;
        }
        match *self {
            Self::Open | Self::Refreshing => Ok(()),
            Self::New => Err(Gap::Lost),
            Self::Closed { gap, .. } => Err(gap),
        }
    }

    /// The next frame is the first of another stream.
    pub fn close(&mut self, now: Mono) {
        *self = Self::Closed {
            since: now,
            gap: Gap::Lost,
        };
    }
}

/// Behind the decoder: takes pictures in the order of showing.
#[derive(Clone, Copy, Debug, Default)]
pub struct PictureGate {
    broken_since: Option<Mono>,
}

impl PictureGate {
    /// A picture came out that the decoder finds `whole` or not. False when it is not to be shown.
    pub fn pass(&mut self, key: bool, whole: bool, frames: &FrameGate, now: Mono) -> bool {
        if !whole {
            // Where there are no key frames, the decoder alone can tell when its pictures are refreshed.
            if *frames != FrameGate::Refreshing {
                self.warn(now);
            }
            return false;
        }
        let over = |since| now.since(since) >= PATIENCE && *frames == FrameGate::Refreshing;
        if key || self.broken_since.is_some_and(over) {
            self.broken_since = None;
        }
        self.broken_since.is_none()
    }

    /// The decoder found a fault and did not name the picture.
    pub fn warn(&mut self, now: Mono) {
        self.broken_since = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ingest::sequence::{PacketHeader, PacketSequence};

    fn at(seconds: f64) -> Mono {
        Mono::from_nanos((seconds * 1e9) as u64)
    }

    #[test]
    fn missing_keyframes_are_reported_after_two_keyframe_distances() {
        // 30 frames a second and a key frame every ten seconds; the first one was missed.
        let mut frames = FrameGate::default();
        let gop = Some(Duration::from_secs(10));
        for n in 0..600 {
            let now = at(f64::from(n) / 30.0);
            let (key, gap) = (n % 300 == 299, (n == 299).then_some(Gap::Lost));
            let passed = frames.pass(key, gap, gop, now).is_ok();
            assert_eq!(passed, n == 599, "frame {n}");
        }
        // None any more, and something is lost.
        let mut passes = |key, gap, second| frames.pass(key, gap, gop, at(f64::from(second)));
        assert_eq!(passes(false, None, 20), Ok(()));
        assert_eq!(passes(false, Some(Gap::Late), 21), Err(Gap::Late));
        // The first reason stays.
        assert_eq!(passes(false, Some(Gap::Lost), 22), Err(Gap::Late));
        let refreshed = (23..=60).find(|second| passes(false, None, *second).is_ok());
        assert_eq!(refreshed, Some(41));
        assert_eq!(passes(false, Some(Gap::Lost), 61), Err(Gap::Lost));
        assert_eq!(passes(true, Some(Gap::Late), 62), Err(Gap::Late));
        assert_eq!(passes(true, None, 63), Ok(()));
        assert_eq!(frames, FrameGate::Open);
    }

    #[test]
    fn broken_picture_hides_frames_until_the_next_keyframe() {
        let (mut pictures, frames) = (PictureGate::default(), FrameGate::Open);
        assert!(pictures.pass(false, true, &frames, at(0.0)));
        assert!(!pictures.pass(false, false, &frames, at(0.1)));
        assert!(!pictures.pass(false, true, &frames, at(30.0)));
        assert!(pictures.pass(true, true, &frames, at(30.1)));
        pictures.warn(at(30.2));
        assert!(!pictures.pass(false, true, &frames, at(30.3)));
        // Without key frames, a good picture comes when the decoder has found no fault for long.
        let frames = FrameGate::Refreshing;
        assert!(!pictures.pass(false, true, &frames, at(40.1)));
        assert!(pictures.pass(false, true, &frames, at(40.3)));
    }

    /// The `n`-th of evenly spread numbers.
    fn chance(seed: u64, n: u64) -> u32 {
        let mixed =
            (seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 32) as u32
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(spotter_core::testing::cases(2000)))]

        /// A stream with losses at random, of any packets: no frame passes that lost one or builds on one that did, and key
        /// frames with no loss near them pass.
        #[test]
        fn no_frame_that_depends_on_a_lost_packet_passes(
            sizes in prop::collection::vec(1_usize..6, 30..120),
            gop in 3_usize..12, start: u16, one_of in 4_u32..60, marked: bool,
            seed: u64,
        ) {
            let (mut sequence, mut frames) = (PacketSequence::default(), FrameGate::default());
            // Of each frame: does it begin a group, did all packets come, is it known to be hurt, did any come?
            let mut known: Vec<(bool, bool, bool, bool)> = Vec::new();
            let (mut seq, mut sent, mut joined) = (start, 0_u64, false);
            for (n, size) in sizes.iter().enumerate() {
                known.push((n % gop == 0, true, false, false));
                for packet in 0..*size {
                    // The very first frame is joined in its middle or not, which nothing shows.
                    let lost = joined && chance(seed, sent).is_multiple_of(one_of);
                    (joined, sent, seq) = (true, sent + 1, seq.wrapping_add(1));
                    if lost {
                        known[n].1 = false;
                        continue;
                    }
                    let marked = marked && packet + 1 == *size;
                    let damage = sequence.packet(PacketHeader { seq, rtp: n as u32 * 3000, marked });
                    if let Some(before) = damage.before {
                        known[before as usize / 3000].2 = true;
                    }
                    known[n].2 |= damage.this;
                    known[n].3 = true;
                }
            }
            // The last frame that anything came of may miss its end, which is not known yet.
            known.truncate(known.iter().rposition(|(.., any)| *any).unwrap_or(0));
            let (mut whole_so_far, mut held) = (false, 0);
            for (n, (key, whole, hurt, any)) in known.iter().enumerate() {
                whole_so_far = *whole && (whole_so_far || *key);
                let gap = hurt.then_some(Gap::Lost);
                let passed = *any && frames.pass(*key, gap, None, at(0.0)).is_ok();
                prop_assert!(!passed || whole_so_far, "frame {n} passed");
                let near = &known[n.saturating_sub(1)..(n + 2).min(known.len())];
                let none_near = near.iter().all(|(_, whole, ..)| *whole) && n + 1 < known.len();
                held += u32::from(*key && none_near && !passed);
            }
            prop_assert_eq!(held, 0, "key frames without a loss near them pass");
        }
    }
}
