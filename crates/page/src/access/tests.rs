use std::net::IpAddr;

use axum::http::{HeaderName, HeaderValue};
use spotter_config::Secret;
use spotter_core::{ManualClock, NodeId};

use super::*;

const TOKEN: &str = "a-token-of-the-page-for-tests";

/// A page with or without a token, and the clock that it has.
fn page(tokens: &[&str]) -> (PageAccess, ManualClock) {
    let config = HttpConfig {
        tokens: tokens
            .iter()
            .map(|token| Secret::new((*token).into()))
            .collect(),
        names: vec!["nvr.example".into()],
        ..HttpConfig::default()
    };
    let clock = ManualClock::default();
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    (PageAccess::new(&node(), &config, &shared), clock)
}

fn node() -> NodeId {
    NodeId::new("edge1").unwrap()
}

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let line = |(name, value): &(&str, &str)| {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        (name, HeaderValue::from_str(value).unwrap())
    };
    lines.iter().map(line).collect()
}

fn from(page: &PageAccess, peer: &str, headers: &HeaderMap) -> RequestSender {
    page.proxies()
        .sender(peer.parse::<IpAddr>().unwrap(), headers)
}

fn visitor(
    page: &PageAccess,
    peer: &str,
    lines: &[(&str, &str)],
) -> Result<Visitor, AccessRefusal> {
    let headers = headers(lines);
    page.visitor(&from(page, peer, &headers), &headers)
}

// Faults: H16.
#[test]
fn loopback_without_proxy_sees_pictures_until_a_token_is_set() {
    let (open, _) = page(&[]);
    for (peer, lines, expected) in [
        (
            "127.0.0.1",
            &[("host", "localhost:9464")][..],
            Visitor::Local,
        ),
        ("::1", &[("host", "[::1]:9464")], Visitor::Local),
        ("127.0.0.1", &[], Visitor::Stranger),
        ("127.0.0.1", &[("host", "nvr.example")], Visitor::Stranger),
        (
            "127.0.0.1",
            &[("host", "localhost"), ("x-forwarded-for", "127.0.0.1")],
            Visitor::Stranger,
        ),
        ("192.0.2.1", &[("host", "localhost")], Visitor::Stranger),
    ] {
        assert_eq!(
            visitor(&open, peer, lines),
            Ok(expected),
            "{peer} {lines:?}"
        );
    }
    let (closed, _) = page(&[TOKEN]);
    let loopback = visitor(&closed, "127.0.0.1", &[("host", "localhost")]);
    assert_eq!(loopback, Ok(Visitor::Stranger));
}

#[test]
fn session_sees_everything_until_it_ends() {
    let (page, _) = page(&[TOKEN]);
    let none = headers(&[]);
    let sender = from(&page, "192.0.2.1", &none);
    let cookie = page.log_in(TOKEN, &sender, &none).unwrap();
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let lines = [("cookie", &*format!("other=1; {cookie}"))];
    assert_eq!(visitor(&page, "192.0.2.9", &lines), Ok(Visitor::LoggedIn));
    let changed = [("cookie", &*format!("{cookie}0"))];
    assert_eq!(visitor(&page, "192.0.2.1", &changed), Ok(Visitor::Stranger));
    page.log_out(&sender, &headers(&lines));
    assert_eq!(visitor(&page, "192.0.2.1", &lines), Ok(Visitor::Stranger));
}

/// A proxy with a login of its own may add its token to what browsers send.
#[test]
fn token_of_a_proxy_neither_hides_a_session_nor_counts() {
    let (page, _) = page(&[TOKEN]);
    let none = headers(&[]);
    let cookie = page.log_in(TOKEN, &from(&page, "192.0.2.1", &none), &none);
    let cookie = cookie.unwrap();
    let foreign = ("authorization", "Bearer a-token-of-the-proxy");
    let browser = ("sec-fetch-mode", "cors");
    let lines = [("cookie", cookie.split(';').next().unwrap()), foreign];
    assert_eq!(visitor(&page, "192.0.2.1", &lines), Ok(Visitor::LoggedIn));
    for _ in 0..=ATTEMPTS_AT_ONCE {
        let asked = visitor(&page, "192.0.2.1", &[foreign, browser]);
        assert_eq!(asked, Ok(Visitor::Stranger));
    }
}

#[test]
fn new_sessions_end_the_oldest_beyond_the_limit() {
    let mut sessions = Sessions::default();
    (0..=SESSIONS_MAX).for_each(|n| sessions.begin(&n.to_string()));
    assert!(!sessions.has("0") && sessions.has("1") && sessions.has(&SESSIONS_MAX.to_string()));
}

// Faults: H17.
#[test]
fn guesses_are_limited_for_each_network_and_for_both_ways() {
    let (page, clock) = page(&[TOKEN]);
    let guess = [("authorization", "Bearer a-wrong-token-of-tests")];
    for _ in 0..ATTEMPTS_AT_ONCE {
        assert_eq!(
            visitor(&page, "192.0.2.1", &guess),
            Err(AccessRefusal::WrongToken)
        );
    }
    // Now the right one is not compared either.
    let right = [("authorization", &*format!("Bearer {TOKEN}"))];
    let refused = visitor(&page, "192.0.2.1", &right);
    assert_eq!(
        refused,
        Err(AccessRefusal::TooManyAttempts(ATTEMPT_INTERVAL))
    );
    let none = headers(&[]);
    let login = page.log_in(TOKEN, &from(&page, "192.0.2.1", &none), &none);
    assert_eq!(login, Err(AccessRefusal::TooManyAttempts(ATTEMPT_INTERVAL)));
    assert_eq!(visitor(&page, "192.0.2.2", &right), Ok(Visitor::LoggedIn));
    clock.advance(ATTEMPT_INTERVAL);
    assert_eq!(visitor(&page, "192.0.2.1", &right), Ok(Visitor::LoggedIn));
    // Right ones are not counted.
    assert!((0..20).all(|_| visitor(&page, "192.0.2.1", &right).is_ok()));
}

#[test]
fn cookie_has_the_path_of_a_trusted_ingress() {
    let config = HttpConfig {
        proxies: vec!["172.30.32.2/32".parse().unwrap()],
        tokens: vec![Secret::new(TOKEN.into())],
        ..HttpConfig::default()
    };
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let page = PageAccess::new(&node(), &config, &clock);
    let lines = headers(&[
        ("x-ingress-path", "/api/hassio_ingress/abc"),
        ("origin", "http://homeassistant.local:8123"),
    ]);
    for (peer, path) in [
        ("172.30.32.2", "; Path=/api/hassio_ingress/abc;"),
        ("192.0.2.1", "; Path=/;"),
    ] {
        let cookie = page
            .log_in(TOKEN, &from(&page, peer, &lines), &lines)
            .unwrap();
        assert!(
            cookie.contains(path) && !cookie.contains("Secure"),
            "{cookie}"
        );
    }
    // Two boxes behind one host and port, whose proxy names no path.
    let other = PageAccess::new(&NodeId::new("edge2").unwrap(), &config, &clock);
    let [one, two] = [&page, &other].map(|page| {
        let sender = from(page, "192.0.2.1", &lines);
        let cookie = page.log_in(TOKEN, &sender, &lines).unwrap();
        cookie.split_once(';').unwrap().0.to_owned()
    });
    let both = headers(&[("cookie", &format!("{one}; {two}"))]);
    for page in [&page, &other] {
        let sender = from(page, "192.0.2.1", &both);
        assert_eq!(page.visitor(&sender, &both), Ok(Visitor::LoggedIn));
    }
    assert_ne!(
        one.split_once('=').unwrap().0,
        two.split_once('=').unwrap().0
    );
}
