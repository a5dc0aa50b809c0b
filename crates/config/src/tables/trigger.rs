//! `[camera.NAME.trigger.NAME]`: what starts the looks of a camera that is not looked at all the time.

use std::time::Duration;

use crate::{
    forms::{prelude::*, text::topic},
    read::prelude::*,
};
use spotter_core::{TriggerId, guess};

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

/// Reads a trigger: exactly one of mqtt, onvif, http. `has_host`: the camera has an ONVIF service, as far as is known.
pub(crate) fn trigger(
    scope: &Scope<'_>,
    id: TriggerId,
    mut table: Reader<'_>,
    has_host: bool,
) -> Option<TriggerConfig> {
    let own = scope.own_topics.as_deref();
    let times = || time(Duration::from_secs(1)..=Duration::from_hours(24));
    keys! { table in "`[camera.NAME.trigger.NAME]`", "Something outside of Spotter that starts the looks of the camera. Exactly one of `mqtt`, `onvif` and `http` is required. The name is the one in MQTT, Home Assistant and the API.",
            "[camera.gate.trigger.bell]\nmqtt = \"zigbee2mqtt/doorbell\"\nkey = \"action\"\nvalue = \"single\"\nfor = \"30s\"";
        /// Messages on this topic trigger. Not a topic of this node.
        mqtt = text("topic on the broker of `[mqtt]`, without wildcards", |text| foreign_topic(text, own)).optional("none"), r#"mqtt = "zigbee2mqtt/doorbell""#;
        /// Events of the camera itself: a usual kind, for which cameras have different topics, or one topic. A topic is written as the camera has it, such as `"tns1:VideoSource/MotionAlarm"`.
        onvif = text(format!("{}; or a topic of the camera", ONVIF_KINDS.map(|kind| format!("`\"{kind}\"`")).join(", ")), onvif_selector).optional("none"), r#"onvif = "motion""#;
        /// Calls of the local API trigger: `POST /v1/cameras/gate/trigger/bell`.
        http = flag().or(false), "http = true";
        /// The field of a JSON payload that counts. Messages without it, or in which it is `null` or empty, are ignored. Only with `mqtt`.
        key = text("name of a field, or several with dots between them", dotted_path).or_as("the whole payload", Vec::new()), r#"key = "action""#;
        /// Only messages with this value trigger. Only with `mqtt`.
        value = scalar().optional("every message triggers"), r#"value = "single""#;
        /// The value with which the trigger ends: the camera is looked at from a message with `value` until one with `off`, and `for` longer. Only with `mqtt` and `value`.
        off = scalar().optional("the trigger has no end of its own"), "off = false";
        /// The camera is looked at for this time after the trigger, or after its end where it has one. Another message begins the time again.
        r#for = times().or(Duration::from_secs(20)), r#"for = "30s""#;
        /// Longest time of a trigger with an end, counted from its last message: the message of its end may be lost. At least `for`.
        at_most = times().or(Duration::from_mins(10)), r#"at_most = "1h""#;
    }
    let hold = r#for;
    let kinds = ["mqtt", "onvif", "http"];
    let [_, events, call] = kinds.map(|key| table.given(key));
    check_payload(&table, &value, &off);
    let is_given = kinds.map(|key| table.given(key).is_some());
    if let (Some(events), false) = (events, has_host) {
        events.error("the camera's url has no host; add onvif_url = \"http://HOST/onvif/device_service\" to the camera");
    }
    match call {
        Some(call) if !http => call.error("write http = true, or another source"),
        Some(call) if !scope.has_api => call.error("there is no API to call; add [api]"),
        _ => {}
    }
    let source = match is_given.iter().filter(|is_given| **is_given).count() {
        1 => {
            let of_mqtt = mqtt.map(|topic| MqttTrigger {
                topic,
                key,
                value,
                off,
            });
            let of_mqtt = of_mqtt.map(TriggerSource::Mqtt);
            let of_call = http.then_some(TriggerSource::Http);
            of_mqtt.or(onvif.map(TriggerSource::Onvif)).or(of_call)
        }
        0 => {
            table.error("no source; add mqtt = \"TOPIC\", onvif = \"motion\" or http = true");
            None
        }
        _ => {
            table.error("give exactly one of mqtt, onvif, http");
            None
        }
    };
    table.finish();
    Some(TriggerConfig {
        id,
        source: source?,
        hold,
        at_most: at_most.max(hold),
    })
}

/// The keys about the payload are for MQTT, and one that ends a trigger needs one that starts it.
fn check_payload(table: &Reader<'_>, value: &Option<String>, off: &Option<String>) {
    for key in ["key", "value", "off"] {
        table.requires(key, "mqtt");
    }
    table.requires("off", "value");
    let [mqtt, end, limit] = ["mqtt", "off", "at_most"].map(|key| table.given(key));
    match (end, mqtt, limit) {
        (Some(end), ..) if off.is_some() && off == value => end.error("is the same as value"),
        (None, Some(_), Some(limit)) => limit.error("has no effect on a trigger without off"),
        _ => {}
    }
}

/// Text, true, false or a whole number, as text.
fn scalar() -> Form<'static, String> {
    Form::new("text, true, false or a whole number", |value| {
        value.scalar_text()
    })
}

/// A topic of another program. `own`: below it are this node's.
fn foreign_topic(text: &str, own: Option<&str>) -> Result<String, String> {
    topic(text)?;
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

fn onvif_selector(text: &str) -> Result<String, String> {
    let is_name = |part: &str| !part.is_empty() && !part.ends_with(':');
    let is_topic = text.contains('/') && text.split('/').all(is_name);
    let is_topic = is_topic && !text.contains(|c: char| c.is_whitespace() || c.is_control());
    if is_topic || ONVIF_KINDS.contains(&text) {
        return Ok(text.to_owned());
    }
    let guess = guess(text, ONVIF_KINDS);
    Err(format!(
        "{text:?} is not one of {}, and not a topic such as \"tns1:VideoSource/MotionAlarm\"{guess}",
        ONVIF_KINDS.join(", ")
    ))
}
