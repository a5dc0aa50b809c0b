//! Makes a [`Failure`] of GStreamer's errors. GStreamer's own texts are not repeated: they name elements, not remedies, and
//! their debug part may contain anything. What a camera answered is known by the relay.

use gstreamer as gst;

use super::PipelineProbes;
use crate::ingest::{
    health::{Failure, Fault, INTERRUPTED},
    nal::NalCodec,
    transport::TransportRefusal,
};

/// What an error means of a stream, whose packets say more than the error. After pictures the address and the codec were right, and
/// something interrupted the stream.
pub fn of_stream(failure: Failure, probes: &PipelineProbes) -> Failure {
    let has_pictures = probes.decoder_status().seen;
    let suspected = probes.suspected_codec();
    match (failure.fault, suspected) {
        (Fault::Protocol | Fault::Unsupported, _) if has_pictures => {
            Failure::new(Fault::Protocol, INTERRUPTED)
        }
        (Fault::Unsupported, Some((announced, sent))) => other_codec(probes, announced, sent),
        _ => failure,
    }
}

/// After pictures, the camera was set to another codec: a new connection has it announced.
pub fn other_codec(probes: &PipelineProbes, announced: NalCodec, sent: NalCodec) -> Failure {
    let (announced, sent) = (announced.label(), sent.label());
    let (fault, text) = match probes.decoder_status().seen {
        true => (
            Fault::Protocol,
            format!(
                "the camera sends {sent} instead of {announced} since a moment ago; reconnecting"
            ),
        ),
        false => (
            Fault::Unsupported,
            format!(
                "the camera announces {announced} in its SDP and sends {sent}; set the codec of this stream in the camera again and \
                 restart it, or update its firmware or the server in between"
            ),
        ),
    };
    Failure::new(fault, text)
}

/// Reads an error message of an RTSP pipeline. `status`: the camera refused the last request.
pub fn from_rtsp(
    message: &gst::message::Error,
    status: Option<u16>,
    rejected_codec: Option<String>,
) -> Failure {
    let fault = match status {
        Some(401 | 403) => Fault::AuthFailed,
        Some(404) => Fault::NotFound,
        Some(453 | 503) => Fault::TooManySessions,
        Some(415 | 451) => Fault::Unsupported,
        Some(_) => Fault::Protocol,
        None if message.error().kind::<gst::StreamError>().is_some() => Fault::Unsupported,
        // The end of `gst_rtsp_strresult`, which is not translated.
        None if message
            .debug()
            .is_some_and(|debug| debug.contains("Timeout")) =>
        {
            Fault::NoFrame
        }
        None => Fault::Protocol,
    };
    let mut failure = Failure::of(fault);
    if let (Fault::Unsupported, Some(codec)) = (fault, rejected_codec) {
        let remedy = "H.264, H.265 and JPEG are supported, choose one in the camera";
        failure.text = format!("its video is {codec}; {remedy}");
    }
    if let Some(status) = status {
        failure.text += &format!(" (RTSP {status})");
    }
    failure
}

/// The camera refused a transport. Whether another one is tried then, [`Failure::after`] adds.
pub fn transport_refused(refusal: TransportRefusal) -> Failure {
    let text = format!("camera refused RTP over {} (RTSP 461)", refusal.refused);
    let (fault, text) = match refusal.next {
        Some(_) => (Fault::Protocol, text),
        None => (
            Fault::Unsupported,
            format!("{text}; set transport = \"auto\""),
        ),
    };
    Failure {
        refusal: Some(refusal),
        ..Failure::new(fault, text)
    }
}
