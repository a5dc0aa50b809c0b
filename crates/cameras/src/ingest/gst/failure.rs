//! From GStreamer's errors to ours. GStreamer's own texts are not repeated: they name elements, not remedies, and
//! their debug part may hold anything. It is read where nothing else says why a conversation with a camera ended.

use gstreamer as gst;

use super::frames::Rejected;
use crate::ingest::health::{Failure, Fault};
use spotter_core::config::{SourceConfig as Origin, Transport};

/// What the camera is in messages. URLs never hold a login, because the configuration refuses them.
pub fn origin(origin: &Origin) -> String {
    match origin {
        Origin::Rtsp { url, .. } => url.clone(),
        Origin::File { path, .. } => path.display().to_string(),
        Origin::Usb { device } => device.display().to_string(),
        Origin::Test => "the test source".to_owned(),
    }
}

/// The camera closed the connection.
pub fn ended(source: &Origin) -> Failure {
    let text = format!("{} ended the stream", origin(source));
    Failure::new(Fault::Disconnected, text)
}

/// Reads an error message of a pipeline.
pub fn from_message(
    message: &gst::message::Error,
    source: &Origin,
    rejected: &Rejected,
) -> Failure {
    let debug = message.debug().unwrap_or_default();
    let status = message
        .details()
        .and_then(|details| details.get::<u32>("rtsp-status-code").ok())
        .or_else(|| status_of_setup(&debug));
    let error = message.error();
    let refuses_transport = refuses_transport(status, &error, rejected);
    let fault = match source {
        Origin::Rtsp { .. } if rejected.certificate => Fault::Tls,
        // What refuses one transport may take the other, which is tried next.
        Origin::Rtsp {
            transport: Transport::Auto,
            ..
        } if refuses_transport => Fault::Protocol,
        Origin::Rtsp { .. } => network_fault(status, &error, &debug),
        Origin::File { .. } => match error.kind::<gst::ResourceError>() {
            Some(gst::ResourceError::NotFound) => Fault::NotFound,
            _ => Fault::NotVideo,
        },
        Origin::Usb { .. } | Origin::Test => Fault::Device,
    };
    let status = status.map(|code| format!(" (RTSP status {code})"));
    let said = match refuses_transport {
        true => "it does not send its video that way; set another `transport`".into(),
        false => words(fault, rejected.codec.as_deref()),
    };
    let text = format!("{}: {said}{}", origin(source), status.unwrap_or_default());
    Failure::new(fault, text)
}

/// The answer to SETUP has its status in the debug part alone, as `Error (453): Not Enough Bandwidth`.
fn status_of_setup(debug: &str) -> Option<u32> {
    let (_, rest) = debug.rsplit_once("\nError (")?;
    rest.split(')').next()?.parse().ok()
}

/// A video stream was chosen and could not be set up; with no other transport left to ask for, rtspsrc gives no status.
fn refuses_transport(status: Option<u32>, error: &gst::glib::Error, rejected: &Rejected) -> bool {
    let nothing_set_up = error.kind::<gst::StreamError>() == Some(gst::StreamError::CodecNotFound);
    status == Some(461) || (rejected.chosen && nothing_set_up)
}

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
    match (fault, rejected_codec) {
        (Fault::Unsupported, Some(codec)) => {
            format!(
                "its video is {codec}; H.264, H.265 and JPEG are supported, choose one in the camera"
            )
        }
        (Fault::Unsupported, None) => {
            "no video stream that can be decoded here; H.264, H.265 and JPEG are supported".into()
        }
        (Fault::Unreachable, _) => "no connection; check address, port and network".into(),
        (Fault::NotFound, _) => "not there; check the path of the URL".into(),
        (Fault::AuthFailed, _) => "the login was refused; check user and password".into(),
        (Fault::TooManySessions, _) => {
            "the camera has no free session; close other viewers or use another stream".into()
        }
        (Fault::Disconnected, _) => {
            "it broke off the connection; check its power and the network".into()
        }
        (Fault::NoFrame, _) => "connected, but it does not answer; is it overloaded?".into(),
        (Fault::NotVideo, _) => "not a video that can be decoded here".into(),
        (Fault::Tls, _) => "its certificate was not accepted; see `tls` of the camera".into(),
        (Fault::Device, _) => "the device does not work; check that it is free and readable".into(),
        _ => "the conversation failed; is this an RTSP camera?".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debug_part_says_what_no_field_does() {
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
}
