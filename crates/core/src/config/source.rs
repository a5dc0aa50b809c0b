//! Where a camera's pictures come from: the kinds of source, their URLs and settings, and what messages call them. A new kind
//! is added here and in `crates/cameras/src/ingest/gst/sources`, as docs/adding-a-source.md describes.
//!
//! No message shows the value of a URL: a mistyped one may contain a password where no login is expected.

use std::path::PathBuf;

use super::{
    Secret, address,
    fleet::ListRights,
    keys::{self, settings},
    load::Scope,
    parse,
    reader::{ConfigValue, Reader},
    sections::{INSECURE, login},
};

/// The schemes of [`SourceConfig::from_url`].
const SCHEMES: &str = "rtsp, rtsps, file, usb, test";
/// The URLs of [`SourceConfig::from_url`] in the reference of the configuration.
pub(super) const URL_FORMS: &str = "`rtsp://`, `rtsps://`, `file:///PATH` (with `?loop` to repeat), `usb:///dev/videoN` or `test://`";

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
        match self {
            Self::Rtsp(rtsp) => Some((rtsp.user.as_deref(), rtsp.password.as_ref()?)),
            Self::File { .. } | Self::Usb { .. } | Self::Test => None,
        }
    }

    /// True when the certificate of the source is not checked.
    pub fn is_insecure(&self) -> bool {
        match self {
            Self::Rtsp(rtsp) => rtsp.tls == CameraTls::Insecure,
            Self::File { .. } | Self::Usb { .. } | Self::Test => false,
        }
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
                let looped = match url.query() {
                    None => false,
                    Some("loop") => true,
                    Some(_) => {
                        return Err("file URLs accept only ?loop after the path".to_owned());
                    }
                };
                let slashes = "file URLs need three slashes: file:///path/to/video.mp4";
                let path = url.to_file_path().map_err(|()| slashes.to_owned())?;
                Ok(Self::File { path, looped })
            }
            "usb" => match text.strip_prefix("usb://") {
                Some(device) if device.starts_with("/dev/") => Ok(Self::Usb {
                    device: device.into(),
                }),
                _ => Err("usb URLs name a device node: usb:///dev/video0".to_owned()),
            },
            "test" if text == "test://" => Ok(Self::Test),
            "test" => Err("the test source has no settings; write test://".to_owned()),
            scheme => Err(format!(
                "scheme {scheme:?} is not supported; use one of {SCHEMES}"
            )),
        }
    }
}

impl RtspConfig {
    fn is_encrypted(&self) -> bool {
        let scheme = self.url.split(':').next().unwrap_or_default();
        scheme.eq_ignore_ascii_case("rtsps")
    }
}

/// `url` with the keys that belong to it: user, password, tls, transport.
pub(super) fn source(
    scope: &Scope<'_>,
    table: &mut Reader<'_>,
    transport: Transport,
) -> Option<SourceConfig> {
    let url = table.get(&keys::camera::URL);
    if url.is_none() {
        table.missing(&["url"], "no url; add url = \"rtsp://HOST/PATH\"");
    }
    let of_rtsp = [
        table.get(&keys::camera::USER),
        table.get(&keys::camera::PASSWORD),
        table.get(&keys::camera::TLS),
        table.get(&settings::TRANSPORT),
        table.get(&keys::camera::REDIRECT_HOSTS),
    ];
    let (user, password) = login(scope, table, &keys::camera::USER, &keys::camera::PASSWORD);
    let url = url?;
    let mut source = url.parsed(SourceConfig::from_url)?;
    if let Some(rights) = scope.list {
        check_rights(scope, rights, &url, &source);
    }
    let SourceConfig::Rtsp(rtsp) = &mut source else {
        for value in of_rtsp.iter().flatten() {
            value.error("is only for rtsp and rtsps cameras");
        }
        return Some(source);
    };
    let [_, _, tls, _, redirect_hosts] = of_rtsp;
    let has_https = table
        .get(&keys::camera::ONVIF_URL)
        .is_some_and(|service| service.is_text_with("https:"));
    if tls.is_some() && !rtsp.is_encrypted() && !has_https {
        url.error("rtsp:// together with tls; did you mean rtsps://?");
    }
    if let Some(value) = tls
        && let Some(tls) = camera_tls(&value)
    {
        if has_https && !rtsp.is_encrypted() && matches!(tls, CameraTls::Fingerprint(_)) {
            value.error("a fingerprint is checked at rtsps:// alone; use { insecure = true } for the onvif_url");
        }
        rtsp.tls = tls;
    }
    if let Some(value) = &redirect_hosts {
        rtsp.redirect_hosts = hosts(value);
        if let Some(rights) = scope.list {
            let hosts = rtsp.redirect_hosts.iter();
            hosts.for_each(|host| rights.check_host(scope, value, &format!("rtsp://{host}/")));
        }
    }
    (rtsp.user, rtsp.password, rtsp.transport) = (user, password, transport);
    Some(source)
}

/// Whether a fleet's list may name this source.
fn check_rights(
    scope: &Scope<'_>,
    rights: &ListRights,
    value: &ConfigValue<'_>,
    source: &SourceConfig,
) {
    match source {
        SourceConfig::Rtsp(rtsp) => rights.check_host(scope, value, &rtsp.url),
        SourceConfig::File { .. } | SourceConfig::Usb { .. } if !rights.allow_local => {
            scope.forbidden(
                value,
                "a fleet's list cannot name files and devices of a box; set allow_local = true in [fleet] of the box".to_owned(),
            );
        }
        SourceConfig::File { .. } | SourceConfig::Usb { .. } | SourceConfig::Test => {}
    }
}

/// Names or addresses of hosts.
fn hosts(value: &ConfigValue<'_>) -> Vec<String> {
    let elements = value.list().unwrap_or_default();
    let host = |text: &str| match url::Host::parse(text) {
        Ok(host) => Ok(host.to_string()),
        Err(_) => Err("is not a host; write a name or an address, without a port".to_owned()),
    };
    elements
        .iter()
        .filter_map(|element| element.parsed(host))
        .collect()
}

/// `{ fingerprint = "sha256:…" }` or `{ insecure = true }`.
fn camera_tls(value: &ConfigValue<'_>) -> Option<CameraTls> {
    let mut table = value.table()?;
    let fingerprint = table.get(&keys::camera_tls::FINGERPRINT);
    let insecure = table.read_or_default(&keys::camera_tls::INSECURE);
    table.finish();
    match (fingerprint, insecure) {
        (Some(_), true) => {
            value.error("use either fingerprint or insecure");
            None
        }
        (Some(fingerprint), false) => fingerprint
            .parsed(parse::fingerprint)
            .map(CameraTls::Fingerprint),
        (None, true) => {
            value.warning(INSECURE);
            Some(CameraTls::Insecure)
        }
        (None, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rtsp(url: &str) -> RtspConfig {
        match SourceConfig::from_url(url) {
            Ok(SourceConfig::Rtsp(rtsp)) => rtsp,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn urls_of_all_kinds_are_read() {
        let url = "rtsps://192.0.2.11:322/Streaming/Channels/102?x=1";
        assert_eq!(rtsp(url).url, url);
        assert_eq!(rtsp(url).tls, CameraTls::Verify);
        let (path, looped) = ("/videos/a b.mp4".into(), true);
        assert_eq!(
            SourceConfig::from_url("file:///videos/a%20b.mp4?loop"),
            Ok(SourceConfig::File { path, looped })
        );
        let device = "/dev/video0".into();
        assert_eq!(
            SourceConfig::from_url("usb:///dev/video0"),
            Ok(SourceConfig::Usb { device })
        );
        assert_eq!(SourceConfig::from_url("test://"), Ok(SourceConfig::Test));
    }

    #[test]
    fn rtsps_is_encrypted_in_upper_case_too() {
        assert!(rtsp("rtsps://host/x").is_encrypted() && rtsp("RTSPS://host/x").is_encrypted());
        assert!(!rtsp("rtsp://host/x").is_encrypted() && !rtsp("RTSP://rtsps/x").is_encrypted());
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
            let error = SourceConfig::from_url(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
