//! Makes a [`Failure`] of GStreamer's errors. GStreamer's own texts are not repeated: they name elements, not remedies, and
//! their debug part may contain anything. What a camera answered is known by the relay.

use gstreamer as gst;

use super::PipelineProbes;
use crate::ingest::{
    health::{Failure, INTERRUPTED},
    nal::NalCodec,
};
use spotter_core::StreamFault;

/// What an error means of a stream, whose packets say more than the error. After pictures the address and the codec were right, and
/// something interrupted the stream.
pub fn of_stream(failure: Failure, probes: &PipelineProbes) -> Failure {
    let has_pictures = probes.decoder_status().seen;
    let suspected = probes.suspected_codec();
    match (failure.fault, suspected) {
        (StreamFault::Protocol | StreamFault::Unsupported, _) if has_pictures => {
            Failure::new(StreamFault::Protocol, INTERRUPTED)
        }
        (StreamFault::Unsupported, Some((announced, sent))) => other_codec(probes, announced, sent),
        _ => failure,
    }
}

/// After pictures, the camera was set to another codec: a new connection has it announced.
pub fn other_codec(probes: &PipelineProbes, announced: NalCodec, sent: NalCodec) -> Failure {
    let (announced, sent) = (announced.label(), sent.label());
    let (fault, text) = match probes.decoder_status().seen {
        true => (
            StreamFault::Protocol,
            format!(
                "the camera sends {sent} instead of {announced} since a moment ago; reconnecting"
            ),
        ),
        false => (
            StreamFault::Unsupported,
            format!(
                "the camera announces {announced} in its SDP and sends {sent}; set the codec of this stream in the camera again and \
                 restart it, or update its firmware or the server in between"
            ),
        ),
    };
    Failure::new(fault, text)
}

/// The camera refused a request with this status.
pub fn of_status(status: u16) -> Failure {
    let mut failure = Failure::of(match status {
        401 | 403 => StreamFault::AuthFailed,
        404 => StreamFault::NotFound,
        453 | 503 => StreamFault::TooManySessions,
        415 | 451 => StreamFault::Unsupported,
        _ => StreamFault::Protocol,
    });
    failure.text += &format!(" (RTSP {status})");
    failure
}

/// Reads an error message of an RTSP pipeline whose camera refused nothing.
pub fn from_rtsp(message: &gst::message::Error, probes: &PipelineProbes) -> Failure {
    if message.error().kind::<gst::StreamError>().is_some() {
        let failure = Failure::of(StreamFault::Unsupported);
        return match &probes.statistics().rejected_codec {
            None => failure,
            Some(codec) => Failure {
                text: format!(
                    "its video is {codec}; H.264, H.265 and JPEG are supported, choose one in the camera"
                ),
                ..failure
            },
        };
    }
    // The end of `gst_rtsp_strresult`, which is not translated.
    let debug = message.debug();
    let is_timeout = debug.is_some_and(|debug| debug.contains("Timeout"));
    Failure::of(match is_timeout {
        true => StreamFault::NoFrame,
        false => StreamFault::Protocol,
    })
}
