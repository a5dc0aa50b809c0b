//! Requests on `cmd`: one JSON object with `op`, an `id` for the reply, and the keys of the operation. An unknown key is an
//! error, because a mistyped key would otherwise change what is requested.

use std::time::Duration;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{ID_MAX_CHARS, REQUEST_MAX_BYTES, RequestHead, camera_id, prompt_id, shown};
use spotter_core::{
    Command, LogLevel, NewPrompt, Refusal, RefusalCode, RequestedInfo, Task, ZoneId,
    config::choices,
};

/// Time of a higher rate if the request has none.
const LOOK_SECONDS: f64 = 10.0;
/// The longest time of another log level, minutes.
const LOG_MINUTES_MAX: f64 = 24.0 * 60.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfNothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfCamera {
    cam: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfLook {
    cam: String,
    seconds: Option<f64>,
    rate: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfAsk {
    cam: String,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfAdd {
    cam: String,
    prompt: OfPrompt,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfPrompt {
    id: String,
    detect: Option<String>,
    point: Option<String>,
    query: Option<String>,
    #[serde(default)]
    choices: Vec<String>,
    rate: Option<f64>,
    #[serde(default)]
    min_score: f64,
    #[serde(default)]
    zones: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfRemove {
    cam: String,
    prompt: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfReset {
    cam: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfGet {
    what: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfLog {
    level: String,
    minutes: f64,
}

pub(super) fn parse_request(payload: &[u8]) -> (RequestHead, Result<Command, Refusal>) {
    let mut head = RequestHead::default();
    let command = parts(payload, &mut head).and_then(|rest| command(&head.op, rest));
    (head, command)
}

/// Fills `head` as far as it is readable, and returns the other keys.
fn parts(payload: &[u8], head: &mut RequestHead) -> Result<Map<String, Value>, Refusal> {
    if payload.len() > REQUEST_MAX_BYTES {
        let text = format!("{} bytes, limit {REQUEST_MAX_BYTES}", payload.len());
        return Err(Refusal::new(RefusalCode::TooLong, text));
    }
    let mut rest = match serde_json::from_slice(payload) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return Err(bad_request("not a JSON object")),
        Err(error) => return Err(bad_request(format!("not JSON: {error}"))),
    };
    match rest.remove("id") {
        None | Some(Value::Null) => {}
        Some(Value::String(id)) if id.chars().count() <= ID_MAX_CHARS => head.id = Some(id),
        Some(_) => {
            return Err(bad_request(format!(
                "id: a text of up to {ID_MAX_CHARS} characters"
            )));
        }
    }
    match rest.remove("op") {
        Some(Value::String(op)) => head.op = op.chars().take(ID_MAX_CHARS).collect(),
        _ => return Err(bad_request("op: names no operation")),
    }
    if let Some(Value::String(camera)) = rest.get("cam") {
        head.camera = Some(camera.chars().take(ID_MAX_CHARS).collect());
    }
    Ok(rest)
}

fn command(op: &str, rest: Map<String, Value>) -> Result<Command, Refusal> {
    match op {
        "reload" => read::<OfNothing>(rest).map(|_| Command::Reload),
        "snapshot" => {
            let camera = camera_id(&read::<OfCamera>(rest)?.cam)?;
            Ok(Command::Snapshot { camera })
        }
        "reconnect" => {
            let camera = camera_id(&read::<OfCamera>(rest)?.cam)?;
            Ok(Command::Reconnect { camera })
        }
        "look" => look(read(rest)?),
        "ask" => {
            let OfAsk { cam, text } = read(rest)?;
            let camera = camera_id(&cam)?;
            Ok(Command::Ask {
                camera,
                question: text,
            })
        }
        "prompt_add" => {
            let OfAdd { cam, prompt } = read(rest)?;
            let (camera, prompt) = (camera_id(&cam)?, new_prompt(prompt)?);
            Ok(Command::AddPrompt { camera, prompt })
        }
        "prompt_del" => {
            let OfRemove { cam, prompt } = read(rest)?;
            let (camera, prompt) = (camera_id(&cam)?, prompt_id(&prompt)?);
            Ok(Command::RemovePrompt { camera, prompt })
        }
        "reset_overrides" => {
            let camera = read::<OfReset>(rest)?.cam;
            let camera = camera.as_deref().map(camera_id).transpose()?;
            Ok(Command::ResetOverrides { camera })
        }
        "get" => wanted(&read::<OfGet>(rest)?.what).map(|what| Command::Get { what }),
        "log_level" => log_level(read(rest)?),
        other => {
            let known = "reload, snapshot, reconnect, look, ask, prompt_add, prompt_del, reset_overrides, get, log_level";
            let text = format!("there is no operation {}; there are {known}", shown(other));
            Err(Refusal::new(RefusalCode::UnknownOp, text))
        }
    }
}

fn read<T: DeserializeOwned>(rest: Map<String, Value>) -> Result<T, Refusal> {
    serde_json::from_value(Value::Object(rest)).map_err(|error| bad_request(error.to_string()))
}

fn look(OfLook { cam, seconds, rate }: OfLook) -> Result<Command, Refusal> {
    let seconds = seconds.unwrap_or(LOOK_SECONDS);
    let lasting = Duration::try_from_secs_f64(seconds).map_err(|_| {
        let text = format!("seconds: {seconds} is no time");
        Refusal::new(RefusalCode::BadValue, text)
    })?;
    Ok(Command::Look {
        camera: camera_id(&cam)?,
        lasting,
        rate_hz: rate,
    })
}

fn new_prompt(prompt: OfPrompt) -> Result<NewPrompt, Refusal> {
    let id = prompt_id(&prompt.id).map_err(|_| {
        let text = format!(
            "prompt.id: {}; ids use a-z 0-9 _ -, 1 to 32 of them",
            shown(&prompt.id)
        );
        Refusal::new(RefusalCode::BadValue, text)
    })?;
    let task = match (prompt.detect, prompt.point, prompt.query) {
        (Some(object), None, None) if prompt.choices.is_empty() => Task::Detect { object },
        (None, Some(object), None) if prompt.choices.is_empty() => Task::Point { object },
        (None, None, Some(question)) => Task::Query {
            question,
            choices: checked_choices(&prompt.choices)?,
        },
        (_, _, None) => {
            return Err(bad_request(
                "prompt: give exactly one of detect, point, query; choices go with query",
            ));
        }
        _ => {
            return Err(bad_request(
                "prompt: give exactly one of detect, point, query",
            ));
        }
    };
    let zone = |id: &String| {
        ZoneId::new(id).map_err(|_| {
            let text = format!("there is no zone {}", shown(id));
            Refusal::new(RefusalCode::UnknownZone, text)
        })
    };
    Ok(NewPrompt {
        id,
        task,
        rate_hz: prompt.rate,
        min_score: prompt.min_score,
        zones: prompt.zones.iter().map(zone).collect::<Result<_, _>>()?,
    })
}

fn checked_choices(texts: &[String]) -> Result<Vec<String>, Refusal> {
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    choices(texts).map_err(|wrong| {
        let texts: Vec<String> = wrong.into_iter().map(|wrong| wrong.text).collect();
        Refusal::new(
            RefusalCode::BadValue,
            format!("choices: {}", texts.join("; ")),
        )
    })
}

fn wanted(what: &str) -> Result<RequestedInfo, Refusal> {
    match what {
        "info" => Ok(RequestedInfo::Info),
        "settings" => Ok(RequestedInfo::Settings),
        "overrides" => Ok(RequestedInfo::Overrides),
        other => {
            let text = format!("what: {} is not info, settings or overrides", shown(other));
            Err(Refusal::new(RefusalCode::BadValue, text))
        }
    }
}

fn log_level(OfLog { level, minutes }: OfLog) -> Result<Command, Refusal> {
    let level = match level.as_str() {
        "error" => LogLevel::Error,
        "warn" => LogLevel::Warn,
        "info" => LogLevel::Info,
        "debug" => LogLevel::Debug,
        "trace" => LogLevel::Trace,
        other => {
            let text = format!(
                "level: {} is not error, warn, info, debug or trace",
                shown(other)
            );
            return Err(Refusal::new(RefusalCode::BadValue, text));
        }
    };
    if !(minutes > 0.0 && minutes <= LOG_MINUTES_MAX) {
        let text = format!("minutes: {minutes} is not above 0 and up to {LOG_MINUTES_MAX}");
        return Err(Refusal::new(RefusalCode::BadValue, text));
    }
    Ok(Command::LogLevel {
        level,
        lasting: Duration::from_secs_f64(minutes * 60.0),
    })
}

fn bad_request(text: impl Into<String>) -> Refusal {
    Refusal::new(RefusalCode::BadRequest, text)
}
