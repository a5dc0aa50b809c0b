//! Which elements turn a codec's packets into pictures: hardware when its element exists, else software.

use std::sync::atomic::{AtomicBool, Ordering};

use gstreamer as gst;

use super::tail::{DEVICE_SCALER, Place};

/// Codecs that are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// H.264, AVC.
    H264,
    /// H.265, HEVC.
    H265,
    /// Motion JPEG.
    Jpeg,
}

impl Codec {
    /// By the `encoding-name` of RTP caps.
    pub fn from_rtp(encoding_name: &str) -> Option<Self> {
        match encoding_name {
            "H264" => Some(Self::H264),
            "H265" => Some(Self::H265),
            "JPEG" => Some(Self::Jpeg),
            _ => None,
        }
    }

    /// By the name of the media type of encoded caps.
    pub fn from_media_type(name: &str) -> Option<Self> {
        match name {
            "video/x-h264" => Some(Self::H264),
            "video/x-h265" => Some(Self::H265),
            "image/jpeg" => Some(Self::Jpeg),
            _ => None,
        }
    }

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::H264 => "h264",
            Self::H265 => "h265",
            Self::Jpeg => "jpeg",
        }
    }

    /// The depacketizer.
    pub fn depay(self) -> &'static str {
        match self {
            Self::H264 => "rtph264depay",
            Self::H265 => "rtph265depay",
            Self::Jpeg => "rtpjpegdepay",
        }
    }

    /// The parser.
    pub fn parse(self) -> &'static str {
        match self {
            Self::H264 => "h264parse",
            Self::H265 => "h265parse",
            Self::Jpeg => "jpegparse",
        }
    }

    /// Chains of elements in order of preference; the first element is the decoder. Jetson's decoder leaves pictures in
    /// memory of its own, so a converter follows.
    fn candidates(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::H264 => &[
                &["nvh264dec"],
                &["nvv4l2decoder", "nvvidconv"],
                &["nvv4l2decoder", "nvvideoconvert"],
                &["vah264dec"],
                &["avdec_h264"],
            ],
            Self::H265 => &[
                &["nvh265dec"],
                &["nvv4l2decoder", "nvvidconv"],
                &["nvv4l2decoder", "nvvideoconvert"],
                &["vah265dec"],
                &["avdec_h265"],
            ],
            Self::Jpeg => &[&["jpegdec"], &["avdec_mjpeg"]],
        }
    }
}

/// A chosen decoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The decoding element.
    pub element: &'static str,
    /// Launch text, with the decoder named `decoder`.
    pub launch: String,
    /// Pictures are decoded outside of the CPU.
    pub hardware: bool,
    /// Where it is to leave them.
    pub place: Place,
    /// Why this one.
    pub reason: &'static str,
}

/// What failed in this process and is not tried again.
#[derive(Debug, Default)]
pub struct Broken {
    hardware: AtomicBool,
    device: AtomicBool,
}

/// A pipeline that failed, as far as its decoder is concerned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decoding {
    /// Pictures are decoded outside of the CPU.
    pub hardware: bool,
    /// Where they are left.
    pub place: Place,
    /// At least one came.
    pub seen: bool,
}

impl Broken {
    /// Gives up what a pipeline's error is to be blamed on, and says what; `None` when that is neither the decoder nor its way
    /// to us. Pictures on a GPU are given up first: no element says that formats do not fit or that a scaler cannot be
    /// compiled, the stream just fails before the first picture.
    pub fn blame(
        &self,
        decoding: &Decoding,
        of_decoder: bool,
        of_streaming: bool,
    ) -> Option<&'static str> {
        let on_device = decoding.place == Place::Device && !decoding.seen;
        if on_device && (of_decoder || of_streaming) {
            self.device.store(true, Ordering::Relaxed);
            return Some("pictures cannot stay on the GPU; by way of the host from now on");
        }
        if of_decoder && decoding.hardware {
            self.hardware.store(true, Ordering::Relaxed);
            return Some("the hardware decoder failed; software from now on");
        }
        None
    }
}

/// The best chain whose elements all exist; `None` when there is none at all. With `on_device`, what decodes on an NVIDIA GPU
/// leaves pictures there if they can be scaled there.
pub fn choose(
    codec: Codec,
    broken: &Broken,
    on_device: bool,
    exists: impl Fn(&str) -> bool,
) -> Option<Choice> {
    let hardware_broken = broken.hardware.load(Ordering::Relaxed);
    let on_device = on_device && !broken.device.load(Ordering::Relaxed) && exists(DEVICE_SCALER);
    let is_hardware = |element: &str| element.starts_with("nv") || element.starts_with("va");
    let place = |chain: &[&str]| match chain {
        ["nvh264dec" | "nvh265dec"] if on_device => Place::Device,
        _ => Place::Host,
    };
    codec
        .candidates()
        .iter()
        .filter(|chain| !(hardware_broken && is_hardware(chain[0])))
        .find(|chain| chain.iter().all(|element| exists(element)))
        .map(|chain| {
            let hardware = is_hardware(chain[0]);
            let mut launch = format!("{} name=decoder", chain[0]);
            for element in &chain[1..] {
                launch.push_str(" ! ");
                launch.push_str(element);
            }
            Choice {
                element: chain[0],
                launch,
                hardware,
                place: place(chain),
                reason: match (hardware, hardware_broken) {
                    (true, _) => "a hardware decoder is there",
                    (false, true) => "the hardware decoder failed before",
                    (false, false) => "no hardware decoder is there",
                },
            }
        })
}

/// Whether GStreamer has the element.
pub fn exists(element: &str) -> bool {
    gst::ElementFactory::find(element).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(codec: Codec, broken: bool, there: &[&str]) -> Option<&'static str> {
        let broken = Broken {
            hardware: broken.into(),
            ..Broken::default()
        };
        choose(codec, &broken, true, |name| there.contains(&name)).map(|choice| choice.element)
    }

    #[test]
    fn hardware_first_whole_chains_only_and_never_again_after_a_failure() {
        let all = [
            "nvv4l2decoder",
            "nvh264dec",
            "vah265dec",
            "avdec_h264",
            "avdec_h265",
        ];
        assert_eq!(chosen(Codec::H264, false, &all), Some("nvh264dec"));
        assert_eq!(chosen(Codec::H264, true, &all), Some("avdec_h264"));
        assert_eq!(chosen(Codec::H265, false, &all), Some("vah265dec"));
        assert_eq!(chosen(Codec::Jpeg, false, &all), None);
        let nvv = |name: &str| name.starts_with("nvv") || name == DEVICE_SCALER;
        let jetson = choose(Codec::H265, &Broken::default(), true, nvv).unwrap();
        assert_eq!(jetson.launch, "nvv4l2decoder name=decoder ! nvvidconv");
        assert_eq!(jetson.place, Place::Host);
    }

    #[test]
    fn pictures_stay_on_the_gpu_when_wanted_scaled_there_and_not_refused_before() {
        let broken = Broken::default();
        let nvidia = ["nvh264dec", "nvh265dec", "cudaconvertscale"];
        let place = |broken: &Broken, wanted, there: &[&str]| {
            let choice = choose(Codec::H264, broken, wanted, |name| there.contains(&name));
            choice.map(|choice| (choice.element, choice.place))
        };
        let (device, host) = (("nvh264dec", Place::Device), ("nvh264dec", Place::Host));
        assert_eq!(place(&broken, true, &nvidia), Some(device));
        assert_eq!(place(&broken, false, &nvidia), Some(host));
        assert_eq!(place(&broken, true, &nvidia[..2]), Some(host));
        let software = ["avdec_h264", "cudaconvertscale"];
        let avdec = ("avdec_h264", Place::Host);
        assert_eq!(place(&broken, true, &software), Some(avdec));

        let decoding = |place, seen| Decoding {
            hardware: true,
            place,
            seen,
        };
        let fresh = decoding(Place::Device, false);
        assert_eq!(broken.blame(&fresh, false, false), None, "the network's");
        assert_eq!(place(&broken, true, &nvidia), Some(device));
        let given_up = broken.blame(&fresh, false, true).unwrap();
        assert!(given_up.contains("by way of the host"), "{given_up}");
        assert_eq!(place(&broken, true, &nvidia), Some(host));

        // With pictures seen, or by way of the host, it is the decoder alone that can be given up.
        for decoding in [decoding(Place::Device, true), decoding(Place::Host, false)] {
            let broken = Broken::default();
            assert_eq!(broken.blame(&decoding, false, true), None);
            let given_up = broken.blame(&decoding, true, true).unwrap();
            assert!(given_up.contains("software"), "{given_up}");
            assert_eq!(place(&broken, true, &nvidia), None);
        }
    }
}
