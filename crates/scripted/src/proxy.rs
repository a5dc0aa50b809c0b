//! An HTTP proxy with the usual settings: it forwards requests that name the whole URL, and refuses CONNECT.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _, copy},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use crate::receiver::{read_request, start};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct ProxyRequest {
    /// Its first line.
    pub line: String,
    /// Of the header Proxy-Authorization.
    pub authorization: Option<String>,
}

/// Listens on loopback until the process ends.
pub struct ScriptedProxy {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<ProxyRequest>>>,
}

impl ScriptedProxy {
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&requests);
        start("proxy", move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                start("proxy-client", move || {
                    let mut client = BufReader::new(stream);
                    while serve(&mut client, &shared).is_some() {}
                });
            }
        });
        Self { address, requests }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All requests since the last call.
    pub fn take_requests(&self) -> Vec<ProxyRequest> {
        std::mem::take(&mut self.requests.lock().expect("no panic"))
    }
}

/// Answers one request; the client's connection stays open, the target's does not.
fn serve(client: &mut BufReader<TcpStream>, requests: &Mutex<Vec<ProxyRequest>>) -> Option<()> {
    let mut request = read_request(client)?;
    request.headers.remove("connection");
    let (method, url) = (&request.method, &request.path);
    requests.lock().ok()?.push(ProxyRequest {
        line: format!("{method} {url} HTTP/1.1"),
        authorization: request.headers.remove("proxy-authorization"),
    });
    let refuse = |client: &mut TcpStream, status: &str| {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        client.write_all(answer.as_bytes()).ok()
    };
    if method == "CONNECT" {
        return refuse(client.get_mut(), "403 CONNECT to this port is forbidden");
    }
    let Some(rest) = url.strip_prefix("http://") else {
        return refuse(
            client.get_mut(),
            "400 the request does not name the whole URL",
        );
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let Ok(mut target) = TcpStream::connect(authority) else {
        return refuse(client.get_mut(), "502 no such host");
    };
    let headers = request.headers.iter();
    let headers: String = headers
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let head = format!("{method} /{path} HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
    target
        .write_all(&[head.as_bytes(), &request.body].concat())
        .ok()?;
    forward_answer(target, client.get_mut())
}

/// Without the target's `Connection: close`: that is about the connection to the proxy.
fn forward_answer(target: TcpStream, client: &mut TcpStream) -> Option<()> {
    let mut target = BufReader::new(target);
    let mut length = 0;
    loop {
        let mut line = String::new();
        target.read_line(&mut line).ok()?;
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if !lower.starts_with("connection:") {
            client.write_all(line.as_bytes()).ok()?;
        }
        if line.trim_end().is_empty() {
            break;
        }
    }
    let sent = copy(&mut target.by_ref().take(length), client).ok()?;
    target.get_ref().shutdown(Shutdown::Both).ok()?;
    // A cut answer is cut for the client too.
    (sent == length).then_some(())
}
