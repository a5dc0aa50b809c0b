//! The first picture of a video file, for the command line.

use std::path::Path;

use gstreamer::{self as gst, prelude::*};
use gstreamer_app::AppSink;

use super::{
    gst::{file_pipeline, init, picture_from_sample},
    health::{Failure, Fault},
};
use spotter_core::Picture;

/// The interval between checks for a frame. Decoding is given up after [`STEPS_MAX`] of them without one: 10 s.
const STEP: gst::ClockTime = gst::ClockTime::from_mseconds(50);
const STEPS_MAX: u32 = 200;

/// The first picture of a video in any container. Blocks while it decodes. Fails when the file cannot be read, is no video, or gives no
/// frame within 10 s.
pub fn first_picture(path: &Path) -> Result<Picture, Failure> {
    init()?;
    let pipeline = file_pipeline(path, false)?;
    let sink = pipeline.by_name("sink").and_downcast::<AppSink>();
    // The first one is not replaced by the next.
    let sink = sink.inspect(|sink| sink.set_drop(false));
    let sink = sink.ok_or("the pipeline has no end");
    let playing = pipeline.set_state(gst::State::Playing);
    let playing = playing.map_err(|_| "cannot be played");
    let sample = playing.and_then(|_| first_sample(&pipeline, &sink?));
    let picture = sample
        .map_err(str::to_owned)
        .and_then(|sample| picture_from_sample(&sample));
    let _ = pipeline.set_state(gst::State::Null);
    picture.map_err(|what| {
        let text = format!("{}: {what}", path.display());
        Failure::new(Fault::NotVideo, text)
    })
}

fn first_sample(pipeline: &gst::Pipeline, sink: &AppSink) -> Result<gst::Sample, &'static str> {
    for _ in 0..STEPS_MAX {
        if let Some(sample) = sink.try_pull_sample(STEP) {
            return Ok(sample);
        }
        let bus = pipeline.bus();
        if bus.is_some_and(|bus| bus.pop_filtered(&[gst::MessageType::Error]).is_some()) {
            return Err("not a video that can be decoded here");
        }
        if sink.is_eos() {
            return Err("holds no picture");
        }
    }
    Err("gave no picture within 10s; is it a video?")
}
