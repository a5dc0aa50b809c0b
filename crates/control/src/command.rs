//! All commands to the running daemon: what each does, the keys of its request and their limits (docs/mqtt.md section 5).

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value, json};

use crate::refusal::{Refusal, RefusalCode, shown};
use spotter_core::{
    CameraId, CameraShapes, EventMark, LineId, LookRate, ModeId, PromptId, Setting, TrackId,
    duration_from_secs, plain_line,
};

/// The longest time of a higher rate.
const LOOK_SECONDS_MAX: f64 = 3600.0;
/// The longest time of another log level, minutes.
const LOG_MINUTES_MAX: f64 = 24.0 * 60.0;

/// What is to be done. Each is a request on the topic `cmd` with its name as `op`, but for those that have a topic of their own.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Change a value of a camera. Topic: `cam/CAMERA/…/set`.
    #[serde(skip)]
    Set {
        camera: CameraId,
        setting: Setting,
    },
    /// Make another mode the active one; `None` = no mode. Topic: `mode/set`.
    #[serde(skip)]
    SetMode {
        mode: Option<ModeId>,
    },
    /// Set the counts at a line to 0. Topic: `cam/CAMERA/line/LINE/set`.
    #[serde(skip)]
    ResetLine {
        camera: CameraId,
        line: LineId,
    },
    /// Read the configuration again.
    Reload {},
    /// Publish a picture of the next look.
    Snapshot {
        #[serde(rename = "cam")]
        camera: CameraId,
    },
    /// Close the connection and open it again.
    Reconnect {
        #[serde(rename = "cam")]
        camera: CameraId,
    },
    /// Look more often for a while, because something outside gave a reason to.
    Look {
        #[serde(rename = "cam")]
        camera: CameraId,
        #[serde(rename = "seconds", deserialize_with = "look_time")]
        #[serde(default = "usual_look_time")]
        lasting: Duration,
        /// Looks a second; `None` = the camera's own rate, which the motion gate does not hold back meanwhile.
        #[serde(default, deserialize_with = "look_rate")]
        rate: Option<LookRate>,
    },
    /// Answer a question, or draw around an object, once, on the next frame.
    Ask {
        #[serde(rename = "cam")]
        camera: CameraId,
        /// The other keys of the request. They are checked when the camera is known.
        #[serde(deserialize_with = "file_keys")]
        question: toml::Table,
    },
    /// Ask a further prompt until it is taken away.
    #[serde(rename = "prompt_add")]
    AddPrompt {
        #[serde(rename = "cam")]
        camera: CameraId,
        #[serde(deserialize_with = "new_prompt")]
        prompt: NewPrompt,
    },
    /// Take a prompt away that was added.
    #[serde(rename = "prompt_del")]
    RemovePrompt {
        #[serde(rename = "cam")]
        camera: CameraId,
        prompt: PromptId,
    },
    /// Replace all that is drawn on a camera.
    #[serde(rename = "shapes_set")]
    SetShapes {
        #[serde(rename = "cam")]
        camera: CameraId,
        /// The version of the shapes that the sender has seen.
        seen: String,
        #[serde(deserialize_with = "shapes")]
        shapes: CameraShapes,
        /// Width and height of the picture that they were drawn on; `None` = unknown.
        size: Option<[u32; 2]>,
    },
    /// Store what a person says of an event.
    Mark {
        /// In a fleet, its owner executes the command.
        #[serde(rename = "cam")]
        camera: Option<CameraId>,
        event: TrackId,
        /// The other keys of the request.
        #[serde(deserialize_with = "event_mark")]
        mark: EventMark,
    },
    /// Take back what was changed at run time.
    ResetOverrides {
        /// Of which camera; `None` = of all.
        #[serde(rename = "cam")]
        camera: Option<CameraId>,
    },
    Get {
        what: RequestedInfo,
    },
    /// Log more or less for a while.
    LogLevel {
        level: LogLevel,
        #[serde(rename = "minutes", deserialize_with = "log_time")]
        lasting: Duration,
    },
}

/// A prompt that is asked until it is taken away or the daemon ends.
#[derive(Clone, Debug, PartialEq)]
pub struct NewPrompt {
    /// Its name on the camera.
    pub id: PromptId,
    /// Those of `[camera.NAME.prompt.NAME]`. They are checked when the camera is known.
    pub keys: toml::Table,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestedInfo {
    Info,
    /// Every value that may be changed, as it is now.
    Settings,
    /// Those that differ from the file, with the file's value.
    Overrides,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// What keeps Spotter from its work.
    Error,
    /// What an operator should look at.
    Warn,
    Info,
    /// What a developer asks for.
    Debug,
    Trace,
}

impl Command {
    /// The command of a request on `cmd`. An unknown key is refused, because a mistyped key would otherwise change what is requested.
    pub fn of_request(request: Map<String, Value>) -> Result<Self, Refusal> {
        let text = |key| request.get(key).and_then(Value::as_str);
        text("cam").map(camera_id).transpose()?;
        text("prompt").map(prompt_id).transpose()?;
        let op = shown(text("op").unwrap_or_default());
        let request = match text("op") {
            Some("ask") => gathered(request, &["op", "cam"], "question"),
            Some("mark") => gathered(request, &["op", "cam", "event"], "mark"),
            _ => request,
        };
        serde_json::from_value(Value::Object(request)).map_err(|error| {
            let text = error.to_string();
            if let Ok(refusal) = serde_json::from_str(&text) {
                return refusal;
            }
            match text.split_once("expected one of ") {
                Some((_, known)) if known.contains("`reload`") => {
                    let known = known.replace('`', "");
                    let text = format!("there is no operation {op}; there are {known}");
                    Refusal::new(RefusalCode::UnknownOp, text)
                }
                Some((found, _)) if found.starts_with("unknown variant") => {
                    Refusal::bad_value(plain_line(&text))
                }
                _ => Refusal::new(RefusalCode::BadRequest, text),
            }
        })
    }
}

/// Reads a value and checks it. An error of serde is a text: a refusal passes through it as JSON, for [`Command::of_request`].
fn checked<'de, D: Deserializer<'de>, T: Deserialize<'de>, C>(
    input: D,
    check: impl FnOnce(T) -> Result<C, Refusal>,
) -> Result<C, D::Error> {
    check(T::deserialize(input)?).map_err(|refusal| D::Error::custom(json!(refusal)))
}

/// The request with all keys but its `own` ones in a table of their own.
fn gathered(request: Map<String, Value>, own: &[&str], table: &str) -> Map<String, Value> {
    let is_own = |key: &str| own.contains(&key);
    let (mut request, gathered): (Map<_, _>, Map<_, _>) =
        request.into_iter().partition(|(key, _)| is_own(key));
    request.insert(table.to_owned(), Value::Object(gathered));
    request
}

fn event_mark<'de, D: Deserializer<'de>>(input: D) -> Result<EventMark, D::Error> {
    checked(input, |keys: Value| {
        serde_json::from_value(keys)
            .map_err(|error| Refusal::bad_value(plain_line(&error.to_string())))
    })
}

/// Keys that are read as those of the file. `null` is no key.
fn file_keys<'de, D: Deserializer<'de>>(input: D) -> Result<toml::Table, D::Error> {
    checked(input, toml_table)
}

fn toml_table(mut keys: Map<String, Value>) -> Result<toml::Table, Refusal> {
    keys.retain(|_, value| !value.is_null());
    serde_json::from_value(Value::Object(keys))
        .map_err(|error| Refusal::new(RefusalCode::BadRequest, error.to_string()))
}

fn shapes<'de, D: Deserializer<'de>>(input: D) -> Result<CameraShapes, D::Error> {
    checked(input, |shapes| toml_table(shapes).map(CameraShapes))
}

fn usual_look_time() -> Duration {
    Duration::from_secs(10)
}

fn look_time<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
    checked(input, |seconds: Option<f64>| match seconds {
        Some(seconds) => within(seconds, "seconds", LOOK_SECONDS_MAX).map(duration_from_secs),
        None => Ok(usual_look_time()),
    })
}

fn look_rate<'de, D: Deserializer<'de>>(input: D) -> Result<Option<LookRate>, D::Error> {
    checked(input, |hz: Option<f64>| {
        let rate = hz.map(LookRate::new).transpose();
        rate.map_err(|error| Refusal::of_value("rate", &error))
    })
}

/// Its `id`, and the keys of the file.
fn new_prompt<'de, D: Deserializer<'de>>(input: D) -> Result<NewPrompt, D::Error> {
    checked(input, |mut prompt: Map<String, Value>| {
        let bad_request = |text: String| Refusal::new(RefusalCode::BadRequest, text);
        let Some(Value::String(id)) = prompt.remove("id") else {
            let text = "prompt.id: needs a text, the prompt's name";
            return Err(bad_request(text.to_owned()));
        };
        let id = PromptId::new(&id).map_err(|_| {
            let id = shown(&id);
            Refusal::bad_value(format!(
                "prompt.id: {id}; ids use a-z 0-9 _ -, 1 to 32 of them"
            ))
        })?;
        let keys = toml_table(prompt).map_err(|error| bad_request(format!("prompt: {error}")))?;
        Ok(NewPrompt { id, keys })
    })
}

fn log_time<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
    checked(input, |minutes: f64| {
        let minutes = within(minutes, "minutes", LOG_MINUTES_MAX)?;
        Ok(duration_from_secs(minutes * 60.0))
    })
}

fn within(value: f64, key: &str, most: f64) -> Result<f64, Refusal> {
    match value > 0.0 && value <= most {
        true => Ok(value),
        false => {
            let text = format!("{key}: {value} is not above 0 and up to {most}");
            Err(Refusal::bad_value(text))
        }
    }
}

/// The camera of a request.
pub fn camera_id(text: &str) -> Result<CameraId, Refusal> {
    CameraId::new(text).map_err(|_| Refusal::unknown(RefusalCode::UnknownCamera, "camera", text))
}

/// The prompt of a request.
pub fn prompt_id(text: &str) -> Result<PromptId, Refusal> {
    PromptId::new(text).map_err(|_| Refusal::unknown(RefusalCode::UnknownPrompt, "prompt", text))
}
