//! Requests on `cmd`: one JSON object with `op`, an `id` for the reply, and the keys of the [`Command`].

use serde_json::{Map, Value};

use super::{ID_MAX_CHARS, REQUEST_MAX_BYTES, RequestHead};
use spotter_control::{Command, Refusal, RefusalCode};

/// Fills `head` as far as it is readable.
pub(super) fn parse_request(payload: &[u8], head: &mut RequestHead) -> Result<Command, Refusal> {
    if payload.len() > REQUEST_MAX_BYTES {
        let text = format!("{} bytes, limit {REQUEST_MAX_BYTES}", payload.len());
        return Err(Refusal::new(RefusalCode::TooLong, text));
    }
    let bad_request = |text: &str| Err(Refusal::new(RefusalCode::BadRequest, text));
    let mut request: Map<String, Value> = match serde_json::from_slice(payload) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return bad_request("not a JSON object"),
        Err(error) => return bad_request(&format!("not JSON: {error}")),
    };
    match request.remove("id") {
        None | Some(Value::Null) => {}
        Some(Value::String(id)) if id.chars().count() <= ID_MAX_CHARS => head.id = Some(id),
        Some(_) => return bad_request(&format!("id: a text of up to {ID_MAX_CHARS} characters")),
    }
    let text = |key| request.get(key).and_then(Value::as_str);
    let short = |text: &str| text.chars().take(ID_MAX_CHARS).collect();
    head.camera = text("cam").map(short);
    match text("op") {
        Some(op) => head.op = short(op),
        None => return bad_request("op: names no operation"),
    }
    Command::of_request(request)
}
