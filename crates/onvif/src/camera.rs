//! How a camera is reached.

use spotter_config::Secret;
use url::Url;

/// The path of the device service, which almost all cameras have.
const DEVICE_PATH: &str = "/onvif/device_service";

/// An ONVIF camera and the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnvifCamera {
    /// Of the device service: `http://HOST/onvif/device_service`.
    pub address: Url,
    pub login: Option<OnvifLogin>,
    /// The certificate of an `https` camera is not checked.
    pub is_insecure: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnvifLogin {
    pub user: String,
    pub password: Secret,
}

/// Reads the address of a device service; a path is added where there is none. No message shows the text, which may have a login.
pub fn device_address(text: &str) -> Result<Url, String> {
    if text.contains('@') {
        return Err("contains a user name or password; give them separately".to_owned());
    }
    let with_scheme = match text.contains("://") {
        true => text.to_owned(),
        false => format!("http://{text}"),
    };
    let mut url = Url::parse(&with_scheme).map_err(|error| format!("is not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("is not http://HOST or https://HOST".to_owned());
    }
    if url.path() == "/" {
        url.set_path(DEVICE_PATH);
    }
    Ok(url)
}

/// Where a service is that the camera has named. Behind a translation of addresses, cameras name addresses that are theirs alone, and with
/// `https` some name `http`. So the host is always the one that was used, which also keeps the login at the configured camera; the
/// port is the camera's only when it named the same host and scheme.
pub(crate) fn reachable(used: &Url, named: &str) -> Url {
    let mut url = used.clone();
    // Some name a path alone.
    if let Ok(named) = used.join(named.trim()) {
        url.set_path(named.path());
        url.set_query(named.query());
        url.set_fragment(None);
        if named.host() == used.host() && named.scheme() == used.scheme() {
            // It has a port, or the scheme's own.
            _ = url.set_port(named.port());
        }
    }
    url
}

/// The address of a stream that the camera has named: with the host that was used, and without a login.
pub(crate) fn reachable_stream(used: &Url, named: &str) -> Option<Url> {
    let mut url = Url::parse(named.trim()).ok()?;
    if !matches!(url.scheme(), "rtsp" | "rtsps") {
        return None;
    }
    _ = url.set_username("");
    _ = url.set_password(None);
    if url.host() != used.host() {
        url.set_host(used.host_str()).ok()?;
    }
    Some(url)
}

/// Host and port, for people.
pub(crate) fn shown(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn address_of_a_device_is_completed() {
        for (text, expected) in [
            ("192.0.2.7", "http://192.0.2.7/onvif/device_service"),
            ("http://cam:8000/", "http://cam:8000/onvif/device_service"),
            ("https://cam/onvif/x", "https://cam/onvif/x"),
        ] {
            assert_eq!(device_address(text), Ok(url(expected)));
        }
        for text in ["rtsp://cam/x", "http://u:canary@cam", "http://"] {
            let error = device_address(text).unwrap_err();
            assert!(!error.contains("canary"), "{error}");
        }
    }

    // Faults: O1.
    #[test]
    fn named_address_keeps_the_host_that_was_used() {
        let used = url("http://cam.local:8080/onvif/device_service");
        for (named, expected) in [
            (
                "http://10.0.0.9/onvif/events",
                "http://cam.local:8080/onvif/events",
            ),
            ("http://cam.local:9000/e?x=1", "http://cam.local:9000/e?x=1"),
            ("http://cam.local/e", "http://cam.local/e"),
            ("https://evil/e", "http://cam.local:8080/e"),
            ("/onvif/pull/7", "http://cam.local:8080/onvif/pull/7"),
            ("//evil/e", "http://cam.local:8080/e"),
        ] {
            assert_eq!(reachable(&used, named), url(expected), "{named}");
        }
        let secure = url("https://cam.local/onvif/device_service");
        assert_eq!(
            reachable(&secure, "http://cam.local:80/e"),
            url("https://cam.local/e")
        );
    }

    #[test]
    fn stream_address_has_no_login_and_the_used_host() {
        let used = url("http://cam.local:8080/");
        assert_eq!(
            reachable_stream(&used, "rtsp://a:b@10.0.0.9:8554/s?c=1&d=2"),
            Some(url("rtsp://cam.local:8554/s?c=1&d=2"))
        );
        assert_eq!(reachable_stream(&used, "http://cam.local/s"), None);
    }
}
