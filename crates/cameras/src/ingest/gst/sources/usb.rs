//! A camera of this machine (Video4Linux).

use std::{path::PathBuf, sync::Arc};

use gstreamer::{self as gst, prelude::*};

use super::SourceType;
use crate::ingest::{
    gst::{PipelineProbes, decodebin, named, statistics::SourceKind},
    health::Failure,
};

pub struct UsbSource(pub PathBuf);

impl SourceType for UsbSource {
    fn kind(&self) -> SourceKind {
        SourceKind::Local
    }

    fn build(&self, probes: &Arc<PipelineProbes>) -> Result<gst::Pipeline, Failure> {
        let pipeline = decodebin("v4l2src", false)?;
        let source = named(&pipeline, "source")?;
        source.set_property("device", self.0.to_string_lossy().as_ref());
        probes.watch_decodebin(&named(&pipeline, "decode")?);
        probes.watch_local(&source);
        probes.watch_pictures(&pipeline)?;
        Ok(pipeline)
    }
}
