//! An RTSP camera: rtspsrc behind the relay of `ingest::rtsp`, the choice of one video stream, and the branch that decodes it.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use gstreamer::{self as gst, glib, prelude::*};
use tracing::info;

use crate::ingest::{
    gst::{
        PipelineProbes, decoder::Codec, device, exists, fill, named, parse, tail::PictureMemory,
    },
    health::Failure,
    rtsp::{RelayReport, RelaySettings, RtspRelay},
};
use spotter_config::RtspConfig;
use spotter_core::{StreamFault, plain_line};

const RTSP: &str = include_str!("../../../../../../pipelines/rtsp.launch");
const RTP: &str = include_str!("../../../../../../pipelines/rtp.launch");

/// How long a missing packet is awaited. Packets in order do not wait.
const LATENCY_MS: &str = "200";
/// A camera that does not answer a connection by then is unreachable.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// As `teardown-timeout` in rtsp.launch.
const TEARDOWN_WAIT_US: u64 = 500_000;
/// From GStreamer 1.24 on, a decoder may hand out the surfaces that it decodes to, and waits when all are taken: more than
/// frames of a camera are ever waiting or looked at.
const SURFACES: (&str, &str) = ("num-output-surfaces", "16");

pub fn build(
    settings: &RtspConfig,
    probes: &Arc<PipelineProbes>,
) -> Result<gst::Pipeline, Failure> {
    let transport = probes.memory.transport().connect().as_str();
    probes.statistics().stream.transport = Some(transport);
    let timeout_us = probes.camera.first_frame.as_micros().to_string();
    let values = [
        ("protocols", transport),
        ("latency_ms", LATENCY_MS),
        ("timeout_us", &timeout_us),
    ];
    let pipeline = parse("rtsp.launch", &fill(RTSP, &values))?;
    let source = named(&pipeline, "source")?;
    let relay = relay(settings, probes)?;
    source.set_property("location", relay.url());
    probes.keep_relay(Some(relay));
    select_video(&source, probes);
    watch_manager(&source, probes);
    decode_when_added(&pipeline, &source, probes);
    Ok(pipeline)
}

/// Packets are watched by rtspsrc's manager, which it makes deep inside. From the first packet on, none is awaited for
/// longer than a picture is: a read that has begun a packet cannot be interrupted, and the end of the pipeline waits for
/// it. What a camera was asked before may take longer.
fn watch_manager(source: &gst::Element, probes: &Arc<PipelineProbes>) {
    let limit = probes.camera.stall.min(probes.camera.first_frame);
    let limit_us = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
    let (probes, rtspsrc) = (Arc::downgrade(probes), source.downgrade());
    source.connect("new-manager", false, move |values| {
        let manager = values.get(1)?.get::<gst::Element>().ok()?;
        let upgraded = probes.upgrade()?;
        upgraded.watch_manager(&manager);
        // rtspsrc makes its manager when the camera has agreed to a transport.
        upgraded.memory.transport().set_up();
        let (probes, rtspsrc) = (probes.clone(), rtspsrc.clone());
        manager.connect("new-jitterbuffer", false, move |_| {
            if probes.upgrade()?.is_interleaved() {
                rtspsrc.upgrade()?.set_property("tcp-timeout", limit_us);
            }
            None
        });
        None
    });
}

/// What rtspsrc connects to instead of the camera.
fn relay(rtsp: &RtspConfig, probes: &Arc<PipelineProbes>) -> Result<RtspRelay, Failure> {
    let probes_of_relay = Arc::downgrade(probes);
    let settings = RelaySettings {
        rtsp: rtsp.clone(),
        connect_limit: probes.camera.first_frame.min(CONNECT_LIMIT),
        connections: Arc::clone(&probes.memory.connections),
        clock: Arc::clone(&probes.outlet.clock),
        report: Box::new(move |report| match (report, probes_of_relay.upgrade()) {
            (RelayReport::Answered { refusal }, Some(probes)) => probes.answered(refusal),
            (RelayReport::Ended(failure), Some(probes)) => probes.fail(failure),
            (_, None) => {}
        }),
    };
    RtspRelay::start(settings)
        .map_err(|e| device(format!("{}: no socket on loopback: {e}", probes.name)))
}

/// Call it before the end of a pipeline: rtspsrc then waits for the answer to TEARDOWN for [`TEARDOWN_WAIT_US`] and not as long as for
/// any other answer.
pub fn limit_teardown(pipeline: &gst::Pipeline) {
    let source = pipeline.by_name("source");
    if let Some(source) = source.filter(|source| source.has_property("tcp-timeout")) {
        source.set_property("tcp-timeout", TEARDOWN_WAIT_US);
    }
}

/// Only the first video stream that can be decoded is set up; sound and metadata never get a pad.
fn select_video(source: &gst::Element, probes: &Arc<PipelineProbes>) {
    let (probes, chosen) = (Arc::downgrade(probes), AtomicBool::new(false));
    source.connect("select-stream", false, move |values| {
        let caps = values.get(2).and_then(|caps| caps.get::<gst::Caps>().ok());
        let stream = caps.as_ref().and_then(|caps| caps.structure(0));
        let wanted = stream.is_some_and(|stream| is_decodable(stream, &probes));
        let selected = wanted && !chosen.swap(true, Ordering::Relaxed);
        Some(selected.to_value())
    });
}

fn is_decodable(stream: &gst::StructureRef, probes: &Weak<PipelineProbes>) -> bool {
    if stream.get::<&str>("media") != Ok("video") {
        return false;
    }
    let codec = Codec::from_rtp_caps(stream);
    if let (Err(encoding), Some(probes)) = (&codec, probes.upgrade()) {
        probes.statistics().rejected_codec = Some(plain_line(encoding));
    }
    codec.is_ok()
}

/// One pipeline has one decoder. Another sender of the same stream does not come up here; another pad is another stream.
fn decode_when_added(
    pipeline: &gst::Pipeline,
    source: &gst::Element,
    probes: &Arc<PipelineProbes>,
) {
    let (pipeline, probes) = (pipeline.downgrade(), Arc::downgrade(probes));
    let decoding = AtomicBool::new(false);
    source.connect_pad_added(move |_, pad| {
        let (Some(pipeline), Some(probes)) = (pipeline.upgrade(), probes.upgrade()) else {
            return;
        };
        if pad.direction() != gst::PadDirection::Src {
            return;
        }
        if decoding.swap(true, Ordering::Relaxed) {
            let text = "the camera began another stream within its session; connecting again";
            return probes.fail(Failure::new(StreamFault::Protocol, text));
        }
        if let Err(failure) = decode(&pipeline, pad, &probes) {
            // Elements that cannot even be linked are not linked again.
            let _ = probes.give_up_decoder(true, true);
            probes.fail(failure);
        }
    });
}

fn decode(
    pipeline: &gst::Pipeline,
    pad: &gst::Pad,
    probes: &Arc<PipelineProbes>,
) -> Result<(), Failure> {
    let unsupported = |text: &str| Failure::new(StreamFault::Unsupported, text);
    let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
    let stream = caps.structure(0);
    let codec = stream
        .and_then(|stream| Codec::from_rtp_caps(stream).ok())
        .ok_or_else(|| unsupported("the camera sends another codec than it announced"))?;
    let rate = stream.and_then(|stream| stream.get::<&str>("a-framerate").ok());
    let on_device = probes.device.is_some();
    let now = probes.now().mono;
    let decoders = &probes.memory.decoders;
    let choice = decoders.choose(codec, on_device, now, exists);
    let choice = choice.ok_or_else(|| {
        let text = "on this machine; install gstreamer1.0-libav";
        unsupported(&format!("no decoder for {} {text}", codec.name))
    })?;
    info!(
        camera = %probes.outlet.camera,
        codec = codec.name,
        decoder = choice.chain.element(),
        reason = choice.reason,
        on_gpu = choice.place == PictureMemory::Device,
        "decoder chosen"
    );
    probes.decode_with(codec, &choice);
    probes.statistics().announced_rate(rate);
    let frames = choice.place.launch(choice.chain.converter, false);
    let values = [
        ("depay", codec.depay),
        ("parse", codec.parse),
        ("decoder", &choice.chain.named_launch()),
        ("frames", &frames),
    ];
    let branch = gst::parse::bin_from_description(&fill(RTP, &values), false)
        .map_err(|e| device(format!("rtp.launch cannot be built: {e}")))?;
    probes.watch_pictures(&branch)?;
    let sink = probes.depayloader_sink(&named(&branch, "depay")?, codec);
    let sink = sink.ok_or_else(|| device("the depayloader has no sink pad".into()))?;
    let decoder = named(&branch, "decoder")?;
    if choice.place == PictureMemory::Device && decoder.has_property(SURFACES.0) {
        decoder.set_property_from_str(SURFACES.0, SURFACES.1);
    }
    probes.watch_decoder(&decoder);
    let join = || -> Result<(), glib::BoolError> {
        branch.add_pad(&sink)?;
        pipeline.add(&branch)?;
        branch.sync_state_with_parent()?;
        pad.link(&sink)
            .map(drop)
            .map_err(|e| glib::bool_error!("{e}"))
    };
    join().map_err(|e| device(format!("the decoder cannot be linked: {e}")))
}
