//! GStreamer's test picture.

use std::sync::Arc;

use gstreamer as gst;

use crate::ingest::{
    gst::{PipelineProbes, fill, named, parse, tail::PictureMemory},
    health::Failure,
};

const TEST: &str = include_str!("../../../../../../pipelines/test.launch");

pub fn build(probes: &Arc<PipelineProbes>) -> Result<gst::Pipeline, Failure> {
    let frames = PictureMemory::Host.launch(None, false);
    let pipeline = parse("test.launch", &fill(TEST, &[("frames", &frames)]))?;
    probes.watch_local(&named(&pipeline, "source")?);
    probes.watch_pictures(&pipeline)?;
    Ok(pipeline)
}
