//! `[webhook.*]`: receivers to which events are posted.

use std::{path::PathBuf, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use url::Url;

use super::{
    CameraConfig, Secret, SpoolConfig, address,
    keys::{self, CustomForm, Key, webhook as webhook_keys, webhook_spool as spool_keys},
    load::Scope,
    reader::{ConfigValue, Reader},
    secret::{SecretKind, secret},
    sections::file,
};
use crate::{CameraId, Event, EventStep, IdError, PromptId, UpdateReason, WebhookId};

const URL_SCHEMES: &str = "http, https";
/// The prefix of a secret by the Standard Webhooks specification.
const SECRET_PREFIX: &str = "whsec_";
/// Bytes of a key by the same specification.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A receiver of events.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookConfig {
    pub id: WebhookId,
    /// The whole URL, whose path or query may be a secret.
    pub url: Secret,
    /// The URL is to be masked in the log.
    pub is_url_secret: bool,
    /// Host and port, for people.
    pub address: String,
    /// PEM file of the authority; `None` = the machine's own list.
    pub ca: Option<PathBuf>,
    /// Signs the requests: text for which [`signing_key`] gives a key.
    pub secret: Option<Secret>,
    pub bearer: Option<Secret>,
    pub filter: EventFilter,
    /// Events have their picture.
    pub snapshot: bool,
    /// Of a request as a whole.
    pub timeout: Duration,
    pub spool: SpoolConfig,
}

/// Which events a receiver wants; an empty list is no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    pub cameras: Vec<CameraId>,
    pub prompts: Vec<PromptId>,
    pub kinds: Vec<EventKind>,
}

/// An [`EventStep`] without its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    New,
    Update,
    /// An update that is published as a crossing.
    Crossing,
    End,
}

impl EventFilter {
    pub fn accepts(&self, event: &Event) -> bool {
        let kind = match event.step {
            EventStep::New => EventKind::New,
            EventStep::Update(UpdateReason::Crossed) => EventKind::Crossing,
            EventStep::Update(_) => EventKind::Update,
            EventStep::End(_) => EventKind::End,
        };
        is_among(&self.cameras, &event.camera)
            && is_among(&self.prompts, &event.prompt)
            && is_among(&self.kinds, &kind)
    }
}

impl EventFilter {
    /// An accepted prompt has snapshots.
    fn has_pictures(&self, cameras: &[CameraConfig]) -> bool {
        let mut accepted = cameras
            .iter()
            .filter(|camera| is_among(&self.cameras, &camera.id));
        accepted.any(|camera| {
            let mut prompts = camera.prompts.iter();
            prompts.any(|prompt| prompt.snapshot && is_among(&self.prompts, &prompt.id))
        })
    }
}

fn is_among<T: PartialEq>(wanted: &[T], found: &T) -> bool {
    wanted.is_empty() || wanted.contains(found)
}

/// The key of a secret: `whsec_` and 24 to 64 bytes in base64. The message does not show the text.
pub fn signing_key(text: &str) -> Result<Vec<u8>, String> {
    let key = text
        .strip_prefix(SECRET_PREFIX)
        .and_then(|encoded| BASE64_STANDARD.decode(encoded).ok());
    let key = key.filter(|key| KEY_BYTES.contains(&key.len()));
    key.ok_or_else(|| {
        let (least, most) = (KEY_BYTES.start(), KEY_BYTES.end());
        format!(
            "the secret must be {SECRET_PREFIX} and {least} to {most} bytes in base64; `echo whsec_$(openssl rand -base64 32)` makes one"
        )
    })
}

/// Reads `[webhook.*]`. `watched`: the cameras of the file; `None` in a fleet, whose cameras are in its list.
pub(super) fn webhooks(
    scope: &Scope<'_>,
    root: &mut Reader<'_>,
    watched: Option<&[CameraConfig]>,
) -> Vec<WebhookConfig> {
    let tables = root.tables(&keys::root::WEBHOOK, WebhookId::new);
    let read = |(id, table)| webhook(scope, id, table, watched);
    tables.into_iter().filter_map(read).collect()
}

fn webhook(
    scope: &Scope<'_>,
    id: WebhookId,
    mut table: Reader<'_>,
    watched: Option<&[CameraConfig]>,
) -> Option<WebhookConfig> {
    let url = table.get(&webhook_keys::URL);
    if url.is_none() {
        table.missing(&["url"], "no receiver; add url = \"https://HOST/PATH\"");
    }
    let is_url_secret = url.as_ref().is_some_and(|value| !value.is_text());
    let receiver = url.as_ref().and_then(|value| receiver(scope, value));
    let ca = table.get(&webhook_keys::CA);
    if let (Some(receiver), Some(ca)) = (&receiver, &ca)
        && !receiver.is_secure
    {
        ca.error("together with http://; did you mean https://?");
    }
    let signing = table.get(&webhook_keys::SECRET);
    let bearer = table.get(&webhook_keys::BEARER);
    let filter = filter(&mut table, watched);
    let snapshot = table.read_or_default(&webhook_keys::SNAPSHOT);
    if let (true, Some(cameras), Some(value)) =
        (snapshot, watched, table.get(&webhook_keys::SNAPSHOT))
        && !filter.has_pictures(cameras)
    {
        value.warning("has no effect: none of the prompts has snapshot = true");
    }
    let timeout = table.read_or_default(&webhook_keys::TIMEOUT);
    let spool = spool(table.table(&webhook_keys::SPOOL));
    table.finish();
    let receiver = receiver?;
    Some(WebhookConfig {
        id,
        url: receiver.url,
        is_url_secret,
        address: receiver.address,
        ca: ca.and_then(|value| file(scope, &value)),
        secret: signing.and_then(|value| signing_secret(scope, &value)),
        bearer: bearer.and_then(|value| bearer_token(scope, &value)),
        filter,
        snapshot,
        timeout,
        spool,
    })
}

struct Receiver {
    url: Secret,
    address: String,
    is_secure: bool,
}

/// The URL in the file, or the one that the file names as a secret.
fn receiver(scope: &Scope<'_>, value: &ConfigValue<'_>) -> Option<Receiver> {
    if value.is_text() {
        return value.parsed(receiver_of);
    }
    let named = secret(scope, value, SecretKind::Password)?;
    value.checked(receiver_of(named.reveal()))
}

/// Says what is wrong with a URL and never shows it.
fn receiver_of(text: &str) -> Result<Receiver, String> {
    let url: Url = address::parse(text, URL_SCHEMES)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("the scheme must be one of {URL_SCHEMES}"));
    }
    let host = address::host(&url)?;
    let address = match url.port_or_known_default() {
        Some(port) if host.contains(':') => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
        None => host,
    };
    Ok(Receiver {
        is_secure: url.scheme() == "https",
        address,
        url: Secret::new(url.into()),
    })
}

fn signing_secret(scope: &Scope<'_>, value: &ConfigValue<'_>) -> Option<Secret> {
    let signing = secret(scope, value, SecretKind::Password)?;
    value.checked(signing_key(signing.reveal()))?;
    Some(signing)
}

fn bearer_token(scope: &Scope<'_>, value: &ConfigValue<'_>) -> Option<Secret> {
    let token = secret(scope, value, SecretKind::Password)?;
    if !token.reveal().bytes().all(|byte| byte.is_ascii_graphic()) {
        value.error("the token has a space or a character that is not ASCII; copy it again");
        return None;
    }
    Some(token)
}

fn filter(table: &mut Reader<'_>, watched: Option<&[CameraConfig]>) -> EventFilter {
    let cameras = ids(table, &webhook_keys::CAMERAS, CameraId::new, |id| {
        watched.is_none_or(|cameras| cameras.iter().any(|camera| camera.id == *id))
    });
    let prompts = ids(table, &webhook_keys::PROMPTS, PromptId::new, |id| {
        let has = |camera: &CameraConfig| camera.prompts.iter().any(|prompt| prompt.id == *id);
        watched.is_none_or(|cameras| cameras.iter().any(has))
    });
    EventFilter {
        cameras,
        prompts,
        kinds: kinds(table).unwrap_or_default(),
    }
}

/// A list of names, each of which `is_known`.
fn ids<T>(
    table: &mut Reader<'_>,
    key: &'static Key<CustomForm>,
    make: fn(&str) -> Result<T, IdError>,
    is_known: impl Fn(&T) -> bool,
) -> Vec<T> {
    let Some(value) = table.get(key) else {
        return Vec::new();
    };
    let mut ids = Vec::new();
    for element in not_empty(&value) {
        let id = element.parsed(|text| make(text).map_err(|error| error.to_string()));
        match id {
            Some(id) if is_known(&id) => ids.push(id),
            Some(_) => element.error("the file has none of this name"),
            None => {}
        }
    }
    ids
}

fn kinds(table: &mut Reader<'_>) -> Option<Vec<EventKind>> {
    let words = [
        ("new", EventKind::New),
        ("update", EventKind::Update),
        ("crossing", EventKind::Crossing),
        ("end", EventKind::End),
    ];
    let value = table.get(&webhook_keys::STEPS)?;
    let kinds = not_empty(&value).into_iter();
    kinds.map(|element| element.choice(&words)).collect()
}

/// The elements of a list that has some: an empty one would seem to be a filter that nothing passes.
fn not_empty<'a>(value: &ConfigValue<'a>) -> Vec<ConfigValue<'a>> {
    let elements = value.list();
    if elements.as_ref().is_some_and(Vec::is_empty) {
        value.error("empty; without this key there is no condition");
    }
    elements.unwrap_or_default()
}

fn spool(mut table: Reader<'_>) -> SpoolConfig {
    let spool = SpoolConfig {
        events: table.read_or_default(&spool_keys::EVENTS) as usize,
        max_age: table.read_or_default(&spool_keys::MAX_AGE),
        max_mb: table.read_or_default(&spool_keys::MAX_MB),
    };
    table.finish();
    spool
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Environment, of_text};

    const SITE: &str = "[mqtt]\nurl = \"mqtt://broker\"\n[camera.gate]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n";
    const KEY: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

    fn load_with(webhook: &str, variable: &'static str) -> Result<Config, String> {
        let environment = Environment::new("box", move |_| Some(variable.into()));
        let loaded = of_text("site.toml", &format!("{SITE}{webhook}"), &environment);
        loaded
            .map(|loaded| loaded.config)
            .map_err(|problems| problems.to_string())
    }

    #[test]
    fn webhook_has_receiver_secret_filter_and_bounds() {
        let text = "[webhook.door]\nurl = \"https://[::1]/hook?a=1\"\nsecret = { env = \"S\" }\nbearer = { env = \"S\" }\n\
                    cameras = [\"gate\"]\nprompts = [\"person\"]\nsteps = [\"new\", \"end\"]\nsnapshot = true\nspool = { max_mb = 7 }\n";
        let config = load_with(text, KEY).unwrap();
        let webhook = &config.webhooks[0];
        assert_eq!(
            (webhook.id.as_str(), webhook.address.as_str()),
            ("door", "[::1]:443")
        );
        assert_eq!(webhook.url.reveal(), "https://[::1]/hook?a=1");
        let key = signing_key(webhook.secret.as_ref().unwrap().reveal()).unwrap();
        assert_eq!(key, b"01234567890123456789012345678901");
        assert_eq!(webhook.filter.kinds, [EventKind::New, EventKind::End]);
        assert!(webhook.snapshot && webhook.spool.max_mb == 7);
        assert_eq!(webhook.timeout, Duration::from_secs(10));
        assert!(load_with("", "").unwrap().webhooks.is_empty());
    }

    #[test]
    fn snapshots_of_no_prompt_are_warned_of() {
        let warnings = |site: &str| {
            let text = format!("{site}[webhook.door]\nurl = \"http://flows\"\nsnapshot = true\n");
            let loaded = of_text("site.toml", &text, &Environment::new("box", |_| None));
            loaded.unwrap().warnings.len()
        };
        assert_eq!(warnings(SITE), 1);
        assert_eq!(
            warnings(&format!("{SITE}prompt.person.snapshot = true\n")),
            0
        );
    }

    #[test]
    fn receiver_may_be_a_secret() {
        let text = "[webhook.door]\nurl = { env = \"U\" }\n";
        let config = load_with(text, "https://chat.example/canary").unwrap();
        assert_eq!(config.webhooks[0].address, "chat.example:443");
        assert!(config.webhooks[0].is_url_secret && !format!("{config:?}").contains("canary"));
        for wrong in ["canary", "ftp://canary", "https://u:canary@host"] {
            let problems = load_with(text, wrong).unwrap_err();
            assert!(!problems.contains("canary"), "{problems}");
        }
    }

    #[test]
    fn mistakes_in_a_webhook_are_named() {
        let url = "url = \"http://flows\"\n";
        for (keys, part) in [
            (String::new(), "no receiver"),
            ("url = \"mqtt://flows\"\n".into(), "http, https"),
            (format!("{url}ca = \"ca.pem\"\n"), "did you mean https"),
            (format!("{url}secret = {{ env = \"S\" }}\n"), "whsec_"),
            (format!("{url}bearer = {{ env = \"S\" }}\n"), "not ASCII"),
            (format!("{url}cameras = [\"yard\"]\n"), "none of this name"),
            (format!("{url}prompts = [\"car\"]\n"), "none of this name"),
            (format!("{url}cameras = []\n"), "empty"),
            (
                format!("{url}steps = [\"begin\"]\n"),
                "new, update, crossing, end",
            ),
            (format!("{url}step = [\"new\"]\n"), "did you mean \"steps\""),
        ] {
            let problems = load_with(&format!("[webhook.door]\n{keys}"), "canary é").unwrap_err();
            assert!(
                problems.contains(part) && !problems.contains("canary"),
                "{keys}: {problems}"
            );
        }
    }
}
