//! Commands and replies (docs/mqtt.md section 5): from topics and bytes to types, and back. Pure.
//!
//! Does not belong here: the execution of a command. An invalid request becomes a refusal that names what is wrong, because
//! its sender waits for a reply.

mod json;
mod reply;

pub use json::parse_page_request;
pub use reply::{Reply, ReplyValue};

use serde::Serialize;

use super::{CameraOwner, Inbound, ReplyTo, RequestScope, Topics, read_json};
use spotter_config::{Commands, Config};
use spotter_control::{Command, Refusal, RefusalCode, camera_id, prompt_id, shown};
use spotter_core::{
    CameraId, LineId, LookRate, ModeId, NO_MODE, PromptText, Setting, Share, plain_line,
};

/// A longer id of a request is refused: ids are kept for ten minutes and repeated in replies.
pub(crate) const ID_MAX_CHARS: usize = 64;
/// The longest request, bytes. A prompt has 200 characters, choices 16 times 40.
pub(crate) const REQUEST_MAX_BYTES: usize = 16 * 1024;

/// The payload that resets a line.
pub(crate) const LINE_RESET: &str = "RESET";

#[derive(Clone, Debug, PartialEq)]
pub enum InboundKind {
    Request(Box<CommandRequest>),
    /// A request that was retained: it is never executed.
    Old,
    /// Home Assistant has started.
    HomeAssistant,
    Other,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CommandRequest {
    pub requester: Requester,
    /// The command, or why the request is refused.
    pub command: Result<Command, Refusal>,
    /// A node that does not watch the camera is silent for [`RequestScope::Fleet`].
    pub scope: RequestScope,
    /// A response topic that the sender may not choose; the reply goes to the usual topic.
    pub refused_reply_topic: Option<String>,
}

/// The sender of a command, and where it expects the reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requester {
    pub head: RequestHead,
    /// `None` = the node's topic `reply`.
    pub reply_to: Option<ReplyTo>,
}

/// The part of a request that its reply repeats, as far as it is readable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RequestHead {
    /// The sender's id of the request.
    pub id: Option<String>,
    pub op: String,
    #[serde(rename = "cam")]
    pub camera: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<&'static str>,
}

/// The filters to subscribe to. Never `#`: unneeded messages of other clients could fill the inbox.
pub fn filters(topics: &Topics, config: &Config) -> Vec<String> {
    // Not without modes: the broker's access rules need not allow it then.
    let mode = (!config.modes.is_empty()).then(|| format!("{}/set", topics.mode()));
    let settings = topics.any_set().into_iter().chain(mode);
    let requests = std::iter::once(topics.command()).chain(topics.fleet_command());
    match config.mqtt.commands {
        Commands::Off => Vec::new(),
        Commands::Basic => settings.collect(),
        Commands::All => settings.chain(requests).collect(),
    }
}

/// Reads a message. `ha_status`: the topic on which Home Assistant reports its start.
pub fn parse_inbound(topics: &Topics, ha_status: Option<&str>, message: &Inbound) -> InboundKind {
    if Some(message.topic.as_str()) == ha_status {
        return match message.payload == b"online" && !message.retained {
            true => InboundKind::HomeAssistant,
            false => InboundKind::Other,
        };
    }
    let Some((scope, levels)) = topics.scope_of(&message.topic) else {
        return InboundKind::Other;
    };
    let mut head = RequestHead::default();
    let command = match levels.as_slice() {
        ["cmd"] => json::parse_request(&message.payload, &mut head),
        ["mode", "set"] => {
            head.op = "mode_set".to_owned();
            set_mode(&message.payload)
        }
        ["cam", camera, "line", line, "set"] => {
            head.op = "line_reset".to_owned();
            head.line = Some((*line).to_owned());
            head.camera = Some((*camera).to_owned());
            reset_line(camera, line, &message.payload)
        }
        ["cam", camera, field, "set"] => {
            head.op = "camera_set".to_owned();
            head.camera = Some((*camera).to_owned());
            set(&mut head, field, &message.payload)
        }
        ["cam", camera, "prompt", prompt, field, "set"] => {
            head.op = "prompt_set".to_owned();
            head.camera = Some((*camera).to_owned());
            head.prompt = Some((*prompt).to_owned());
            set(&mut head, field, &message.payload)
        }
        _ => return InboundKind::Other,
    };
    if message.retained {
        // An empty one clears the topic.
        return match message.payload.is_empty() {
            true => InboundKind::Other,
            false => InboundKind::Old,
        };
    }
    let (wanted, refused) = match message.reply_to.clone() {
        Some(to) if !topics.allows_reply_to(&to.topic) => (None, Some(plain_line(&to.topic))),
        wanted => (wanted, None),
    };
    let of_fleet = topics.fleet_reply();
    let usual = of_fleet.filter(|_| scope == RequestScope::Fleet);
    let usual = usual.map(|topic| ReplyTo {
        topic,
        correlation: None,
    });
    let reply_to = wanted.or(usual);
    InboundKind::Request(Box::new(CommandRequest {
        requester: Requester { head, reply_to },
        command,
        scope,
        refused_reply_topic: refused,
    }))
}

/// A message on the `owner` topic of a camera of the fleet; `None` for any other, and for one that cannot be read.
pub(crate) fn parse_owner(topics: &Topics, message: &Inbound) -> Option<(CameraId, CameraOwner)> {
    let camera = topics.camera_of_owner(&message.topic)?;
    Some((camera, read_json(&message.payload).ok()?))
}

/// A message on one of the `/set` topics.
fn set(head: &mut RequestHead, field: &str, payload: &[u8]) -> Result<Command, Refusal> {
    let fields = match head.prompt {
        None => ["enabled", "rate", "motion_gate"],
        Some(_) => ["text", "enabled", "min_score"],
    };
    // Also of a value that is refused: it is published again.
    head.field = fields.into_iter().find(|known| *known == field);
    let camera = camera_id(head.camera.as_deref().unwrap_or_default())?;
    let prompt = head.prompt.as_deref().map(prompt_id).transpose()?;
    let text = std::str::from_utf8(payload)
        .map_err(|_| Refusal::bad_value(format!("{field}: not UTF-8 text")))?;
    let switch = || match text.trim() {
        "ON" => Ok(true),
        "OFF" => Ok(false),
        other => Err(not_allowed(field, other, "ON or OFF")),
    };
    let number = || {
        let number = text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        number.ok_or_else(|| not_allowed(field, text, "a number"))
    };
    let wrong = |error| Refusal::of_value(field, &error);
    let setting = match (prompt, field) {
        (None, "enabled") => Setting::Enabled(switch()?),
        (None, "rate") => Setting::Rate(LookRate::new(number()?).map_err(wrong)?),
        (None, "motion_gate") => Setting::MotionGate(switch()?),
        (Some(prompt), "text") => {
            let text = PromptText::new(text);
            let text = text.map_err(|error| Refusal::of_value("prompt text", &error))?;
            Setting::Text(prompt, text)
        }
        (Some(prompt), "enabled") => Setting::PromptEnabled(prompt, switch()?),
        (Some(prompt), "min_score") => {
            Setting::MinScore(prompt, Share::new(number()?).map_err(wrong)?)
        }
        (_, other) => {
            let (other, known) = (shown(other), fields.join(", "));
            let text = format!("{other} cannot be set; there are {known}");
            return Err(Refusal::new(RefusalCode::UnknownOp, text));
        }
    };
    Ok(Command::Set { camera, setting })
}

/// A message on the `/set` topic of a line.
fn reset_line(camera: &str, line: &str, payload: &[u8]) -> Result<Command, Refusal> {
    let camera = camera_id(camera)?;
    let line =
        LineId::new(line).map_err(|_| Refusal::unknown(RefusalCode::UnknownLine, "line", line))?;
    match String::from_utf8_lossy(payload).trim() {
        LINE_RESET => Ok(Command::ResetLine { camera, line }),
        other => Err(not_allowed("line", other, LINE_RESET)),
    }
}

/// A message on the topic that switches the mode: the name of one, or `none`.
fn set_mode(payload: &[u8]) -> Result<Command, Refusal> {
    let mode = match String::from_utf8_lossy(payload).trim() {
        NO_MODE => None,
        name => {
            let unknown = |_| Refusal::unknown(RefusalCode::UnknownMode, "mode", name);
            Some(ModeId::new(name).map_err(unknown)?)
        }
    };
    Ok(Command::SetMode { mode })
}

fn not_allowed(field: &str, found: &str, allowed: &str) -> Refusal {
    Refusal::bad_value(format!("{field}: {} is not {allowed}", shown(found)))
}

#[cfg(test)]
mod tests;
