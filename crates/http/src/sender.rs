//! Who sent a request, where proxies are between.
//!
//! What a header says of the client counts when a trusted proxy set it. From others it says one thing alone: that the request came through
//! a proxy, so that it is none of this machine, with any address.

use std::net::IpAddr;

use axum::http::HeaderMap;
use ipnet::IpNet;

use super::network::ClientNetwork;

/// Headers that proxies add, and the beginning of the names of others.
const FORWARDING: [&str; 7] = [
    "cf-connecting-ip",
    "forwarded",
    "true-client-ip",
    "via",
    "x-client-ip",
    "x-ingress-path",
    "x-real-ip",
];
const FORWARDED: &str = "x-forwarded-";
const BASE_PATH_MAX_BYTES: usize = 200;

/// Proxies whose headers say who the client is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<IpNet>);

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSender {
    pub network: ClientNetwork,
    /// It is a program on this machine, and no proxy was between.
    pub is_local: bool,
    /// The host that the browser asked, where a trusted proxy says so.
    pub host: Option<String>,
    /// The path under which a trusted proxy shows this server, without a slash at its end.
    pub base_path: Option<String>,
}

impl TrustedProxies {
    pub fn new(networks: &[IpNet]) -> Self {
        Self(networks.to_vec())
    }

    /// `peer`: the other end of the connection.
    pub fn sender(&self, peer: IpAddr, headers: &HeaderMap) -> RequestSender {
        let is_added = |name: &str| FORWARDING.contains(&name) || name.starts_with(FORWARDED);
        let is_forwarded = headers.keys().any(|name| is_added(name.as_str()));
        let is_trusted = is_forwarded && self.has(peer);
        // Each proxy adds to the end, so the last value is the one of the proxy that is trusted.
        let last = |name: &str| {
            let value = headers.get_all(name).iter().next_back()?.to_str().ok()?;
            value
                .rsplit(',')
                .next()
                .map(|value| value.trim().to_owned())
        };
        let trusted = |name| is_trusted.then(|| last(name)).flatten();
        let client = match is_trusted {
            true => self.forwarded_for(headers).unwrap_or(peer),
            false => peer,
        };
        let network = ClientNetwork::of(client);
        RequestSender {
            network,
            is_local: network == ClientNetwork::Loopback && !is_forwarded,
            host: trusted("x-forwarded-host"),
            base_path: trusted("x-ingress-path").filter(|path| is_base_path(path)),
        }
    }

    fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The last address that is no trusted proxy's.
    fn forwarded_for(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let lines = headers.get_all("x-forwarded-for").iter().rev();
        let lines = lines.filter_map(|line| line.to_str().ok());
        let addresses = lines.flat_map(|line| line.rsplit(','));
        let mut addresses = addresses.map_while(|address| address.trim().parse().ok());
        addresses.find(|address| !self.has(*address))
    }
}

/// It becomes the path of a cookie, so it has letters of paths alone.
fn is_base_path(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let is_rooted = path.starts_with('/') && !path.starts_with("//") && !path.ends_with('/');
    is_rooted && path.len() <= BASE_PATH_MAX_BYTES && path.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn sender(peer: &str, lines: &[(&str, &str)]) -> RequestSender {
        let networks = ["172.30.32.0/24", "127.0.0.1/32"].map(|network| network.parse().unwrap());
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        TrustedProxies::new(&networks).sender(peer.parse().unwrap(), &headers)
    }

    #[test]
    fn only_a_direct_program_of_this_machine_is_local() {
        for peer in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(sender(peer, &[]).is_local, "{peer}");
            for name in FORWARDING
                .iter()
                .chain(&["x-forwarded-for", "x-forwarded-ssl"])
            {
                assert!(
                    !sender(peer, &[(name, "127.0.0.1")]).is_local,
                    "{peer} {name}"
                );
            }
        }
        assert!(!sender("192.0.2.1", &[]).is_local);
    }

    #[test]
    fn headers_count_from_trusted_proxies_alone() {
        let lines = [
            ("x-forwarded-for", "203.0.113.1, 192.0.2.7, 172.30.32.5"),
            ("x-forwarded-host", "evil.example, ha.example"),
            ("x-ingress-path", "/api/hassio_ingress/a-Z_9"),
        ];
        let known = sender("172.30.32.2", &lines);
        assert_eq!(known.network.to_string(), "192.0.2.7");
        assert_eq!(known.host.as_deref(), Some("ha.example"));
        assert_eq!(
            known.base_path.as_deref(),
            Some("/api/hassio_ingress/a-Z_9")
        );
        let other = sender("192.0.2.66", &lines);
        assert_eq!(other.network.to_string(), "192.0.2.66");
        assert_eq!((other.host, other.base_path), (None, None));
    }

    #[test]
    fn address_that_is_none_hides_those_before_it() {
        let sender = |value| {
            sender("127.0.0.1", &[("x-forwarded-for", value)])
                .network
                .to_string()
        };
        assert_eq!(sender("192.0.2.1, unknown, 172.30.32.9"), "this machine");
        assert_eq!(sender("unknown, 192.0.2.1"), "192.0.2.1");
    }

    #[test]
    fn base_path_with_other_signs_is_none() {
        for path in [
            "",
            "/",
            "//evil.example",
            "a",
            "/a/",
            "/a;b",
            "/a b",
            "/a\\",
        ] {
            let sender = sender("127.0.0.1", &[("x-ingress-path", path)]);
            assert_eq!(sender.base_path, None, "{path}");
        }
    }
}
