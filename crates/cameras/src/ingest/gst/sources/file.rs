//! A video file at its own speed.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use gstreamer::{self as gst, prelude::*};

use super::SourceType;
use crate::ingest::{
    gst::{PipelineProbes, decodebin, failure, named, statistics::SourceKind},
    health::{Failure, Fault},
};

pub struct FileSource(pub PathBuf);

impl SourceType for FileSource {
    fn kind(&self) -> SourceKind {
        SourceKind::File
    }

    fn build(&self, probes: &Arc<PipelineProbes>) -> Result<gst::Pipeline, Failure> {
        let pipeline = pipeline(&self.0, true)?;
        probes.watch_decodebin(&named(&pipeline, "decode")?);
        probes.watch_pictures(&pipeline)?;
        Ok(pipeline)
    }

    fn failure(&self, message: &gst::message::Error, probes: &PipelineProbes) -> Failure {
        let fault = match message.error().kind::<gst::ResourceError>() {
            Some(gst::ResourceError::NotFound) => Fault::NotFound,
            _ => Fault::NotVideo,
        };
        failure::from_fault(&probes.source, fault)
    }
}

/// With `sync`, frames come at the file's own speed. Also the pipeline for stills.
pub fn pipeline(path: &Path, sync: bool) -> Result<gst::Pipeline, Failure> {
    let shown = path.display();
    if let Err(e) = std::fs::File::open(path) {
        let text = format!("file {shown} cannot be read: {e}");
        return Err(Failure::new(Fault::NotFound, text));
    }
    let pipeline = decodebin("filesrc", sync)?;
    named(&pipeline, "source")?.set_property("location", path);
    Ok(pipeline)
}
