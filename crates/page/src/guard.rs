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

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(method: Method, host: Option<&str>) -> Option<StatusCode> {
        let names = HostNames::of_this_machine(&["nvr.example".to_owned()]);
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        }
        refusal(&names, &method, &headers).map(|(status, _)| status)
    }

    #[test]
    fn page_answers_addresses_and_known_names_only() {
        for fine in [
            Some("localhost:9464"),
            Some("192.0.2.1:9464"),
            Some("nvr.example"),
            None,
        ] {
            assert_eq!(refused(Method::GET, fine), None, "{fine:?}");
        }
        for strange in ["evil.example:9464", "localhost.evil.example", ""] {
            let status = refused(Method::GET, Some(strange));
            assert_eq!(status, Some(StatusCode::MISDIRECTED_REQUEST), "{strange}");
        }
    }

    #[test]
    fn methods_other_than_get_and_head_are_refused() {
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
            let status = refused(method, Some("localhost"));
            assert_eq!(status, Some(StatusCode::METHOD_NOT_ALLOWED));
        }
        assert_eq!(refused(Method::HEAD, Some("localhost")), None);
    }
}
