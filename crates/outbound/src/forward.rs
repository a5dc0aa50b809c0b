//! Requests for `http://` that a proxy forwards.
//!
//! Faults: M10.

use std::{io, mem};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use ureq::{
    Error, Proxy, ProxyProtocol,
    http::Uri,
    unversioned::transport::{
        Buffers, ConnectionDetails, Connector, DefaultConnector, NextTimeout, RustlsConnector,
        TcpConnector, Transport,
    },
};

/// Connects as ureq does, but to the proxy itself for `http://`.
#[derive(Debug, Default)]
pub(crate) struct ProxyConnector {
    usual: DefaultConnector,
    /// For a proxy that is reached over TLS.
    tls: RustlsConnector,
}

impl Connector<()> for ProxyConnector {
    type Out = Box<dyn Transport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<()>,
    ) -> Result<Option<Self::Out>, Error> {
        match details.config.proxy() {
            Some(proxy) if forwards(proxy, details.uri) => self.forwarded(details, proxy),
            _ => self.usual.connect(details, chained),
        }
    }
}

fn forwards(proxy: &Proxy, target: &Uri) -> bool {
    let is_http = matches!(proxy.protocol(), ProxyProtocol::Http | ProxyProtocol::Https);
    is_http && target.scheme_str() == Some("http") && !proxy.is_no_proxy(target)
}

impl ProxyConnector {
    fn forwarded(
        &self,
        details: &ConnectionDetails<'_>,
        proxy: &Proxy,
    ) -> Result<Option<Box<dyn Transport>>, Error> {
        let to_proxy = ConnectionDetails {
            uri: proxy.uri(),
            addrs: details
                .resolver
                .resolve(proxy.uri(), details.config, details.timeout)?,
            config: details.config,
            request_level: details.request_level,
            resolver: details.resolver,
            now: details.now,
            timeout: details.timeout,
            current_time: details.current_time.clone(),
            run_connector: details.run_connector.clone(),
            register_shutdown: details.register_shutdown.clone(),
        };
        let tcp = TcpConnector::default().connect(&to_proxy, None::<()>)?;
        let Some(proxy_stream) = self.tls.connect(&to_proxy, tcp)? else {
            return Ok(None);
        };
        Ok(Some(Box::new(ForwardedTransport {
            proxy: Box::new(proxy_stream),
            origin: origin(details.uri),
            login: login(proxy),
            is_request_next: true,
        })))
    }
}

/// `http://host:port`, without a login that the URL may have: ureq sends that in a header.
fn origin(target: &Uri) -> String {
    let host = target.host().unwrap_or_default();
    match target.port_u16() {
        Some(port) => format!("http://{host}:{port}"),
        None => format!("http://{host}"),
    }
}

/// The header with the proxy's login; empty without one.
fn login(proxy: &Proxy) -> String {
    if proxy.username().is_none() && proxy.password().is_none() {
        return String::new();
    }
    let (user, password) = (proxy.username(), proxy.password());
    let (user, password) = (user.unwrap_or_default(), password.unwrap_or_default());
    let encoded = BASE64_STANDARD.encode(format!("{user}:{password}"));
    format!("Proxy-Authorization: Basic {encoded}\r\n")
}

/// A connection to a proxy for the requests of one host.
struct ForwardedTransport {
    proxy: Box<dyn Transport>,
    origin: String,
    login: String,
    /// What is transmitted next begins with a request's first line. Requests and answers alternate, and nothing here sends
    /// `Expect: 100-continue`.
    is_request_next: bool,
}

/// Without the login.
impl std::fmt::Debug for ForwardedTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ForwardedTransport({})", self.origin)
    }
}

impl ForwardedTransport {
    /// Puts the origin before the path, and the login behind the first line. Gives the bytes to transmit.
    fn name_origin(&mut self, amount: usize) -> io::Result<usize> {
        let output = self.proxy.buffers().output();
        let head = &output[..amount];
        let path = head.iter().position(|&byte| byte == b' ');
        let line = head.windows(2).position(|bytes| bytes == b"\r\n");
        let (Some(path), Some(line)) = (path.map(|at| at + 1), line.map(|at| at + 2)) else {
            return Err(io::Error::other("the request has no first line"));
        };
        let parts = [
            &head[..path],
            self.origin.as_bytes(),
            &head[path..line],
            self.login.as_bytes(),
            &head[line..],
        ];
        let named = parts.concat();
        let room = output.get_mut(..named.len());
        let room = room.ok_or_else(|| io::Error::other("the request's headers are too long"))?;
        room.copy_from_slice(&named);
        Ok(named.len())
    }
}

impl Transport for ForwardedTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.proxy.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let amount = match mem::take(&mut self.is_request_next) {
            true => self.name_origin(amount)?,
            false => amount,
        };
        self.proxy.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.is_request_next = true;
        self.proxy.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.proxy.is_open()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ureq::{Agent, http::StatusCode};

    use super::*;
    use crate::agent;
    use spotter_scripted::{hub::ScriptedHub, proxy::ScriptedProxy, receiver::ScriptedReceiver};

    fn through(proxy: Proxy) -> Agent {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            .proxy(Some(proxy));
        agent(config.build())
    }

    #[test]
    fn each_http_request_of_a_connection_names_the_whole_url() {
        let (proxy, hub) = (ScriptedProxy::start(), ScriptedHub::start(Vec::new()));
        let agent = through(Proxy::new(&format!("http://me:pass@{}", proxy.address())).unwrap());
        for path in ["/first?a=1", "/second"] {
            let url = format!("{}{path}", hub.endpoint());
            let answer = agent.get(&url).call().unwrap();
            assert_eq!(answer.status(), StatusCode::NOT_FOUND);
            let request = proxy.take_requests().remove(0);
            assert_eq!(request.line, format!("GET {url} HTTP/1.1"));
            assert_eq!(request.authorization.as_deref(), Some("Basic bWU6cGFzcw=="));
            // The target does not get the proxy's login.
            assert_eq!(hub.take_requests()[0].path, path);
        }
    }

    #[test]
    fn long_bodies_arrive_as_they_were_sent() {
        let (proxy, receiver) = (ScriptedProxy::start(), ScriptedReceiver::start());
        let agent = through(Proxy::new(&format!("http://{}", proxy.address())).unwrap());
        let body: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let answer = agent.post(receiver.url()).send(&body[..]).unwrap();
        assert_eq!(answer.status(), StatusCode::NO_CONTENT);
        assert!(receiver.requests()[0].body == body);
        let line = &proxy.take_requests()[0].line;
        assert!(line.starts_with("POST http://127.0.0.1:"), "{line}");
    }

    #[test]
    fn https_keeps_connect_and_named_hosts_are_reached_directly() {
        let (proxy, hub) = (ScriptedProxy::start(), ScriptedHub::start(Vec::new()));
        let of = format!("http://{}", proxy.address());
        let refused = through(Proxy::new(&of).unwrap())
            .get("https://127.0.0.1:9/")
            .call();
        assert!(
            matches!(refused, Err(Error::ConnectProxyFailed(_))),
            "{refused:?}"
        );
        let lines: Vec<String> = proxy.take_requests().into_iter().map(|r| r.line).collect();
        assert_eq!(lines, ["CONNECT 127.0.0.1:9 HTTP/1.1"]);

        let address: std::net::SocketAddr = proxy.address();
        let direct = Proxy::builder(ProxyProtocol::Http)
            .host(&address.ip().to_string())
            .port(address.port())
            .no_proxy("127.0.0.1")
            .build();
        let answer = through(direct.unwrap()).get(hub.endpoint()).call().unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
        assert!(proxy.take_requests().is_empty());
    }
}
