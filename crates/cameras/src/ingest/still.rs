//! The first picture of a video file, for the command line.

use std::path::Path;

use gstreamer::{self as gst, prelude::*};
use gstreamer_app::AppSink;

use super::{
    gst::{file_pipeline, init, picture_from_sample},
    health::Failure,
};
use spotter_core::{Picture, StreamFault};

/// Decoding is given up after this time without a picture.
const LIMIT: gst::ClockTime = gst::ClockTime::from_seconds(10);

/// The first picture of a video in any container. Blocks while it decodes. Fails when the file cannot be read, is no video, or gives no
/// frame within 10 s.
pub fn first_picture(path: &Path) -> Result<Picture, Failure> {
    init()?;
    let pipeline = file_pipeline(path, false)?;
    let sample = first_sample(&pipeline).map_err(str::to_owned);
    let picture = sample.and_then(|sample| picture_from_sample(&sample));
    let _ = pipeline.set_state(gst::State::Null);
    picture.map_err(|what| {
        let text = format!("{}: {what}", path.display());
        Failure::new(StreamFault::NotVideo, text)
    })
}

/// A pipeline that pauses has its first picture at its end.
fn first_sample(pipeline: &gst::Pipeline) -> Result<gst::Sample, &'static str> {
    let sink = pipeline.by_name("sink").and_downcast::<AppSink>();
    let (sink, bus) = sink.zip(pipeline.bus()).ok_or("the pipeline has no end")?;
    // A failure is on the bus too.
    let _ = pipeline.set_state(gst::State::Paused);
    let ends = [gst::MessageType::AsyncDone, gst::MessageType::Error];
    match bus.timed_pop_filtered(LIMIT, &ends).map(|end| end.type_()) {
        Some(gst::MessageType::AsyncDone) => {
            let sample = sink.try_pull_preroll(gst::ClockTime::ZERO);
            sample.ok_or("holds no picture")
        }
        Some(_) => Err("not a video that can be decoded here"),
        None => Err("gave no picture within 10s; is it a video?"),
    }
}
