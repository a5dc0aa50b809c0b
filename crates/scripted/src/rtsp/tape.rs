//! Encoded pictures, once for all connections: packets without their numbers and times.

use std::collections::VecDeque;

use gstreamer::{self as gst, prelude::*};
use gstreamer_app::{AppSink, AppSrc};

use super::paint;

/// How pictures are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapeCodec {
    H264,
    H265,
    Jpeg,
}

/// Slices of a picture that is sliced.
const SLICES: u8 = 3;

/// Content of a tape.
#[derive(Clone, Debug)]
pub struct Recording {
    pub codec: TapeCodec,
    /// Pixels across and down.
    pub size: (usize, usize),
    /// Length of the tape, which is played in a loop.
    pub pictures: usize,
    /// Pictures from one key picture to the next.
    pub gop: usize,
    /// In fields, not in full pictures.
    pub interlaced: bool,
    /// In several slices a picture, as cameras with several encoders send it.
    pub sliced: bool,
    /// The stream contains its frame rate.
    pub says_rate: bool,
}

impl Recording {
    /// A small tape of two groups of pictures.
    pub fn of(codec: TapeCodec) -> Self {
        Self {
            codec,
            size: (320, 192),
            pictures: 20,
            gop: 10,
            interlaced: false,
            sliced: false,
            says_rate: true,
        }
    }

    fn launch(&self) -> String {
        let (gop, interlaced) = (self.gop, self.interlaced);
        let slices = if self.sliced { SLICES } else { 0 };
        let encode = match self.codec {
            TapeCodec::H264 => format!(
                "x264enc tune=zerolatency speed-preset=superfast bframes=0 key-int-max={gop} bitrate=1000 \
                 interlaced={interlaced} option-string=scenecut=0:sliced-threads=0:slices={slices} \
                 ! h264parse ! rtph264pay pt=96 config-interval=0"
            ),
            TapeCodec::H265 => format!(
                "x265enc tune=zerolatency speed-preset=superfast key-int-max={gop} bitrate=1000 \
                 option-string=bframes=0:scenecut=0:log-level=none:slices={slices} \
                 ! h265parse ! rtph265pay pt=96 config-interval=0"
            ),
            TapeCodec::Jpeg => "jpegenc ! rtpjpegpay pt=26".to_owned(),
        };
        format!(
            "appsrc name=in format=time ! {encode} mtu=1200 name=pay ! appsink name=out sync=false"
        )
    }

    fn caps(&self) -> gst::Caps {
        let (width, height) = self.size;
        let rate = if self.says_rate { 20 } else { 0 };
        let mode = if self.interlaced {
            "interleaved"
        } else {
            "progressive"
        };
        let mut caps = gst::Caps::builder("video/x-raw")
            .field("format", "I420")
            .field("width", width as i32)
            .field("height", height as i32)
            .field("interlace-mode", mode)
            .field("framerate", gst::Fraction::new(rate, 1));
        if self.interlaced {
            caps = caps.field("field-order", "top-field-first");
        }
        caps.build()
    }
}

#[derive(Clone, Debug)]
pub struct EncodedPicture {
    /// It is decoded without others.
    pub key: bool,
    /// Payloads of its packets, in order.
    pub payloads: Vec<Vec<u8>>,
}

/// Encoded pictures; the first is a key picture, and each shows its place in the tape.
#[derive(Clone, Debug)]
pub struct CameraTape {
    /// How they are encoded.
    pub codec: TapeCodec,
    pub pictures: Vec<EncodedPicture>,
    pub payload_type: u8,
    /// `H264/90000` and the format parameters of the SDP.
    pub rtpmap: String,
    /// The rest of the `fmtp` line.
    pub fmtp: String,
}

impl CameraTape {
    /// Encodes. Blocks for as long as that takes.
    pub fn record(recording: &Recording) -> Self {
        gst::init().unwrap();
        let pipeline = gst::parse::launch(&recording.launch()).unwrap();
        let pipeline = pipeline.downcast::<gst::Pipeline>().unwrap();
        let by_name = |name: &str| pipeline.by_name(name).unwrap();
        let input = by_name("in").downcast::<AppSrc>().unwrap();
        let output = by_name("out").downcast::<AppSink>().unwrap();
        input.set_caps(Some(&recording.caps()));
        input.set_max_bytes(0);
        pipeline.set_state(gst::State::Playing).unwrap();
        for number in 0..recording.pictures {
            let (width, height) = recording.size;
            let mut buffer = gst::Buffer::from_mut_slice(paint::picture(number, width, height));
            let time = gst::ClockTime::from_mseconds(50 * number as u64);
            let writable = buffer.get_mut().unwrap();
            writable.set_pts(time);
            writable.set_duration(gst::ClockTime::from_mseconds(50));
            input.push_buffer(buffer).unwrap();
        }
        input.end_of_stream().unwrap();
        let mut packets = VecDeque::new();
        while let Ok(sample) = output.pull_sample() {
            packets.push_back(sample.buffer().unwrap().map_readable().unwrap().to_vec());
        }
        let caps = by_name("pay").static_pad("src").unwrap().current_caps();
        pipeline.set_state(gst::State::Null).unwrap();
        let caps = caps.expect("the encoder made no packet");
        let tape = Self::from_packets(recording.codec, packets, caps.structure(0).unwrap());
        assert_eq!(tape.pictures.len(), recording.pictures);
        assert!(tape.pictures[0].key);
        tape
    }

    fn from_packets(
        codec: TapeCodec,
        packets: VecDeque<Vec<u8>>,
        caps: &gst::StructureRef,
    ) -> Self {
        let mut pictures = Vec::new();
        let mut payloads = Vec::new();
        for packet in packets {
            let last = packet[1] & 0x80 != 0;
            payloads.push(packet[12..].to_vec());
            if last {
                let payloads = std::mem::take(&mut payloads);
                let key = payloads.iter().any(|payload| starts_key(codec, payload));
                pictures.push(EncodedPicture { key, payloads });
            }
        }
        let (encoding, payload_type, names) = match codec {
            TapeCodec::H264 => (
                "H264",
                96,
                &["packetization-mode", "sprop-parameter-sets"][..],
            ),
            TapeCodec::H265 => ("H265", 96, &["sprop-vps", "sprop-sps", "sprop-pps"][..]),
            TapeCodec::Jpeg => ("JPEG", 26, &[][..]),
        };
        let field = |name: &&str| Some(format!("{name}={}", caps.get::<&str>(*name).ok()?));
        let fields: Vec<String> = names.iter().filter_map(field).collect();
        Self {
            codec,
            pictures,
            payload_type,
            rtpmap: format!("{encoding}/90000"),
            fmtp: fields.join(";"),
        }
    }

    /// Without the NAL units of these types in the stream; the SDP keeps them.
    pub fn without(mut self, types: &[u8]) -> Self {
        let codec = self.codec;
        let kept = |payload: &Vec<u8>| !types.contains(&nal_type(codec, payload));
        for picture in &mut self.pictures {
            picture.payloads.retain(kept);
        }
        self
    }

    /// With this NAL unit before each key picture.
    pub fn with_before_keys(mut self, unit: &[u8]) -> Self {
        for picture in self.pictures.iter_mut().filter(|picture| picture.key) {
            picture.payloads.insert(0, unit.to_vec());
        }
        self
    }
}

/// The media section of an SDP (RFC 4566) for a tape, or for what is beside it.
pub fn media(tape: &CameraTape, control: &str) -> String {
    let (kind, map, fmtp) = (tape.payload_type, &tape.rtpmap, &tape.fmtp);
    let mut text = format!("m=video 0 RTP/AVP {kind}\r\na=rtpmap:{kind} {map}\r\n");
    if tape.codec != TapeCodec::Jpeg && !fmtp.is_empty() {
        text += &format!("a=fmtp:{kind} {fmtp}\r\n");
    }
    text + &format!("a=control:{control}\r\n")
}

/// The type of a packet's NAL unit, or of the packet when it holds a piece of one.
fn nal_type(codec: TapeCodec, payload: &[u8]) -> u8 {
    match codec {
        TapeCodec::H264 => payload[0] & 0x1f,
        TapeCodec::H265 => payload[0] >> 1 & 0x3f,
        TapeCodec::Jpeg => 0,
    }
}

/// A NAL unit that ends with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedUnit {
    Slice,
    /// A parameter set or a message.
    Other,
}

/// The unit that ends with this packet, if one does.
pub fn ended_unit(codec: TapeCodec, payload: &[u8]) -> Option<EndedUnit> {
    let (unit, ends) = match (codec, nal_type(codec, payload)) {
        (TapeCodec::H264, 28) => (payload[1] & 0x1f, payload[1] & 0x40 != 0),
        (TapeCodec::H265, 49) => (payload[2] & 0x3f, payload[2] & 0x40 != 0),
        (_, whole) => (whole, true),
    };
    let is_slice = match codec {
        TapeCodec::H264 => (1..=5).contains(&unit),
        TapeCodec::H265 => unit < 32,
        TapeCodec::Jpeg => false,
    };
    ends.then_some(if is_slice {
        EndedUnit::Slice
    } else {
        EndedUnit::Other
    })
}

/// The packet begins a slice that needs no other picture (RFC 6184 section 5.8, RFC 7798 section 4.4.3).
fn starts_key(codec: TapeCodec, payload: &[u8]) -> bool {
    match (codec, nal_type(codec, payload)) {
        (TapeCodec::H264, 28) => payload[1] & 0x1f == 5,
        (TapeCodec::H264, nal) => nal == 5,
        (TapeCodec::H265, 49) => (16..=21).contains(&(payload[2] & 0x3f)),
        (TapeCodec::H265, nal) => (16..=21).contains(&nal),
        (TapeCodec::Jpeg, _) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sliced_tapes_have_as_many_slices_in_each_picture() {
        for codec in [TapeCodec::H264, TapeCodec::H265] {
            let tape = CameraTape::record(&Recording {
                sliced: true,
                ..Recording::of(codec)
            });
            for picture in &tape.pictures {
                let units = picture.payloads.iter();
                let units = units.filter_map(|payload| ended_unit(codec, payload));
                let slices = units.filter(|unit| *unit == EndedUnit::Slice).count();
                assert_eq!(slices, usize::from(SLICES), "{codec:?}");
            }
        }
    }
}
