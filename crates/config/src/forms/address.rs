//! What the URLs of cameras and of the broker have in common, and the broker's. A URL never contains a login, and no message
//! shows the value of a URL: a mistyped one may contain a password where no login is expected.

use std::net::IpAddr;

use url::{Host, Url};

#[derive(Debug, PartialEq)]
pub(crate) struct BrokerUrl {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) secure: bool,
}

/// Reads the URL of a broker.
pub(crate) fn broker(text: &str) -> Result<BrokerUrl, String> {
    let url = server(text, "mqtt, mqtts")?;
    let secure = url.scheme() == "mqtts";
    Ok(BrokerUrl {
        host: host(&url)?,
        port: url.port().unwrap_or(if secure { 8883 } else { 1883 }),
        secure,
    })
}

/// A URL of a host and a port, with one of these schemes.
pub(crate) fn server(text: &str, schemes: &str) -> Result<Url, String> {
    let url = parse(text, schemes)?;
    let scheme = url.scheme();
    if !schemes.split(", ").any(|known| known == scheme) {
        return Err(format!(
            "scheme {scheme:?} is not supported; use one of {schemes}"
        ));
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err(format!(
            "has text after the port; write {scheme}://HOST:PORT"
        ));
    }
    host(&url)?;
    Ok(url)
}

/// An `http://` or `https://` URL, which may be a secret.
pub(crate) fn web(text: &str) -> Result<Url, String> {
    let url = parse(text, "http, https")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("the scheme must be one of http, https".to_owned());
    }
    host(&url)?;
    Ok(url)
}

/// Parses and rejects logins. An "@" anywhere counts as one: with an unescaped "#" or "/" in a password the URL parses, and
/// the login is in what looks like the path.
pub(crate) fn parse(text: &str, schemes: &str) -> Result<Url, String> {
    if text.contains('@') {
        return Err("contains a user name or password; use \"user\" and \"password\"".to_owned());
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("contains a space or a control character".to_owned());
    }
    Url::parse(text).map_err(|error| match error {
        url::ParseError::RelativeUrlWithoutBase => {
            format!("has no scheme; start it with one of {schemes}, and ://")
        }
        error => format!("is not a URL: {error}"),
    })
}

/// The host name or address, without the brackets of IPv6.
pub(crate) fn host(url: &Url) -> Result<String, String> {
    if url.port() == Some(0) {
        return Err("port 0 is not a valid port".to_owned());
    }
    match url.host() {
        Some(Host::Domain("")) | None => Err("has no host".to_owned()),
        Some(Host::Ipv6(address)) => Ok(address.to_string()),
        Some(host) => Ok(host.to_string()),
    }
}

/// True for a host that names this machine, so that no network is between.
pub fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    let host = host.to_ascii_lowercase();
    let is_name = host == "localhost" || host.ends_with(".localhost");
    is_name || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_have_default_ports() {
        for (text, host, port, secure) in [
            ("mqtt://broker.local", "broker.local", 1883, false),
            ("mqtts://broker.local/", "broker.local", 8883, true),
            ("mqtt://[::1]:1884", "::1", 1884, false),
        ] {
            let host = host.to_owned();
            assert_eq!(broker(text), Ok(BrokerUrl { host, port, secure }));
        }
    }
}
