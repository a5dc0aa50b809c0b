//! Where a camera's pictures come from: the kinds of source, their URLs and settings, and what messages call them. A new kind
//! is added here and in `crates/cameras/src/ingest/gst/sources`, as docs/adding-a-source.md describes.
//!
//! No message shows the value of a URL: a mistyped one may contain a password where no login is expected.

use std::path::PathBuf;

use crate::{
    forms::{prelude::*, text::fingerprint},
    read::prelude::*,
};

/// The schemes of [`SourceConfig::from_url`].
const SCHEMES: &str = "rtsp, rtsps, file, usb, test";
/// The URLs of [`SourceConfig::from_url`] in the reference of the configuration.
const URL_FORMS: &str = "`rtsp://`, `rtsps://`, `file:///PATH` (with `?loop` to repeat), `usb:///dev/videoN` or `test://`";

#[derive(Clone, Debug, PartialEq)]
pub enum SourceConfig {
    /// A camera at an `rtsp://` or `rtsps://` URL.
    Rtsp(RtspConfig),
    /// `file:///path/to/video.mp4`; `?loop` plays for ever.
    File {
        path: PathBuf,
        /// From the start again at its end.
        looped: bool,
    },
    /// A v4l2 device, for example `usb:///dev/video0`.
    Usb { device: PathBuf },
    /// `test://` GStreamer's test picture.
    Test,
}

/// How an RTSP camera is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct RtspConfig {
    /// The URL never contains the login.
    pub url: String,
    pub user: Option<String>,
    pub password: Option<Secret>,
    pub transport: Transport,
    /// Checks of an `rtsps` server.
    pub tls: CameraTls,
    /// Hosts to which the camera may redirect, besides its own. None of them gets the login.
    pub redirect_hosts: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Inside of the RTSP connection.
    Tcp,
    /// Own sockets; pictures break when packets are lost.
    Udp,
    /// TCP first, UDP when the camera refuses TCP.
    Auto,
}

/// How the certificate of an `rtsps` camera is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CameraTls {
    /// By the machine's authorities.
    Verify,
    /// Its SHA-256, 32 bytes.
    Fingerprint([u8; 32]),
    /// Not at all. Warned at each start.
    Insecure,
}

impl SourceConfig {
    /// The source in messages. Never contains a login: the configuration rejects a URL with one.
    pub fn name(&self) -> String {
        match self {
            Self::Rtsp(rtsp) => rtsp.url.clone(),
            Self::File { path, .. } => path.display().to_string(),
            Self::Usb { device } => device.display().to_string(),
            Self::Test => "the test source".to_owned(),
        }
    }

    /// The kind of source, as the model of a device in Home Assistant.
    pub fn model_name(&self) -> &'static str {
        match self {
            Self::Rtsp(_) => "RTSP camera",
            Self::File { .. } => "Video file",
            Self::Usb { .. } => "USB camera",
            Self::Test => "Test picture",
        }
    }

    /// At its end the source is played from the start again.
    pub fn is_looped(&self) -> bool {
        matches!(self, Self::File { looped: true, .. })
    }

    /// User and password, for the log to mask; `None` without a password.
    pub fn login(&self) -> Option<(Option<&str>, &Secret)> {
        let Self::Rtsp(rtsp) = self else {
            return None;
        };
        Some((rtsp.user.as_deref(), rtsp.password.as_ref()?))
    }

    /// True when the certificate of the source is not checked.
    pub fn is_insecure(&self) -> bool {
        matches!(self, Self::Rtsp(rtsp) if rtsp.tls == CameraTls::Insecure)
    }

    /// Reads a URL; the other settings have their defaults.
    fn from_url(text: &str) -> Result<Self, String> {
        let url = address::parse(text, SCHEMES)?;
        match url.scheme() {
            "rtsp" | "rtsps" => {
                address::host(&url)?;
                if url.fragment().is_some() {
                    return Err("contains \"#\", which ends a URL; write it as %23".to_owned());
                }
                Ok(Self::Rtsp(RtspConfig {
                    url: text.to_owned(),
                    user: None,
                    password: None,
                    transport: Transport::Auto,
                    tls: CameraTls::Verify,
                    redirect_hosts: Vec::new(),
                }))
            }
            "file" => {
                let looped = url.query().is_some();
                if !matches!(url.query(), None | Some("loop")) {
                    return Err("file URLs accept only ?loop after the path".to_owned());
                }
                let slashes = "file URLs need three slashes: file:///path/to/video.mp4";
                let path = url.to_file_path().map_err(|()| slashes.to_owned())?;
                Ok(Self::File { path, looped })
            }
            "usb" => {
                let device = text.strip_prefix("usb://");
                let device = device.filter(|device| device.starts_with("/dev/"));
                let device = device.ok_or("usb URLs name a device node: usb:///dev/video0")?;
                let device = device.into();
                Ok(Self::Usb { device })
            }
            "test" if text == "test://" => Ok(Self::Test),
            "test" => Err("the test source has no settings; write test://".to_owned()),
            scheme => Err(format!(
                "scheme {scheme:?} is not supported; use one of {SCHEMES}"
            )),
        }
    }
}

pub(crate) fn transports() -> Form<'static, Transport> {
    words(&[
        ("tcp", Transport::Tcp),
        ("udp", Transport::Udp),
        ("auto", Transport::Auto),
    ])
}

/// `url` with the keys that belong to it, and `onvif_url`.
pub(crate) fn source(
    scope: &Scope<'_>,
    table: &mut Reader<'_>,
    transport: Transport,
) -> (Option<SourceConfig>, Option<String>) {
    keys! { table in "`[camera.NAME]`", "One camera. It also accepts every key of `[defaults]`.",
            "[camera.gate]\nurl = \"rtsp://192.0.2.11/stream2\"\nuser = \"viewer\"\npassword = { env = \"GATE_PASSWORD\" }";
        /// The video source. The URL has no user name and no password.
        url = text(URL_FORMS, SourceConfig::from_url).required("no url; add url = \"rtsp://HOST/PATH\""), r#"url = "rtsp://192.0.2.11/stream2""#;
        /// User name of an RTSP camera.
        user = text("text", not_empty).optional("no login"), r#"user = "viewer""#;
        /// Password of an RTSP camera; requires `user`. See [Secrets](#secrets).
        password = password(scope).optional("none"), r#"password = { env = "GATE_PASSWORD" }"#;
        /// How the certificate of an `rtsps` camera is checked.
        tls = optional_table("table with `fingerprint` or `insecure`", "the certificate is checked with the authorities that this machine trusts"), "tls = { insecure = true }";
        /// Hosts to which an RTSP camera may redirect, besides its own. The login is sent to the host and port of `url` alone.
        redirect_hosts = list(text("host names or addresses", host)).or_as("none", Vec::new()), r#"redirect_hosts = ["nvr.example"]"#;
        /// The camera's ONVIF service, for triggers with `onvif`: see [onvif.md](onvif.md#events). `user` and `password` are those of the camera. With `https`, `tls = { insecure = true }` accepts a certificate of the camera's own.
        onvif_url = text("`http://HOST…` or `https://HOST…`", |text| address::web(text).map(String::from)).optional("`http://HOST/onvif/device_service` with the host of `url`"), r#"onvif_url = "http://192.0.2.11:8000/onvif/device_service""#;
    }
    let tls = tls.and_then(camera_tls);
    table.requires("password", "user");
    if let (Some(value), Some(service)) = (table.given("onvif_url"), &onvif_url) {
        scope.check_host(&value, service);
    }
    let (Some(mut source), Some(value)) = (url, table.given("url")) else {
        return (None, onvif_url);
    };
    if let SourceConfig::Rtsp(rtsp) = &mut source {
        scope.check_host(&value, &rtsp.url);
        if let Some(hosts) = table.given("redirect_hosts") {
            let urls = redirect_hosts.iter().map(|host| format!("rtsp://{host}/"));
            urls.for_each(|url| scope.check_host(&hosts, &url));
        }
        if table.given("tls").is_some() {
            let service = table.given("onvif_url").and_then(|value| value.as_text());
            let has_https = service.is_some_and(|service| service.starts_with("https:"));
            if !is_encrypted(&rtsp.url) && !has_https {
                value.error("rtsp:// together with tls; did you mean rtsps://?");
            }
        }
        (rtsp.user, rtsp.password) = (user, password);
        (rtsp.transport, rtsp.redirect_hosts) = (transport, redirect_hosts);
        rtsp.tls = tls.unwrap_or(CameraTls::Verify);
    } else {
        let of_rtsp = ["user", "password", "tls", "transport", "redirect_hosts"];
        for value in of_rtsp.iter().filter_map(|key| table.given(key)) {
            value.error("is only for rtsp and rtsps cameras");
        }
        let is_local = !matches!(source, SourceConfig::Test);
        if is_local && scope.list.is_some_and(|rights| !rights.allow_local) {
            let text = "a fleet's list cannot name files and devices of a box; set allow_local = true in [fleet] of the box";
            scope.forbidden(&value, text);
        }
    }
    (Some(source), onvif_url)
}

fn is_encrypted(url: &str) -> bool {
    let scheme = url.split(':').next().unwrap_or_default();
    scheme.eq_ignore_ascii_case("rtsps")
}

/// The name or address of a host.
fn host(text: &str) -> Result<String, String> {
    match url::Host::parse(text) {
        Ok(host) => Ok(host.to_string()),
        Err(_) => Err("is not a host; write a name or an address, without a port".to_owned()),
    }
}

/// `{ fingerprint = "sha256:…" }` or `{ insecure = true }`.
fn camera_tls(mut table: Reader<'_>) -> Option<CameraTls> {
    keys! { table in "`tls` in `[camera.NAME]`", "Checks of an `rtsps` camera's certificate. Use one of the two keys.", "tls = { insecure = true }";
        /// SHA-256 of the camera's certificate. `openssl x509 -noout -fingerprint -sha256` prints it.
        fingerprint = text("`\"sha256:\"` and 64 hex digits, with or without colons", fingerprint).optional("none"), r#"tls = { fingerprint = "sha256:6f1e..." }"#;
        /// Accepts any certificate, with a warning at each start. An attacker on the network can then read and change everything.
        insecure = flag().or(false), "tls = { insecure = true }";
    }
    if insecure && table.given("fingerprint").is_some() {
        table.error("use either fingerprint or insecure");
    } else if insecure {
        table.warning(INSECURE);
    }
    table.finish();
    let insecure = insecure.then_some(CameraTls::Insecure);
    fingerprint.map(CameraTls::Fingerprint).or(insecure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_all_kinds_are_read() {
        let url = "rtsps://192.0.2.11:322/Streaming/Channels/102?x=1";
        let Ok(SourceConfig::Rtsp(rtsp)) = SourceConfig::from_url(url) else {
            panic!("{url}")
        };
        assert_eq!((rtsp.url.as_str(), rtsp.tls), (url, CameraTls::Verify));
        let (path, looped) = ("/videos/a b.mp4".into(), true);
        let device = "/dev/video0".into();
        for (url, source) in [
            (
                "file:///videos/a%20b.mp4?loop",
                SourceConfig::File { path, looped },
            ),
            ("usb:///dev/video0", SourceConfig::Usb { device }),
            ("test://", SourceConfig::Test),
        ] {
            assert_eq!(SourceConfig::from_url(url), Ok(source));
        }
    }

    #[test]
    fn rtsps_is_encrypted_in_upper_case_too() {
        assert!(is_encrypted("rtsps://host/x") && is_encrypted("RTSPS://host/x"));
        assert!(!is_encrypted("rtsp://host/x") && !is_encrypted("RTSP://rtsps/x"));
    }
}
