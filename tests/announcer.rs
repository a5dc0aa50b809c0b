//! What the daemon announces and clears at a real broker: while it runs, and at the next start.

#![expect(
    clippy::expect_used,
    reason = "in a test, what cannot be set up ends the test"
)]

#[allow(dead_code, reason = "each test file uses a part of it")]
mod support;

use support::{
    DONE, Program,
    broker::{Consumer, broker, publish, retained},
    file, free_address,
};

const TWO: &str = "[camera.gate]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n\
                   [camera.yard]\nurl = \"test://\"\nprompt.car.detect = \"car\"\n";
const ONE: &str = "[camera.gate]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n";
const SHED: &str = "[camera.shed]\nurl = \"test://\"\nprompt.cat.detect = \"cat\"\n";

#[test]
fn daemon_announces_entities_and_clears_removed_ones() {
    let directory = tempfile::tempdir().expect("a directory");
    let address = free_address();
    let _broker = broker(address, "");
    let consumer = Consumer::on_all(address);
    let write = |cameras: &str| {
        let state = directory.path().join("state");
        let text = format!(
            "node = {{ name = \"edge1\", state_dir = {state:?} }}\nhttp.listen = \"off\"\nmodel.budget = \"60s\"\n\
             mqtt = {{ url = \"mqtt://{address}\", commands = \"all\" }}\n{cameras}"
        );
        file(directory.path(), "site.toml", text)
    };
    let record = |camera: &str| format!("homeassistant/device/spotter_edge1{camera}/config");
    let of = |topic: &str| format!("spotter/edge1/{topic}");

    let path = write(TWO);
    let start = || Program::start(["run", "--config", path.to_str().expect("UTF-8")]);
    let program = start();
    consumer.wait_for("yard/prompt/car/min_score", |_| true);
    // Something is known of it, which is not any more when it goes.
    consumer.wait_for("yard/count/car", |payload| payload != "None");
    let left = retained(address);
    let yard: Vec<_> = left.keys().filter(|topic| topic.contains("yard")).collect();
    for topic in [
        record("_yard"),
        of("cam/yard/count/car"),
        of("cam/yard/rate"),
    ] {
        assert!(yard.contains(&&topic), "{topic}: {yard:?}");
    }
    // What Home Assistant reads and what it sets is there: each entity's state is at a topic that holds something.
    let device = &left[&record("_gate")];
    for topic in [
        "cam/gate/count/person",
        "cam/gate/enabled",
        "cam/gate/prompt/person/text",
    ] {
        assert!(device.contains(&of(topic)), "{topic}: {device}");
        assert!(!left[&of(topic)].is_empty());
    }

    // A temporary prompt has no entities, and its topics are cleared afterwards.
    let hat =
        "{\"op\":\"prompt_add\",\"cam\":\"gate\",\"prompt\":{\"id\":\"hat\",\"detect\":\"hat\"}}";
    publish(address, &of("cmd"), hat, &[]);
    consumer.wait_for("gate/count/hat", |payload| payload == "None");
    let from = consumer.now();
    let no_hat = "{\"op\":\"prompt_del\",\"cam\":\"gate\",\"prompt\":\"hat\"}";
    publish(address, &of("cmd"), no_hat, &[]);
    consumer.wait_after(from, "gate/count/hat", str::is_empty);

    // A camera is removed: all its topics are cleared, and with them its device in Home Assistant.
    write(ONE);
    let from = consumer.now();
    program.signal("HUP");
    for topic in &yard {
        consumer.wait_after(from, topic, str::is_empty);
    }
    assert_eq!(&retained(address)[&record("_gate")], device);

    // Home Assistant restarts: the records are published again.
    let from = consumer.now();
    publish(address, "homeassistant/status", "online", &[]);
    for topic in [record(""), record("_gate")] {
        consumer.wait_after(from, &topic, |payload| payload.contains("state_topic"));
    }
    program.terminate().expect(DONE);
    let left = retained(address);
    let stale = |topic: &&String| topic.contains("yard") || topic.contains("hat");
    assert_eq!(left.keys().filter(stale).count(), 0, "{left:#?}");
    assert!(left.contains_key(&record("_gate")) && left[&of("status")] == "offline");

    // A camera is removed while Spotter is stopped.
    write(SHED);
    let from = consumer.now();
    let program = start();
    for topic in [record("_gate"), of("cam/gate/count/person")] {
        consumer.wait_after(from, &topic, str::is_empty);
    }
    program.terminate().expect(DONE);
    let left = retained(address);
    let is_of_gate = |topic: &String| topic.contains("/gate/") || topic.contains("_gate/");
    assert!(!left.keys().any(is_of_gate), "{left:#?}");
}
