//! A camera of this machine (Video4Linux).

use std::{path::Path, sync::Arc};

use gstreamer::{self as gst, prelude::*};

use crate::ingest::{
    gst::{PipelineProbes, decodebin, named},
    health::Failure,
};

pub fn build(device: &Path, probes: &Arc<PipelineProbes>) -> Result<gst::Pipeline, Failure> {
    let pipeline = decodebin("v4l2src", false)?;
    let source = named(&pipeline, "source")?;
    source.set_property("device", device.to_string_lossy().as_ref());
    probes.watch_decodebin(&named(&pipeline, "decode")?);
    probes.watch_local(&source);
    probes.watch_pictures(&pipeline)?;
    Ok(pipeline)
}
