//! From GStreamer's errors to ours. GStreamer's own texts are not repeated: they name elements, not remedies, and
//! their debug part may hold anything.

use gstreamer as gst;

use super::frames::Rejected;
use crate::{
    config::Source as Origin,
    ingest::health::{Failure, Fault},
};

/// What the camera is in messages. URLs never hold a login, because the configuration refuses them.
pub fn origin(origin: &Origin) -> String {
    match origin {
        Origin::Rtsp { url, .. } => url.clone(),
        Origin::File { path, .. } => path.display().to_string(),
        Origin::Usb { device } => device.display().to_string(),
        Origin::Test => "the test source".to_owned(),
    }
}

/// Reads an error message of a pipeline.
pub fn from_message(
    message: &gst::message::Error,
    source: &Origin,
    rejected: &Rejected,
) -> Failure {
    let status = message
        .details()
        .and_then(|details| details.get::<u32>("rtsp-status-code").ok());
    let error = message.error();
    let fault = match source {
        Origin::Rtsp { .. } if rejected.certificate => Fault::Tls,
        Origin::Rtsp { .. } => network_fault(status, &error),
        Origin::File { .. } => match error.kind::<gst::ResourceError>() {
            Some(gst::ResourceError::NotFound) => Fault::NotFound,
            _ => Fault::NotVideo,
        },
        Origin::Usb { .. } | Origin::Test => Fault::Device,
    };
    let status = status.map(|code| format!(" (RTSP status {code})"));
    let text = format!(
        "{}: {}{}",
        origin(source),
        words(fault, rejected.codec.as_deref()),
        status.unwrap_or_default()
    );
    Failure::new(fault, text)
}

fn network_fault(status: Option<u32>, error: &gst::glib::Error) -> Fault {
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
        Some(_) => Fault::Protocol,
        None if error.kind::<gst::StreamError>().is_some() => Fault::Unsupported,
        None => Fault::Protocol,
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
        (Fault::NotVideo, _) => "not a video that can be decoded here".into(),
        (Fault::Tls, _) => "its certificate was not accepted; see `tls` of the camera".into(),
        (Fault::Device, _) => "the device does not work; check that it is free and readable".into(),
        _ => "the conversation failed; is this an RTSP camera?".into(),
    }
}
