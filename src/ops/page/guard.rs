//! Which requests are answered, and what a browser may do with the answer.
//!
//! A page on loopback is reached by every page of the world that the operator's browser shows. Such a page may send requests
//! but not read answers, unless it calls itself by a name that it lets resolve to 127.0.0.1 (DNS rebinding): so on loopback
//! only names of this machine are answered.

use std::net::{IpAddr, SocketAddr};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

/// Everything comes from this server, and nothing is sent, framed or inlined.
const POLICY: &str = "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(&str, &str); 6] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// Passes a request on, or refuses it with the reason. `listening` is the address that was bound.
pub async fn guard(State(listening): State<SocketAddr>, request: Request, next: Next) -> Response {
    let mut answer = match refusal(listening, request.method(), request.headers()) {
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
    listening: SocketAddr,
    method: &Method,
    headers: &HeaderMap,
) -> Option<(StatusCode, &'static str)> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Some((StatusCode::METHOD_NOT_ALLOWED, "this page is read only\n"));
    }
    // Browsers always send it; a client without it is no browser.
    let host = headers.get(header::HOST)?;
    let is_local = host
        .to_str()
        .is_ok_and(|host| !listening.ip().is_loopback() || is_this_machine(host));
    let text = "this page answers requests for localhost and loopback addresses only\n";
    (!is_local).then_some((StatusCode::MISDIRECTED_REQUEST, text))
}

/// With any port: a tunnel ends at another one.
pub fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address = name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    address || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(listening: &str, method: Method, host: Option<&str>) -> Option<StatusCode> {
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        }
        refusal(listening.parse().unwrap(), &method, &headers).map(|(status, _)| status)
    }

    #[test]
    fn loopback_page_answers_only_names_of_this_machine() {
        let ask = |host| refused("127.0.0.1:9464", Method::GET, Some(host));
        for fine in [
            "localhost:9464",
            "LOCALHOST",
            "127.0.0.1:80",
            "127.0.0.2",
            "[::1]:9464",
        ] {
            assert_eq!(ask(fine), None, "{fine}");
        }
        for strange in [
            "evil.example:9464",
            "localhost.evil.example",
            "192.0.2.1",
            "",
            "[::2]",
            "::1",
        ] {
            assert_eq!(
                ask(strange),
                Some(StatusCode::MISDIRECTED_REQUEST),
                "{strange}"
            );
        }
        assert_eq!(refused("127.0.0.1:9464", Method::GET, None), None);
        let public = refused("0.0.0.0:9464", Method::GET, Some("nvr.example"));
        assert_eq!(public, None, "names of an open address are not known here");
    }

    #[test]
    fn methods_other_than_get_and_head_are_refused() {
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
            let status = refused("127.0.0.1:9464", method, Some("localhost"));
            assert_eq!(status, Some(StatusCode::METHOD_NOT_ALLOWED));
        }
        assert_eq!(
            refused("127.0.0.1:1", Method::HEAD, Some("localhost")),
            None
        );
    }
}
