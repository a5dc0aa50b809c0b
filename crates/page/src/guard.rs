//! Which requests are answered, and what a browser may do with the answer.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use spotter_http::HostNames;

/// Everything comes from this server, nothing is sent, framed or inlined, and no text becomes HTML in the browser.
const POLICY: &str = "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

const HEADERS: [(&str, &str); 6] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// Passes a request on, or refuses it with the reason.
pub async fn guard(State(names): State<Arc<HostNames>>, request: Request, next: Next) -> Response {
    let mut answer = match refusal(&names, request.method(), request.headers()) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        let headers = answer.headers_mut();
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

fn refusal(
    names: &HostNames,
    method: &Method,
    headers: &HeaderMap,
) -> Option<(StatusCode, &'static str)> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Some((StatusCode::METHOD_NOT_ALLOWED, "this page is read only\n"));
    }
    // Browsers always send it; a client without it is no browser.
    let host = headers.get(header::HOST)?;
    let is_known = host.to_str().is_ok_and(|host| names.accept(host));
    let text = "this page is not called by this name: use an address or the name of the machine, or add the name to http.names\n";
    (!is_known).then_some((StatusCode::MISDIRECTED_REQUEST, text))
}
