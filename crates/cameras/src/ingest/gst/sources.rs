//! The kinds of source, one module each. A new one is added as docs/adding-a-source.md describes.

mod file;
pub mod rtsp;
mod test;
mod usb;

use std::sync::Arc;

use gstreamer as gst;

use super::{PipelineProbes, failure, statistics::SourceKind};
use crate::ingest::{
    health::{Failure, Fault},
    transport::TransportChoice,
};
use spotter_config::{CameraConfig, SourceConfig, Transport};

pub use file::pipeline as file_pipeline;

/// How pipelines of one kind of source are built and how their errors are read.
pub trait SourceType: Send + Sync {
    /// What the times of its frames can be known from.
    fn kind(&self) -> SourceKind;

    /// Builds a pipeline that does not play yet.
    fn build(&self, probes: &Arc<PipelineProbes>) -> Result<gst::Pipeline, Failure>;

    /// The failure that an error message means.
    fn failure(&self, _: &gst::message::Error, probes: &PipelineProbes) -> Failure {
        failure::from_fault(&probes.source, Fault::Device)
    }

    /// Its choice of a transport, before the first connection.
    fn transport(&self) -> TransportChoice {
        TransportChoice::new(Transport::Tcp)
    }
}

/// The registry: the source type of a camera.
pub fn source_type(camera: &CameraConfig) -> Box<dyn SourceType> {
    match &camera.source {
        SourceConfig::Rtsp(settings) => Box::new(rtsp::RtspSource::new(settings, camera)),
        SourceConfig::File { path, .. } => Box::new(file::FileSource(path.clone())),
        SourceConfig::Usb { device } => Box::new(usb::UsbSource(device.clone())),
        SourceConfig::Test => Box::new(test::TestSource),
    }
}
