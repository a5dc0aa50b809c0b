//! Servers and proxies that write the `INFO` before TLS: the login is never sent unencrypted, nor to a server that they name.
//!
//! Faults: F13.

use serde_json::json;
use spotter_config::Secret;
use spotter_scripted::tls::certificates;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    time::timeout,
};

use super::*;
use crate::testing::{NatsServer, PATIENCE, node};

const PASSWORD: &str = "canary";

/// A server without TLS whose `INFO` names another one. It accepts each login and then ends the connection.
struct PlainServer {
    port: u16,
    /// What each connection has sent.
    received: watch::Receiver<Vec<String>>,
}

impl PlainServer {
    async fn start(other_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, received) = watch::channel(Vec::new());
        let info = json!({"server_id": "x", "server_name": "x", "version": "2.10.0", "go": "", "proto": 1, "host": "127.0.0.1",
            "port": port, "headers": true, "max_payload": 1_048_576, "client_id": 1, "tls_required": false,
            "connect_urls": [format!("127.0.0.1:{other_port}")]});
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let info = format!("INFO {info}\r\n");
                client.write_all(info.as_bytes()).await.unwrap();
                let (mut text, mut buffer) = (String::new(), [0; 4096]);
                // To the end of a login, or the first record of TLS.
                while !text.contains("PING") && !text.starts_with('\u{16}') {
                    match client.read(&mut buffer).await {
                        Ok(count @ 1..) => text += &String::from_utf8_lossy(&buffer[..count]),
                        _ => break,
                    }
                }
                _ = client.write_all(b"PONG\r\n").await;
                sender.send_modify(|all| all.push(text));
            }
        });
        Self { port, received }
    }

    async fn until_connections(&mut self, count: usize) {
        let connected = self.received.wait_for(|all| all.len() >= count);
        timeout(PATIENCE, connected).await.unwrap().unwrap();
    }
}

async fn connect(urls: &[String], ca: Option<PathBuf>) -> Result<FleetStore, StoreError> {
    let access = NatsAccess {
        urls: urls.to_vec(),
        login: NatsLogin::Password {
            user: "node".into(),
            password: Secret::new(PASSWORD.to_owned()),
        },
        ca,
        replicas: 1,
    };
    let connected = FleetStore::connect(node("hall"), access);
    timeout(PATIENCE, connected).await.unwrap()
}

#[tokio::test]
async fn server_that_info_names_gets_no_connection() {
    let other = PlainServer::start(1).await;
    let mut server = PlainServer::start(other.port).await;
    let url = format!("nats://127.0.0.1:{}", server.port);
    let _store = connect(&[url], None).await.unwrap();
    // The client looks for another server each time.
    server.until_connections(5).await;
    assert_eq!(other.received.borrow().len(), 0);
}

#[tokio::test]
async fn server_without_tls_gets_no_login_of_a_tls_url() {
    let mut server = PlainServer::start(1).await;
    let encrypted = format!("tls://localhost:{}", server.port);
    // Also when another server of the list is unencrypted, which a configuration file does not allow.
    let plain = format!("nats://127.0.0.1:{}", server.port);
    for urls in [vec![encrypted], vec!["tls://localhost:1".into(), plain]] {
        let before = server.received.borrow().len();
        assert!(connect(&urls, None).await.is_err());
        server.until_connections(before + 1).await;
    }
    let received = server.received.borrow();
    let is_plain = |text: &String| text.contains("CONNECT") || text.contains(PASSWORD);
    assert!(!received.iter().any(is_plain), "in plain text");
}

#[tokio::test]
async fn server_with_a_certificate_of_the_authority_is_used() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let [ca, certificate, key] =
        ["ca.pem", "server.pem", "server.key"].map(|name| folder.path().join(name));
    let server = NatsServer::start_with(&format!(
        "tls {{ cert_file: {certificate:?}, key_file: {key:?} }}\nauthorization {{ user: node, password: {PASSWORD} }}\n"
    ));
    let urls = [format!("tls://localhost:{}", server.port())];
    let store = connect(&urls, Some(ca)).await;
    assert_eq!(store.unwrap().list().await.unwrap(), None);
    let unknown = connect(&urls, None).await;
    assert!(matches!(
        unknown.err(),
        Some(StoreError::Unreachable { .. })
    ));
}
