//! Commands and replies (docs/mqtt.md section 5): from topics and bytes to types, and back. Pure.
//!
//! Does not belong here: the execution of a command. An invalid request becomes a refusal that names what is wrong, because
//! its sender waits for a reply.

mod json;
mod reply;

pub use reply::{Reply, ReplyValue};

use super::{CameraOwner, Inbound, ReplyTo, RequestScope, Topics, read_json};
use spotter_config::{Commands, Config};
use spotter_core::{
    CameraId, Command, LineId, LookRate, ModeId, NO_MODE, PromptId, PromptText, Refusal,
    RefusalCode, Setting, Share, plain_line,
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
    pub head: RequestHead,
    /// The command, or why the request is refused.
    pub command: Result<Command, Refusal>,
    /// A node that does not watch the camera is silent for [`RequestScope::Fleet`].
    pub scope: RequestScope,
    /// Where the reply is published; `None` = the node's topic `reply`.
    pub reply_to: Option<ReplyTo>,
    /// A response topic that the sender may not choose; the reply goes to the usual topic.
    pub refused_reply_topic: Option<String>,
}

/// The part of a request that its reply repeats, as far as it is readable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHead {
    /// The sender's id of the request.
    pub id: Option<String>,
    pub op: String,
    pub camera: Option<String>,
    pub prompt: Option<String>,
    pub line: Option<String>,
    pub field: Option<&'static str>,
}

/// The filters to subscribe to. Never `#`: unneeded messages of other clients could fill the inbox.
pub fn filters(topics: &Topics, config: &Config) -> Vec<String> {
    // Not without modes: the broker's access rules need not allow it then.
    let mode = (!config.modes.is_empty()).then(|| format!("{}/set", topics.mode()));
    let settings = [
        topics.any_camera_set(),
        topics.any_prompt_set(),
        topics.any_line_set(),
    ];
    let settings = settings.into_iter().chain(mode);
    match config.mqtt.commands {
        Commands::Off => Vec::new(),
        Commands::Basic => settings.collect(),
        Commands::All => {
            let requests = std::iter::once(topics.command()).chain(topics.fleet_command());
            settings.chain(requests).collect()
        }
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
    let (head, command) = match levels.as_slice() {
        ["cmd"] => json::parse_request(&message.payload),
        ["mode", "set"] => set_mode(&message.payload),
        ["cam", camera, field, "set"] => set(camera, None, field, &message.payload),
        ["cam", camera, "prompt", prompt, field, "set"] => {
            set(camera, Some(prompt), field, &message.payload)
        }
        ["cam", camera, "line", line, "set"] => set_line(camera, line, &message.payload),
        _ => return InboundKind::Other,
    };
    if message.retained {
        // An empty one clears the topic.
        return match message.payload.is_empty() {
            true => InboundKind::Other,
            false => InboundKind::Old,
        };
    }
    let wanted = message.reply_to.clone();
    let (wanted, refused) = match wanted {
        Some(to) if !topics.allows_reply_to(&to.topic) => (None, Some(plain_line(&to.topic))),
        wanted => (wanted, None),
    };
    InboundKind::Request(Box::new(CommandRequest {
        head,
        command,
        scope,
        refused_reply_topic: refused,
        reply_to: wanted.or_else(|| match scope {
            RequestScope::Node => None,
            RequestScope::Fleet => topics.fleet_reply().map(|topic| ReplyTo {
                topic,
                correlation: None,
            }),
        }),
    }))
}

/// A message on the `owner` topic of a camera of the fleet; `None` for any other, and for one that cannot be read.
pub(crate) fn parse_owner(topics: &Topics, message: &Inbound) -> Option<(CameraId, CameraOwner)> {
    let camera = topics.camera_of_owner(&message.topic)?;
    Some((camera, read_json(&message.payload).ok()?))
}

/// A message on one of the `/set` topics.
fn set(
    camera: &str,
    prompt: Option<&str>,
    field: &str,
    payload: &[u8],
) -> (RequestHead, Result<Command, Refusal>) {
    let op = if prompt.is_some() {
        "prompt_set"
    } else {
        "camera_set"
    };
    let mut head = RequestHead {
        op: op.to_owned(),
        camera: Some(camera.to_owned()),
        prompt: prompt.map(str::to_owned),
        ..RequestHead::default()
    };
    let command = camera_id(camera).and_then(|camera| {
        let prompt = prompt.map(prompt_id).transpose()?;
        // Also of a value that is refused: it is published again.
        let mut known = fields(prompt.is_some()).into_iter();
        head.field = known.find(|known| *known == field);
        let setting = setting(prompt, field, payload)?;
        Ok(Command::Set { camera, setting })
    });
    (head, command)
}

/// A message on the `/set` topic of a line.
fn set_line(camera: &str, line: &str, payload: &[u8]) -> (RequestHead, Result<Command, Refusal>) {
    let head = RequestHead {
        op: "line_reset".to_owned(),
        camera: Some(camera.to_owned()),
        line: Some(line.to_owned()),
        ..RequestHead::default()
    };
    let command = camera_id(camera).and_then(|camera| {
        let line =
            LineId::new(line).map_err(|_| unknown(RefusalCode::UnknownLine, "line", line))?;
        match String::from_utf8_lossy(payload).trim() {
            LINE_RESET => Ok(Command::ResetLine { camera, line }),
            other => Err(bad_value("line", other, LINE_RESET)),
        }
    });
    (head, command)
}

/// A message on the topic that switches the mode: the name of one, or `none`.
fn set_mode(payload: &[u8]) -> (RequestHead, Result<Command, Refusal>) {
    let head = RequestHead {
        op: "mode_set".to_owned(),
        ..RequestHead::default()
    };
    let text = String::from_utf8_lossy(payload);
    let mode = match text.trim() {
        NO_MODE => Ok(None),
        name => ModeId::new(name)
            .map(Some)
            .map_err(|_| unknown(RefusalCode::UnknownMode, "mode", name)),
    };
    (head, mode.map(|mode| Command::SetMode { mode }))
}

/// What of a camera or of a prompt can be set.
fn fields(of_prompt: bool) -> [&'static str; 3] {
    match of_prompt {
        false => ["enabled", "rate", "motion_gate"],
        true => ["text", "enabled", "min_score"],
    }
}

/// The wanted value of a topic's last level.
fn setting(prompt: Option<PromptId>, field: &str, payload: &[u8]) -> Result<Setting, Refusal> {
    let text = std::str::from_utf8(payload)
        .map_err(|_| Refusal::new(RefusalCode::BadValue, format!("{field}: not UTF-8 text")))?;
    let switch = || match text.trim() {
        "ON" => Ok(true),
        "OFF" => Ok(false),
        other => Err(bad_value(field, other, "ON or OFF")),
    };
    let number = || {
        let number = text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        number.ok_or_else(|| bad_value(field, text, "a number"))
    };
    let wrong = |error| Refusal::of_value(field, &error);
    Ok(match (prompt, field) {
        (None, "enabled") => Setting::Enabled(switch()?),
        (None, "rate") => Setting::Rate(LookRate::new(number()?).map_err(wrong)?),
        (None, "motion_gate") => Setting::MotionGate(switch()?),
        (Some(prompt), "text") => {
            let text =
                PromptText::new(text).map_err(|error| Refusal::of_value("prompt text", &error));
            Setting::Text(prompt, text?)
        }
        (Some(prompt), "enabled") => Setting::PromptEnabled(prompt, switch()?),
        (Some(prompt), "min_score") => {
            Setting::MinScore(prompt, Share::new(number()?).map_err(wrong)?)
        }
        (prompt, other) => {
            let known = fields(prompt.is_some()).join(", ");
            let text = format!("{} cannot be set; there are {known}", shown(other));
            return Err(Refusal::new(RefusalCode::UnknownOp, text));
        }
    })
}

fn camera_id(text: &str) -> Result<CameraId, Refusal> {
    CameraId::new(text).map_err(|_| unknown(RefusalCode::UnknownCamera, "camera", text))
}

fn prompt_id(text: &str) -> Result<PromptId, Refusal> {
    PromptId::new(text).map_err(|_| unknown(RefusalCode::UnknownPrompt, "prompt", text))
}

fn unknown(code: RefusalCode, kind: &str, id: &str) -> Refusal {
    Refusal::new(code, format!("there is no {kind} {}", shown(id)))
}

fn bad_value(field: &str, found: &str, allowed: &str) -> Refusal {
    let text = format!("{field}: {} is not {allowed}", shown(found));
    Refusal::new(RefusalCode::BadValue, text)
}

/// Text of a request for our messages: quoted and shortened.
fn shown(text: &str) -> String {
    const SHOWN_CHARS: usize = 40;
    match text.chars().count() > SHOWN_CHARS {
        true => format!("{:?}…", text.chars().take(SHOWN_CHARS).collect::<String>()),
        false => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests;
