//! The error of a camera's published capture time, where its pictures have a time code burnt in.

use std::sync::{Mutex, PoisonError};

use spotter_core::{CaptureSource, Frame, config::CameraConfig};
use spotter_street::timecode;

const FRAMES_MAX: usize = 1000;

/// Filled on GStreamer's threads.
#[derive(Debug, Default)]
pub struct TimecodeCheck(Mutex<TimecodeErrors>);

#[derive(Debug, Default)]
struct TimecodeErrors {
    frames: usize,
    /// Published capture time minus burnt-in time, milliseconds, of frames with RTCP capture time.
    errors_ms: Vec<i64>,
}

impl TimecodeCheck {
    /// Reads the frame's time code; frames without one are ignored.
    pub fn add(&self, frame: &Frame) {
        let Some(burnt) = timecode::read(&frame.picture) else {
            return;
        };
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.frames += 1;
        let capture = frame.times.capture;
        if let Some(capture) = capture.filter(|c| c.source == CaptureSource::Rtcp)
            && seen.errors_ms.len() < FRAMES_MAX
        {
            let error_ms = capture.wall.unix_millis() - burnt.unix_millis();
            seen.errors_ms.push(error_ms);
        }
    }

    /// One line for the operator; `None` when no frame had a time code.
    pub fn line(&self, camera: &CameraConfig) -> Option<String> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.frames == 0 {
            return None;
        }
        let mut sorted = seen.errors_ms.clone();
        sorted.sort_by_key(|error_ms| error_ms.abs());
        let result = match (sorted.get(sorted.len() / 2), sorted.last()) {
            (Some(middle), Some(worst)) => format!(
                "the camera's time differs by {middle:+} ms (median), {worst:+} ms at most, over {} frames",
                sorted.len()
            ),
            _ => "no frame has the camera's own time (no RTCP sender reports)".to_owned(),
        };
        Some(format!(
            "camera {}: burnt-in time code: {result}",
            camera.id
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use spotter_core::{
        Capture, ColourMatrix, ColourRange, FrameTimes, Mono, Picture, PictureLayout, PixelFormat,
        WallTime,
    };

    const DRAWN: WallTime = WallTime::from_unix_millis(1_787_393_730_123);

    fn frame(burnt: bool, off_ms: i64, source: CaptureSource) -> Frame {
        let (width, height) = (640_usize, 360_usize);
        let mut bytes = vec![100; width * height * 3 / 2];
        if burnt {
            timecode::burn(DRAWN, &mut bytes, width as u32, height as u32);
        }
        let chroma = bytes.split_off(width * height);
        let planes = Arc::new(vec![bytes, chroma]);
        let colour = (ColourMatrix::Bt601, ColourRange::Limited);
        let size = (width, height);
        let strides = [width, width, 0];
        let picture = Picture::new(
            PictureLayout {
                format: PixelFormat::Nv12,
                size,
                strides,
                colour,
            },
            planes,
        )
        .unwrap();
        let wall = WallTime::from_unix_millis(DRAWN.unix_millis() + off_ms);
        let capture = Capture {
            wall,
            source,
            error_ms: None,
        };
        Frame {
            camera: spotter_core::testing::camera("gate", Vec::new()).id,
            number: 1,
            camera_size: (640, 360),
            key: false,
            times: FrameTimes {
                received: Mono::default(),
                received_wall: wall,
                decoded: Mono::default(),
                capture: Some(capture),
                rtp: None,
            },
            picture,
        }
    }

    #[test]
    fn line_has_median_and_largest_error_of_rtcp_frames() {
        let camera = spotter_core::testing::camera("gate", Vec::new());
        let truth = TimecodeCheck::default();
        truth.add(&frame(false, 5, CaptureSource::Rtcp));
        assert_eq!(truth.line(&camera), None);
        truth.add(&frame(true, 90, CaptureSource::Arrival));
        let line = truth.line(&camera).unwrap();
        assert!(line.ends_with("no frame has the camera's own time (no RTCP sender reports)"));
        for off_ms in [1, -12, 2] {
            truth.add(&frame(true, off_ms, CaptureSource::Rtcp));
        }
        assert_eq!(
            truth.line(&camera).unwrap(),
            "camera gate: burnt-in time code: the camera's time differs by +2 ms (median), -12 ms at most, over 3 frames"
        );
    }
}
