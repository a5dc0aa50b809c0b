//! `verify`: an event begins after the model has confirmed it with "yes". `describe`: the model's words follow as an update.
//!
//! Faults: K16.

use serde_json::Value;

use super::*;

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
    let describe = "describe = \"What does the thing do?\"";
    testbed.write(&format!(
        "{head}{plain}, {verify}{gate}{plain}{yard}{plain}, {describe}{dock}{plain}{roof}"
    ));
    let scenario = async {
        let mut received = Received::default();
        for camera in ["gate", "yard"] {
            testbed.scene.show(camera, true);
        }
        received.until(&testbed, |all| all.begun("yard") == 1).await;
        // The object is confirmed by enough looks, and the answer is "no".
        let looks = received.looks("gate");
        received
            .until(&testbed, |all| all.looks("gate") >= looks + 20)
            .await;
        let present = testbed.retained("cam/gate/present/thing");
        assert_eq!(
            (present.as_deref(), received.begun("gate")),
            (Some("ON"), 0)
        );
        // Until then the first token of a text is its end.
        testbed.scene.say_yes();
        received.until(&testbed, |all| all.begun("gate") == 1).await;
        testbed.scene.show("dock", true);
        let has = |all: &Received, key: &str, value: &str| {
            all.of("event", "dock").any(|event| event[key] == value)
        };
        received
            .until(&testbed, |all| has(all, "reason", "described"))
            .await;
        testbed.scene.show("dock", false);
        received
            .until(&testbed, |all| has(all, "type", "end"))
            .await;
        signal("-TERM");
        received
    };
    let (report, received) = testbed.run_while(machine_clock(), scenario).await;
    assert!(report.balanced(), "{report}");
    let sources =
        ["gate", "yard"].map(|camera| received.begins(camera).next().unwrap()["score_src"].clone());
    assert_eq!(sources, ["verify", "token_prob"]);
    let events: Vec<&Value> = received.of("event", "dock").collect();
    let types: Vec<&Value> = events.iter().map(|event| &event["type"]).collect();
    assert_eq!(types, ["new", "update", "end"]);
    assert!(events[0].get("description").is_none());
    let words = events[1]["description"].as_str().unwrap();
    assert!(!words.is_empty() && events[2]["description"] == words);
    let id = &events[0]["event"];
    assert!(events.iter().all(|event| event["event"] == *id));
}

#[derive(Default)]
struct Received(Vec<(String, Value)>);

impl Received {
    async fn until(&mut self, testbed: &Testbed, is_so: impl Fn(&Self) -> bool) {
        let search = async {
            while !is_so(self) {
                sleep(Duration::from_millis(20)).await;
                let messages = testbed.broker.consumed().into_iter();
                let json =
                    |one: Publish| Some((one.topic, serde_json::from_slice(&one.payload).ok()?));
                self.0.extend(messages.filter_map(json));
            }
        };
        let came = timeout(PATIENCE, search).await;
        assert!(came.is_ok(), "{:?}", self.0);
    }

    fn of(&self, kind: &str, camera: &str) -> impl Iterator<Item = &Value> {
        let topic = format!("spotter/edge1/cam/{camera}/{kind}/thing");
        let its = self.0.iter().filter(move |(of, _)| *of == topic);
        its.map(|(_, message)| message)
    }

    fn looks(&self, camera: &str) -> usize {
        self.of("det", camera).count()
    }

    fn begins(&self, camera: &str) -> impl Iterator<Item = &Value> {
        self.of("event", camera)
            .filter(|event| event["type"] == "new")
    }

    fn begun(&self, camera: &str) -> usize {
        self.begins(camera).count()
    }
}
