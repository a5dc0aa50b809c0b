//! Which elements turn a codec's packets into pictures: hardware when its element exists, else software.

use gstreamer as gst;

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
    /// Why this one.
    pub reason: &'static str,
}

/// The best chain whose elements all exist; `None` when there is none at all.
pub fn choose(
    codec: Codec,
    hardware_broken: bool,
    exists: impl Fn(&str) -> bool,
) -> Option<Choice> {
    let is_hardware = |element: &str| element.starts_with("nv") || element.starts_with("va");
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
        choose(codec, broken, |name| there.contains(&name)).map(|choice| choice.element)
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
        let jetson = choose(Codec::H265, false, |name| name.starts_with("nvv")).unwrap();
        assert_eq!(jetson.launch, "nvv4l2decoder name=decoder ! nvvidconv");
    }
}
