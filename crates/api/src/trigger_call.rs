//! Calls that trigger a camera: from a path and a body to a signal, and the daemon's reply.

use std::time::Duration;

use axum::http::StatusCode;
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};

use super::error::ApiError;
use spotter_core::{CameraId, NodeId, TriggerId, TriggerSignal};
use spotter_events::triggers::UnknownTrigger;
use spotter_requests::UnansweredRequest;

/// Bytes of a body.
pub const BODY_MAX: usize = 1024;
/// Calls that wait for the daemon's loop.
pub const WAITING_MAX: usize = 16;
/// When to call again for a camera without an owner.
const NO_NODE_PAUSE: Duration = Duration::from_secs(5);

/// A call that waits for the daemon.
#[derive(Debug)]
pub struct TriggerRequest {
    pub camera: CameraId,
    pub trigger: TriggerId,
    pub signal: TriggerSignal,
    /// Closed when the client has disconnected.
    pub reply: oneshot::Sender<Result<(), RefusedCall>>,
}

/// Why a call triggers nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedCall {
    #[error(transparent)]
    Unknown(#[from] UnknownTrigger),
    #[error("camera {camera} is watched by node {owner} of the fleet; call the API of that node")]
    OtherNode { camera: CameraId, owner: NodeId },
    #[error(
        "no node of the fleet watches camera {camera} now; call the API of its next owner, which the topic cam/{camera}/owner names"
    )]
    NoNode { camera: CameraId },
}

impl From<RefusedCall> for ApiError {
    fn from(why: RefusedCall) -> Self {
        let text = why.to_string();
        match why {
            RefusedCall::Unknown(_) => Self::new(StatusCode::NOT_FOUND, text),
            RefusedCall::OtherNode { .. } => Self::new(StatusCode::MISDIRECTED_REQUEST, text),
            RefusedCall::NoNode { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, text).after(NO_NODE_PAUSE)
            }
        }
    }
}

/// Waits for the daemon's reply. The names are parts of the path.
pub async fn call(
    daemon: &mpsc::Sender<TriggerRequest>,
    [camera, trigger]: [&str; 2],
    body: &[u8],
) -> Result<(), ApiError> {
    let no_name = |kind, name| {
        let text = format!("{name:?} is no name of a {kind}");
        ApiError::new(StatusCode::NOT_FOUND, text)
    };
    let (reply, replied) = oneshot::channel();
    let request = TriggerRequest {
        camera: CameraId::new(camera).map_err(|_| no_name("camera", camera))?,
        trigger: TriggerId::new(trigger).map_err(|_| no_name("trigger", trigger))?,
        signal: signal(body)?,
        reply,
    };
    let sent = daemon.try_send(request);
    sent.map_err(|_| UnansweredRequest::NoRoom)?;
    // Without a reply, the daemon ended.
    Ok(replied.await.map_err(|_| UnansweredRequest::Stopping)??)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, tag = "state", rename_all = "lowercase")]
enum CallBody {
    On {},
    Off {},
}

/// Without a body, something happened.
fn signal(body: &[u8]) -> Result<TriggerSignal, ApiError> {
    if body.trim_ascii().is_empty() {
        return Ok(TriggerSignal::Momentary);
    }
    let body: CallBody = serde_json::from_slice(body).map_err(|error| {
        ApiError::wrong(format!(
            "{error}; send no body, {{\"state\":\"on\"}} or {{\"state\":\"off\"}}"
        ))
    })?;
    Ok(match body {
        CallBody::On {} => TriggerSignal::On,
        CallBody::Off {} => TriggerSignal::Off,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_says_what_happened() {
        for (body, expected) in [
            ("", TriggerSignal::Momentary),
            (" \n", TriggerSignal::Momentary),
            ("{\"state\":\"on\"}", TriggerSignal::On),
            ("{\"state\": \"off\"}", TriggerSignal::Off),
        ] {
            assert_eq!(signal(body.as_bytes()).unwrap(), expected, "{body}");
        }
        let long = "{\"state\":\"on\",\"for\":1}";
        for wrong in ["on", "{}", "{\"state\":\"ON\"}", long, "[]"] {
            let error = signal(wrong.as_bytes()).unwrap_err();
            assert_eq!(error.status, StatusCode::BAD_REQUEST, "{wrong}");
        }
    }

    #[tokio::test]
    async fn call_waits_for_the_reply_of_the_daemon() {
        let (caller, mut calls) = mpsc::channel::<TriggerRequest>(WAITING_MAX);
        let gate = || CameraId::new("gate").unwrap();
        let (camera, owner) = (gate(), NodeId::new("edge2").unwrap());
        let unknown = UnknownTrigger("no camera gate has triggers".into());
        for (reply, status) in [
            (Ok(()), Ok(())),
            (Err(RefusedCall::from(unknown)), Err(404)),
            (Err(RefusedCall::OtherNode { camera, owner }), Err(421)),
            (Err(RefusedCall::NoNode { camera: gate() }), Err(503)),
        ] {
            let daemon = async { calls.recv().await.unwrap().reply.send(reply).unwrap() };
            let (called, ()) = tokio::join!(call(&caller, ["gate", "app"], b""), daemon);
            assert_eq!(called.map_err(|error| error.status.as_u16()), status);
        }
        let unnamed = call(&caller, ["Gate", "app"], b"").await.unwrap_err();
        assert_eq!(unnamed.status, StatusCode::NOT_FOUND);
        drop(calls);
        let late = call(&caller, ["gate", "app"], b"").await.unwrap_err();
        assert!(late.retry_after.is_some());
    }
}
