//! A request that is refused, in the shape of OpenAI's errors.

use std::time::Duration;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

use super::queue::UnansweredRequest;

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

    /// OpenAI's word for it.
    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
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
            UnansweredRequest::Failed(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, message),
            UnansweredRequest::Unfit(why) => Self::wrong(why),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({
            "error": {
                "message": self.message,
                "type": self.kind(),
                "param": null,
                "code": self.status.as_u16(),
            }
        });
        let kind = [(header::CONTENT_TYPE, "application/json")];
        let mut response = (self.status, kind, body.to_string()).into_response();
        let headers = response.headers_mut();
        if let Some(pause) = self.retry_after {
            // At least one: clients take 0 for at once.
            let seconds = pause.as_secs_f64().ceil().max(1.0) as u64;
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
