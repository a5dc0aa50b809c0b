//! Reloads that restart all stages inside the process.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::*;
use spotter_scripted::broker;

/// What the topic `config` reports, once it contains `expected`.
async fn config_report(field: &Field, node: &str, expected: &str) -> Value {
    let report = || {
        let topic = format!("spotter/{node}/config");
        field.broker.retained(&topic).unwrap_or_default()
    };
    until(expected, || report().contains(expected)).await;
    serde_json::from_str(&report()).unwrap()
}

fn reload(field: &Field, text: &str) {
    field.write(text);
    signal("-HUP");
}

#[test]
fn changed_broker_and_name_publish_everything_there() {
    let test = "app::daemon::field::restart::changed_broker_and_name_publish_everything_there";
    alone_without_an_error(test, moves_to_another_broker());
}

async fn moves_to_another_broker() {
    let (servers, field) = field_of_good().await;
    let other = Broker::start(broker::Script::default()).await;
    other.consume();
    let story = async {
        host::all_see(&field).await;
        let (from, to) = (field.broker.port, other.port);
        let moved = field
            .text()
            .replace(&format!(":{from}\""), &format!(":{to}\""));
        reload(&field, &moved.replace("\"edge1\"", "\"edge2\""));
        let has_all = || {
            CAMERAS.iter().all(|camera| {
                let topic = format!("spotter/edge2/cam/{camera}/present/thing");
                other.retained(&topic).as_deref() == Some("ON")
            })
        };
        until("all states at the other broker", has_all).await;
        assert_eq!(field.retained("status").as_deref(), Some("offline"));
        let status = other.retained("spotter/edge2/status");
        assert_eq!(status.as_deref(), Some("online"));
        signal("-TERM");
    };
    let (report, ()) = field.run_while(machine_clock(), story).await;
    assert!(report.balanced(), "{report}");
    let status = other.retained("spotter/edge2/status");
    assert_eq!(status.as_deref(), Some("offline"));
    for server in &servers {
        let memory = server.memory();
        assert_eq!((memory.open, memory.torn_down), (0, memory.sessions));
    }
}

/// The logs of these are errors that each test causes.
fn alone_with_errors(test: &str, expected: &[&str], story: impl Future<Output = ()>) {
    let judge = |log: &str| assert_eq!(lines_but(log, " ERROR ", expected), [""; 0]);
    if is_alone(test, judge) {
        crate::app::runtime().unwrap().block_on(story);
    }
}

#[test]
fn invalid_configurations_leave_the_running_one_active() {
    let test = "app::daemon::field::restart::invalid_configurations_leave_the_running_one_active";
    alone_with_errors(test, &["new configuration rejected"], rejects());
}

/// What is found before the running stages stop.
async fn rejects() {
    let (servers, field) = field_of_good().await;
    let story = async {
        host::all_see(&field).await;
        let running = config_report(&field, "edge1", "\"ok\"").await["hash"].clone();
        let foreign = TcpListener::bind("127.0.0.1:0").unwrap();
        let occupied = foreign.local_addr().unwrap().to_string();
        let empty = field.directory.path().join("empty");
        fs::create_dir(&empty).unwrap();
        let text = field.text();
        for (new, expected) in [
            (
                text.replace(&field.page.to_string(), &occupied),
                "cannot listen on",
            ),
            (
                text.replace(
                    "model.budget",
                    &format!("model.path = {empty:?}\nmodel.budget"),
                ),
                "config.json",
            ),
        ] {
            reload(&field, &new);
            let report = config_report(&field, "edge1", expected).await;
            assert_eq!(report["hash"], running, "{report}");
        }
        assert!(!get(field.page, "/healthz").is_empty(), "the page is there");
        signal("-TERM");
    };
    let (report, ()) = field.run_while(machine_clock(), story).await;
    assert!(report.balanced(), "{report}");
    for server in &servers {
        assert_eq!(server.memory().connections, 1, "no stage was stopped");
    }
}

#[test]
fn configuration_that_cannot_start_returns_to_the_previous_one() {
    let test =
        "app::daemon::field::restart::configuration_that_cannot_start_returns_to_the_previous_one";
    alone_with_errors(test, &["cannot be started; the previous"], returns());
}

async fn returns() {
    let (_servers, field) = field_of_good().await;
    let good = engines_of(&field.stage);
    let failed = Arc::new(AtomicBool::new(false));
    let has_failed = Arc::clone(&failed);
    let engines: Arc<OpenEngines> = Arc::new(move |plan| {
        if plan.config.model.max_objects == 7 {
            has_failed.store(true, Ordering::Relaxed);
            return Box::pin(async { anyhow::bail!("model: seven do not fit") });
        }
        good(plan)
    });
    let story = async {
        host::all_see(&field).await;
        let running = config_report(&field, "edge1", "\"ok\"").await["hash"].clone();
        let text = field.text();
        reload(
            &field,
            &text.replace("model.budget", "model.max_objects = 7\nmodel.budget"),
        );
        let report = config_report(&field, "edge1", "seven do not fit").await;
        assert_eq!(report["hash"], running, "{report}");
        assert!(failed.load(Ordering::Relaxed));
        until("all see it again", || host::all_present(&field)).await;

        // Another model that can be opened.
        reload(
            &field,
            &text.replace("model.budget", "model.max_objects = 6\nmodel.budget"),
        );
        let report = config_report(&field, "edge1", "\"ok\"").await;
        assert_ne!(report["hash"], running, "{report}");
        until("all see it with the other model", || {
            host::all_present(&field)
        })
        .await;
        signal("-TERM");
    };
    let (report, ()) = field.run_with(machine_clock(), engines, story).await;
    assert!(report.balanced(), "{report}");
}
