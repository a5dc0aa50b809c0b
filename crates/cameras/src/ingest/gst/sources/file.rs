//! A video file at its own speed.

use std::{path::Path, sync::Arc};

use gstreamer::{self as gst, prelude::*};

use crate::ingest::{
    gst::{PipelineProbes, decodebin, named},
    health::Failure,
};
use spotter_core::StreamFault;

pub fn build(path: &Path, probes: &Arc<PipelineProbes>) -> Result<gst::Pipeline, Failure> {
    let pipeline = pipeline(path, true)?;
    probes.watch_decodebin(&named(&pipeline, "decode")?);
    probes.watch_pictures(&pipeline)?;
    Ok(pipeline)
}

/// With `sync`, frames come at the file's own speed. Also the pipeline for stills.
pub fn pipeline(path: &Path, sync: bool) -> Result<gst::Pipeline, Failure> {
    let shown = path.display();
    if let Err(e) = std::fs::File::open(path) {
        let text = format!("file {shown} cannot be read: {e}");
        return Err(Failure::new(StreamFault::NotFound, text));
    }
    let pipeline = decodebin("filesrc", sync)?;
    named(&pipeline, "source")?.set_property("location", path);
    Ok(pipeline)
}
