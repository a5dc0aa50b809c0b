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
    use super::*;

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
}
