//! Whether a camera sends far more frames than it declares. Pure: takes `now`.

use std::time::Duration;

use super::health::{StreamInfo, StreamNote};
use spotter_core::Mono;

/// The rate is the mean over this time.
pub const WINDOW: Duration = Duration::from_secs(30);
/// Streams whose fields are counted as frames, or the other way round, come at exactly twice the declared rate: that is none of
/// the operator's concern, and jitter must not make it one.
const TOO_FAST: f64 = 2.1;

/// A whole window may end with a note.
pub fn seems_fast(stream: &StreamInfo) -> bool {
    is_fast(stream.fps_measured.unwrap_or_default(), stream.fps_declared)
}

fn is_fast(fps: f64, declared_fps: Option<f64>) -> bool {
    declared_fps.is_some_and(|declared| fps > declared * TOO_FAST)
}

/// Compares the rate of whole windows with the declared one. A camera that is slower than it declares is usual.
#[derive(Debug, Default)]
pub struct RateCheck {
    /// Since when frames are counted, and how many came since.
    since: Option<(Mono, u32)>,
    note: Option<StreamNote>,
}

impl RateCheck {
    /// A frame came. What is to be noted since the last window ended.
    pub fn frame(&mut self, declared_fps: Option<f64>, now: Mono) -> Option<StreamNote> {
        let (since, frames) = self.since.get_or_insert((now, 0));
        let window = now.since(*since);
        if window >= WINDOW {
            let fps = f64::from(*frames) / window.as_secs_f64();
            let note = is_fast(fps, declared_fps).then_some(StreamNote::FasterThanDeclared);
            self.note = note;
            (*since, *frames) = (now, 0);
        }
        *frames += 1;
        self.note
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is noted after each of `frames` at `fps`.
    fn noted(
        check: &mut RateCheck,
        declared: Option<f64>,
        fps: f64,
        from_s: f64,
        frames: u32,
    ) -> Vec<bool> {
        let frames = (0..frames).map(|n| {
            let at_ns = (from_s + f64::from(n) / fps) * 1e9;
            check
                .frame(declared, Mono::from_nanos(at_ns as u64))
                .is_some()
        });
        frames.collect()
    }

    // Faults: C33.
    #[test]
    fn more_than_twice_the_declared_rate_is_noted() {
        let first = |declared, fps| {
            let found = noted(&mut RateCheck::default(), declared, fps, 1.0, 2000);
            found.iter().position(|noted| *noted)
        };
        assert_eq!(first(Some(5.0), 20.0), Some(600));
        assert_eq!(first(Some(25.0), 50.02), None, "fields");
        assert_eq!(first(Some(25.0), 2.0), None, "slower never is");
        assert_eq!(first(None, 200.0), None);
    }

    #[test]
    fn note_ends_with_the_first_window_that_is_as_declared() {
        let mut check = RateCheck::default();
        assert!(noted(&mut check, Some(5.0), 20.0, 0.0, 601)[600]);
        let later = noted(&mut check, Some(5.0), 5.0, 30.2, 160);
        assert!(later[0] && !later[159]);
    }
}
