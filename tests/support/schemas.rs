//! Payloads held to what `docs/` says of them: JSON to its schema, text to its words. A consumer lets keys pass that it does
//! not know, because the contract may grow; here every key has to be documented.

use std::{collections::BTreeMap, fs, path::Path};

use jsonschema::Validator;
use serde_json::Value;

/// The schemas of `docs/schemas`, by name.
pub struct Schemas(BTreeMap<String, (Validator, Validator)>);

impl Schemas {
    /// All that there are.
    pub fn load() -> Self {
        // Tests of the program and of a crate use this file.
        let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let folder = folders.find_map(|folder| {
            let schemas = folder.join("docs/schemas");
            schemas.is_dir().then_some(schemas)
        });
        let folder = folder.expect("docs/schemas");
        let files = fs::read_dir(&folder).expect("docs/schemas");
        let read = |entry: std::io::Result<fs::DirEntry>| {
            let path = entry.expect("a file").path();
            let name = path.file_name()?.to_str()?;
            let name = name.strip_suffix(".schema.json")?.to_owned();
            let text = fs::read(&path).expect("a schema");
            let schema: Value = serde_json::from_slice(&text).expect("a schema is JSON");
            jsonschema::meta::validate(&schema).unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut closed = schema.clone();
            close(&mut closed);
            let valid = |schema: &Value| {
                jsonschema::draft202012::new(schema)
                    .unwrap_or_else(|error| panic!("{name}: {error}"))
            };
            let both = (valid(&schema), valid(&closed));
            Some((name, both))
        };
        Self(files.filter_map(read).collect())
    }

    pub fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    /// Would a consumer that follows the schema accept it?
    pub fn accepts(&self, name: &str, payload: &Value) -> bool {
        self.0[name].0.is_valid(payload)
    }

    /// What is wrong with it, and which keys are not documented.
    pub fn faults(&self, name: &str, payload: &Value) -> Vec<String> {
        let (_, closed) = &self.0[name];
        let faults = closed.iter_errors(payload);
        faults
            .map(|fault| format!("{name}{}: {fault}", fault.instance_path()))
            .collect()
    }

    /// The same for a payload at a topic, whose `levels` are those below the node's; also for topics that are
    /// not documented.
    pub fn faults_at(&self, levels: &[&str], payload: &[u8]) -> Vec<String> {
        match documented(levels) {
            Some(Payload::Json(name)) => match serde_json::from_slice(payload) {
                Ok(json) => self.faults(name, &json),
                Err(error) => vec![format!("{levels:?}: {error}")],
            },
            Some(Payload::Text(is_good)) => match std::str::from_utf8(payload) {
                Ok(text) if is_good(text) => Vec::new(),
                other => vec![format!("{levels:?}: {other:?}")],
            },
            Some(Payload::Jpeg) if payload.starts_with(&[0xff, 0xd8]) => Vec::new(),
            Some(Payload::Jpeg) => vec![format!("{levels:?}: no JPEG")],
            None => vec![format!("{levels:?} is not documented")],
        }
    }
}

/// What a topic carries.
enum Payload {
    Json(&'static str),
    Text(fn(&str) -> bool),
    Jpeg,
}

/// The tables of `docs/mqtt.md`.
fn documented(levels: &[&str]) -> Option<Payload> {
    let online = |text: &str| matches!(text, "online" | "offline");
    let switch = |text: &str| matches!(text, "ON" | "OFF");
    let count = |text: &str| text == "None" || text.parse::<u64>().is_ok();
    Some(match levels {
        ["info"] => Payload::Json("info"),
        ["config"] => Payload::Json("config"),
        ["stats"] => Payload::Json("stats"),
        ["reply"] => Payload::Json("reply"),
        ["cam", _, "owner"] => Payload::Json("owner"),
        ["cam", _, "health"] => Payload::Json("health"),
        ["cam", _, "quality"] => Payload::Json("quality"),
        ["cam", _, "det", _] => Payload::Json("detection"),
        ["cam", _, "answer", _, "part"] => Payload::Json("part"),
        ["cam", _, "event", _] => Payload::Json("event"),
        ["cam", _, "crossing", _, _] => Payload::Json("crossing"),
        ["cam", _, "snapshot", _] => Payload::Jpeg,
        ["status"] | ["cam", _, "status"] => Payload::Text(online),
        ["cam", _, "present", _] | ["cam", _, "dwell", _, _] => {
            Payload::Text(|text| matches!(text, "ON" | "OFF" | "None"))
        }
        ["cam", _, "count", _] | ["cam", _, "zone", _, _] => Payload::Text(count),
        ["cam", _, "line", _, _, _] => Payload::Text(|text| text.parse::<u64>().is_ok()),
        ["cam", _, "answer", _] => Payload::Text(|text| !text.is_empty()),
        ["cam", _, "enabled" | "motion_gate"] | ["cam", _, "prompt", _, "enabled"] => {
            Payload::Text(switch)
        }
        ["cam", _, "rate"] => Payload::Text(|text| within(text, 0.01, 30.0)),
        ["cam", _, "prompt", _, "min_score"] => Payload::Text(|text| within(text, 0.0, 1.0)),
        ["cam", _, "prompt", _, "text"] => {
            Payload::Text(|text| (1..=200).contains(&text.chars().count()))
        }
        _ => return None,
    })
}

fn within(text: &str, least: f64, most: f64) -> bool {
    let number: Option<f64> = text.parse().ok();
    number.is_some_and(|number| (least..=most).contains(&number))
}

/// Lets no key pass that is not described. Parts without a type only add conditions to an object that is described elsewhere.
fn close(schema: &mut Value) {
    match schema {
        Value::Array(parts) => parts.iter_mut().for_each(close),
        Value::Object(keys) => {
            let kind = keys.get("type");
            let is_object = kind.is_some_and(|kind| kind.to_string().contains("\"object\""));
            if is_object && keys.contains_key("properties") {
                keys.remove("unevaluatedProperties");
                keys.insert("additionalProperties".into(), false.into());
            }
            keys.values_mut().for_each(close);
        }
        _ => {}
    }
}
