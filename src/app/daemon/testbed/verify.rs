//! `verify`: an event begins after the model has confirmed it with "yes". `describe`: the model's words follow as an update.
//!
//! Faults: K16.

use serde_json::Value;

use super::*;

#[test]
fn verified_event_begins_with_the_yes() {
    let test = "app::daemon::testbed::verify::verified_event_begins_with_the_yes";
    alone_without_an_error(test, verified());
}

async fn verified() {
    let (_servers, testbed) = testbed_with_good_cameras().await;
    // Only the first camera verifies; the second shows an event without it.
    let plain = "detect = \"thing\"";
    let doubted = format!("{plain}, verify = \"Is it really a thing?\"");
    testbed.write(&testbed.text().replacen(plain, &doubted, 1));
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
        testbed.scene.say_yes();
        received.until(&testbed, |all| all.begun("gate") == 1).await;
        signal("-TERM");
        received
    };
    let (report, received) = testbed.run_while(machine_clock(), scenario).await;
    assert!(report.balanced(), "{report}");
    let sources =
        ["gate", "yard"].map(|camera| received.begins(camera).next().unwrap()["score_src"].clone());
    assert_eq!(sources, ["verify", "token_prob"]);
}

#[test]
fn described_event_is_updated_with_the_answer() {
    let test = "app::daemon::testbed::verify::described_event_is_updated_with_the_answer";
    alone_without_an_error(test, described());
}

async fn described() {
    let (_servers, testbed) = testbed_with_good_cameras().await;
    let plain = "detect = \"thing\"";
    let asking = format!("{plain}, describe = \"What does the thing do?\"");
    testbed.write(&testbed.text().replacen(plain, &asking, 1));
    let scenario = async {
        let mut received = Received::default();
        // The text of the first token is empty.
        testbed.scene.say_yes();
        testbed.scene.show("gate", true);
        let is_described = |event: &&Value| event["reason"] == "described";
        let has_words = |all: &Received| all.of("event", "gate").any(|event| is_described(&event));
        received.until(&testbed, has_words).await;
        testbed.scene.show("gate", false);
        let is_over = |all: &Received| all.of("event", "gate").any(|event| event["type"] == "end");
        received.until(&testbed, is_over).await;
        signal("-TERM");
        received
    };
    let (report, received) = testbed.run_while(machine_clock(), scenario).await;
    assert!(report.balanced(), "{report}");
    let events: Vec<&Value> = received.of("event", "gate").collect();
    let types: Vec<&Value> = events.iter().map(|event| &event["type"]).collect();
    assert_eq!(types, ["new", "update", "end"]);
    assert!(events[0].get("description").is_none());
    let words = events[1]["description"].as_str().unwrap();
    assert!(!words.is_empty() && events[2]["description"] == words);
    assert!(
        events
            .iter()
            .all(|event| event["event"] == events[0]["event"])
    );
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
