//! A request that is refused, in the shape of OpenAI's errors.
//!
//! Faults: H11.

use std::time::Duration;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use spotter_http::{ask_again_after, json_answer};
use spotter_requests::UnansweredRequest;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    pub status: StatusCode,
    pub message: String,
    pub retry_after: Option<Duration>,
}

impl ApiError {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            retry_after: None,
        }
    }

    /// The request itself is wrong.
    pub fn wrong(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub fn after(self, pause: Duration) -> Self {
        Self {
            retry_after: Some(pause),
            ..self
        }
    }

    /// OpenAI's word for it, and its name of the reason, where it has one.
    fn words(&self) -> (&'static str, Option<&'static str>) {
        match self.status {
            StatusCode::UNAUTHORIZED => ("authentication_error", Some("invalid_api_key")),
            StatusCode::TOO_MANY_REQUESTS => ("rate_limit_error", Some("rate_limit_exceeded")),
            status if status.is_server_error() => ("server_error", None),
            _ => ("invalid_request_error", None),
        }
    }
}

impl From<UnansweredRequest> for ApiError {
    fn from(why: UnansweredRequest) -> Self {
        let message = why.to_string();
        let pause = |status, seconds| {
            Self::new(status, message.clone()).after(Duration::from_secs(seconds))
        };
        match why {
            UnansweredRequest::NoRoom => pause(StatusCode::TOO_MANY_REQUESTS, 5),
            UnansweredRequest::Opening | UnansweredRequest::Stopping => {
                pause(StatusCode::SERVICE_UNAVAILABLE, 10)
            }
            UnansweredRequest::EngineLost => pause(StatusCode::SERVICE_UNAVAILABLE, 1),
            UnansweredRequest::Failed(_) | UnansweredRequest::Adapter { .. } => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
            }
            UnansweredRequest::Unfit(why) => Self::wrong(why),
        }
    }
}

impl ApiError {
    /// The body of a response, or an event.
    pub fn json(&self) -> Value {
        let (kind, code) = self.words();
        json!({"error": {"message": self.message, "type": kind, "param": null, "code": code}})
    }
}

pub fn json_body(body: &Value) -> Response {
    json_answer(StatusCode::OK, body.to_string())
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json_answer(self.status, self.json().to_string());
        if let Some(pause) = self.retry_after {
            response = ask_again_after(response, pause);
        }
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_an_error_is_text_or_null() {
        for (status, kind, code) in [
            (401, "authentication_error", json!("invalid_api_key")),
            (429, "rate_limit_error", json!("rate_limit_exceeded")),
            (400, "invalid_request_error", json!(null)),
            (503, "server_error", json!(null)),
        ] {
            let error = ApiError::new(StatusCode::from_u16(status).unwrap(), "why");
            let expected = json!({"message": "why", "type": kind, "param": null, "code": code});
            assert_eq!(error.json()["error"], expected);
        }
    }
}
