//! `verify`: an event begins after the model has confirmed it with "yes". `describe`: the model's words follow as an update.
//!
//! Faults: K16.

use super::{texts::texts_of, *};

const DOCK: &str = "cam/dock/event/thing";

#[test]
fn verified_event_waits_for_yes_and_described_one_is_updated() {
    let test =
        "app::daemon::testbed::verify::verified_event_waits_for_yes_and_described_one_is_updated";
    alone_without_an_error(test, second_looks());
}

async fn second_looks() {
    let (_servers, testbed) = testbed_with_good_cameras().await;
    // The first camera verifies, the second does neither, the third describes.
    let plain = "detect = \"thing\"";
    let text = testbed.text();
    let mut cameras = text.splitn(5, plain);
    let mut part = || cameras.next().unwrap();
    let (head, gate, yard, dock, roof) = (part(), part(), part(), part(), part());
    let verify = "verify = \"Is it really a thing?\"";
    let describe = "describe = \"What does the thing do?\", stream = true";
    testbed.write(&format!(
        "{head}{plain}, {verify}{gate}{plain}{yard}{plain}, {describe}{dock}{plain}{roof}"
    ));
    let scenario = async {
        let mut received = ReceivedJson::default();
        for camera in ["gate", "yard"] {
            testbed.scene.show(camera, true);
        }
        let is_begin = |event: &Value| event["type"] == "new";
        let yard = "cam/yard/event/thing";
        let plain = received.one(&testbed, yard, is_begin).await;
        // The object is confirmed by enough looks, and the answer is "no".
        let looks = |all: &ReceivedJson| all.of("cam/gate/det/thing").count();
        let enough = looks(&received) + 20;
        received.until(&testbed, |all| looks(all) >= enough).await;
        let present = testbed.retained("cam/gate/present/thing");
        let gate = "cam/gate/event/thing";
        let begun = received.of(gate).count();
        assert_eq!((present.as_deref(), begun), (Some("ON"), 0));
        // Until then the first token of a text is its end.
        testbed.scene.say_yes();
        let verified = received.one(&testbed, gate, is_begin).await;
        let sources = [verified, plain].map(|begin| begin["score_src"].clone());
        assert_eq!(sources, ["verify", "token_prob"]);
        testbed.scene.show("dock", true);
        let is_described = |event: &Value| event["reason"] == "described";
        received.one(&testbed, DOCK, is_described).await;
        testbed.scene.show("dock", false);
        let is_end = |event: &Value| event["type"] == "end";
        received.one(&testbed, DOCK, is_end).await;
        signal("-TERM");
        received
    };
    let (report, received) = testbed.run_while(machine_clock(), scenario).await;
    assert!(report.balanced(), "{report}");
    let events: Vec<&Value> = received.of(DOCK).collect();
    let types: Vec<&Value> = events.iter().map(|event| &event["type"]).collect();
    assert_eq!(types, ["new", "update", "end"]);
    assert!(events[0].get("description").is_none());
    let words = events[1]["description"].as_str().unwrap();
    assert!(!words.is_empty() && events[2]["description"] == words);
    let id = &events[0]["event"];
    assert!(events.iter().all(|event| event["event"] == *id));
    // While it was written, under the id of the event.
    let texts = texts_of(&received, "dock/answer/thing");
    let whole = texts.iter().filter(|(_, text)| text.is_whole());
    let whole: Vec<_> = whole.map(|(id, text)| (&**id, &*text.text)).collect();
    assert_eq!(whole, [(id.as_str().unwrap(), words)]);
}
