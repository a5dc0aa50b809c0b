//! Which elements turn a codec's packets into pictures: hardware when its element exists, else software. Hardware that
//! failed or got stuck is not chosen for a while.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use gstreamer::{self as gst, prelude::*};

use super::tail::{DEVICE_SCALER, PictureMemory};
use crate::{ingest::nal::NalCodec, lock};
use spotter_core::Mono;

/// Hardware that failed is not chosen for so long: a driver may come to itself, and each try costs some seconds of
/// pictures.
const HARDWARE_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// A codec that is decoded, and the elements for it.
#[derive(Debug)]
pub struct Codec {
    /// The word on the wire.
    pub name: &'static str,
    /// The `encoding-name` of RTP caps.
    rtp: &'static str,
    /// The name of the media type of encoded caps.
    media_type: &'static str,
    pub depay: &'static str,
    pub parse: &'static str,
    /// Of codecs that consist of NAL units.
    pub nal: Option<NalCodec>,
    /// In order of preference.
    chains: &'static [DecoderChain],
}

static CODECS: [Codec; 3] = [
    Codec {
        name: "h264",
        rtp: "H264",
        media_type: "video/x-h264",
        depay: "rtph264depay",
        parse: "h264parse",
        nal: Some(NalCodec::H264),
        chains: &[
            hardware("nvh264dec"),
            JETSON,
            DEEPSTREAM,
            hardware("vah264dec"),
            software("avdec_h264"),
        ],
    },
    Codec {
        name: "h265",
        rtp: "H265",
        media_type: "video/x-h265",
        depay: "rtph265depay",
        parse: "h265parse",
        nal: Some(NalCodec::H265),
        chains: &[
            hardware("nvh265dec"),
            JETSON,
            DEEPSTREAM,
            hardware("vah265dec"),
            software("avdec_h265"),
        ],
    },
    Codec {
        name: "jpeg",
        rtp: "JPEG",
        media_type: "image/jpeg",
        depay: "rtpjpegdepay",
        parse: "jpegparse",
        nal: None,
        chains: &[software("jpegdec"), software("avdec_mjpeg")],
    },
];

impl Codec {
    /// The codec of RTP caps.
    ///
    /// # Errors
    ///
    /// The name of what cannot be decoded.
    pub fn from_rtp_caps(stream: &gst::StructureRef) -> Result<&'static Self, String> {
        let name = encoding(stream);
        Self::from_rtp(&name).ok_or(name)
    }

    /// By the `encoding-name` of RTP caps.
    fn from_rtp(encoding_name: &str) -> Option<&'static Self> {
        CODECS.iter().find(|codec| codec.rtp == encoding_name)
    }

    /// By the name of the media type of encoded caps.
    pub fn from_media_type(name: &str) -> Option<&'static Self> {
        CODECS.iter().find(|codec| codec.media_type == name)
    }
}

/// The payload types of camera video below 96, which may come without a name in the SDP (RFC 3551 section 6).
const STATIC_TYPES: [(i32, &str); 5] = [
    (26, "JPEG"),
    (31, "H261"),
    (32, "MPV"),
    (33, "MP2T"),
    (34, "H263"),
];

/// The encoding of RTP caps.
fn encoding(stream: &gst::StructureRef) -> String {
    let number = stream.get::<i32>("payload").unwrap_or(-1);
    let known = STATIC_TYPES.iter().find(|(known, _)| *known == number);
    let known = known.map(|(_, name)| (*name).to_owned());
    let named = stream.get::<String>("encoding-name").ok().or(known);
    let unnamed = || format!("of payload type {number}, which its SDP does not name (a=rtpmap)");
    named.unwrap_or_else(unnamed)
}

/// A decoder, and what is needed behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderChain {
    /// The launch text; the first element is the decoder.
    pub launch: &'static str,
    /// The launch text of what copies pictures from the decoder's memory to the host and scales them on the way; `None` where
    /// GStreamer's own scaler reads them.
    pub converter: Option<&'static str>,
    /// Pictures are decoded outside of the CPU.
    pub hardware: bool,
}

const fn hardware(launch: &'static str) -> DecoderChain {
    DecoderChain {
        launch,
        converter: None,
        hardware: true,
    }
}

const fn software(launch: &'static str) -> DecoderChain {
    DecoderChain {
        hardware: false,
        ..hardware(launch)
    }
}

/// The decoder leaves NV12 in NVIDIA's own memory (`memory:NVMM`). The converter takes the nearest pixel when it scales, unless 1
/// (bilinear) is set: small things would look different from those that the host scales.
const JETSON: DecoderChain = DecoderChain {
    converter: Some("nvvidconv interpolation-method=1"),
    ..hardware("nvv4l2decoder")
};
/// The same with the converter of DeepStream.
const DEEPSTREAM: DecoderChain = DecoderChain {
    converter: Some("nvvideoconvert interpolation-method=1"),
    ..JETSON
};

impl DecoderChain {
    /// The name of the decoder.
    pub fn element(&self) -> &'static str {
        name(self.launch)
    }

    /// The launch text, with the decoder named `decoder`.
    pub fn named_launch(&self) -> String {
        let (decoder, rest) = match self.launch.split_once(" ! ") {
            Some((decoder, rest)) => (decoder, format!(" ! {rest}")),
            None => (self.launch, String::new()),
        };
        format!("{decoder} name=decoder{rest}")
    }

    fn is_complete(&self, exists: impl Fn(&str) -> bool) -> bool {
        let elements = self.launch.split(" ! ").chain(self.converter);
        elements.into_iter().all(|element| exists(name(element)))
    }
}

/// The element's name in its launch text, which may have properties behind it.
fn name(element: &str) -> &str {
    element.split(' ').next().unwrap_or(element)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecoderChoice {
    pub chain: DecoderChain,
    /// Where it is to leave pictures.
    pub place: PictureMemory,
    pub reason: &'static str,
}

/// The decoders of one camera: which there are, and which of them failed.
#[derive(Debug, Default)]
pub struct Decoders {
    /// Those of a test, in place of the codec's.
    chains: Option<&'static [DecoderChain]>,
    /// Not to be chosen before.
    hardware_again: Mutex<Option<Mono>>,
    device_broken: AtomicBool,
}

/// A pipeline that failed, as far as its decoder is concerned.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecoderStatus {
    /// Pictures are decoded outside of the CPU.
    pub hardware: bool,
    /// Where they are left.
    pub place: PictureMemory,
    /// At least one came.
    pub seen: bool,
}

impl Decoders {
    #[cfg(test)]
    pub fn of(chains: &'static [DecoderChain]) -> Self {
        Self {
            chains: Some(chains),
            ..Self::default()
        }
    }

    /// Gives up what caused a pipeline's error, and says what; `None` when that is neither the decoder nor the way of its pictures
    /// to the host. Pictures on a GPU are given up first: no element says that formats do not fit or that a scaler cannot be
    /// compiled, the stream just fails before the first picture.
    pub fn give_up(
        &self,
        decoding: &DecoderStatus,
        of_decoder: bool,
        of_streaming: bool,
        now: Mono,
    ) -> Option<&'static str> {
        let on_device = decoding.place == PictureMemory::Device && !decoding.seen;
        if on_device && (of_decoder || of_streaming) {
            self.device_broken.store(true, Ordering::Relaxed);
            return Some("pictures cannot stay on the GPU; by way of the host from now on");
        }
        match of_decoder {
            true => self.give_up_stuck(decoding, now),
            false => None,
        }
    }

    /// Gives up a decoder that takes frames and gives no pictures, and says so; `None` when there is no other.
    pub fn give_up_stuck(&self, decoding: &DecoderStatus, now: Mono) -> Option<&'static str> {
        if !decoding.hardware {
            return None;
        }
        *lock(&self.hardware_again) = Some(now.after(HARDWARE_AGAIN_AFTER));
        Some("the hardware decoder failed or gives no pictures; software for the next 10 minutes")
    }

    /// The best chain whose elements all exist; `None` when there is none at all. With `on_device`, what decodes on an NVIDIA
    /// GPU leaves pictures there if they can be scaled there.
    pub fn choose(
        &self,
        codec: &Codec,
        on_device: bool,
        now: Mono,
        exists: impl Fn(&str) -> bool,
    ) -> Option<DecoderChoice> {
        let hardware_failed = lock(&self.hardware_again).is_some_and(|again| now < again);
        let device_broken = self.device_broken.load(Ordering::Relaxed);
        let chains = self.chains.unwrap_or(codec.chains);
        let usable = |chain: &&DecoderChain| !(hardware_failed && chain.hardware);
        let mut usable = chains.iter().filter(usable);
        let chain = usable.find(|chain| chain.is_complete(&exists))?;
        let is_nvidia = matches!(chain.launch, "nvh264dec" | "nvh265dec");
        let stays = is_nvidia && on_device && !device_broken && exists(DEVICE_SCALER);
        let mut hardware = chains.iter().filter(|other| other.hardware);
        let has_hardware = hardware.any(|other| exists(other.element()));
        Some(DecoderChoice {
            chain: *chain,
            place: match stays {
                true => PictureMemory::Device,
                false => PictureMemory::Host,
            },
            reason: match (chain.hardware, has_hardware, hardware_failed) {
                (true, ..) => "a hardware decoder is installed",
                (false, false, _) => "no hardware decoder is installed",
                (false, true, true) => "the hardware decoder failed before",
                (false, true, false) => {
                    "the converter (nvvidconv) of the hardware decoder is not installed"
                }
            },
        })
    }
}

/// FFmpeg's decoders start a thread for each core, up to 16, and the more cameras there are the less good these do. Measured
/// with 8 of 720p15 and 16 threads each: 130 threads and 125 MB for cameras, 138 and 941 MB for files, whose frames wait in
/// the threads. With four each it is 34 and 120 MB, 42 and 306 MB. Few cameras have more slices in a picture.
const THREADS: i32 = 4;

/// Bounds the threads of a decoder in software.
pub fn bound_threads(decoder: &gst::Element) {
    let property = decoder.find_property("max-threads");
    if property.is_some_and(|property| property.value_type() == i32::static_type()) {
        decoder.set_property("max-threads", THREADS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codec(name: &str) -> &'static Codec {
        Codec::from_rtp(name).unwrap()
    }

    const FAILED: Mono = Mono::from_nanos(5_000_000_000);

    fn decoding(place: PictureMemory, seen: bool) -> DecoderStatus {
        DecoderStatus {
            hardware: true,
            place,
            seen,
        }
    }

    #[test]
    fn software_decoder_has_few_threads() {
        gst::init().unwrap();
        let decoder = gst::ElementFactory::make("avdec_h264").build().unwrap();
        bound_threads(&decoder);
        assert_eq!(decoder.property::<i32>("max-threads"), THREADS);
    }

    #[test]
    fn complete_hardware_chain_is_first_except_after_a_failure() {
        let hardware = ["nvv4l2decoder", "nvh264dec", "vah265dec"];
        let software = ["avdec_h264", "avdec_h265"];
        let decoders = Decoders::default();
        let chosen = |codec, now| {
            let exists = |name: &str| hardware.contains(&name) || software.contains(&name);
            let choice = decoders.choose(codec, true, now, exists);
            choice.map(|choice| choice.chain.element())
        };
        assert_eq!(chosen(codec("H264"), FAILED), Some("nvh264dec"));
        assert_eq!(chosen(codec("H265"), FAILED), Some("vah265dec"));
        assert_eq!(chosen(codec("JPEG"), FAILED), None);
        let software = DecoderStatus::default();
        assert_eq!(decoders.give_up_stuck(&software, FAILED), None);
        let stuck = decoding(PictureMemory::Host, true);
        let text = decoders.give_up_stuck(&stuck, FAILED).unwrap();
        assert!(text.contains("software"), "{text}");
        let again = FAILED.after(HARDWARE_AGAIN_AFTER);
        let before = again.before(Duration::from_nanos(1));
        assert_eq!(chosen(codec("H264"), before), Some("avdec_h264"));
        assert_eq!(chosen(codec("H265"), before), Some("avdec_h265"));
        assert_eq!(chosen(codec("H264"), again), Some("nvh264dec"));

        let nvv = |name: &str| name.starts_with("nvv") || name == DEVICE_SCALER;
        let jetson = Decoders::default().choose(codec("H265"), true, FAILED, nvv);
        let jetson = jetson.unwrap();
        assert_eq!(jetson.chain, JETSON);
        assert_eq!(JETSON.named_launch(), "nvv4l2decoder name=decoder");
        assert_eq!(jetson.place, PictureMemory::Host);
    }

    #[test]
    fn unused_hardware_decoder_is_named_with_the_reason() {
        let decoders = Decoders::default();
        let choose = |there: &[&str]| {
            let exists = |name: &str| there.contains(&name);
            let choice = decoders.choose(codec("H264"), false, FAILED, exists);
            let choice = choice.unwrap();
            (choice.chain.element(), choice.reason)
        };
        let whole = ["avdec_h264", "nvv4l2decoder", "nvvidconv"];
        let installed = "a hardware decoder is installed";
        assert_eq!(choose(&whole), ("nvv4l2decoder", installed));
        let none = "no hardware decoder is installed";
        assert_eq!(choose(&whole[..1]), ("avdec_h264", none));
        let (element, reason) = choose(&whole[..2]);
        assert_eq!(element, "avdec_h264");
        assert!(reason.contains("nvvidconv"), "{reason}");
        decoders.give_up_stuck(&decoding(PictureMemory::Host, true), FAILED);
        let (element, reason) = choose(&whole);
        assert_eq!(element, "avdec_h264");
        assert!(reason.contains("failed before"), "{reason}");
    }

    #[test]
    fn pictures_stay_on_the_gpu_unless_it_failed_before() {
        let decoders = Decoders::default();
        let nvidia = ["nvh264dec", "nvh265dec", "cudaconvertscale"];
        let place = |decoders: &Decoders, wanted, there: &[&str]| {
            let exists = |name: &str| there.contains(&name);
            let choice = decoders.choose(codec("H264"), wanted, FAILED, exists);
            choice.map(|choice| (choice.chain.element(), choice.place))
        };
        let device = ("nvh264dec", PictureMemory::Device);
        let host = ("nvh264dec", PictureMemory::Host);
        assert_eq!(place(&decoders, true, &nvidia), Some(device));
        assert_eq!(place(&decoders, false, &nvidia), Some(host));
        assert_eq!(place(&decoders, true, &nvidia[..2]), Some(host));
        let software = ["avdec_h264", "cudaconvertscale"];
        let avdec = ("avdec_h264", PictureMemory::Host);
        assert_eq!(place(&decoders, true, &software), Some(avdec));

        let fresh = decoding(PictureMemory::Device, false);
        let network = decoders.give_up(&fresh, false, false, FAILED);
        assert_eq!(network, None, "the network's");
        assert_eq!(place(&decoders, true, &nvidia), Some(device));
        let given_up = decoders.give_up(&fresh, false, true, FAILED).unwrap();
        assert!(given_up.contains("by way of the host"), "{given_up}");
        assert_eq!(place(&decoders, true, &nvidia), Some(host));

        // With pictures seen, or by way of the host, it is the decoder alone that can be given up.
        for decoding in [
            decoding(PictureMemory::Device, true),
            decoding(PictureMemory::Host, false),
        ] {
            let decoders = Decoders::default();
            assert_eq!(decoders.give_up(&decoding, false, true, FAILED), None);
            let given_up = decoders.give_up(&decoding, true, true, FAILED).unwrap();
            assert!(given_up.contains("software"), "{given_up}");
            assert_eq!(place(&decoders, true, &nvidia), None);
        }
    }
}
