//! The reply to a request.

use serde_json::{Map, json};

use super::RequestHead;
use crate::{
    Info,
    contract::detection::{SCHEMA, add, outline_json, reasoning_json},
};
use spotter_control::{Override, Refusal};
use spotter_core::{CameraId, ObjectOutline, Reasoning, Setting, WallTime, rounded};

/// The value of a successful reply.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplyValue {
    Done,
    /// The revision of the prompt whose text was set.
    Revision(u32),
    /// The version of the shapes that were set.
    ShapesVersion(String),
    /// The answer to a question.
    Answer {
        text: String,
        /// The model's probability, 0..1.
        score: f64,
        /// `None`: it was not asked for its thoughts.
        reasoning: Option<Reasoning>,
    },
    /// Of the object that was asked for; `None`: the model drew none.
    Outline(Option<ObjectOutline>),
    /// The content of the topic `info`.
    Info(Box<Info>),
    /// The values that a command may change, by camera.
    Settings(Vec<(CameraId, Vec<Setting>)>),
    Overrides(Vec<Override>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub head: RequestHead,
    pub result: Result<ReplyValue, Refusal>,
    pub at: WallTime,
}

impl Reply {
    /// The payload. Every reply has `v`, `id`, `ok`, `op`, `cam`, `error` and `at_ms`; `null` is what does not apply.
    pub fn to_json(&self) -> Vec<u8> {
        let mut message = json!(self.head);
        message["v"] = json!(SCHEMA);
        message["ok"] = json!(self.result.is_ok());
        message["error"] = json!(self.result.as_ref().err());
        message["at_ms"] = json!(self.at.unix_millis());
        match &self.result {
            Err(_) | Ok(ReplyValue::Done) => {}
            Ok(ReplyValue::Revision(revision)) => message["rev"] = json!(revision),
            Ok(ReplyValue::ShapesVersion(version)) => message["version"] = json!(version),
            Ok(ReplyValue::Answer {
                text,
                score,
                reasoning,
            }) => {
                message["value"] = json!(text);
                message["score"] = json!(rounded(*score, 3));
                let reasoning = reasoning.as_ref().map(reasoning_json);
                add(&mut message, "reasoning", reasoning);
            }
            Ok(ReplyValue::Outline(outline)) => {
                message["outline"] = json!(outline.as_ref().map(outline_json));
            }
            Ok(ReplyValue::Info(info)) => message["value"] = json!(info),
            Ok(ReplyValue::Settings(cameras)) => {
                let of = |(camera, settings): &(CameraId, Vec<Setting>)| {
                    (camera.to_string(), of_camera(settings))
                };
                let cameras: Map<String, serde_json::Value> = cameras.iter().map(of).collect();
                message["value"] = json!(cameras);
            }
            Ok(ReplyValue::Overrides(changed)) => {
                let entry = |Override {
                                 camera, file, now, ..
                             }: &Override| {
                    json!({
                        "cam": camera,
                        "prompt": now.prompt(),
                        "field": now.field(),
                        "file": value(file),
                        "now": value(now),
                    })
                };
                message["value"] = changed.iter().map(entry).collect();
            }
        }
        message.to_string().into_bytes()
    }
}

/// `{"enabled": true, "rate": 1, "prompts": {"person": {"text": "person", …}}}`
fn of_camera(settings: &[Setting]) -> serde_json::Value {
    let mut camera = json!({"prompts": {}});
    for setting in settings {
        let place = match setting.prompt() {
            None => &mut camera,
            Some(prompt) => &mut camera["prompts"][prompt.as_str()],
        };
        place[setting.field()] = value(setting);
    }
    camera
}

fn value(setting: &Setting) -> serde_json::Value {
    match setting {
        Setting::Enabled(on) | Setting::MotionGate(on) | Setting::PromptEnabled(_, on) => json!(on),
        Setting::Rate(rate) => json!(rate),
        Setting::MinScore(_, score) => json!(score),
        Setting::Text(_, text) => json!(text),
        Setting::Shapes(shapes) => json!(shapes),
    }
}
