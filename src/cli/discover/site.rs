//! The text of a configuration for cameras that were found. Pure.

use std::{collections::BTreeSet, fmt::Write as _};

use url::Url;

use spotter_core::{CameraId, ID_MAX_CHARS, plain_text};
use spotter_onvif::OnvifStream;

/// The model sees no more than its crops; a stream that is narrower than this loses small objects.
const LEAST_WIDTH: u32 = 640;

/// A camera for the configuration.
pub(super) struct CameraEntry<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) model: Option<String>,
    pub(super) address: &'a Url,
    pub(super) streams: &'a [OnvifStream],
    /// Why its streams are unknown.
    pub(super) trouble: Option<&'a str>,
}

/// Where the password of the cameras is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PasswordSource {
    Variable(&'static str),
    File(String),
}

/// The login of all cameras; the password is not in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedLogin<'a> {
    pub(super) user: &'a str,
    pub(super) password: &'a PasswordSource,
}

pub(super) fn configuration(
    cameras: &[CameraEntry<'_>],
    login: Option<NamedLogin<'_>>,
    is_insecure: bool,
) -> String {
    let mut text = String::from(
        "# Written by `spotter discover`. docs/configuration.md describes every key.\n\
         # Edit: the broker, the names of the cameras (they are part of MQTT topics), and what to look for.\n\n\
         [mqtt]\nurl = \"mqtt://broker.local\"   # edit: the address of your broker\n",
    );
    let mut ids = BTreeSet::new();
    for camera in cameras {
        let id = unused_id(&mut ids, camera);
        text += "\n";
        text += &entry(&id, camera, login, is_insecure);
    }
    text
}

fn entry(
    id: &str,
    camera: &CameraEntry<'_>,
    login: Option<NamedLogin<'_>>,
    is_insecure: bool,
) -> String {
    let mut text = String::new();
    let parts = [camera.name.map(str::to_owned), camera.model.clone()];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    comment(
        &mut text,
        &format!("{} {}", parts.join(", "), camera.address),
    );
    let Some(best) = best(camera.streams) else {
        let reason = camera.trouble.unwrap_or("it has no stream over RTSP");
        comment(&mut text, &format!("It is left out: {reason}"));
        return text;
    };
    // Writing to memory cannot fail.
    _ = writeln!(
        text,
        "[camera.{id}]\nurl = {}   # {}",
        quoted(best.url.as_str()),
        summary(best)
    );
    let others = camera.streams.iter().filter(|stream| *stream != best);
    for stream in others.filter(|stream| is_usable(stream)) {
        comment(
            &mut text,
            &format!(
                "url = {}   # {}",
                quoted(stream.url.as_str()),
                summary(stream)
            ),
        );
    }
    if let Some(NamedLogin { user, password }) = login {
        let password = match password {
            PasswordSource::Variable(name) => format!("{{ env = {} }}", quoted(name)),
            PasswordSource::File(path) => format!("{{ file = {} }}", quoted(path)),
        };
        _ = writeln!(text, "user = {}\npassword = {password}", quoted(user));
    }
    if is_insecure && best.url.scheme() == "rtsps" {
        text += "tls = { insecure = true }   # edit: a fingerprint is safer\n";
    }
    _ = writeln!(
        text,
        "\n[camera.{id}.prompt.person]\ndetect = \"person\"   # edit: what to look for, in plain words"
    );
    text
}

fn comment(text: &mut String, line: &str) {
    _ = writeln!(text, "# {}", plain_text(line).trim());
}

/// What a configuration accepts as a URL.
fn is_usable(stream: &OnvifStream) -> bool {
    !stream.url.as_str().contains('@') && stream.url.fragment().is_none()
}

/// The smallest stream that is large enough: it costs least to decode, and the model gets scaled pictures anyway.
fn best(streams: &[OnvifStream]) -> Option<&OnvifStream> {
    let usable = || streams.iter().filter(|stream| is_usable(stream));
    let is_video = |stream: &&OnvifStream| stream.encoding.as_deref() != Some("JPEG");
    let is_large =
        |stream: &&OnvifStream| stream.size.is_some_and(|(width, _)| width >= LEAST_WIDTH);
    let area = |stream: &&OnvifStream| stream.size.map_or(0, |(width, height)| width * height);
    let enough = usable().filter(is_video).filter(is_large);
    enough
        .min_by_key(area)
        .or_else(|| usable().max_by_key(area))
}

fn summary(stream: &OnvifStream) -> String {
    let size = stream
        .size
        .map(|(width, height)| format!("{width}x{height}"));
    let rate = stream.rate_hz.map(|rate| format!("{rate} fps"));
    let parts = [
        Some(stream.profile.clone()),
        stream.encoding.clone(),
        size,
        rate,
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(", ")
}

/// A string of JSON is one of TOML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// An id from the camera's name, else from its model or host.
fn unused_id(used: &mut BTreeSet<String>, camera: &CameraEntry<'_>) -> String {
    let host = camera.address.host_str().unwrap_or_default();
    let model = camera.model.as_deref();
    let named = [camera.name, model].into_iter().flatten().map(as_id);
    let of_host = as_id(&format!("camera-{host}"));
    let base = named.chain([of_host]).find(|id| !id.is_empty());
    let base = base.unwrap_or_else(|| "camera".to_owned());
    let numbered = (2..).map(|number: u32| {
        let suffix = format!("-{number}");
        let most = ID_MAX_CHARS - suffix.len();
        format!("{}{suffix}", &base[..base.len().min(most)])
    });
    let mut candidates = std::iter::once(base.clone()).chain(numbered);
    let id = candidates.find(|id| !used.contains(id) && CameraId::new(id).is_ok());
    let id = id.unwrap_or_else(|| base.clone());
    used.insert(id.clone());
    id
}

/// The characters of ids, with `-` for all others; ASCII alone.
fn as_id(text: &str) -> String {
    let mut id = String::new();
    for character in text.to_lowercase().chars() {
        match character {
            'a'..='z' | '0'..='9' | '_' => id.push(character),
            _ if !id.is_empty() && !id.ends_with('-') => id.push('-'),
            _ => {}
        }
    }
    id.truncate(ID_MAX_CHARS);
    id.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_config::{Environment, of_text};

    fn stream(profile: &str, width: u32, encoding: &str) -> OnvifStream {
        OnvifStream {
            profile: profile.into(),
            encoding: Some(encoding.into()),
            size: Some((width, width * 9 / 16)),
            rate_hz: Some(10.0),
            url: Url::parse(&format!("rtsp://192.0.2.7/{profile}?a=1&b=\"x")).unwrap(),
        }
    }

    fn camera<'a>(name: &'a str, streams: &'a [OnvifStream], address: &'a Url) -> CameraEntry<'a> {
        CameraEntry {
            name: Some(name),
            model: Some("M\n[x]".into()),
            address,
            streams,
            trouble: None,
        }
    }

    fn login<'a>(user: &'a str, password: &'a PasswordSource) -> NamedLogin<'a> {
        NamedLogin { user, password }
    }

    #[test]
    fn written_configuration_is_valid_and_has_no_secret() {
        let address = Url::parse("http://192.0.2.7/onvif/device_service").unwrap();
        let streams = [
            stream("main", 2560, "H265"),
            stream("sub", 640, "H264"),
            stream("tiny", 320, "H264"),
            stream("jpeg", 800, "JPEG"),
        ];
        let cameras = [
            camera("Front Door", &streams, &address),
            camera("front door", &streams, &address),
            camera("門", &streams[..1], &address),
            camera("broken", &[], &address),
        ];
        let password = PasswordSource::Variable("ONVIF_PASSWORD");
        let text = configuration(&cameras, Some(login("view\"er", &password)), false);
        let variable = |name: &str| (name == "ONVIF_PASSWORD").then(|| "canary".to_owned());
        let environment = Environment::new("box", variable);
        let loaded = of_text("site.toml", &text, &environment);
        let loaded = loaded.unwrap_or_else(|problems| panic!("{problems}\n{text}"));
        let cameras = &loaded.config.cameras;
        let ids: Vec<&str> = cameras.iter().map(|camera| camera.id.as_str()).collect();
        assert_eq!(ids, ["front-door", "front-door-2", "m-x"]);
        let url = cameras[0].source.name();
        assert!(url.starts_with("rtsp://192.0.2.7/sub?"), "{url}");
        assert!(
            !text.contains("canary") && text.contains("It is left out"),
            "{text}"
        );
        let file = PasswordSource::File("/etc/spotter/cam".into());
        let text = configuration(&[], Some(login("viewer", &file)), true);
        assert!(!text.contains("[camera"), "{text}");
    }

    #[test]
    fn long_names_stay_different_ids() {
        let address = Url::parse("http://192.0.2.7/").unwrap();
        let name = "a".repeat(40);
        let mut used = BTreeSet::new();
        let entry = camera(&name, &[], &address);
        let ids = [(); 3].map(|()| unused_id(&mut used, &entry));
        assert!(ids.iter().all(|id| CameraId::new(id).is_ok()), "{ids:?}");
        assert_eq!(used.len(), 3);
        let nameless = CameraEntry {
            name: None,
            model: None,
            ..entry
        };
        assert_eq!(unused_id(&mut used, &nameless), "camera-192-0-2-7");
    }
}
