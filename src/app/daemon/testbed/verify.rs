//! A second look (`verify`), from the question to the event that waits for it.

use serde_json::Value;

use super::*;

#[test]
fn verified_event_begins_with_the_yes() {
    let test = "app::daemon::field::doubt::verified_event_begins_with_the_yes";
    alone_without_an_error(test, verified());
}

async fn verified() {
    let (_servers, field) = field_of_good().await;
    // Of the first camera; the second shows what a stay is without it.
    let plain = "detect = \"thing\"";
    let doubted = format!("{plain}, verify = \"Is it really a thing?\"");
    field.write(&field.text().replacen(plain, &doubted, 1));
    let story = async {
        let mut heard = Heard::default();
        for camera in ["gate", "yard"] {
            field.stage.show(camera, true);
        }
        heard.until(&field, |all| all.begun("yard") == 1).await;
        // It is there, seen often enough, and the answer is no.
        let looks = heard.looks("gate");
        heard
            .until(&field, |all| all.looks("gate") >= looks + 20)
            .await;
        let present = field.retained("cam/gate/present/thing");
        assert_eq!((present.as_deref(), heard.begun("gate")), (Some("ON"), 0));
        field.stage.say_yes();
        heard.until(&field, |all| all.begun("gate") == 1).await;
        signal("-TERM");
        heard
    };
    let (report, heard) = field.run_while(machine_clock(), story).await;
    assert!(report.balanced(), "{report}");
    let sources =
        ["gate", "yard"].map(|camera| heard.begins(camera).next().unwrap()["score_src"].clone());
    assert_eq!(sources, ["verify", "token_prob"]);
}

/// What was told.
#[derive(Default)]
struct Heard(Vec<(String, Value)>);

impl Heard {
    async fn until(&mut self, field: &Field, is_so: impl Fn(&Self) -> bool) {
        let search = async {
            while !is_so(self) {
                sleep(Duration::from_millis(20)).await;
                let messages = field.broker.consumed().into_iter();
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

    /// Events that began.
    fn begins(&self, camera: &str) -> impl Iterator<Item = &Value> {
        self.of("event", camera)
            .filter(|event| event["type"] == "new")
    }

    fn begun(&self, camera: &str) -> usize {
        self.begins(camera).count()
    }
}
