//! What is announced and cleared at a real broker: from one configuration to the next, and by the whole daemon while it runs.

#![expect(
    clippy::expect_used,
    reason = "in a test, what cannot be set up ends the test"
)]

#[allow(dead_code, reason = "each test file uses a part of it")]
mod support;

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use support::{
    DONE, Program,
    broker::{Consumer, broker, publish, retained},
    file, free_address,
};
use tokio::{runtime::Runtime, task::JoinHandle, time::sleep};

use spotter_config::{self as config, Config, Environment};
use spotter_core::{Clock, SystemClock};
use spotter_mqtt::{Announcer, Identity, Publisher, Update};
use spotter_state::{Document, OpenedEvents, StateStore};

const TWO: &str = "[camera.gate]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n\
                   [camera.yard]\nurl = \"test://\"\nprompt.car.detect = \"car\"\n";
const ONE: &str = "[camera.gate]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n";

fn config(directory: &Path, broker: SocketAddr, cameras: &str) -> Config {
    let text = format!("node.name = \"edge1\"\nmqtt.url = \"mqtt://{broker}\"\n{cameras}");
    let path = file(directory, "site.toml", text);
    let loaded = config::load(&path, &Environment::process());
    loaded
        .unwrap_or_else(|problems| panic!("{problems}"))
        .config
}

/// A publisher with its announcer, as the daemon has them.
struct Run {
    publisher: Publisher,
    broker_task: JoinHandle<()>,
    ticks: JoinHandle<()>,
}

impl Run {
    fn start(runtime: &Runtime, config: &Config, state_dir: &Path) -> Self {
        let _entered = runtime.enter();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let identity = Identity::of_this_machine(config.node.name.clone());
        let started = Publisher::start(
            &config.mqtt,
            &OpenedEvents::default(),
            &identity,
            Arc::clone(&clock),
        );
        let (publisher, broker_task) = started.expect("no TLS files to read");
        let state = StateStore::open(state_dir, Arc::clone(&clock)).expect("a state database");
        let stored = state.get(Document::RetainedTopics);
        let mut announcer = Announcer::new(stored.as_deref(), &identity);
        announcer.announce(&publisher, config, &config.cameras, false);
        for camera in &config.cameras {
            publisher.publish(Update::CameraStatus {
                camera: camera.id.clone(),
                online: true,
            });
        }
        let publisher_of_ticks = publisher.clone();
        let ticks = tokio::spawn(async move {
            loop {
                announcer.tick(&publisher_of_ticks, clock.now());
                if let Some(list) = announcer.take_unstored() {
                    state.put(Document::RetainedTopics, list);
                }
                sleep(Duration::from_millis(50)).await;
            }
        });
        Self {
            publisher,
            broker_task,
            ticks,
        }
    }

    fn stop(self, runtime: &Runtime) {
        self.publisher.stop();
        runtime.block_on(self.broker_task).expect("it ends");
        self.ticks.abort();
    }
}

#[test]
fn topics_absent_from_the_next_configuration_are_cleared() {
    let directory = tempfile::tempdir().expect("a directory");
    let address = free_address();
    let _broker = broker(address, "");
    let runtime = Runtime::new().expect("a runtime");
    let consumer = Consumer::on_all(address);
    let record = |camera: &str| format!("homeassistant/device/spotter_edge1{camera}/config");

    let before = config(directory.path(), address, TWO);
    let run = Run::start(&runtime, &before, directory.path());
    consumer.wait_for("spotter/edge1/status", |payload| payload == "online");
    run.stop(&runtime);
    let left = retained(address);
    for topic in [
        record(""),
        record("_gate"),
        record("_yard"),
        "spotter/edge1/cam/yard/status".into(),
    ] {
        assert!(left.contains_key(&topic), "{topic}: {left:#?}");
    }

    // A camera was removed while Spotter was stopped.
    let from = consumer.now();
    let after = config(directory.path(), address, ONE);
    let run = Run::start(&runtime, &after, directory.path());
    for topic in [record("_yard"), "spotter/edge1/cam/yard/status".into()] {
        consumer.wait_after(from, &topic, str::is_empty);
    }
    run.stop(&runtime);
    let left = retained(address);
    let stale = left.keys().filter(|topic| topic.contains("yard"));
    assert_eq!(stale.count(), 0, "{left:#?}");
    assert!(left.contains_key(&record("_gate")));
    assert_eq!(left["spotter/edge1/cam/gate/status"], "online");
}

#[test]
fn daemon_announces_entities_and_clears_removed_ones_while_running() {
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
    let program = Program::start(["run", "--config", path.to_str().expect("UTF-8")]);
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
}
