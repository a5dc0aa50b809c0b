//! `[camera.NAME.trigger.NAME]`: what starts the looks of a camera that is not looked at all the time.

use std::time::Duration;

use url::Url;

use super::{
    SourceConfig, address,
    keys::{self, trigger as trigger_keys},
    load::Scope,
    parse,
    reader::{ConfigValue, Reader},
};
use crate::TriggerId;

const SERVICE_SCHEMES: &str = "http, https";

/// Something outside of Spotter that starts the looks of a camera.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerConfig {
    pub id: TriggerId,
    pub source: TriggerSource,
    /// The camera is looked at for so long after a message of a moment, and after the end of one that has an end. Default 20 s.
    pub hold: Duration,
    /// It is looked at for at most so long after the last message that the trigger is on, because the message of its end may be lost.
    /// Default 10 min.
    pub at_most: Duration,
}

/// Where a trigger comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TriggerSource {
    Mqtt(MqttTrigger),
    /// Events that the camera itself publishes: a usual kind such as `motion`, or a topic such as `tns1:VideoSource/MotionAlarm`.
    Onvif(String),
    /// A call of the local API.
    Http,
}

/// Messages of another program on Spotter's broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqttTrigger {
    /// Without wildcards.
    pub topic: String,
    /// The field of a JSON payload, from the outside in; empty = the whole payload as text.
    pub key: Vec<String>,
    /// What triggers; `None` = every message.
    pub value: Option<String>,
    /// What ends it; `None`: it is of a moment.
    pub off: Option<String>,
}

/// Usual kinds of ONVIF events, for which cameras have different topics.
pub const ONVIF_KINDS: [&str; 11] = [
    "motion", "person", "vehicle", "animal", "face", "visitor", "package", "area", "input",
    "sound", "tamper",
];

/// The triggers of a camera, and the address of its ONVIF service where the file has it.
pub(super) struct CameraTriggers {
    pub(super) triggers: Vec<TriggerConfig>,
    pub(super) onvif_url: Option<String>,
}

/// Reads `trigger` and `onvif_url`. `source`: the camera's, `None` when it has a mistake.
pub(super) fn triggers(
    scope: &Scope<'_>,
    table: &mut Reader<'_>,
    source: Option<&SourceConfig>,
) -> CameraTriggers {
    let url = table.get(&keys::camera::ONVIF_URL);
    let onvif_url = url.as_ref().and_then(|value| value.parsed(service_url));
    if let (Some(rights), Some(value), Some(service)) = (scope.list, &url, &onvif_url) {
        rights.check_host(scope, value, service);
    }
    let tables = table.tables(&keys::camera::TRIGGER, TriggerId::new);
    let has_host = url.is_some() || matches!(source, None | Some(SourceConfig::Rtsp(_)));
    let (mut triggers, mut has_onvif): (Vec<TriggerConfig>, _) = (Vec::new(), false);
    for (id, table) in tables {
        let read = trigger(scope, id, table, has_host);
        has_onvif |= read.is_onvif;
        let Some(trigger) = read.trigger else {
            continue;
        };
        let same = triggers
            .iter()
            .find(|earlier| earlier.source == trigger.source);
        // Each call names its trigger.
        if let (Some(same), Some(place), false) =
            (same, &read.place, trigger.source == TriggerSource::Http)
        {
            place.error(format!(
                "the trigger {:?} of this camera has the same source",
                same.id.as_str()
            ));
        }
        triggers.push(trigger);
    }
    if let (Some(url), false) = (&url, has_onvif) {
        url.warning("has no effect: no trigger of this camera has onvif");
    }
    CameraTriggers {
        triggers,
        onvif_url,
    }
}

/// A trigger as the file has it.
struct ReadTrigger<'a> {
    trigger: Option<TriggerConfig>,
    is_onvif: bool,
    /// Its source in the file.
    place: Option<ConfigValue<'a>>,
}

/// Exactly one of mqtt, onvif, http.
fn trigger<'a>(
    scope: &Scope<'_>,
    id: TriggerId,
    mut table: Reader<'a>,
    has_host: bool,
) -> ReadTrigger<'a> {
    let mqtt = table.get(&trigger_keys::MQTT);
    let onvif = table.get(&trigger_keys::ONVIF);
    let http = table.get(&trigger_keys::HTTP);
    let payload = PayloadKeys {
        key: table.get(&trigger_keys::KEY),
        value: table.get(&trigger_keys::VALUE),
        off: table.get(&trigger_keys::OFF),
    };
    let hold = table.read_or_default(&trigger_keys::FOR);
    let limit = table.get(&trigger_keys::AT_MOST);
    let at_most = table.read_or_default(&trigger_keys::AT_MOST);
    let is_onvif = onvif.is_some();
    if mqtt.is_none() {
        payload.refuse();
    }
    let source = match (&mqtt, &onvif, &http) {
        (Some(topic), None, None) => mqtt_trigger(scope, topic, &payload).map(TriggerSource::Mqtt),
        (None, Some(events), None) => onvif_trigger(events, has_host).map(TriggerSource::Onvif),
        (None, None, Some(http)) => called(scope, http),
        (None, None, None) => {
            table.missing(
                &["mqtt", "onvif", "http"],
                "no source; add mqtt = \"TOPIC\", onvif = \"motion\" or http = true",
            );
            None
        }
        _ => {
            table.error("give exactly one of mqtt, onvif, http");
            None
        }
    };
    if let Some(limit) = &limit {
        match &source {
            Some(TriggerSource::Mqtt(MqttTrigger { off: None, .. })) => {
                limit.error("has no effect on a trigger without off");
            }
            Some(_) if at_most < hold => limit.error(format!(
                "{} is below for = {:?}",
                parse::duration_text(at_most),
                parse::duration_text(hold)
            )),
            _ => {}
        }
    }
    table.finish();
    ReadTrigger {
        trigger: source.map(|source| TriggerConfig {
            id,
            source,
            hold,
            at_most: at_most.max(hold),
        }),
        is_onvif,
        place: mqtt.or(onvif),
    }
}

/// What of a message counts.
struct PayloadKeys<'a> {
    key: Option<ConfigValue<'a>>,
    value: Option<ConfigValue<'a>>,
    off: Option<ConfigValue<'a>>,
}

impl PayloadKeys<'_> {
    fn refuse(&self) {
        for value in [&self.key, &self.value, &self.off].into_iter().flatten() {
            value.error("is only for a trigger with mqtt");
        }
    }
}

fn mqtt_trigger(
    scope: &Scope<'_>,
    topic: &ConfigValue<'_>,
    payload: &PayloadKeys<'_>,
) -> Option<MqttTrigger> {
    let text = |value: &Option<ConfigValue<'_>>| match value {
        Some(value) => value.scalar_text().map(Some),
        None => Some(None),
    };
    let key = match &payload.key {
        Some(key) => key.parsed(dotted_path),
        None => Some(Vec::new()),
    };
    let (value, off) = (text(&payload.value), text(&payload.off));
    if let Some(off_value) = &payload.off {
        if payload.value.is_none() {
            off_value.error("without value every message triggers; add value");
        } else if off.is_some() && off == value {
            off_value.error("is the same as value");
        }
    }
    let topic = topic.parsed(|text| foreign_topic(text, scope.own_topics.as_deref()));
    Some(MqttTrigger {
        topic: topic?,
        key: key?,
        value: value?,
        off: off?,
    })
}

/// A topic of another program. `own`: below it are this node's.
fn foreign_topic(text: &str, own: Option<&str>) -> Result<String, String> {
    if text.is_empty() {
        return Err("empty; write the topic of the messages that trigger".to_owned());
    }
    parse::topic(text)?;
    let is_below = |own: &&str| {
        text.strip_prefix(*own)
            .is_some_and(|below| below.starts_with('/'))
    };
    match own.filter(is_below) {
        Some(own) => Err(format!(
            "{text:?} is a topic of this node, which publishes all topics below {own}/ itself"
        )),
        None => Ok(text.to_owned()),
    }
}

/// `state.action`: names of fields, from the outside in.
fn dotted_path(text: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = text.split('.').map(str::to_owned).collect();
    match names.iter().any(String::is_empty) {
        true => Err(format!(
            "{text:?} is not a field; write \"action\", or \"state.action\" for a field of a field"
        )),
        false => Ok(names),
    }
}

fn onvif_trigger(events: &ConfigValue<'_>, has_host: bool) -> Option<String> {
    let selector = events.parsed(onvif_selector)?;
    if !has_host {
        events.error("the camera's url has no host; add onvif_url = \"http://HOST/onvif/device_service\" to the camera");
        return None;
    }
    Some(selector)
}

fn onvif_selector(text: &str) -> Result<String, String> {
    let is_topic = text.contains('/') && !text.contains(char::is_whitespace);
    if is_topic || ONVIF_KINDS.contains(&text) {
        return Ok(text.to_owned());
    }
    let guess = match parse::nearest(text, ONVIF_KINDS) {
        Some(kind) => format!("; did you mean {kind:?}?"),
        None => String::new(),
    };
    Err(format!(
        "{text:?} is not one of {}, and not a topic such as \"tns1:VideoSource/MotionAlarm\"{guess}",
        ONVIF_KINDS.join(", ")
    ))
}

fn called(scope: &Scope<'_>, http: &ConfigValue<'_>) -> Option<TriggerSource> {
    if !http.flag()? {
        http.error("write http = true, or another source");
        return None;
    }
    if !scope.has_api {
        http.error("there is no API to call; add [api]");
    }
    Some(TriggerSource::Http)
}

/// The address of a camera's ONVIF service.
fn service_url(text: &str) -> Result<String, String> {
    let url: Url = address::parse(text, SERVICE_SCHEMES)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("the scheme must be one of {SERVICE_SCHEMES}"));
    }
    address::host(&url)?;
    Ok(url.into())
}
