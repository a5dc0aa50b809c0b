//! The text of a configuration for cameras that were found. Pure.

use std::collections::BTreeSet;

use super::{PASSWORD_VARIABLE, model, streams};
use spotter_core::{CameraId, ID_MAX_CHARS, plain_text};
use spotter_onvif::{DiscoveredCamera, MediaProfile, OnvifStream};

/// The model sees no more than its crops; a stream that is narrower than this loses small objects.
const LEAST_WIDTH: u32 = 640;

pub(super) fn configuration(
    cameras: &[DiscoveredCamera],
    user: Option<&str>,
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
        text += &entry(&id, camera, user, is_insecure);
    }
    text
}

fn entry(id: &str, camera: &DiscoveredCamera, user: Option<&str>, is_insecure: bool) -> String {
    let mut text = String::new();
    let parts = [camera.name.clone(), model(camera)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let title = format!("{} {}", parts.join(", "), camera.address);
    comment(&mut text, &title);
    let Some(best) = best(streams(camera)) else {
        let reason = camera.error.as_deref();
        let reason = reason.unwrap_or("it has no stream over RTSP");
        comment(&mut text, &format!("It is left out: {reason}"));
        return text;
    };
    let url = |stream: &OnvifStream| {
        let url = quoted(stream.url.as_str());
        format!("url = {url}   # {}", summary(&stream.profile))
    };
    text += &format!("[camera.{id}]\n{}\n", url(best));
    for other in streams(camera).iter().filter(|stream| *stream != best) {
        comment(&mut text, &url(other));
    }
    if let Some(user) = user {
        let (user, variable) = (quoted(user), quoted(PASSWORD_VARIABLE));
        text += &format!("user = {user}\npassword = {{ env = {variable} }}\n");
    }
    if is_insecure && best.url.scheme() == "rtsps" {
        text += "tls = { insecure = true }   # edit: a fingerprint is safer\n";
    }
    text + &format!(
        "\n[camera.{id}.prompt.person]\ndetect = \"person\"   # edit: what to look for, in plain words\n"
    )
}

fn comment(text: &mut String, line: &str) {
    *text += &format!("# {}\n", plain_text(line).trim());
}

/// What a configuration accepts as a URL.
fn is_usable(stream: &OnvifStream) -> bool {
    !stream.url.as_str().contains('@') && stream.url.fragment().is_none()
}

/// The smallest stream that is large enough: it costs least to decode, and the model gets scaled pictures anyway.
fn best(streams: &[OnvifStream]) -> Option<&OnvifStream> {
    let usable = || streams.iter().filter(|stream| is_usable(stream));
    let width = |stream: &&OnvifStream| stream.profile.width.unwrap_or_default();
    let is_enough = |stream: &&OnvifStream| {
        width(stream) >= LEAST_WIDTH && stream.profile.encoding.as_deref() != Some("JPEG")
    };
    let enough = usable().filter(is_enough).min_by_key(width);
    enough.or_else(|| usable().max_by_key(width))
}

fn summary(profile: &MediaProfile) -> String {
    let rate = profile.rate_hz.map(|rate| format!("{rate} fps"));
    let name = Some(profile.name.clone());
    let parts = [name, profile.encoding.clone(), profile.size(), rate];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(", ")
}

/// A string of JSON is one of TOML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// An id from the camera's name, else from its model or host.
fn unused_id(used: &mut BTreeSet<String>, camera: &DiscoveredCamera) -> String {
    let host = camera.address.host_str().unwrap_or_default();
    let named = [
        camera.name.clone(),
        model(camera),
        Some(format!("camera-{host}")),
    ];
    let named = named.into_iter().flatten().map(|name| as_id(&name));
    let base = named.into_iter().find(|id| !id.is_empty());
    let base = base.unwrap_or_else(|| "camera".to_owned());
    let (mut id, mut number) = (base.clone(), 1);
    while CameraId::new(&id).is_err() || !used.insert(id.clone()) {
        number += 1;
        let suffix = format!("-{number}");
        let most = ID_MAX_CHARS - suffix.len();
        id = format!("{}{suffix}", &base[..base.len().min(most)]);
    }
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

    fn stream(name: &str, width: u32, encoding: &str) -> OnvifStream {
        let profile = MediaProfile {
            name: name.into(),
            encoding: Some(encoding.into()),
            width: Some(width),
            height: Some(width * 9 / 16),
            rate_hz: Some(10.0),
            ..MediaProfile::default()
        };
        let url = format!("rtsp://192.0.2.7/{name}?a=1&b=\"x");
        let url = url.parse().unwrap();
        OnvifStream { profile, url }
    }

    fn camera(name: &str, streams: &[OnvifStream]) -> DiscoveredCamera {
        let address = "http://192.0.2.7/onvif/device_service";
        DiscoveredCamera {
            name: Some(name.into()),
            model: Some("M\n[x]".into()),
            streams: Some(streams.to_vec()),
            ..DiscoveredCamera::at(address.parse().unwrap())
        }
    }

    #[test]
    fn written_configuration_is_valid_and_has_no_secret() {
        let streams = [
            stream("main", 2560, "H265"),
            stream("sub", 640, "H264"),
            stream("tiny", 320, "H264"),
            stream("jpeg", 800, "JPEG"),
        ];
        let cameras = [
            camera("Front Door", &streams),
            camera("front door", &streams),
            camera("門", &streams[..1]),
            camera("broken", &[]),
        ];
        let text = configuration(&cameras, Some("view\"er"), false);
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
    }

    #[test]
    fn long_names_stay_different_ids() {
        let mut used = BTreeSet::new();
        let long = camera(&"a".repeat(40), &[]);
        let ids = [(); 3].map(|()| unused_id(&mut used, &long));
        assert!(ids.iter().all(|id| CameraId::new(id).is_ok()), "{ids:?}");
        assert_eq!(used.len(), 3);
        let nameless = DiscoveredCamera::at("http://192.0.2.7/".parse().unwrap());
        assert_eq!(unused_id(&mut used, &nameless), "camera-192-0-2-7");
    }
}
