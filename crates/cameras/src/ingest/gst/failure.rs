//! Makes a [`Failure`] of GStreamer's errors. GStreamer's own texts are not repeated: they name elements, not remedies, and
//! their debug part may contain anything. It is read where nothing else gives the reason why an RTSP connection ended.

use gstreamer as gst;

use super::{PipelineProbes, Rejections};
use crate::ingest::{
    health::{Failure, Fault},
    nal::NalCodec,
    rtsp::RelayEnd,
    transport::TransportRefusal,
};
use spotter_core::plain_line;

const INTERRUPTED: &str = "the stream was interrupted by bytes that are no packet of it; reconnecting. Where this repeats, \
     update the camera's firmware or the proxy in between";

/// The camera closed the connection. `source` is its name in messages, here and below.
pub fn ended(source: &str) -> Failure {
    let text = format!("{source} ended the stream");
    Failure::new(Fault::Disconnected, text)
}

/// Reads an error message of a pipeline whose source has nothing to add to the fault.
pub fn from_fault(source: &str, fault: Fault) -> Failure {
    Failure::new(fault, format!("{source}: {}", words(fault, None)))
}

/// What an error means of a stream, whose packets say more than the error. After pictures the address and the codec were right, and
/// something interrupted the stream.
pub fn of_stream(failure: Failure, probes: &PipelineProbes) -> Failure {
    let has_pictures = probes.decoder_status().seen;
    let suspected = probes.statistics().suspected_codec();
    match (failure.fault, suspected) {
        (Fault::Protocol | Fault::Unsupported, _) if has_pictures => {
            Failure::new(Fault::Protocol, format!("{}: {INTERRUPTED}", probes.source))
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
    Failure::new(fault, format!("{}: {text}", probes.source))
}

/// Reads an error message of an RTSP pipeline.
pub fn from_rtsp(source: &str, message: &gst::message::Error, rejected: &Rejections) -> Failure {
    let status = status(message);
    let debug = message.debug().unwrap_or_default();
    let fault = network_fault(status, &message.error(), &debug);
    let words = words(fault, rejected.codec.as_deref());
    let status = status.map(|code| format!(" (RTSP {code})"));
    let text = format!("{source}: {words}{}", status.unwrap_or_default());
    Failure::new(fault, text)
}

/// The camera refused a transport. Whether another one is tried then, [`Failure::after`] adds.
pub fn transport_refused(source: &str, refusal: TransportRefusal) -> Failure {
    let text = format!(
        "{source}: camera refused RTP over {} (RTSP 461)",
        refusal.refused
    );
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

/// The conversation with the camera ended; `None` when rtspsrc ended it.
pub fn from_relay(source: &str, end: RelayEnd) -> Option<Failure> {
    let remedy = "set `url` to it if it is right";
    let (fault, what) = match end {
        RelayEnd::ByClient => return None,
        RelayEnd::Closed { playing: true } => return Some(ended(source)),
        RelayEnd::Closed { playing: false } => {
            (Fault::Disconnected, words(Fault::Disconnected, None))
        }
        RelayEnd::Unreachable => (Fault::Unreachable, words(Fault::Unreachable, None)),
        RelayEnd::Certificate => (Fault::Tls, words(Fault::Tls, None)),
        RelayEnd::NoTls => (
            Fault::Tls,
            "no TLS connection; check that the camera accepts rtsps:// at this port".to_owned(),
        ),
        RelayEnd::NotRtsp { playing: true } => (Fault::Protocol, INTERRUPTED.to_owned()),
        RelayEnd::NotRtsp { playing: false } => (Fault::Protocol, words(Fault::Protocol, None)),
        RelayEnd::TooManyRedirects(addresses) => {
            let way: Vec<String> = addresses.iter().map(|to| plain_line(to)).collect();
            let way = way.join(" -> ");
            let what =
                format!("the camera redirects again and again: {way}; check the path of the URL");
            (Fault::Protocol, what)
        }
        RelayEnd::RedirectNowhere => (
            Fault::Protocol,
            "the camera redirects without an RTSP address; check the path of the URL".to_owned(),
        ),
        RelayEnd::RedirectElsewhere { to } => {
            let to = plain_line(&to);
            let what = format!(
                "the camera redirects to another host, {to}, which is not followed; {remedy}, or name the host in `redirect_hosts`"
            );
            (Fault::Protocol, what)
        }
        RelayEnd::RedirectUnencrypted { to } => {
            let to = plain_line(&to);
            let what = format!(
                "the camera redirects to {to}, which is not encrypted and not followed; {remedy}"
            );
            (Fault::Tls, what)
        }
        RelayEnd::LoginElsewhere { to } => {
            let to = plain_line(&to);
            let what = format!(
                "the camera redirects to {to}, which demands a login; the login is sent to the host and port of `url` alone; {remedy}"
            );
            (Fault::AuthFailed, what)
        }
        RelayEnd::TooManyRequests(most) => {
            let what = format!("no stream within {most} requests; its answers repeat themselves");
            (Fault::Protocol, what)
        }
        RelayEnd::TooManyConnections => (
            Fault::Disconnected,
            "the camera's connections ended too often, and Spotter makes at most ten a minute; check the camera and the network"
                .to_owned(),
        ),
    };
    Some(Failure::new(fault, format!("{source}: {what}")))
}

/// The camera answered 461, or its video stream was chosen and could not be set up: with no other transport left to ask for
/// after a 461, rtspsrc reports that no stream was found, without a status.
pub fn is_transport_refused(message: &gst::message::Error, rejected: &Rejections) -> bool {
    let kind = message.error().kind::<gst::StreamError>();
    let nothing_set_up = kind == Some(gst::StreamError::CodecNotFound);
    status(message) == Some(461) || (rejected.chosen && nothing_set_up)
}

/// rtspsrc looks for a way to log in first, in GStreamer 1.20 also after a 404, and reports that it found none; the error with the
/// camera's status follows.
pub fn is_before_status(message: &gst::message::Error) -> bool {
    let debug = message.debug().unwrap_or_default();
    debug.ends_with("No supported authentication protocol was found")
}

fn status(message: &gst::message::Error) -> Option<u32> {
    let details = message.details();
    let status = details.and_then(|details| details.get::<u32>("rtsp-status-code").ok());
    status.or_else(|| status_of_setup(&message.debug()?))
}

/// The answer to SETUP has its status in the debug part alone, as `Error (453): Not Enough Bandwidth`.
fn status_of_setup(debug: &str) -> Option<u32> {
    let (_, rest) = debug.rsplit_once("\nError (")?;
    rest.split(')').next()?.parse().ok()
}

/// The fault of an error without an RTSP status is that of the GStreamer error, and of its debug part.
fn network_fault(status: Option<u32>, error: &gst::glib::Error, debug: &str) -> Fault {
    match status {
        Some(401 | 403) => return Fault::AuthFailed,
        Some(404) => return Fault::NotFound,
        Some(453 | 503) => return Fault::TooManySessions,
        Some(415 | 451 | 461) => return Fault::Unsupported,
        Some(400..) => return Fault::Protocol,
        _ => {}
    }
    match error.kind::<gst::ResourceError>() {
        Some(gst::ResourceError::NotAuthorized) => Fault::AuthFailed,
        Some(gst::ResourceError::NotFound) => Fault::NotFound,
        Some(gst::ResourceError::OpenRead | gst::ResourceError::OpenReadWrite) => {
            Fault::Unreachable
        }
        Some(gst::ResourceError::Read | gst::ResourceError::Write) => broken_off(debug),
        Some(_) => Fault::Protocol,
        None if error.kind::<gst::StreamError>().is_some() => Fault::Unsupported,
        None => Fault::Protocol,
    }
}

/// Why nothing more could be read or written: the ends of `gst_rtsp_strresult`, which are not translated.
fn broken_off(debug: &str) -> Fault {
    let says = |what: &str| debug.contains(what);
    match () {
        () if says("Timeout") => Fault::NoFrame,
        () if says("end-of-file") || says("System error") || says("Network error") => {
            Fault::Disconnected
        }
        () => Fault::Protocol,
    }
}

fn words(fault: Fault, rejected_codec: Option<&str>) -> String {
    if let (Fault::Unsupported, Some(codec)) = (fault, rejected_codec) {
        let remedy = "H.264, H.265 and JPEG are supported, choose one in the camera";
        return format!("its video is {codec}; {remedy}");
    }
    let words = match fault {
        Fault::Unsupported => {
            "no video stream that can be decoded here; H.264, H.265 and JPEG are supported"
        }
        Fault::Unreachable => "no connection; check address, port and network",
        Fault::NotFound => "not found; check the path of the URL",
        Fault::AuthFailed => "the camera rejected the login; check user and password",
        Fault::TooManySessions => {
            "the camera has no free session; close other viewers or use another stream"
        }
        Fault::Disconnected => "the camera closed the connection; check its power and the network",
        Fault::NoFrame => "connected, but the camera does not answer; is it overloaded?",
        Fault::NotVideo => "not a video that can be decoded here",
        Fault::Tls => "the camera's certificate was rejected; see `tls` of the camera",
        Fault::Device => {
            "the device does not work; check that no other program uses it and that it is readable"
        }
        _ => "the camera's answers are not valid RTSP; is this an RTSP camera?",
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_part_gives_status_and_reason() {
        let setup =
            "../gst/rtsp/gstrtspsrc.c(7870): setup (): /source:\nError (453): Not Enough Bandwidth";
        assert_eq!(status_of_setup(setup), Some(453));
        let read =
            |why: &str| format!("../x.c(1): read (): /source:\nCould not receive message. ({why})");
        assert_eq!(status_of_setup(&read("Parse error")), None);
        for (why, fault) in [
            ("Timeout while waiting for server response", Fault::NoFrame),
            ("Received end-of-file", Fault::Disconnected),
            ("System error", Fault::Disconnected),
            ("Parse error", Fault::Protocol),
            ("Generic error", Fault::Protocol),
        ] {
            assert_eq!(broken_off(&read(why)), fault, "{why}");
        }
    }

    #[test]
    fn addresses_of_a_camera_are_one_plain_line() {
        let to = "rtsp://gate/\u{202e}x\u{1b}[2J".to_owned();
        for end in [
            RelayEnd::TooManyRedirects(vec![to.clone(), to.clone()]),
            RelayEnd::RedirectElsewhere { to: to.clone() },
            RelayEnd::RedirectUnencrypted { to: to.clone() },
            RelayEnd::LoginElsewhere { to: to.clone() },
        ] {
            let text = from_relay("rtsp://gate/x", end).unwrap().text;
            assert!(!text.contains(['\u{202e}', '\u{1b}']), "{text:?}");
            assert!(text.contains("rtsp://gate/\u{fffd}x"), "{text:?}");
        }
    }

    #[test]
    fn own_limit_of_connections_is_not_silence_of_the_camera() {
        let failure = from_relay("rtsp://gate/x", RelayEnd::TooManyConnections).unwrap();
        assert_eq!(failure.fault, Fault::Disconnected);
        assert!(failure.text.contains("at most ten a minute"), "{failure}");
    }
}
