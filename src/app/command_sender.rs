//! Who sent a command, and where its reply goes: over MQTT, or to a client of the page.

use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;

use spotter_control::{Refusal, RefusalCode};
use spotter_mqtt::{Publisher, Reply, RequestHead, Requester, Update};
use spotter_page::PageReply;

/// The sender of a command.
#[derive(Clone, Debug)]
pub enum CommandSender {
    Broker(Requester),
    Page {
        head: RequestHead,
        /// Closed when the client has disconnected.
        reply: mpsc::Sender<PageReply>,
    },
}

impl CommandSender {
    pub fn head(&self) -> &RequestHead {
        match self {
            Self::Broker(Requester { head, .. }) | Self::Page { head, .. } => head,
        }
    }

    pub fn send(self, reply: &Reply, publisher: &Publisher) {
        let json = reply.to_json();
        match self {
            Self::Broker(Requester { reply_to: to, .. }) => {
                publisher.publish(Update::Reply { to, payload: json });
            }
            Self::Page { reply: client, .. } => {
                let refusal = reply.result.as_ref().err();
                let status = refusal.map_or(200, |refusal| status(refusal.code));
                // The client may have disconnected.
                _ = client.try_send(PageReply { status, json });
            }
        }
    }
}

/// The answer to a question of the page.
pub fn page_reply(answer: Result<impl Serialize, Refusal>) -> PageReply {
    let (status, json) = match answer {
        Ok(answer) => (200, json!(answer)),
        Err(refusal) => (status(refusal.code), json!({"ok": false, "error": refusal})),
    };
    PageReply {
        status,
        json: json.to_string().into_bytes(),
    }
}

/// Of HTTP.
fn status(code: RefusalCode) -> u16 {
    match code {
        RefusalCode::BadRequest => 400,
        RefusalCode::UnknownOp
        | RefusalCode::UnknownCamera
        | RefusalCode::UnknownPrompt
        | RefusalCode::UnknownLine
        | RefusalCode::UnknownMode
        | RefusalCode::UnknownEvent => 404,
        RefusalCode::Conflict => 409,
        RefusalCode::BadValue | RefusalCode::TooLong => 422,
        RefusalCode::Failed => 500,
        RefusalCode::Unavailable => 503,
    }
}
