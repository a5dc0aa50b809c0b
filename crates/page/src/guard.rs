//! Which requests are answered, from where they come, and what a browser may do with the answer.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::access::PageAccess;
use spotter_http::{ClientAddress, HostNames};

/// Everything comes from this server, nothing is sent elsewhere or inlined, and no text becomes HTML in the browser.
const POLICY: &str = "default-src 'none'; img-src 'self' blob:; style-src 'self'; script-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'self'; \
                      require-trusted-types-for 'script'; trusted-types 'none'; frame-ancestors 'self'";

const HEADERS: [(&str, &str); 4] = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// Who asks, and the headers of each answer.
pub struct Guard {
    access: Arc<PageAccess>,
    policy: HeaderValue,
}

impl Guard {
    /// `frames`: origins of the configuration, which are plain ASCII.
    pub fn new(access: &Arc<PageAccess>, frames: &[String]) -> Self {
        let policy = frames
            .iter()
            .fold(POLICY.to_owned(), |policy, origin| policy + " " + origin);
        let policy = HeaderValue::from_str(&policy);
        Self {
            access: Arc::clone(access),
            policy: policy.unwrap_or(HeaderValue::from_static(POLICY)),
        }
    }
}

/// Passes a request on with its [`RequestSender`](spotter_http::RequestSender), or refuses it with the reason.
pub async fn guard(State(guard): State<Arc<Guard>>, mut request: Request, next: Next) -> Response {
    let mut answer = match guard.refusal(&mut request) {
        Some(refusal) => refusal,
        None => next.run(request).await,
    };
    let headers = answer.headers_mut();
    for (name, value) in HEADERS {
        let header = headers.entry(HeaderName::from_static(name));
        header.or_insert(HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, guard.policy.clone());
    answer
}

impl Guard {
    /// Notes in the request who sent it.
    fn refusal(&self, request: &mut Request) -> Option<Response> {
        if let Some(refusal) = wrong_name(self.access.names(), request.headers()) {
            return Some(refusal.into_response());
        }
        let Some(&ClientAddress(address)) = request.extensions().get() else {
            // The listener adds it to each request.
            return Some(StatusCode::INTERNAL_SERVER_ERROR.into_response());
        };
        let proxies = self.access.proxies();
        let sender = proxies.sender(address.ip(), request.headers());
        request.extensions_mut().insert(sender);
        None
    }
}

fn wrong_name(names: &HostNames, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
    // Browsers always send it; a client without it is no browser.
    let host = headers.get(header::HOST)?;
    let is_known = host.to_str().is_ok_and(|host| names.accept(host));
    let text = "this page is not called by this name: use an address or the name of the machine, or add the name to http.names\n";
    (!is_known).then_some((StatusCode::MISDIRECTED_REQUEST, text))
}
