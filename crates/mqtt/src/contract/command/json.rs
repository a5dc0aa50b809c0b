//! Requests on `cmd`: one JSON object with `op`, an `id` for the reply, and the keys of the [`Command`].

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{ID_MAX_CHARS, REQUEST_MAX_BYTES, RequestHead};
use spotter_control::{Command, Refusal, RefusalCode};

/// Fills `head` as far as it is readable.
pub(super) fn parse_request(payload: &[u8], head: &mut RequestHead) -> Result<Command, Refusal> {
    if payload.len() > REQUEST_MAX_BYTES {
        let text = format!("{} bytes, limit {REQUEST_MAX_BYTES}", payload.len());
        return Err(Refusal::new(RefusalCode::TooLong, text));
    }
    let request = serde_json::from_slice(payload)
        .map_err(|error| Refusal::new(RefusalCode::BadRequest, format!("not JSON: {error}")))?;
    Command::of_request(read_head(request, head)?)
}

/// A request of the page: one of the topic `cmd`, or a `set` for what has a topic of its own over MQTT.
pub fn parse_page_request(request: Value, head: &mut RequestHead) -> Result<Command, Refusal> {
    let request = read_head(request, head)?;
    match head.op.as_str() {
        "set" => set_of_page(request, head),
        _ => Command::of_request(request),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageSet {
    #[serde(rename = "op")]
    _op: String,
    #[serde(rename = "cam")]
    _camera: String,
    prompt: Option<String>,
    field: String,
    value: Value,
}

/// The value is that of the topic, also as a JSON value.
fn set_of_page(request: Map<String, Value>, head: &mut RequestHead) -> Result<Command, Refusal> {
    let set: PageSet = serde_json::from_value(Value::Object(request))
        .map_err(|error| Refusal::new(RefusalCode::BadRequest, error.to_string()))?;
    head.prompt = set.prompt.as_deref().map(short);
    let op = match head.prompt {
        Some(_) => "prompt_set",
        None => "camera_set",
    };
    op.clone_into(&mut head.op);
    let payload = match set.value {
        Value::Bool(on) => if on { "ON" } else { "OFF" }.to_owned(),
        Value::String(text) => text,
        other => other.to_string(),
    };
    super::set(head, &set.field, payload.as_bytes())
}

/// Takes out of a request what its reply repeats.
fn read_head(request: Value, head: &mut RequestHead) -> Result<Map<String, Value>, Refusal> {
    let bad_request = |text: &str| Err(Refusal::new(RefusalCode::BadRequest, text));
    let Value::Object(mut request) = request else {
        return bad_request("not a JSON object");
    };
    match request.remove("id") {
        None | Some(Value::Null) => {}
        Some(Value::String(id)) if id.chars().count() <= ID_MAX_CHARS => head.id = Some(id),
        Some(_) => return bad_request(&format!("id: a text of up to {ID_MAX_CHARS} characters")),
    }
    let text = |key| request.get(key).and_then(Value::as_str);
    head.camera = text("cam").map(short);
    match text("op") {
        Some(op) => head.op = short(op),
        None => return bad_request("op: names no operation"),
    }
    Ok(request)
}

fn short(text: &str) -> String {
    text.chars().take(ID_MAX_CHARS).collect()
}
