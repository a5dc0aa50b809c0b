//! Names under which this machine is called, against DNS rebinding.
//!
//! A web page of elsewhere, which the operator's browser shows, may send requests to this machine but cannot read the answers, unless
//! it calls itself by a name that it lets resolve to this machine's address. A browser sends that name in `Host`. An address cannot
//! be made to resolve to another one, so addresses are answered.

use std::net::{IpAddr, Ipv6Addr};

use spotter_config::is_loopback;

/// The names that are answered, beside addresses and `localhost`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNames(Vec<String>);

impl HostNames {
    /// The host name of this machine, with and without its domain and with `.local`, and `more`.
    pub fn of_this_machine(more: &[String]) -> Self {
        Self::new(&gethostname::gethostname().to_string_lossy(), more)
    }

    fn new(host_name: &str, more: &[String]) -> Self {
        let short = host_name.split('.').next().unwrap_or_default();
        let mut names = more.to_vec();
        if !short.is_empty() {
            names.extend([
                host_name.to_owned(),
                short.to_owned(),
                format!("{short}.local"),
            ]);
        }
        Self(names)
    }

    /// Whether a request with this `Host` is answered. With any port: a tunnel ends at another one.
    pub fn accept(&self, host: &str) -> bool {
        let Some(name) = host_of(host) else {
            return false;
        };
        let is_known = |known: &String| known.eq_ignore_ascii_case(name);
        is_address(name) || name.eq_ignore_ascii_case("localhost") || self.0.iter().any(is_known)
    }
}

/// Whether a `Host`, or the host of an `Origin`, is a loopback address, `localhost` or a name below it.
pub fn is_loopback_name(host: &str) -> bool {
    host_of(host).is_some_and(is_loopback)
}

/// The host of `host:port`, an IPv6 address with its brackets.
fn host_of(host: &str) -> Option<&str> {
    let end = match host.strip_prefix('[') {
        Some(_) => host.find(']')? + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    let name = name.strip_suffix('.').unwrap_or(name);
    (is_plain && !name.is_empty()).then_some(name)
}

fn is_address(name: &str) -> bool {
    match name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<IpAddr>().is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_of_another_name_is_not_answered() {
        let names = HostNames::new("edge1.example.net", &["spotter.example".into()]);
        for fine in [
            "localhost:9464",
            "LOCALHOST",
            "localhost.",
            "127.0.0.1:80",
            "192.0.2.1",
            "192.0.2.1:9464",
            "[::1]:9464",
            "[2001:db8::2]",
            "edge1",
            "Edge1.local:9464",
            "edge1.example.net",
            "spotter.example:443",
        ] {
            assert!(names.accept(fine), "{fine}");
        }
        for strange in [
            "evil.example:9464",
            "localhost.evil.example",
            "edge1.evil.example",
            "spotter.example.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1:80.evil.example",
            "[::1].evil.example",
            "[localhost]",
            "",
            ".",
            ":80",
            "::1",
            "[::1",
            "local",
        ] {
            assert!(!names.accept(strange), "{strange}");
        }
    }

    #[test]
    fn machine_without_a_name_has_no_empty_one() {
        let names = HostNames::new("", &[]);
        assert!(names.accept("127.0.0.1") && !names.accept("") && !names.accept(".local"));
    }

    #[test]
    fn loopback_names_are_those_of_loopback() {
        for fine in [
            "localhost",
            "127.0.0.2:8080",
            "[::1]:1",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(is_loopback_name(fine), "{fine}");
        }
        for strange in ["192.0.2.1", "[2001:db8::1]", "edge1", "", "null"] {
            assert!(!is_loopback_name(strange), "{strange}");
        }
    }
}
