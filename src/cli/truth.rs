//! How far a camera's published time is off the time that is burnt into its pictures, where one is.

use std::sync::{Mutex, PoisonError};

use spotter_core::{CaptureSource, Frame, config::CameraConfig};
use spotter_street::timecode;

/// More frames say nothing new.
const FRAMES_MAX: usize = 1000;

/// What frames with a time code showed. Filled in GStreamer's thread.
#[derive(Debug, Default)]
pub struct Truth(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    frames: usize,
    /// Published capture time minus burnt-in time, milliseconds, of frames that bear the camera's own time.
    errors_ms: Vec<i64>,
}

impl Truth {
    /// Reads the frame's time code; frames without one are nothing.
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

    /// What to tell; `None` when no frame had a time code.
    pub fn line(&self, camera: &CameraConfig) -> Option<String> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.frames == 0 {
            return None;
        }
        let mut sorted = seen.errors_ms.clone();
        sorted.sort_by_key(|error_ms| error_ms.abs());
        let said = match (sorted.get(sorted.len() / 2), sorted.last()) {
            (Some(middle), Some(worst)) => format!(
                "the camera's own time is off by {middle:+} ms, at most {worst:+} ms, over {} frames",
                sorted.len()
            ),
            _ => "no frame bore the camera's own time (sender reports)".to_owned(),
        };
        Some(format!("camera {}: burnt-in time code: {said}", camera.id))
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
            timecode::burn(DRAWN, &mut bytes, (width as u32, height as u32));
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
    fn the_middle_and_the_worst_are_told_of_frames_with_the_camera_s_own_time() {
        let camera = spotter_core::testing::camera("gate", Vec::new());
        let truth = Truth::default();
        truth.add(&frame(false, 5, CaptureSource::Rtcp));
        assert_eq!(truth.line(&camera), None);
        truth.add(&frame(true, 90, CaptureSource::Arrival));
        let line = truth.line(&camera).unwrap();
        assert!(line.ends_with("no frame bore the camera's own time (sender reports)"));
        for off_ms in [1, -12, 2] {
            truth.add(&frame(true, off_ms, CaptureSource::Rtcp));
        }
        assert_eq!(
            truth.line(&camera).unwrap(),
            "camera gate: burnt-in time code: the camera's own time is off by +2 ms, at most -12 ms, over 3 frames"
        );
    }
}
