//! Messages of other programs that trigger: from a payload to a signal. Pure.

use serde_json::Value;

use super::Inbound;
use spotter_config::MqttTrigger;
use spotter_core::TriggerSignal;

/// What a message on the topic of a trigger says; `None`: nothing. Fails when the trigger needs a field and the payload is not JSON.
///
/// The broker sends a retained message at each connection, so it says what is, and not that something happened: without `off` it
/// says nothing.
pub fn trigger_signal(
    trigger: &MqttTrigger,
    message: &Inbound,
) -> Result<Option<TriggerSignal>, serde_json::Error> {
    let Some(found) = value(&trigger.key, &message.payload)? else {
        return Ok(None);
    };
    let is = |wanted: &Option<String>| wanted.as_ref() == Some(&found);
    let has_end = trigger.off.is_some();
    Ok(match (is(&trigger.value), is(&trigger.off)) {
        (true, _) if has_end => Some(TriggerSignal::On),
        (_, true) => Some(TriggerSignal::Off),
        _ if message.retained => None,
        (true, _) => Some(TriggerSignal::Momentary),
        _ => trigger.value.is_none().then_some(TriggerSignal::Momentary),
    })
}

/// The text of the payload or of its field; `None`: it has no such field.
fn value(key: &[String], payload: &[u8]) -> Result<Option<String>, serde_json::Error> {
    if key.is_empty() {
        return Ok(Some(String::from_utf8_lossy(payload).trim().to_owned()));
    }
    let payload: Value = serde_json::from_slice(payload)?;
    let field = key.iter().try_fold(&payload, |value, name| value.get(name));
    Ok(field.and_then(|field| match field {
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other => Some(other.to_string()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use TriggerSignal::{Momentary, Off, On};

    fn trigger(key: &[&str], value: Option<&str>, off: Option<&str>) -> MqttTrigger {
        MqttTrigger {
            topic: "zigbee2mqtt/door".into(),
            key: key.iter().map(|name| (*name).to_owned()).collect(),
            value: value.map(str::to_owned),
            off: off.map(str::to_owned),
        }
    }

    fn message(payload: &str) -> Inbound {
        Inbound {
            topic: "zigbee2mqtt/door".into(),
            payload: payload.into(),
            retained: false,
            reply_to: None,
        }
    }

    #[test]
    fn payloads_say_what_their_trigger_asks() {
        let every = trigger(&[], None, None);
        let word = trigger(&[], Some("ON"), Some("OFF"));
        let button = trigger(&["action"], Some("single"), None);
        let any_action = trigger(&["action"], None, None);
        let contact = trigger(&["contact"], Some("false"), Some("true"));
        let nested = trigger(&["state", "level"], Some("3"), None);
        for (trigger, payload, expected) in [
            (&every, "", Some(Momentary)),
            (&every, "anything", Some(Momentary)),
            (&word, " ON\n", Some(On)),
            (&word, "OFF", Some(Off)),
            (&word, "unavailable", None),
            (
                &button,
                "{\"action\":\"single\",\"battery\":90}",
                Some(Momentary),
            ),
            (&button, "{\"action\":\"double\"}", None),
            (&button, "{\"battery\":90}", None),
            (&any_action, "{\"action\":\"hold\"}", Some(Momentary)),
            (&any_action, "{\"action\":\"\"}", None),
            (&any_action, "{\"action\":null}", None),
            (&contact, "{\"contact\":false}", Some(On)),
            (&contact, "{\"contact\":true}", Some(Off)),
            (&nested, "{\"state\":{\"level\":3}}", Some(Momentary)),
            (&nested, "{\"state\":3}", None),
            (&nested, "[3]", None),
        ] {
            let signal = trigger_signal(trigger, &message(payload)).unwrap();
            assert_eq!(signal, expected, "{payload}");
        }
        assert!(trigger_signal(&button, &message("single")).is_err());
    }

    #[test]
    fn retained_messages_count_only_where_there_is_an_end() {
        let retained = |payload| Inbound {
            retained: true,
            ..message(payload)
        };
        for trigger in [trigger(&[], None, None), trigger(&[], Some("ON"), None)] {
            assert_eq!(trigger_signal(&trigger, &retained("ON")).unwrap(), None);
        }
        let lasting = trigger(&[], Some("ON"), Some("OFF"));
        for (payload, signal) in [("ON", On), ("OFF", Off)] {
            let found = trigger_signal(&lasting, &retained(payload)).unwrap();
            assert_eq!(found, Some(signal));
        }
    }
}
