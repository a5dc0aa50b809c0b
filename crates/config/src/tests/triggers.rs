//! `[camera.NAME.trigger.NAME]` and `onvif_url`.

use super::*;

/// A good file with a trigger of these keys (from line 9 on) and an API.
fn trigger(keys: &str) -> String {
    person(&format!("[camera.gate.trigger.bell]\n{keys}\n[api]"))
}

fn only(text: &str) -> TriggerConfig {
    let mut camera = loaded(text).config.cameras.remove(0);
    assert_eq!(camera.triggers.len(), 1);
    camera.triggers.remove(0)
}

#[test]
fn trigger_has_its_defaults_and_its_values() {
    let bell = only(&trigger("mqtt = \"zigbee2mqtt/bell\""));
    let seconds = |bell: &TriggerConfig| (bell.hold.as_secs(), bell.at_most.as_secs());
    assert_eq!((bell.id.as_str(), seconds(&bell)), ("bell", (20, 600)));
    let keys = "mqtt = \"pir\"\nkey = \"state.occupancy\"\nvalue = true\noff = false\nfor = \"1h\"";
    let pir = only(&trigger(keys));
    let TriggerSource::Mqtt(mqtt) = &pir.source else {
        panic!("{pir:?}")
    };
    assert_eq!(mqtt.key, ["state", "occupancy"]);
    let values = (mqtt.value.as_deref(), mqtt.off.as_deref());
    assert_eq!(values, (Some("true"), Some("false")));
    // The default limit is not below `for`.
    assert_eq!(seconds(&pir), (3600, 3600));

    assert_eq!(only(&trigger("http = true")).source, TriggerSource::Http);
    let motion = only(&trigger("onvif = \"motion\"")).source;
    assert_eq!(motion, TriggerSource::Onvif("motion".into()));
    let topic = only(&trigger("onvif = \"tns1:VideoSource/MotionAlarm\"")).source;
    let expected = "tns1:VideoSource/MotionAlarm".into();
    assert_eq!(topic, TriggerSource::Onvif(expected));
}

#[test]
fn mistakes_of_a_trigger_are_reported_at_their_places() {
    for (keys, message) in [
        (
            "for = \"5s\"",
            "8:1 KEY: no source; add mqtt = \"TOPIC\", onvif = \"motion\" or http = true",
        ),
        (
            "http = true\ntopic = \"a\"",
            "10:1 KEY.topic: unknown key; valid keys: mqtt, onvif, http, key, value, off, for, at_most",
        ),
        (
            "mqtt = \"a\"\nhttp = true",
            "8:1 KEY: give exactly one of mqtt, onvif, http",
        ),
        (
            "mqtt = \"a/+/b\"",
            "9:8 KEY.mqtt: \"a/+/b\" is a filter; write one topic, without +, # and $share",
        ),
        (
            "mqtt = \"\"",
            "9:8 KEY.mqtt: empty; write the topic of the messages that trigger",
        ),
        (
            "mqtt = \"spotter/edge-box/cam/gate/present/person\"",
            "9:8 KEY.mqtt: \"spotter/edge-box/cam/gate/present/person\" is a topic of this node, which publishes all topics below spotter/edge-box/ itself",
        ),
        (
            "mqtt = \"a\"\nkey = \"a..b\"",
            "10:7 KEY.key: \"a..b\" is not a field; write \"action\", or \"state.action\" for a field of a field",
        ),
        (
            "mqtt = \"a\"\nvalue = 1.5",
            "10:9 KEY.value: needs text, true, false or a whole number, found a value of type float",
        ),
        (
            "mqtt = \"a\"\noff = \"x\"",
            "10:7 KEY.off: without value every message triggers; add value",
        ),
        (
            "mqtt = \"a\"\nvalue = 1\noff = \"1\"",
            "11:7 KEY.off: is the same as value",
        ),
        (
            "mqtt = \"a\"\nvalue = 1\nat_most = \"1h\"",
            "11:11 KEY.at_most: has no effect on a trigger without off",
        ),
        (
            "mqtt = \"a\"\nfor = \"20\"",
            "10:7 KEY.for: \"20\" has no unit; write \"5s\", \"500ms\" or \"1m\"",
        ),
        (
            "http = true\nvalue = \"x\"",
            "10:9 KEY.value: is only for a trigger with mqtt",
        ),
        (
            "http = false",
            "9:8 KEY.http: write http = true, or another source",
        ),
        (
            "onvif = \"moton\"",
            "9:9 KEY.onvif: \"moton\" is not one of motion, person, vehicle, animal, face, visitor, package, area, input, sound, tamper, and not a topic such as \"tns1:VideoSource/MotionAlarm\"; did you mean \"motion\"?",
        ),
        (
            "onvif = \"RuleEngine//Motion\"",
            "9:9 KEY.onvif: \"RuleEngine//Motion\" is not one of motion, person, vehicle, animal, face, visitor, package, area, input, sound, tamper, and not a topic such as \"tns1:VideoSource/MotionAlarm\"",
        ),
    ] {
        let message = message.replace("KEY", "camera.gate.trigger.bell");
        assert_eq!(said(&trigger(keys)), [message], "{keys}");
    }
}

#[test]
fn called_trigger_needs_an_api() {
    let file = trigger("http = true").replace("[api]", "");
    let expected = "9:8 camera.gate.trigger.bell.http: there is no API to call; add [api]";
    assert_eq!(said(&file), [expected]);
}

#[test]
fn onvif_trigger_needs_the_address_of_a_camera() {
    let file = |url: &str, more: &str| {
        trigger("onvif = \"motion\"")
            .replace("rtsp://192.0.2.1/0", url)
            .replace("[camera.gate.prompt", &format!("{more}[camera.gate.prompt"))
    };
    let service = "onvif_url = \"http://192.0.2.1:8000/onvif/device_service\"\n";
    assert_eq!(said(&file("test://", service)), [""; 0]);
    let [no_host] = &said(&file("test://", ""))[..] else {
        panic!()
    };
    assert!(
        no_host.contains("the camera's url has no host"),
        "{no_host}"
    );
    for (url, part) in [
        ("ftp://camera", "one of http, https"),
        ("http://u:canary@camera", "use \"user\" and \"password\""),
    ] {
        let said = said(&gate(&format!("onvif_url = \"{url}\"")));
        assert!(
            said[0].contains(part) && !said[0].contains("canary"),
            "{said:?}"
        );
    }
    let secure = "onvif_url = \"https://camera\"\n";
    let insecure = format!("{secure}tls = {{ insecure = true }}\n");
    let warned = said(&file("rtsp://camera/x", &insecure));
    assert!(
        warned.len() == 1 && warned[0].contains("warning"),
        "{warned:?}"
    );
}
