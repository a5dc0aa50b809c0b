//! `prompt_add`: a prompt of a command does what one of the file does.

use serde_json::json;

use super::*;

// Faults: K20.
#[test]
fn added_prompt_does_what_one_of_the_file_does() {
    let test = "app::daemon::testbed::added_prompt::added_prompt_does_what_one_of_the_file_does";
    alone_without_an_error(test, added());
}

async fn added() {
    let server = Server::start(|_| good()).await;
    let testbed = Testbed::new(vec![server.url()], PATIENT).await;
    let areas = "zone.all.polygon = [[0, 0], [1, 0], [1, 1], [0, 1]]\nline.door.points = [[0, 0.5], [1, 0.5]]\n";
    testbed.write(&(testbed.text() + areas));
    // The text of the first token is empty.
    testbed.scene.say_yes();
    testbed.scene.show("gate", true);
    let scenario = async {
        until("it runs", || {
            testbed.retained("status").as_deref() == Some("online")
        })
        .await;
        let mut hat = json!({"id": "hat", "detect": "hat", "lines": ["dor"], "dwell": "500ms",
            "describe": "What does it do?", "frames": 4, "over": "600ms"});
        let add = |hat: &Value| {
            let request = json!({"op": "prompt_add", "cam": "gate", "prompt": hat});
            testbed.say("cmd", request.to_string());
        };
        let mut received = ReceivedJson::default();
        add(&hat);
        let reply = received.one(&testbed, "reply", |_| true).await;
        assert_eq!(
            reply["error"],
            json!({"code": "bad_value",
                "text": "prompt.lines: \"dor\" is not a line of this camera; did you mean \"door\"?"})
        );
        // The model of the configuration is a Moondream 2.
        add(&json!({"id": "hat", "segment": "hat"}));
        let model = "prompt.segment: Moondream 2 draws no outlines; Moondream 3 preview and Moondream 3.1 do";
        let is_of_model = |reply: &Value| {
            let text = reply["error"]["text"].as_str();
            text.is_some_and(|text| text.starts_with(model))
        };
        received.one(&testbed, "reply", is_of_model).await;
        hat["lines"] = json!(["door"]);
        add(&hat);
        let is_ok = |reply: &Value| reply["ok"] == true;
        received.one(&testbed, "reply", is_ok).await;
        let is_described = |event: &Value| event["reason"] == "described";
        let topic = "cam/gate/event/hat";
        let event = received.one(&testbed, topic, is_described).await;
        assert!(event["description"].is_string(), "{event}");
        let are = |expected: [&str; 2]| {
            let states = ["line/door/in", "dwell/all"];
            let topics = states.map(|state| format!("cam/gate/{state}/hat"));
            topics.map(|topic| testbed.retained(&topic).unwrap_or_default()) == expected
        };
        until("it dwells", || are(["0", "ON"])).await;
        let remove = json!({"op": "prompt_del", "cam": "gate", "prompt": "hat"});
        testbed.say("cmd", remove.to_string());
        until("its topics are cleared", || are(["", ""])).await;
        signal("-TERM");
    };
    let (report, ()) = testbed.run_while(machine_clock(), scenario).await;
    assert!(report.balanced(), "{report}");
}
