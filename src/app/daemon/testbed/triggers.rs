//! A camera with triggers is looked at only while one of them is active.
//!
//! Faults: K18.

use super::{api::ApiCaller, *};
use spotter_scripted::onvif::{OnvifScript, ScriptedOnvifCamera};

const BELL: &str = "zigbee2mqtt/bell";
const PIR: &str = "zigbee2mqtt/pir";

/// The first camera has triggers of a moment and with an end, and one for calls.
fn triggered(text: &str, bell: &str) -> String {
    format!(
        "{text}[camera.gate.trigger.bell]\nmqtt = \"{bell}\"\nkey = \"action\"\nvalue = \"single\"\nfor = \"1s\"\n\
         [camera.gate.trigger.pir]\nmqtt = \"{PIR}\"\nvalue = \"ON\"\noff = \"OFF\"\nfor = \"1s\"\n\
         [camera.gate.trigger.app]\nhttp = true\nfor = \"1s\"\n"
    )
}

/// A message of another program.
fn say(testbed: &Testbed, topic: &str, payload: &str) {
    testbed.broker.say(&Publish {
        topic: topic.into(),
        payload: payload.into(),
        ..Publish::default()
    });
}

/// The camera `gate` in `/status.json`.
fn gate(testbed: &Testbed) -> Value {
    testbed.status()["cameras"][0].clone()
}

fn frames(testbed: &Testbed, end: &str) -> u64 {
    gate(testbed)["frames"][end].as_u64().unwrap_or_default()
}

/// What is published of `gate`: trigger, trigger, presence.
fn states(testbed: &Testbed) -> [String; 3] {
    ["trigger/bell", "trigger/pir", "present/thing"].map(|topic| {
        let state = testbed.retained(&format!("cam/gate/{topic}"));
        state.unwrap_or_default()
    })
}

async fn until_states(testbed: &Testbed, expected: [&str; 3]) {
    let what = format!("{expected:?}");
    until(&what, || states(testbed) == expected).await;
}

/// Frames arrive, and none of them is looked at.
async fn is_not_looked_at(testbed: &Testbed) {
    // The page has the counters of the last second, which may be of before.
    frames_arrive(testbed).await;
    // The looks in flight end.
    until("no look is in flight", || frames(testbed, "open") == 0).await;
    let looked = frames(testbed, "looked");
    frames_arrive(testbed).await;
    assert_eq!(frames(testbed, "looked"), looked);
}

async fn frames_arrive(testbed: &Testbed) {
    let arrived = frames(testbed, "arrived");
    until("frames arrive", || frames(testbed, "arrived") > arrived + 5).await;
}

#[test]
fn triggered_camera_is_looked_at_while_triggers_are_active() {
    let test =
        "app::daemon::testbed::triggers::triggered_camera_is_looked_at_while_triggers_are_active";
    alone_without_an_error(test, begins_and_ends());
}

async fn begins_and_ends() {
    let server = Server::start(|_| good()).await;
    let testbed = Testbed::new(vec![server.url()], PATIENT).await;
    let client = &ApiCaller::new(None);
    let text = format!("{}[api]\nlisten = \"{}\"\n", testbed.text(), client.api);
    testbed.write(&triggered(&text, BELL));
    testbed.scene.show("gate", true);
    let scenario = async {
        let single = "{\"action\":\"single\"}";
        until_states(&testbed, ["OFF", "OFF", "None"]).await;
        until("it streams", || gate(&testbed)["state"] == "streaming").await;
        is_not_looked_at(&testbed).await;
        for payload in ["single", "{\"action\":\"double\"}"] {
            say(&testbed, BELL, payload);
        }
        is_not_looked_at(&testbed).await;
        assert_eq!(frames(&testbed, "looked"), 0);
        requests_looks(&testbed).await;

        say(&testbed, BELL, single);
        until_states(&testbed, ["ON", "OFF", "ON"]).await;
        until_states(&testbed, ["OFF", "OFF", "None"]).await;
        let events = testbed.broker.consumed().into_iter();
        let mut events = events.filter(|message| message.topic.contains("/event/"));
        let last: Value = serde_json::from_slice(&events.next_back().unwrap().payload).unwrap();
        assert_eq!(
            (&last["type"], &last["reason"]),
            (&"end".into(), &"disabled".into())
        );
        is_not_looked_at(&testbed).await;

        // A call of the API.
        let called = |trigger: &'static str, body: &'static str| {
            let path = format!("/v1/cameras/gate/trigger/{trigger}");
            async move { client.send("POST", &path, body.to_owned()).await }
        };
        assert_eq!(called("app", "{\"state\":\"on\"}").await.0, 204);
        until_states(&testbed, ["OFF", "OFF", "ON"]).await;
        assert_eq!(called("app", "{\"state\":\"off\"}").await.0, 204);
        for (trigger, text) in [
            ("horn", "it has bell, pir, app"),
            ("bell", "calls need http"),
        ] {
            let (status, answer) = called(trigger, "").await;
            assert!(status == 404 && answer.contains(text), "{answer}");
        }
        until_states(&testbed, ["OFF", "OFF", "None"]).await;

        // After an outage of the broker, one with an end.
        testbed.broker.leave();
        testbed.broker.come_back().await;
        until("the broker is back", || {
            say(&testbed, PIR, "ON");
            states(&testbed) == ["OFF", "ON", "ON"]
        })
        .await;
        let looked = frames(&testbed, "looked");
        until("longer than for", || {
            frames(&testbed, "looked") > looked + 7
        })
        .await;
        assert_eq!(gate(&testbed)["triggers"][1]["active"], true);
        say(&testbed, PIR, "OFF");
        until_states(&testbed, ["OFF", "OFF", "None"]).await;

        // Another topic, while another trigger is active.
        say(&testbed, PIR, "ON");
        until_states(&testbed, ["OFF", "ON", "ON"]).await;
        testbed.reload(&triggered(&text, "bell"));
        until("the reload", || {
            gate(&testbed)["triggers"][0]["activations"] == 0
        })
        .await;
        assert_eq!(states(&testbed), ["OFF", "ON", "ON"]);
        say(&testbed, BELL, single);
        say(&testbed, "bell", single);
        until_states(&testbed, ["ON", "ON", "ON"]).await;
        // Without triggers it is looked at always, and their topics are cleared.
        testbed.reload(&text);
        until_states(&testbed, ["", "", "ON"]).await;
        let looked = frames(&testbed, "looked");
        until("looks go on", || frames(&testbed, "looked") > looked + 7).await;
        signal("-TERM");
    };
    let (report, ()) = testbed.run_while(machine_clock(), scenario).await;
    assert!(report.balanced(), "{report}");
    assert_eq!(server.memory().connections, 1, "the connection stays");
}

/// Commands to a camera that waits for a trigger: a snapshot is of one look, and `look` has its time.
async fn requests_looks(testbed: &Testbed) {
    let request = |request: &str| testbed.say("cmd", request);
    let has_snapshot = || {
        let topic = "spotter/edge1/cam/gate/snapshot/thing";
        let mut messages = testbed.broker.consumed().into_iter();
        messages.any(|message| message.topic == topic && message.payload.starts_with(&[0xff, 0xd8]))
    };
    request(r#"{"op": "snapshot", "cam": "gate"}"#);
    until("a snapshot", has_snapshot).await;
    until("its look is counted", || frames(testbed, "looked") > 0).await;
    is_not_looked_at(testbed).await;
    assert_eq!(frames(testbed, "looked"), 1);
    assert_eq!(states(testbed), ["OFF", "OFF", "None"]);
    request(r#"{"op": "look", "cam": "gate", "seconds": 1, "rate": 10}"#);
    until_states(testbed, ["OFF", "OFF", "ON"]).await;
    until_states(testbed, ["OFF", "OFF", "None"]).await;
    assert!(frames(testbed, "looked") > 2);
    is_not_looked_at(testbed).await;
}

#[test]
fn camera_is_looked_at_while_its_onvif_events_say_motion() {
    let test =
        "app::daemon::testbed::triggers::camera_is_looked_at_while_its_onvif_events_say_motion";
    alone_without_an_error(test, moves_and_stops());
}

async fn moves_and_stops() {
    let server = Server::start(|_| good()).await;
    let camera = ScriptedOnvifCamera::start(OnvifScript::default());
    let testbed = Testbed::new(vec![server.url()], PATIENT).await;
    let site = |service: &str| {
        format!(
            "{}onvif_url = \"{service}\"\n[camera.gate.trigger.motion]\nonvif = \"motion\"\nfor = \"1s\"\n",
            testbed.text()
        )
    };
    testbed.write(&site(&camera.address()));
    testbed.scene.show("gate", true);
    let motion = || testbed.retained("cam/gate/trigger/motion");
    let scenario = async {
        until("a subscription", || camera.subscriptions() == 1).await;
        until("it streams", || gate(&testbed)["state"] == "streaming").await;
        is_not_looked_at(&testbed).await;
        camera.motion(true);
        until("motion", || motion().as_deref() == Some("ON")).await;
        let looked = frames(&testbed, "looked");
        until("looks", || frames(&testbed, "looked") > looked + 7).await;
        camera.motion(false);
        until("the end", || motion().as_deref() == Some("OFF")).await;
        is_not_looked_at(&testbed).await;
        // One that does not answer is reported, and nothing else suffers.
        testbed.reload(&site("http://127.0.0.1:1"));
        until("the reason", || testbed.health_says("no ONVIF events")).await;
        signal("-TERM");
    };
    let (report, ()) = testbed.run_while(machine_clock(), scenario).await;
    assert!(report.balanced(), "{report}");
    assert_eq!(camera.subscriptions(), 0, "it was ended");
}
