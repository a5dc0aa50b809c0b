//! The kinds of source, one module each. A new one is added as docs/adding-a-source.md describes.

mod file;
pub mod rtsp;
mod test;
mod usb;

use std::sync::Arc;

use gstreamer as gst;

use super::{PipelineProbes, failure, statistics::SourceKind};
use crate::ingest::health::Failure;
use spotter_config::SourceConfig;
use spotter_core::StreamFault;

pub use file::pipeline as file_pipeline;

impl SourceKind {
    pub fn of(source: &SourceConfig) -> Self {
        match source {
            SourceConfig::Rtsp(_) => Self::Network,
            SourceConfig::File { .. } => Self::File,
            SourceConfig::Usb { .. } | SourceConfig::Test => Self::Local,
        }
    }
}

/// Builds a pipeline that does not play yet.
pub fn build(probes: &Arc<PipelineProbes>) -> Result<gst::Pipeline, Failure> {
    match &probes.camera.source {
        SourceConfig::Rtsp(settings) => rtsp::build(settings, probes),
        SourceConfig::File { path, .. } => file::build(path, probes),
        SourceConfig::Usb { device } => usb::build(device, probes),
        SourceConfig::Test => test::build(probes),
    }
}

/// The failure that an error message means.
pub fn failure_of(message: &gst::message::Error, probes: &PipelineProbes) -> Failure {
    match probes.kind {
        SourceKind::Network => failure::from_rtsp(message, probes),
        SourceKind::File => Failure::of(match message.error().kind::<gst::ResourceError>() {
            Some(gst::ResourceError::NotFound) => StreamFault::NotFound,
            _ => StreamFault::NotVideo,
        }),
        SourceKind::Local => Failure::of(StreamFault::Device),
    }
}
