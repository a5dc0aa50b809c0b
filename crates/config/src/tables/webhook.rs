//! `[webhook.*]`: receivers to which events are posted.

use std::{collections::BTreeSet, ops::RangeInclusive, path::PathBuf, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use url::Url;

use super::{camera::CameraConfig, mqtt::SpoolConfig};
use crate::{forms::prelude::*, read::prelude::*};
use spotter_core::{CameraId, EventKind, PromptId, WebhookId};

/// The prefix of a secret by the Standard Webhooks specification.
const SECRET_PREFIX: &str = "whsec_";
/// Bytes of a key by the same specification.
const KEY_BYTES: RangeInclusive<usize> = 24..=64;
/// What is wrong with an empty list: it would seem to be a filter that nothing passes.
const NO_CONDITION: &str = "empty; without this key there is no condition";

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

impl EventFilter {
    pub fn accepts(&self, camera: &CameraId, prompt: &PromptId, kind: EventKind) -> bool {
        is_among(&self.cameras, camera)
            && is_among(&self.prompts, prompt)
            && is_among(&self.kinds, &kind)
    }
}

fn is_among<T: PartialEq>(wanted: &[T], found: &T) -> bool {
    wanted.is_empty() || wanted.contains(found)
}

/// The key of a secret: `whsec_` and 24 to 64 bytes in base64. The message does not show the text.
pub fn signing_key(text: &str) -> Result<Vec<u8>, String> {
    let encoded = text.strip_prefix(SECRET_PREFIX);
    let key = encoded.and_then(|encoded| BASE64_STANDARD.decode(encoded).ok());
    let key = key.filter(|key| KEY_BYTES.contains(&key.len()));
    key.ok_or_else(|| {
        let (least, most) = (KEY_BYTES.start(), KEY_BYTES.end());
        format!(
            "the secret must be {SECRET_PREFIX} and {least} to {most} bytes in base64; `echo whsec_$(openssl rand -base64 32)` makes one"
        )
    })
}

/// Reads `[webhook.NAME]`. `watched`: the cameras of the file; `None` in a fleet, whose cameras are in its list.
pub(crate) fn webhook(
    scope: &Scope<'_>,
    id: WebhookId,
    mut table: Reader<'_>,
    watched: Option<&[CameraConfig]>,
) -> Option<WebhookConfig> {
    let (camera, prompt) = match watched {
        None => (
            self::id("cameras", CameraId::new),
            self::id("prompts", PromptId::new),
        ),
        Some(cameras) => {
            let prompts = cameras.iter().flat_map(|camera| &camera.prompts);
            let prompts: BTreeSet<_> = prompts.map(|prompt| prompt.id.clone()).collect();
            let cameras = cameras.iter().map(|camera| camera.id.clone()).collect();
            let prompts = prompts.into_iter().collect();
            (
                known_id("cameras", "camera of this file", cameras),
                known_id("prompts", "prompt of this file", prompts),
            )
        }
    };
    keys! { table in "`[webhook.NAME]`", "A receiver to which events are posted as JSON: see [webhooks.md](webhooks.md).",
            "[webhook.door]\nurl = \"https://flows.example.net/webhook/door\"\nsecret = { cred = \"door_secret\" }\ncameras = [\"gate\"]\nsteps = [\"new\", \"end\"]\nsnapshot = true";
        /// Where events are posted. The URL has no user name and no password. Redirects are not followed. Where the URL itself is a secret, name it as one: `url = { cred = "door_url" }`.
        url = receiver_url(scope).required("no receiver; add url = \"https://HOST/PATH\""), r#"url = "https://flows.example.net/webhook/door""#;
        /// Signs each request, so that the receiver knows that Spotter sent it. `echo whsec_$(openssl rand -base64 32)` makes one. See [Secrets](#secrets).
        secret = password_with(scope, "secret: `whsec_` and 24 to 64 bytes in base64", |text| signing_key(text).map(drop)).optional("no signature"), r#"secret = { cred = "door_secret" }"#;
        /// Token that is sent as `Authorization: Bearer …`.
        bearer = password_with(scope, "secret", check_bearer).optional("none"), r#"bearer = { cred = "door_token" }"#;
        /// Certificate authority that signed the receiver's certificate. Only with `https`.
        ca = file(scope, "path of a PEM file").optional(AUTHORITIES), r#"ca = "/etc/site/ca.pem""#;
        /// Only events of these cameras are posted.
        cameras = full_list(camera, NO_CONDITION).or_as("all", Vec::new()), r#"cameras = ["gate", "yard"]"#;
        /// Only events of prompts with these names are posted.
        prompts = full_list(prompt, NO_CONDITION).or_as("all", Vec::new()), r#"prompts = ["person"]"#;
        /// Which messages of an event are posted: its `type`.
        steps = full_list(words(&[("new", EventKind::New), ("update", EventKind::Update), ("crossing", EventKind::Crossing), ("end", EventKind::End)]), NO_CONDITION).or_as("all", Vec::new()), r#"steps = ["new", "end"]"#;
        /// Adds the picture to the event that it was taken for, as `snapshot_jpeg`. Only for prompts with `snapshot = true`.
        snapshot = flag().or(false), "snapshot = true";
        /// Longest time of a request, from the look-up of the name to the answer.
        timeout = time(Duration::from_secs(1)..=Duration::from_mins(1)).or(Duration::from_secs(10)), r#"timeout = "5s""#;
        /// Limits of the events kept on disk for the receiver.
        spool = sub_table("see `spool` in `[webhook.NAME]`"), r#"spool = { max_age = "24h" }"#;
    }
    let spool = self::spool(spool);
    if let (Some((url, _)), Some(ca)) = (&url, table.given("ca"))
        && url.scheme() != "https"
    {
        ca.error("together with http://; did you mean https://?");
    }
    table.finish();
    let (url, is_url_secret) = url?;
    let (host, port) = (url.host_str()?, url.port_or_known_default()?);
    Some(WebhookConfig {
        id,
        address: format!("{host}:{port}"),
        url: Secret::new(url.into()),
        is_url_secret,
        ca,
        secret,
        bearer,
        filter: EventFilter {
            cameras,
            prompts,
            kinds: steps,
        },
        snapshot,
        timeout,
        spool,
    })
}

/// The URL in the file, or the one that the file names as a secret; with whether it is one. What is wrong with a URL never shows it.
fn receiver_url<'s>(scope: &'s Scope<'_>) -> Form<'s, (Url, bool)> {
    let text = "`http://HOST…` or `https://HOST…`; or a secret with such a text";
    Form::new(text, |value| {
        let url = match value.as_text() {
            Some(text) => address::web(text),
            None => address::web(password(scope).read(value)?.reveal()),
        };
        Some((value.checked(url)?, value.as_text().is_none()))
    })
}

fn check_bearer(token: &str) -> Result<(), String> {
    match token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(()),
        false => {
            Err("the token has a space or a character that is not ASCII; copy it again".into())
        }
    }
}

fn spool(mut table: Reader<'_>) -> SpoolConfig {
    keys! { table in "`spool` in `[webhook.NAME]`", "Events on disk that the receiver has not accepted. When a limit is reached, the oldest events are dropped and counted.",
            "spool = { events = 5000, max_age = \"24h\", max_mb = 100 }";
        /// The most events kept.
        events = whole(1..=100_000, "events").or(5000), "spool = { events = 5000 }";
        /// Older events are dropped.
        max_age = time(Duration::from_secs(1)..=Duration::from_hours(24 * 30)).or(Duration::from_hours(24)), r#"spool = { max_age = "24h" }"#;
        /// The most space on disk. An event takes about 1 kB, with its picture up to 350 kB.
        max_mb = whole(1..=10_000, "megabytes").or(100), "spool = { max_mb = 100 }";
    }
    table.finish();
    SpoolConfig {
        events,
        max_age,
        max_mb,
    }
}
