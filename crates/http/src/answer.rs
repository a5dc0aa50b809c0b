//! Answers in JSON, and when to ask again.

use std::time::Duration;

use axum::{
    body::Body,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

/// `json`: its text.
pub fn json_answer(status: StatusCode, json: impl Into<Body>) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (status, kind, json.into()).into_response()
}

/// In whole seconds, at least one: clients take 0 for at once.
pub fn ask_again_after(mut answer: Response, pause: Duration) -> Response {
    let seconds = pause.as_secs_f64().ceil().max(1.0) as u64;
    let headers = answer.headers_mut();
    headers.insert(header::RETRY_AFTER, seconds.into());
    answer
}
