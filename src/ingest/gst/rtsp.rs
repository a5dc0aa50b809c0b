//! An RTSP camera: rtspsrc, its TLS and login, the choice of one video stream, and the branch that decodes it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use gstreamer::{self as gst, glib, prelude::*};
use sha2::{Digest, Sha256};
use tracing::info;

use super::{
    decoder::{Broken, Codec, choose, exists},
    device,
    frames::FrameTap,
    frames_text, named, parse,
    tail::Place,
};
use crate::{
    config::{Camera, CameraTls, Source as Origin, Transport},
    ingest::{
        health::{Failure, Fault},
        template::{Value, fill},
    },
};

const RTSP: &str = include_str!("../../../pipelines/rtsp.launch");
const RTP: &str = include_str!("../../../pipelines/rtp.launch");

/// How long a missing packet is awaited. Packets in order do not wait.
const LATENCY_MS: &str = "200";
/// From GStreamer 1.24 on, a decoder may hand out the surfaces that it decodes to, and waits when all are taken: more than
/// frames of a camera are ever waiting or looked at.
const SURFACES: (&str, &str) = ("num-output-surfaces", "16");

/// The pipeline of a camera, not yet playing. With `transport = "auto"`, TCP is tried first and UDP after a failure.
pub fn build(
    camera: &Camera,
    attempt: u32,
    tap: &Arc<FrameTap>,
    broken: &Arc<Broken>,
) -> Result<gst::Pipeline, Failure> {
    let Origin::Rtsp {
        url,
        user,
        password,
        transport,
        tls,
    } = &camera.source
    else {
        return Err(device("not an RTSP camera".into()));
    };
    let transport = match transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
        Transport::Auto if attempt.is_multiple_of(2) => "tcp",
        Transport::Auto => "udp",
    };
    tap.travelling_by(transport);
    let values = [
        ("protocols", Value::Text(transport)),
        ("latency_ms", Value::Text(LATENCY_MS)),
        (
            "timeout_us",
            Value::Text(&camera.first_frame.as_micros().to_string()),
        ),
    ];
    let text = fill(RTSP, &values).map_err(|e| device(format!("rtsp.launch: {e}")))?;
    let pipeline = parse("rtsp.launch", &text)?;
    let source = named(&pipeline, "source")?;
    source.set_property("location", url);
    if let Some(user) = user {
        source.set_property("user-id", user);
    }
    if let Some(password) = password {
        source.set_property("user-pw", password.reveal());
    }
    check_certificate(&source, tls, tap);
    select_video(&source, tap);
    watch_manager(&source, tap);
    decode_when_added(&pipeline, &source, tap, broken);
    Ok(pipeline)
}

/// The signal comes when no authority vouches for the certificate, as none does for cameras' own ones.
fn check_certificate(source: &gst::Element, tls: &CameraTls, tap: &Arc<FrameTap>) {
    let pinned = match tls {
        CameraTls::Insecure => return source.set_property_from_str("tls-validation-flags", "0"),
        CameraTls::Verify => None,
        CameraTls::Fingerprint(pinned) => Some(*pinned),
    };
    let tap = Arc::downgrade(tap);
    source.connect("accept-certificate", false, move |values| {
        let accepted = values
            .get(2)
            .and_then(|value| value.get::<glib::Object>().ok())
            .map(|certificate| certificate.property::<glib::ByteArray>("certificate"))
            .is_some_and(|der| pinned.is_some_and(|pinned| Sha256::digest(&*der)[..] == pinned));
        if let (false, Some(tap)) = (accepted, tap.upgrade()) {
            tap.reject_certificate();
        }
        Some(accepted.to_value())
    });
}

/// Only the first video stream that can be decoded is set up; sound and metadata never get a pad.
fn select_video(source: &gst::Element, tap: &Arc<FrameTap>) {
    let (tap, chosen) = (Arc::downgrade(tap), Arc::new(AtomicBool::new(false)));
    source.connect("select-stream", false, move |values| {
        let caps = values
            .get(2)
            .and_then(|value| value.get::<gst::Caps>().ok());
        let wanted = caps
            .as_ref()
            .and_then(|caps| caps.structure(0))
            .is_some_and(|stream| is_decodable(stream, &tap));
        let selected = wanted && !chosen.swap(true, Ordering::Relaxed);
        Some(selected.to_value())
    });
}

fn is_decodable(stream: &gst::StructureRef, tap: &std::sync::Weak<FrameTap>) -> bool {
    if stream.get::<&str>("media") != Ok("video") {
        return false;
    }
    let encoding = stream.get::<&str>("encoding-name").unwrap_or("JPEG");
    let decodable = Codec::from_rtp(encoding).is_some();
    if !decodable && let Some(tap) = tap.upgrade() {
        tap.reject_codec(encoding);
    }
    decodable
}

/// Packets are watched before the jitter buffer, which rtspsrc makes deep inside.
fn watch_manager(source: &gst::Element, tap: &Arc<FrameTap>) {
    let tap = Arc::downgrade(tap);
    source.connect("new-manager", false, move |values| {
        let manager = values.get(1)?.get::<gst::Element>().ok()?;
        let tap = tap.clone();
        manager.connect("new-jitterbuffer", false, move |values| {
            let jitter_buffer = values.get(1)?.get::<gst::Element>().ok()?;
            tap.upgrade()?.watch_jitter_buffer(&jitter_buffer);
            None
        });
        None
    });
}

fn decode_when_added(
    pipeline: &gst::Pipeline,
    source: &gst::Element,
    tap: &Arc<FrameTap>,
    broken: &Arc<Broken>,
) {
    let (pipeline, tap) = (pipeline.downgrade(), Arc::downgrade(tap));
    let broken = Arc::clone(broken);
    source.connect_pad_added(move |_, pad| {
        let (Some(pipeline), Some(tap)) = (pipeline.upgrade(), tap.upgrade()) else {
            return;
        };
        if pad.direction() == gst::PadDirection::Src
            && let Err(failure) = decode(&pipeline, pad, &tap, &broken)
        {
            // Elements that cannot even be linked are not linked again.
            if let Some(text) = broken.blame(&tap.decoding(), true, true) {
                info!(camera = %tap.camera(), "{text}");
            }
            tap.fail(failure);
        }
    });
}

fn decode(
    pipeline: &gst::Pipeline,
    pad: &gst::Pad,
    tap: &Arc<FrameTap>,
    broken: &Broken,
) -> Result<(), Failure> {
    let unsupported = |text: &str| Failure::new(Fault::Unsupported, text);
    let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
    let codec = caps
        .structure(0)
        .and_then(|stream| stream.get::<&str>("encoding-name").ok())
        .and_then(Codec::from_rtp)
        .ok_or_else(|| unsupported("the camera sends another codec than it announced"))?;
    let choice = choose(codec, broken, tap.may_stay_on_device(), exists).ok_or_else(|| {
        let name = codec.as_str();
        unsupported(&format!(
            "no decoder for {name} on this machine; install gstreamer1.0-libav"
        ))
    })?;
    info!(
        camera = %tap.camera(),
        codec = codec.as_str(),
        decoder = choice.element,
        reason = choice.reason,
        on_gpu = choice.place == Place::Device,
        "decoder chosen"
    );
    tap.decoding_with(codec, &choice);
    let frames = frames_text(choice.place, false)?;
    let values = [
        ("depay", Value::Elements(codec.depay())),
        ("parse", Value::Elements(codec.parse())),
        ("decoder", Value::Elements(&choice.launch)),
        ("frames", Value::Elements(&frames)),
    ];
    let text = fill(RTP, &values).map_err(|e| device(format!("rtp.launch: {e}")))?;
    let branch = gst::parse::bin_from_description(&text, true)
        .map_err(|e| device(format!("rtp.launch cannot be built: {e}")))?;
    tap.attach(&branch)?;
    tap.watch_depayloader(&named(&branch, "depay")?);
    let decoder = named(&branch, "decoder")?;
    if choice.place == Place::Device && decoder.has_property(SURFACES.0) {
        decoder.set_property_from_str(SURFACES.0, SURFACES.1);
    }
    tap.watch_decoder(&decoder);
    let join = || -> Result<(), glib::BoolError> {
        pipeline.add(&branch)?;
        branch.sync_state_with_parent()?;
        let sink = branch.static_pad("sink");
        let sink = sink.ok_or_else(|| glib::bool_error!("the branch has no sink pad"))?;
        pad.link(&sink)
            .map(drop)
            .map_err(|e| glib::bool_error!("{e}"))
    };
    join().map_err(|e| device(format!("the decoder cannot be linked: {e}")))
}
