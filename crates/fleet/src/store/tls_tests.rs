//! Servers and proxies that write the `INFO` before TLS: the login is never sent unencrypted.
//!
//! Faults: F13.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use spotter_config::Secret;
use spotter_scripted::tls::certificates;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    select,
    sync::watch,
    time::timeout,
};

use super::*;
use crate::testing::{NatsServer, PATIENCE};

const PASSWORD: &str = "canary";

/// What clients have sent to a listener.
#[derive(Clone, Default)]
struct Received {
    connections: Arc<AtomicUsize>,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Received {
    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    fn begin(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    fn add(&self, bytes: &[u8]) {
        self.bytes.lock().unwrap().extend(bytes);
    }

    fn assert_encrypted(&self) {
        let bytes = self.bytes.lock().unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let is_plain = text.contains("CONNECT") || text.contains(PASSWORD);
        assert!(!is_plain, "in plain text");
    }

    async fn until_connections(&self, count: usize) {
        let waiting = async {
            while self.connections() < count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, waiting).await.unwrap();
    }
}

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn info_line(info: &Value) -> String {
    format!("INFO {info}\r\n")
}

/// Offers no TLS and keeps what it gets.
async fn plain_server(listener: TcpListener, received: Received) {
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        received.begin();
        let received = received.clone();
        tokio::spawn(async move {
            let info = json!({"server_id": "x", "server_name": "x", "version": "2.10.0", "go": "", "proto": 1,
                "host": "127.0.0.1", "port": 4222, "headers": true, "max_payload": 1_048_576, "client_id": 1});
            client.write_all(info_line(&info).as_bytes()).await.unwrap();
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = client.read(&mut buffer).await {
                received.add(&buffer[..count]);
            }
        });
    }
}

/// Passes a client on to the server with another `INFO`, until it is cut off.
async fn pass_on(
    mut client: TcpStream,
    server: u16,
    other: u16,
    mut cut: watch::Receiver<bool>,
    received: Received,
) {
    let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
    let (from_server, mut to_server) = server.into_split();
    let mut from_server = BufReader::new(from_server);
    let mut line = String::new();
    from_server.read_line(&mut line).await.unwrap();
    let mut info: Value = serde_json::from_str(line.strip_prefix("INFO ").unwrap()).unwrap();
    info["connect_urls"] = json!([format!("127.0.0.1:{other}")]);
    info["tls_required"] = json!(false);
    info["tls_available"] = json!(false);
    if client.write_all(info_line(&info).as_bytes()).await.is_err() {
        return;
    }
    let (mut down, mut up) = ([0; 4096], [0; 4096]);
    loop {
        select! {
            () = async { drop(cut.wait_for(|is_cut| *is_cut).await) } => return,
            count = client.read(&mut up) => match count {
                Ok(count @ 1..) => {
                    received.add(&up[..count]);
                    to_server.write_all(&up[..count]).await.unwrap();
                }
                _ => return,
            },
            count = from_server.read(&mut down) => match count {
                Ok(count @ 1..) => client.write_all(&down[..count]).await.unwrap(),
                _ => return,
            },
        }
    }
}

fn with_password(url: String, ca: Option<PathBuf>) -> StoreSettings {
    StoreSettings {
        fleet: NodeId::new("hall").unwrap(),
        access: NatsAccess {
            urls: vec![url],
            login: NatsLogin::Password {
                user: "node".into(),
                password: Secret::new(PASSWORD.to_owned()),
            },
            ca,
            replicas: 1,
        },
    }
}

#[tokio::test]
async fn info_that_names_another_server_gets_no_login() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let file = |name: &str| folder.path().join(name);
    let server = NatsServer::start_with(&format!(
        "tls {{ cert_file: {:?}, key_file: {:?} }}\nauthorization {{ user: node, password: {PASSWORD} }}\n",
        file("server.pem"),
        file("server.key"),
    ));
    let (other_listener, other_port) = listen().await;
    let other = Received::default();
    let other_task = tokio::spawn(plain_server(other_listener, other.clone()));
    let (listener, port) = listen().await;
    let (proxied, server_port) = (Received::default(), server.port());
    let (cut, is_cut) = watch::channel(false);
    let of_proxy = proxied.clone();
    let proxy = tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            of_proxy.begin();
            let kept = of_proxy.clone();
            let is_cut = is_cut.clone();
            tokio::spawn(pass_on(client, server_port, other_port, is_cut, kept));
        }
    });
    let settings = with_password(format!("tls://localhost:{port}"), Some(file("ca.pem")));
    let store = FleetStore::connect(settings).await.unwrap();
    assert_eq!(proxied.connections(), 1);
    // From here on, the proxy ends each connection: the client looks for another server.
    cut.send_replace(true);
    proxied.until_connections(5).await;
    assert_eq!(other.connections(), 0);
    proxied.assert_encrypted();
    other.assert_encrypted();
    drop(store);
    proxy.abort();
    other_task.abort();
}

#[tokio::test]
async fn server_without_tls_gets_no_login_of_a_tls_url() {
    let (listener, port) = listen().await;
    let received = Received::default();
    let server = tokio::spawn(plain_server(listener, received.clone()));
    let settings = with_password(format!("tls://localhost:{port}"), None);
    // Also when another server of the list is unencrypted, which a configuration file does not allow.
    let mut mixed = settings.clone();
    mixed.access.urls = vec![
        "tls://localhost:1".into(),
        format!("nats://127.0.0.1:{port}"),
    ];
    for settings in [settings, mixed] {
        let before = received.connections();
        let connecting = timeout(PATIENCE, FleetStore::connect(settings));
        let connecting = tokio::spawn(async { connecting.await.is_ok_and(|store| store.is_ok()) });
        received.until_connections(before + 1).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        connecting.abort();
        received.assert_encrypted();
    }
    server.abort();
}
