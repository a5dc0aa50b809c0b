//! The first frames of a video file, as fast as they decode, for the command line.

use std::path::Path;

use gstreamer::{self as gst, prelude::*};
use gstreamer_app::AppSink;

use super::{
    gst::{file_pipeline, init, picture_from_sample},
    health::{Failure, Fault},
};
use spotter_core::{CameraId, Capture, CaptureSource, Clock, Frame, FrameTimes};

/// The interval between checks for a frame. Decoding is given up after [`STEPS_MAX`] of them without one: 10 s.
const STEP: gst::ClockTime = gst::ClockTime::from_mseconds(50);
const STEPS_MAX: u32 = 200;

/// Up to `max` frames from the start of a video in any container. Blocks while they decode. Fails when the file cannot
/// be read, is no video, or gives no frame within 10 s.
pub fn still_frames(path: &Path, max: usize, clock: &dyn Clock) -> Result<Vec<Frame>, Failure> {
    let not_video = |what: &str| {
        let text = format!("{}: {what}", path.display());
        Failure::new(Fault::NotVideo, text)
    };
    init()?;
    let camera = CameraId::new("file").map_err(|e| not_video(&e.to_string()))?;
    let pipeline = file_pipeline(path, false)?;
    let sink = pipeline
        .by_name("sink")
        .and_then(|sink| sink.downcast::<AppSink>().ok())
        .ok_or_else(|| not_video("the pipeline has no end"))?;
    // Every frame counts here, and none is late.
    sink.set_drop(false);
    let mut frames = Vec::new();
    let result = pipeline
        .set_state(gst::State::Playing)
        .map_err(|_| not_video("cannot be played"))
        .and_then(|_| {
            while frames.len() < max {
                let Some(sample) = next_sample(&pipeline, &sink).map_err(not_video)? else {
                    break;
                };
                let picture = picture_from_sample(&sample).map_err(|e| not_video(&e))?;
                let (now, wall) = (clock.now(), clock.wall());
                frames.push(Frame {
                    camera: camera.clone(),
                    number: frames.len() as u64 + 1,
                    camera_size: (picture.width() as u32, picture.height() as u32),
                    key: frames.is_empty(),
                    times: FrameTimes {
                        received: now,
                        received_wall: wall,
                        decoded: now,
                        capture: Some(Capture {
                            wall,
                            source: CaptureSource::File,
                            error_ms: None,
                        }),
                        ..FrameTimes::default()
                    },
                    picture,
                });
            }
            Ok(())
        });
    let _ = pipeline.set_state(gst::State::Null);
    result?;
    match frames.is_empty() {
        true => Err(not_video("holds no picture")),
        false => Ok(frames),
    }
}

/// `None` at the end of the file.
fn next_sample(
    pipeline: &gst::Pipeline,
    sink: &AppSink,
) -> Result<Option<gst::Sample>, &'static str> {
    for _ in 0..STEPS_MAX {
        if let Some(sample) = sink.try_pull_sample(STEP) {
            return Ok(Some(sample));
        }
        let error = pipeline
            .bus()
            .and_then(|bus| bus.pop_filtered(&[gst::MessageType::Error]));
        if error.is_some() {
            return Err("not a video that can be decoded here");
        }
        if sink.is_eos() {
            return Ok(None);
        }
    }
    Err("gave no picture within 10s; is it a video?")
}
