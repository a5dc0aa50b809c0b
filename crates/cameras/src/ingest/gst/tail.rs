//! The end of every pipeline: where its pictures lie, what scales them there, and the format that is asked for.

use gstreamer as gst;

use super::{exists, fill};

const FRAMES: &str = include_str!("../../../../../pipelines/frames.launch");

/// Where the pictures of a pipeline lie at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PictureMemory {
    /// In the host's memory.
    #[default]
    Host,
    /// In a GPU's memory, where the decoder left them.
    Device,
}

/// Scales and converts, with NVIDIA's plugin, what its decoders leave on the GPU.
pub const DEVICE_SCALER: &str = "cudaconvertscale";
/// The feature of such pictures in caps.
const DEVICE_MEMORY: &str = "memory:CUDAMemory";

/// The feature of pictures in memory that only NVIDIA's own elements read, as a Jetson's decoder leaves them.
const NVMM: &str = "memory:NVMM";

pub fn is_in_nvmm(caps: &gst::CapsRef) -> bool {
    let features = caps.features(0);
    features.is_some_and(|features| features.contains(NVMM))
}

/// Scales and converts on the host: one element from GStreamer 1.22 on, before it two.
fn host_scaler(exists: impl Fn(&str) -> bool) -> &'static str {
    match exists("videoconvertscale") {
        true => "videoconvertscale",
        false => "videoconvert ! videoscale",
    }
}

impl PictureMemory {
    /// What the appsink accepts, of that size when it is given.
    pub fn caps(self, size: Option<(u32, u32)>) -> gst::Caps {
        let formats: &[&str] = match self {
            Self::Host => &["NV12", "I420"],
            Self::Device => &["NV12"],
        };
        let size = size.map(|(width, height)| (width as i32, height as i32));
        let mut caps = gst::Caps::builder("video/x-raw")
            .field("format", gst::List::new(formats.iter().copied()))
            .field_if_some("width", size.map(|size| size.0))
            .field_if_some("height", size.map(|size| size.1))
            .build();
        if self == Self::Device {
            let features = gst::CapsFeatures::new([DEVICE_MEMORY]);
            caps.make_mut().set_features_simple(Some(features));
        }
        caps
    }

    /// The launch text. Frames of a file keep its own speed (`sync`); live ones are never held back. `converter`: what scales in the place
    /// of the usual element.
    pub fn launch(self, converter: Option<&str>, sync: bool) -> String {
        let scaler = converter.unwrap_or_else(|| match self {
            Self::Host => host_scaler(exists),
            Self::Device => DEVICE_SCALER,
        });
        let (first, others) = scaler.split_once(" ! ").unwrap_or((scaler, ""));
        let mut scale = format!("{first} name=scale");
        if !others.is_empty() {
            scale.extend([" ! ", others]);
        }
        let (caps, sync) = (self.caps(None).to_string(), sync.to_string());
        fill(
            FRAMES,
            &[("scale", &scale), ("caps", &caps), ("sync", &sync)],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_requested_and_scaled_in_their_own_memory() {
        gst::init().unwrap();
        let host = PictureMemory::Host.launch(None, false);
        let end = "! appsink name=sink sync=false max-buffers=1 drop=true qos=false";
        let caps = "video/x-raw, format=(string){ NV12, I420 }";
        let tail = format!("! capsfilter name=size caps=\"{caps}\" {end}");
        assert!(host.ends_with(&tail), "{host}");
        gst::parse::bin_from_description(&host, true).unwrap();

        let device = PictureMemory::Device.launch(None, false);
        let caps = "video/x-raw(memory:CUDAMemory), format=(string){ NV12 }";
        let scale = "cudaconvertscale name=scale ! capsfilter name=size";
        assert_eq!(device, format!("{scale} caps=\"{caps}\" {end}"));

        let caps = PictureMemory::Device.caps(Some((1280, 720)));
        assert!(caps.can_intersect(&PictureMemory::Device.caps(None)));
        assert!(!caps.can_intersect(&PictureMemory::Host.caps(None)));
        let size = ["width", "height"].map(|side| caps.structure(0).unwrap().get(side));
        assert_eq!(size, [Ok(1280), Ok(720)]);
    }
}
