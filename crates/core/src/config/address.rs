//! The URLs of cameras and of the broker. A URL never holds a login, and no message shows a URL's value: a mistyped
//! one may hold a password where nobody expects it.

use std::path::PathBuf;

use url::{Host, Url};

use super::defaults::{MQTT_PORT, MQTTS_PORT};

const CAMERA_SCHEMES: &str = "rtsp, rtsps, file, usb, test";
const BROKER_SCHEMES: &str = "mqtt, mqtts";

/// A camera's URL.
#[derive(Debug, PartialEq)]
pub(super) enum CameraUrl {
    /// `rtsp://` or, with `secure`, `rtsps://`.
    Rtsp { url: String, secure: bool },
    /// `file:///path`, with `?loop` for ever.
    File { path: PathBuf, looped: bool },
    /// `usb:///dev/video0`
    Usb { device: PathBuf },
    /// `test://`
    Test,
}

/// Reads the URL of a camera.
pub(super) fn camera(text: &str) -> Result<CameraUrl, String> {
    let url = parse(text, CAMERA_SCHEMES)?;
    match url.scheme() {
        scheme @ ("rtsp" | "rtsps") => {
            host(&url)?;
            if url.fragment().is_some() {
                return Err("contains \"#\", which ends a URL; write it as %23".to_owned());
            }
            let (url, secure) = (text.to_owned(), scheme == "rtsps");
            Ok(CameraUrl::Rtsp { url, secure })
        }
        "file" => {
            let looped = match url.query() {
                None => false,
                Some("loop") => true,
                Some(_) => {
                    return Err("file URLs accept only ?loop after the path".to_owned());
                }
            };
            let slashes = "file URLs need three slashes: file:///path/to/video.mp4";
            let path = url.to_file_path().map_err(|()| slashes.to_owned())?;
            Ok(CameraUrl::File { path, looped })
        }
        "usb" => match text.strip_prefix("usb://") {
            Some(device) if device.starts_with("/dev/") => Ok(CameraUrl::Usb {
                device: device.into(),
            }),
            _ => Err("usb URLs name a device node: usb:///dev/video0".to_owned()),
        },
        "test" if text == "test://" => Ok(CameraUrl::Test),
        "test" => Err("the test source has no settings; write test://".to_owned()),
        scheme => Err(format!(
            "scheme {scheme:?} is not supported; use one of {CAMERA_SCHEMES}"
        )),
    }
}

/// Where a broker listens.
#[derive(Debug, PartialEq)]
pub(super) struct BrokerUrl {
    pub(super) host: String,
    pub(super) port: u16,
    /// `mqtts://`
    pub(super) secure: bool,
}

/// Reads the URL of a broker.
pub(super) fn broker(text: &str) -> Result<BrokerUrl, String> {
    let url = parse(text, BROKER_SCHEMES)?;
    let secure = match url.scheme() {
        "mqtt" => false,
        "mqtts" => true,
        scheme => {
            return Err(format!(
                "scheme {scheme:?} is not supported; use one of {BROKER_SCHEMES}"
            ));
        }
    };
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err("has text after the port; write mqtt://HOST:PORT".to_owned());
    }
    Ok(BrokerUrl {
        host: host(&url)?,
        port: url
            .port()
            .unwrap_or(if secure { MQTTS_PORT } else { MQTT_PORT }),
        secure,
    })
}

/// Parses and refuses logins. An "@" anywhere is taken for one: with an unescaped "#" or "/" in a password the URL
/// parses, and the login hides in what looks like the path.
fn parse(text: &str, schemes: &str) -> Result<Url, String> {
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
fn host(url: &Url) -> Result<String, String> {
    if url.port() == Some(0) {
        return Err("port 0 is not a valid port".to_owned());
    }
    match url.host() {
        Some(Host::Domain("")) | None => Err("has no host".to_owned()),
        Some(Host::Ipv6(address)) => Ok(address.to_string()),
        Some(host) => Ok(host.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cameras_of_all_kinds() {
        let url = "rtsps://192.0.2.11:322/Streaming/Channels/102?x=1".to_owned();
        assert_eq!(
            camera(&url),
            Ok(CameraUrl::Rtsp {
                url: url.clone(),
                secure: true
            })
        );
        let (path, looped) = ("/videos/a b.mp4".into(), true);
        assert_eq!(
            camera("file:///videos/a%20b.mp4?loop"),
            Ok(CameraUrl::File { path, looped })
        );
        let device = "/dev/video0".into();
        assert_eq!(camera("usb:///dev/video0"), Ok(CameraUrl::Usb { device }));
        assert_eq!(camera("test://"), Ok(CameraUrl::Test));
    }

    #[test]
    fn brokers_have_default_ports() {
        let of = |text| broker(text).map(|b| (b.host, b.port, b.secure));
        assert_eq!(
            of("mqtt://broker.local"),
            Ok(("broker.local".into(), 1883, false))
        );
        assert_eq!(
            of("mqtts://broker.local/"),
            Ok(("broker.local".into(), 8883, true))
        );
        assert_eq!(of("mqtt://[::1]:1884"), Ok(("::1".into(), 1884, false)));
    }

    #[test]
    fn mistakes_are_named_and_values_are_not_shown() {
        let login = "contains a user name or password; use \"user\" and \"password\"";
        for (text, part) in [
            ("rtsp://admin:canary@192.0.2.1/", login),
            ("rtsp://admin:1#canary@192.0.2.1/", login),
            ("rtsp://canary@192.0.2.1/", login),
            (
                "http://192.0.2.1/canary",
                "scheme \"http\" is not supported; use one of rtsp, rtsps, file",
            ),
            (
                "192.0.2.1/canary",
                "has no scheme; start it with one of rtsp, rtsps, file, usb, test",
            ),
            ("rtsp:///canary", "has no host"),
            (
                "rtsp://host:99999/canary",
                "is not a URL: invalid port number",
            ),
            ("rtsp://host:0/canary", "port 0"),
            ("rtsp://host/#canary", "contains \"#\""),
            ("rtsp://host/a canary", "contains a space"),
            ("file://canary.mp4", "three slashes"),
            ("file:///a.mp4?canary", "?loop"),
            ("usb:///home/canary", "usb:///dev/video0"),
            ("usb://dev/video0", "usb:///dev/video0"),
            ("test://canary", "write test://"),
            ("", "has no scheme"),
        ] {
            let error = camera(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("canary"), "{error}");
        }
        for (text, part) in [
            ("mqtt://user:canary@host", login),
            (
                "tcp://host",
                "scheme \"tcp\" is not supported; use one of mqtt, mqtts",
            ),
            (
                "broker.local",
                "has no scheme; start it with one of mqtt, mqtts",
            ),
            ("mqtt://", "has no host"),
            ("mqtt://host/canary", "after the port"),
        ] {
            let error = broker(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
