//! Requests on `cmd`: one JSON object with `op`, an `id` for the reply, and the keys of the operation. An unknown key is an
//! error, because a mistyped key would otherwise change what is requested.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{ID_MAX_CHARS, REQUEST_MAX_BYTES, RequestHead, camera_id, prompt_id, shown};
use spotter_core::{
    Command, LogLevel, LookRate, NewPrompt, PromptText, Refusal, RefusalCode, RequestedInfo,
    duration_from_secs,
};

/// Time of a higher rate if the request has none.
const LOOK_SECONDS: f64 = 10.0;
/// The longest time of another log level, minutes.
const LOG_MINUTES_MAX: f64 = 24.0 * 60.0;

const OPERATIONS: [&str; 10] = [
    "reload",
    "snapshot",
    "reconnect",
    "look",
    "ask",
    "prompt_add",
    "prompt_del",
    "reset_overrides",
    "get",
    "log_level",
];

/// The keys of each operation.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Operation {
    Reload {},
    Snapshot {
        cam: String,
    },
    Reconnect {
        cam: String,
    },
    Look {
        cam: String,
        seconds: Option<f64>,
        rate: Option<f64>,
    },
    Ask {
        cam: String,
        text: String,
    },
    PromptAdd {
        cam: String,
        prompt: Map<String, Value>,
    },
    PromptDel {
        cam: String,
        prompt: String,
    },
    ResetOverrides {
        cam: Option<String>,
    },
    Get {
        what: String,
    },
    LogLevel {
        level: String,
        minutes: f64,
    },
}

pub(super) fn parse_request(payload: &[u8]) -> (RequestHead, Result<Command, Refusal>) {
    let mut head = RequestHead::default();
    let command = read(payload, &mut head).and_then(command);
    (head, command)
}

/// Fills `head` as far as it is readable.
fn read(payload: &[u8], head: &mut RequestHead) -> Result<Operation, Refusal> {
    if payload.len() > REQUEST_MAX_BYTES {
        let text = format!("{} bytes, limit {REQUEST_MAX_BYTES}", payload.len());
        return Err(Refusal::new(RefusalCode::TooLong, text));
    }
    let mut request: Map<String, Value> = match serde_json::from_slice(payload) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return Err(bad_request("not a JSON object")),
        Err(error) => return Err(bad_request(format!("not JSON: {error}"))),
    };
    match request.remove("id") {
        None | Some(Value::Null) => {}
        Some(Value::String(id)) if id.chars().count() <= ID_MAX_CHARS => head.id = Some(id),
        Some(_) => {
            return Err(bad_request(format!(
                "id: a text of up to {ID_MAX_CHARS} characters"
            )));
        }
    }
    match request.get("op") {
        Some(Value::String(op)) => head.op = op.chars().take(ID_MAX_CHARS).collect(),
        _ => return Err(bad_request("op: names no operation")),
    }
    if let Some(Value::String(camera)) = request.get("cam") {
        head.camera = Some(camera.chars().take(ID_MAX_CHARS).collect());
    }
    if !OPERATIONS.contains(&head.op.as_str()) {
        let (op, known) = (shown(&head.op), OPERATIONS.join(", "));
        let text = format!("there is no operation {op}; there are {known}");
        return Err(Refusal::new(RefusalCode::UnknownOp, text));
    }
    serde_json::from_value(Value::Object(request)).map_err(|error| bad_request(error.to_string()))
}

fn command(operation: Operation) -> Result<Command, Refusal> {
    Ok(match operation {
        Operation::Reload {} => Command::Reload,
        Operation::Snapshot { cam } => Command::Snapshot {
            camera: camera_id(&cam)?,
        },
        Operation::Reconnect { cam } => Command::Reconnect {
            camera: camera_id(&cam)?,
        },
        Operation::Look { cam, seconds, rate } => Command::Look {
            lasting: look_time(seconds.unwrap_or(LOOK_SECONDS))?,
            camera: camera_id(&cam)?,
            rate: rate.map(look_rate).transpose()?,
        },
        Operation::Ask { cam, text } => Command::Ask {
            camera: camera_id(&cam)?,
            question: PromptText::new(&text).map_err(|error| Refusal::of_value("text", &error))?,
        },
        Operation::PromptAdd { cam, prompt } => Command::AddPrompt {
            camera: camera_id(&cam)?,
            prompt: new_prompt(prompt)?,
        },
        Operation::PromptDel { cam, prompt } => Command::RemovePrompt {
            camera: camera_id(&cam)?,
            prompt: prompt_id(&prompt)?,
        },
        Operation::ResetOverrides { cam } => Command::ResetOverrides {
            camera: cam.as_deref().map(camera_id).transpose()?,
        },
        Operation::Get { what } => Command::Get {
            what: wanted(&what)?,
        },
        Operation::LogLevel { level, minutes } => Command::LogLevel {
            level: log_level(&level)?,
            lasting: log_time(minutes)?,
        },
    })
}

fn look_rate(hz: f64) -> Result<LookRate, Refusal> {
    LookRate::new(hz).map_err(|error| Refusal::of_value("rate", &error))
}

fn look_time(seconds: f64) -> Result<Duration, Refusal> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| bad_value(format!("seconds: {seconds} is no time")))
}

/// Its `id`, and the keys of the file, which are checked when its camera is known.
fn new_prompt(mut prompt: Map<String, Value>) -> Result<NewPrompt, Refusal> {
    let id = match prompt.remove("id") {
        Some(Value::String(id)) => prompt_id(&id).map_err(|_| {
            let id = shown(&id);
            bad_value(format!(
                "prompt.id: {id}; ids use a-z 0-9 _ -, 1 to 32 of them"
            ))
        })?,
        _ => return Err(bad_request("prompt.id: needs a text, the prompt's name")),
    };
    prompt.retain(|_, value| !value.is_null());
    let keys = serde_json::from_value(Value::Object(prompt))
        .map_err(|error| bad_request(format!("prompt: {error}")))?;
    Ok(NewPrompt { id, keys })
}

fn wanted(what: &str) -> Result<RequestedInfo, Refusal> {
    match what {
        "info" => Ok(RequestedInfo::Info),
        "settings" => Ok(RequestedInfo::Settings),
        "overrides" => Ok(RequestedInfo::Overrides),
        other => Err(bad_value(format!(
            "what: {} is not info, settings or overrides",
            shown(other)
        ))),
    }
}

fn log_level(level: &str) -> Result<LogLevel, Refusal> {
    match level {
        "error" => Ok(LogLevel::Error),
        "warn" => Ok(LogLevel::Warn),
        "info" => Ok(LogLevel::Info),
        "debug" => Ok(LogLevel::Debug),
        "trace" => Ok(LogLevel::Trace),
        other => Err(bad_value(format!(
            "level: {} is not error, warn, info, debug or trace",
            shown(other)
        ))),
    }
}

fn log_time(minutes: f64) -> Result<Duration, Refusal> {
    match minutes > 0.0 && minutes <= LOG_MINUTES_MAX {
        true => Ok(duration_from_secs(minutes * 60.0)),
        false => Err(bad_value(format!(
            "minutes: {minutes} is not above 0 and up to {LOG_MINUTES_MAX}"
        ))),
    }
}

fn bad_request(text: impl Into<String>) -> Refusal {
    Refusal::new(RefusalCode::BadRequest, text)
}

fn bad_value(text: String) -> Refusal {
    Refusal::new(RefusalCode::BadValue, text)
}
