use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use spotter_config::Secret;
use spotter_core::SystemClock;

use super::*;
use crate::Thumbnail;

/// Answers with a picture and a text.
struct Source;

impl StatusSource for Source {
    fn status_json(&self, request: StatusRequest) -> String {
        serde_json::json!({ "visitor": request.visitor }).to_string()
    }

    fn metrics(&self) -> String {
        String::new()
    }

    fn troubles(&self) -> Vec<String> {
        Vec::new()
    }

    fn thumbnail(&self, _: &str, _: Option<u64>) -> Option<Arc<Thumbnail>> {
        let jpeg = b"picture".as_slice().into();
        Some(Arc::new(Thumbnail { frame: 1, jpeg }))
    }
}

/// Asks from another machine, as a proxy says, with these headers.
fn ask(address: SocketAddr, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let host = "Host: localhost\r\nVia: proxy\r\nConnection: close";
    write!(stream, "GET {path} HTTP/1.1\r\n{host}\r\n{headers}\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// A phone behind a slow line loads the page in a moment.
#[test]
fn all_files_of_the_page_are_at_most_150_kilobytes() {
    let bytes: usize = FILES.iter().map(|(_, text)| text.len()).sum();
    assert!(bytes <= 150_000, "{bytes} bytes");
}

// Faults: H16.
#[tokio::test(flavor = "multi_thread")]
async fn no_route_shows_pictures_without_a_token() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let token = "a-token-of-the-page-for-tests";
    for tokens in [vec![], vec![Secret::new(token.into())]] {
        let has_tokens = !tokens.is_empty();
        let config = HttpConfig {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            tokens,
            ..HttpConfig::default()
        };
        let page = ServedPage::start(&config, Readiness::new(Arc::clone(&clock)), &clock).await;
        let page = page.unwrap().unwrap();
        page.open(Arc::new(Source));
        let address = page.address();
        let asked = tokio::task::spawn_blocking(move || {
            // A stream does not end by itself.
            let routes = ROUTES.into_iter();
            let routes = routes.filter(|(path, ..)| *path != "/status.events");
            for (path, shows, _) in routes {
                let path = path.replace("{picture}", "gate.jpg");
                let answer = ask(address, &path, "");
                assert!(
                    !answer.contains("picture\0") && !answer.ends_with("picture"),
                    "{answer}"
                );
                let is_refused = ["HTTP/1.1 401", "HTTP/1.1 403"]
                    .iter()
                    .any(|head| answer.starts_with(head));
                assert_eq!(is_refused, shows == Shows::Pictures, "{path}: {answer}");
                let with_token = ask(
                    address,
                    &path,
                    &format!("Authorization: Bearer {token}\r\n"),
                );
                let is_picture = with_token.ends_with("picture");
                assert_eq!(
                    is_picture,
                    has_tokens && shows == Shows::Pictures,
                    "{path}: {with_token}"
                );
            }
            // A collector may send a token that is meant for a proxy.
            let wrong = "Authorization: Bearer another-token-for-tests\r\n";
            for path in ["/metrics", "/healthz", "/readyz"] {
                let is_refused = ask(address, path, wrong).starts_with("HTTP/1.1 401");
                assert!(!is_refused, "{path}");
            }
            let is_refused = ask(address, "/status.json", wrong).starts_with("HTTP/1.1 401");
            assert_eq!(is_refused, has_tokens);
            let status = ask(address, "/status.json", "");
            assert!(status.contains("stranger"), "{status}");
        });
        asked.await.unwrap();
        page.close().await;
    }
}
