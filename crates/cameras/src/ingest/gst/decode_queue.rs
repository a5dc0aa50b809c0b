//! What goes into the decoder, and which decoder it is.

use std::{sync::Arc, time::Duration};

use gstreamer::{self as gst, prelude::*};
use tracing::info;

use super::{
    PipelineProbes,
    context::FrameOmission,
    decoder::{Codec, DecoderChoice, DecoderStatus, bound_threads},
    device,
    packet_probe::sift,
    statistics::{EncodedFrame, SourceKind},
};
use crate::ingest::{
    gate::Gap,
    nal::{CodecCheck, NalFraming, NalLayout},
};
use spotter_config::Decode;
use spotter_core::Mono;

const LATE: &str = "decoding fell behind, and no key frame came since; this machine is overloaded, so give the camera a smaller \
                    stream or set decode = \"keyframes\"";
const LOST: &str = "packets were lost or a picture came in part, and no key frame came since";
/// The decoder reports an error.
pub const BROKEN: &str = "the decoder reports an error, and no key frame came since";

impl PipelineProbes {
    /// Notes which decoder works.
    pub fn decode_with(&self, codec: &Codec, choice: &DecoderChoice) {
        let mut statistics = self.statistics();
        statistics.decoder.hardware = choice.chain.hardware;
        statistics.decoder.place = choice.place;
        statistics.codec_check = codec.nal.map(CodecCheck::new);
        statistics.stream.codec = Some(codec.name);
        statistics.stream.decoder = Some(choice.chain.element().to_owned());
    }

    /// How pictures are decoded, and whether any came.
    pub fn decoder_status(&self) -> DecoderStatus {
        let statistics = self.statistics();
        DecoderStatus {
            seen: statistics.frames > 0,
            ..statistics.decoder
        }
    }

    /// Gives up the decoder if it caused the error; the text says what is done then.
    pub fn give_up_decoder(&self, of_decoder: bool, of_streaming: bool) -> Option<&'static str> {
        let (decoding, now) = (self.decoder_status(), self.now().mono);
        let decoders = &self.memory.decoders;
        let given_up = decoders.give_up(&decoding, of_decoder, of_streaming, now);
        if let Some(text) = given_up {
            info!(camera = %self.outlet.camera, "{text}");
        }
        given_up
    }

    /// The decoder warned of a broken picture.
    pub fn decoder_warned(&self) {
        let now = self.now().mono;
        self.statistics().to_show.warn(now);
        self.warn_of(FrameOmission::Broken, BROKEN);
    }

    /// Fails the pipeline when its hardware decoder hangs, which no message of GStreamer reports.
    pub fn check_for_stuck_decoder(&self, now: Mono) {
        let statistics = self.statistics();
        let is_stuck = statistics.is_decoder_stuck(self.keyframes_only(), now);
        drop(statistics);
        if !is_stuck {
            return;
        }
        let decoders = &self.memory.decoders;
        if let Some(text) = decoders.give_up_stuck(&self.decoder_status(), now) {
            info!(camera = %self.outlet.camera, "{text}");
            self.fail(device(text.into()));
        }
    }

    /// Bounds a decoder's threads, and watches what goes into it: key frames, codec, declared rate. With
    /// `decode = "keyframes"` other frames are dropped.
    pub fn watch_decoder(self: &Arc<Self>, decoder: &gst::Element) {
        bound_threads(decoder);
        let Some(pad) = decoder.static_pad("sink") else {
            return;
        };
        self.watch_caps(&pad, Self::on_encoded_caps);
        sift(self, &pad, Self::on_encoded);
    }

    /// Watches the decoder that decodebin chooses.
    pub fn watch_decodebin(self: &Arc<Self>, decodebin: &gst::Element) {
        let Some(bin) = decodebin.downcast_ref::<gst::Bin>() else {
            return;
        };
        let queue = Arc::downgrade(self);
        bin.connect_deep_element_added(move |_, _, element| {
            let Some(factory) = element.factory() else {
                return;
            };
            let class = factory.metadata("klass").unwrap_or_default();
            if class.contains("Decoder")
                && (class.contains("Video") || class.contains("Image"))
                && let Some(queue) = queue.upgrade()
            {
                queue.statistics().stream.decoder = Some(factory.name().into());
                queue.watch_decoder(element);
            }
        });
    }

    /// Watches a source of this machine, whose frames come whole.
    pub fn watch_local(self: &Arc<Self>, source: &gst::Element) {
        self.statistics().stream.codec = Some("raw");
        if let Some(pad) = source.static_pad("src") {
            sift(self, &pad, Self::on_whole);
        }
    }

    /// Notes the arrival of a frame; always returns true, because every frame is kept.
    fn on_whole(&self, frame: &mut gst::Buffer) -> bool {
        if let Some(pts) = frame.pts() {
            let now = self.now();
            self.statistics().arrivals.whole(pts.into(), now);
        }
        true
    }

    fn keyframes_only(&self) -> bool {
        self.camera.decode == Decode::KeyFrames
    }

    /// False for a frame that is not to be decoded.
    fn on_encoded(&self, buffer: &mut gst::Buffer) -> bool {
        self.packet_came();
        let key = !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT);
        let frame = EncodedFrame {
            pts: buffer.pts().map(Duration::from),
            key,
            lost: buffer.flags().contains(gst::BufferFlags::DISCONT),
            is_begun: self.is_begun(buffer),
        };
        let now = self.now().mono;
        let mut statistics = self.statistics();
        let passes = statistics.encoded(frame, now);
        let wanted = passes.is_ok() && (key || !self.keyframes_only());
        if wanted {
            statistics.fed(frame.pts, now);
        }
        drop(statistics);
        if let Err(Some(gap)) = passes {
            let why = match gap {
                Gap::Lost => LOST,
                Gap::Late => LATE,
            };
            self.warn_of(FrameOmission::NotDecoded(gap), why);
        }
        wanted
    }

    /// The encoded frame has the beginning of its picture, or that cannot be known.
    fn is_begun(&self, buffer: &gst::BufferRef) -> bool {
        let layout = self.statistics().layout;
        let layout = layout.filter(|_| self.kind == SourceKind::Network);
        let (Some(layout), Ok(bytes)) = (layout, buffer.map_readable()) else {
            return true;
        };
        layout.is_begun(&bytes) != Some(false)
    }

    fn on_encoded_caps(&self, caps: &gst::CapsRef) {
        let Some(structure) = caps.structure(0) else {
            return;
        };
        let rate = structure.get::<gst::Fraction>("framerate").ok();
        let codec = Codec::from_media_type(structure.name());
        let has_start_codes = structure.get::<&str>("stream-format") == Ok("byte-stream");
        let framing = match has_start_codes {
            true => NalFraming::StartCodes,
            false => NalFraming::Lengths,
        };
        let layout = codec.and_then(|codec| codec.nal);
        let mut statistics = self.statistics();
        statistics.layout = layout.map(|codec| NalLayout { codec, framing });
        if let Some(codec) = codec {
            statistics.stream.codec = Some(codec.name);
        }
        statistics.declared(rate.map(|rate| (rate.numer(), rate.denom())));
    }
}
