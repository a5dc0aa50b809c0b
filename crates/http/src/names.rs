//! Names under which this machine is called, against DNS rebinding.
//!
//! A web page of elsewhere, which the operator's browser shows, may send requests to this machine but cannot read the answers, unless
//! it calls itself by a name that it lets resolve to this machine's address. A browser sends that name in `Host`. An address cannot
//! be made to resolve to another one, so addresses are answered.

use url::{Host, Url};

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

    /// Whether a web page of this `Origin` may change something by a request to this `host`. A name must be known: `Host` alone says nothing,
    /// because a proxy may have set it. An address cannot be made to resolve to another one, so it may also be that of `host`.
    pub fn accept_origin(&self, origin: &str, host: Option<&str>) -> bool {
        let Some(("http" | "https", origin)) = origin.split_once("://") else {
            return false;
        };
        let Some(origin) = host_of(origin) else {
            return false;
        };
        let is_name = matches!(&origin, Host::Domain(name) if name != "localhost");
        self.knows(&origin.to_string()) || !is_name && host.and_then(host_of) == Some(origin)
    }

    fn knows(&self, name: &str) -> bool {
        self.0.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Whether a request with this `Host` is answered. With any port: a tunnel ends at another one.
    pub fn accept(&self, host: &str) -> bool {
        match host_of(host) {
            None => false,
            Some(Host::Ipv4(_) | Host::Ipv6(_)) => true,
            Some(Host::Domain(name)) => {
                let name = name.strip_suffix('.').unwrap_or(&name);
                name == "localhost" || self.knows(name)
            }
        }
    }
}

/// Whether a `Host`, or the host of an `Origin`, is a loopback address, `localhost` or a name below it.
pub fn is_loopback_name(host: &str) -> bool {
    host_of(host).is_some_and(|host| is_loopback(&host.to_string()))
}

/// The host of `host:port`; nothing else may be there.
fn host_of(host: &str) -> Option<Host> {
    if host.contains(['/', '\\', '@', '?', '#']) {
        return None;
    }
    let url = Url::parse(&format!("http://{host}")).ok()?;
    url.host().map(|host| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_of_another_name_is_not_answered() {
        let names = HostNames::new("edge1.example.net", &["spotter.example".into()]);
        let fine = "localhost:9464 LOCALHOST localhost. 127.0.0.1:80 192.0.2.1 192.0.2.1:9464 [::1]:9464 [2001:db8::2] \
                    edge1 Edge1.local:9464 edge1.example.net spotter.example:443";
        for fine in fine.split(' ') {
            assert!(names.accept(fine), "{fine}");
        }
        let strange = "evil.example:9464 localhost.evil.example edge1.evil.example spotter.example.evil.example \
                       127.0.0.1.evil.example 127.0.0.1:80.evil.example [::1].evil.example [localhost] . :80 ::1 [::1 local \
                       evil.example@localhost localhost/x localhost?x localhost#x localhost\\x";
        for strange in strange.split(' ').chain([""]) {
            assert!(!names.accept(strange), "{strange}");
        }
        let nameless = HostNames::new("", &[]);
        assert!(nameless.accept("127.0.0.1") && !nameless.accept("") && !nameless.accept(".local"));
    }

    // Faults: H18.
    #[test]
    fn origin_of_another_name_or_address_changes_nothing() {
        let names = HostNames::new("edge1", &["spotter.example".into(), "192.0.2.9".into()]);
        for (origin, host, expected) in [
            ("https://spotter.example", Some("localhost"), true),
            ("http://EDGE1.local:9464", Some("edge1.local:9464"), true),
            ("http://192.0.2.1:9464", Some("192.0.2.1:9464"), true),
            ("http://192.0.2.9", Some("localhost"), true),
            ("http://[2001:db8::1]:1", Some("[2001:db8::1]:2"), true),
            ("http://localhost:8080", Some("localhost:9464"), true),
            ("http://192.0.2.66", Some("192.0.2.1"), false),
            ("http://192.0.2.66", None, false),
            ("http://localhost", Some("192.0.2.1"), false),
            ("https://evil.example", Some("evil.example"), false),
            (
                "https://spotter.example.evil.example",
                Some("localhost"),
                false,
            ),
            (
                "https://spotter.example@evil.example",
                Some("localhost"),
                false,
            ),
            ("file://spotter.example", Some("localhost"), false),
            ("null", Some("localhost"), false),
            ("", None, false),
        ] {
            assert_eq!(
                names.accept_origin(origin, host),
                expected,
                "{origin} {host:?}"
            );
        }
    }

    #[test]
    fn loopback_names_are_those_of_loopback() {
        for (host, expected) in [
            ("localhost", true),
            ("127.0.0.2:8080", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]", true),
            ("192.0.2.1", false),
            ("[2001:db8::1]", false),
            ("edge1", false),
            ("", false),
            ("null", false),
        ] {
            assert_eq!(is_loopback_name(host), expected, "{host}");
        }
    }
}
