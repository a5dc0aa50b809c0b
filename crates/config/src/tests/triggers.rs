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
fn onvif_trigger_needs_the_address_of_a_camera() {
    let file = |url: &str, more: &str| {
        trigger("onvif = \"motion\"")
            .replace("rtsp://192.0.2.1/0", url)
            .replace("[camera.gate.prompt", &format!("{more}[camera.gate.prompt"))
    };
    let service = "onvif_url = \"http://192.0.2.1:8000/onvif/device_service\"\n";
    assert_eq!(said(&file("test://", service)), [""; 0]);
    let secure = "onvif_url = \"https://camera\"\n";
    let insecure = format!("{secure}tls = {{ insecure = true }}\n");
    let warned = said(&file("rtsp://camera/x", &insecure));
    assert!(
        warned.len() == 1 && warned[0].contains("warning"),
        "{warned:?}"
    );
}
