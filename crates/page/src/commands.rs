//! What clients of the page ask of the daemon's loop, commands above all: a route waits for the reply, with bounds on how many wait and for
//! how long.
//!
//! Faults: H24.

use std::time::Duration;

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Value, json};
use spotter_core::{CameraId, CameraShapes, NodeId, PromptId};
use spotter_http::{ask_again_after, json_answer};
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    time::timeout,
};

/// Bytes of a command.
pub(crate) const COMMAND_MAX_BYTES: usize = 64_000;
/// Clients that wait for the daemon's loop.
const WAITING_MAX: usize = 16;
/// A question is answered or refused within half a minute.
const REPLY_LIMIT: Duration = Duration::from_secs(45);

/// A client that waits for the daemon.
#[derive(Debug)]
pub struct PageRequest {
    pub asked: PageQuestion,
    /// For one reply. Closed when the client has disconnected.
    pub reply: mpsc::Sender<PageReply>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PageQuestion {
    /// A request as on the topic `cmd`, of a client that may change something.
    Command(Value),
    /// What is drawn on a camera: [`ShapesAnswer`].
    Shapes(CameraId),
}

/// The JSON of `/camera/NAME/shapes.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShapesAnswer {
    pub camera: CameraId,
    /// Of the shapes in force; `shapes_set` names it.
    pub version: String,
    pub file: CameraShapes,
    /// Those in force.
    pub now: CameraShapes,
    /// The areas of the file's mask, which have to stay.
    pub file_mask: toml::Value,
    /// Width and height of the stream; `None`: not known yet.
    pub size: Option<(u32, u32)>,
    /// Those of the picture on which the shapes in force were drawn; `None`: unknown, or the shapes are the file's.
    pub drawn_size: Option<[u32; 2]>,
    /// Both are known and their aspect ratios differ.
    pub has_other_aspect: bool,
    pub prompts: Vec<ShapesPrompt>,
    /// In a fleet: the node that watches the camera, if it is another one.
    pub owner: Option<ShapesOwner>,
    /// The lines of the file that make the shapes in force its own.
    pub toml: String,
}

/// A prompt of a camera on which shapes are drawn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShapesPrompt {
    pub id: PromptId,
    pub kind: &'static str,
    pub words: String,
    pub rate_hz: f64,
}

/// Where a camera's shapes can be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShapesOwner {
    pub name: NodeId,
    /// Of its page.
    pub url: Option<String>,
}

/// The daemon's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageReply {
    /// Of HTTP.
    pub status: u16,
    pub json: Vec<u8>,
}

/// Why the daemon does not reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnansweredCommand {
    #[error("Spotter is starting: the model is being opened; send it again in a minute")]
    Starting,
    #[error("{WAITING_MAX} requests wait already; send it again")]
    NoRoom,
    #[error(
        "Spotter is stopping or restarting; look whether the command was executed, or send it again in a minute"
    )]
    Stopping,
    #[error("no reply within {} s; look whether the command was executed, or send it again", REPLY_LIMIT.as_secs())]
    Late,
}

/// The queue between the route and the daemon.
pub(crate) fn request_queue() -> (mpsc::Sender<PageRequest>, mpsc::Receiver<PageRequest>) {
    mpsc::channel(WAITING_MAX)
}

/// Waits for the daemon's reply.
pub(crate) async fn ask(
    daemon: &mpsc::Sender<PageRequest>,
    asked: PageQuestion,
) -> Result<PageReply, UnansweredCommand> {
    let (reply, mut replied) = mpsc::channel(1);
    let sent = daemon.try_send(PageRequest { asked, reply });
    sent.map_err(|error| match error {
        TrySendError::Full(_) => UnansweredCommand::NoRoom,
        TrySendError::Closed(_) => UnansweredCommand::Stopping,
    })?;
    let replied = timeout(REPLY_LIMIT, replied.recv()).await;
    let replied = replied.map_err(|_| UnansweredCommand::Late)?;
    replied.ok_or(UnansweredCommand::Stopping)
}

impl IntoResponse for PageReply {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        json_answer(status, self.json)
    }
}

/// In the shape of a refused command.
impl IntoResponse for UnansweredCommand {
    fn into_response(self) -> Response {
        let (status, pause_s) = match self {
            Self::Starting | Self::Stopping => (StatusCode::SERVICE_UNAVAILABLE, 10),
            Self::NoRoom => (StatusCode::SERVICE_UNAVAILABLE, 1),
            Self::Late => (StatusCode::GATEWAY_TIMEOUT, 1),
        };
        let error = json!({"code": "unavailable", "text": self.to_string()});
        let body = json!({"ok": false, "error": error}).to_string();
        ask_again_after(json_answer(status, body), Duration::from_secs(pause_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reload() -> PageQuestion {
        PageQuestion::Command(json!({"op": "reload"}))
    }

    // Faults: H24.
    #[tokio::test(start_paused = true)]
    async fn command_is_answered_once_or_refused_with_the_reason() {
        let (daemon, mut commands) = request_queue();
        let reply = PageReply {
            status: 409,
            json: b"{}".into(),
        };
        let answer = async {
            let command = commands.recv().await.unwrap();
            command.reply.try_send(reply.clone()).unwrap();
        };
        let (answered, ()) = tokio::join!(ask(&daemon, reload()), answer);
        assert_eq!(answered, Ok(reply));
        // The daemon's loop does not turn: those that gave up leave their places when it does.
        let waiting = (0..WAITING_MAX).map(|_| ask(&daemon, reload()));
        let late = futures_util::future::join_all(waiting).await;
        assert_eq!(late, [const { Err(UnansweredCommand::Late) }; WAITING_MAX]);
        let beyond = ask(&daemon, reload()).await;
        assert_eq!(beyond, Err(UnansweredCommand::NoRoom));
        while let Ok(command) = commands.try_recv() {
            assert!(command.reply.is_closed());
        }
        let unanswered = async { drop(commands.recv().await) };
        let (dropped, ()) = tokio::join!(ask(&daemon, reload()), unanswered);
        assert_eq!(dropped, Err(UnansweredCommand::Stopping));
        drop(commands);
        let closed = ask(&daemon, reload()).await;
        assert_eq!(closed, Err(UnansweredCommand::Stopping));
    }
}
