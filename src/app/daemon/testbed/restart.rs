//! Reloads that restart all components inside the process.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::*;
use spotter_scripted::broker;

/// What the topic `config` reports, once it contains `expected`.
async fn config_report(testbed: &Testbed, node: &str, expected: &str) -> Value {
    let report = || {
        let topic = format!("spotter/{node}/config");
        testbed.broker.retained(&topic).unwrap_or_default()
    };
    until(expected, || report().contains(expected)).await;
    serde_json::from_str(&report()).unwrap()
}

// Faults: K2.
#[test]
fn changed_broker_and_name_publish_everything_there() {
    let test = "app::daemon::testbed::restart::changed_broker_and_name_publish_everything_there";
    alone_without_an_error(test, moves_to_another_broker());
}

async fn moves_to_another_broker() {
    let (servers, testbed) = testbed_with_good_cameras().await;
    let other = ScriptedBroker::start(broker::BrokerScript::default()).await;
    other.consume();
    let scenario = async {
        host::all_see(&testbed).await;
        let (from, to) = (testbed.broker.port, other.port);
        let moved = testbed
            .text()
            .replace(&format!(":{from}\""), &format!(":{to}\""));
        testbed.reload(&moved.replace("\"edge1\"", "\"edge2\""));
        let has_all = || {
            CAMERAS.iter().all(|camera| {
                let topic = format!("spotter/edge2/cam/{camera}/present/thing");
                other.retained(&topic).as_deref() == Some("ON")
            })
        };
        until("all states at the other broker", has_all).await;
        assert_eq!(testbed.retained("status").as_deref(), Some("offline"));
        // It is the last one.
        other.until_retained("spotter/edge2/status", "online").await;
        signal("-TERM");
    };
    let (report, ()) = testbed.run_while(machine_clock(), scenario).await;
    assert!(report.balanced(), "{report}");
    let status = other.retained("spotter/edge2/status");
    assert_eq!(status.as_deref(), Some("offline"));
    for server in &servers {
        let memory = server.memory();
        assert_eq!((memory.open, memory.torn_down), (0, memory.sessions));
    }
}

// Faults: K4, K10.
#[test]
fn invalid_configurations_leave_the_running_one_active() {
    let test = "app::daemon::testbed::restart::invalid_configurations_leave_the_running_one_active";
    alone_with_errors(test, &["new configuration rejected"], rejects());
}

/// These are found before the running components stop.
async fn rejects() {
    let (servers, testbed) = testbed_with_good_cameras().await;
    let scenario = async {
        host::all_see(&testbed).await;
        let running = config_report(&testbed, "edge1", "\"ok\"").await["hash"].clone();
        let foreign = TcpListener::bind("127.0.0.1:0").unwrap();
        let occupied = foreign.local_addr().unwrap().to_string();
        let empty = testbed.directory.path().join("empty");
        fs::create_dir(&empty).unwrap();
        let text = testbed.text();
        for (new, expected) in [
            (
                text.replace(&testbed.page.to_string(), &occupied),
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
            testbed.reload(&new);
            let report = config_report(&testbed, "edge1", expected).await;
            assert_eq!(report["hash"], running, "{report}");
        }
        assert!(
            !get(testbed.page, "/healthz").is_empty(),
            "the page is there"
        );
        signal("-TERM");
    };
    let (report, ()) = testbed.run_while(machine_clock(), scenario).await;
    assert!(report.balanced(), "{report}");
    for server in &servers {
        assert_eq!(server.memory().connections, 1, "no scene was stopped");
    }
}

// Faults: K9.
#[test]
fn page_and_api_exchange_their_ports_by_a_reload() {
    let test = "app::daemon::testbed::restart::page_and_api_exchange_their_ports_by_a_reload";
    alone_without_an_error(test, exchanges());
}

async fn exchanges() {
    let (_servers, testbed) = testbed_with_good_cameras().await;
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let (page, api) = (testbed.page, free.local_addr().unwrap());
    drop(free);
    let site = |page: SocketAddr, api: SocketAddr| {
        let text = testbed.text();
        let text = text.replace(&testbed.page.to_string(), &page.to_string());
        format!("{text}[api]\nlisten = \"{api}\"\n")
    };
    testbed.write(&site(page, api));
    let answers = |path: &str, at| get(at, path).starts_with("HTTP/1.1 200");
    let scenario = async {
        host::all_see(&testbed).await;
        assert!(answers("/readyz", page) && answers("/health", api));
        testbed.reload(&site(api, page));
        until("each has the other's port", || {
            answers("/readyz", api) && answers("/health", page)
        })
        .await;
        signal("-TERM");
    };
    let (report, ()) = testbed.run_while(machine_clock(), scenario).await;
    assert!(report.balanced(), "{report}");
}

// Faults: K3, K4.
#[test]
fn configuration_that_cannot_start_returns_to_the_previous_one() {
    let test = "app::daemon::testbed::restart::configuration_that_cannot_start_returns_to_the_previous_one";
    alone_with_errors(test, &["cannot be started; the previous"], returns());
}

async fn returns() {
    let (_servers, testbed) = testbed_with_good_cameras().await;
    let good = engines_of(&testbed.scene);
    let failed = Arc::new(AtomicBool::new(false));
    let has_failed = Arc::clone(&failed);
    let engines: Arc<OpenEngines> = Arc::new(move |plan| {
        if plan.config.model.max_objects == 7 {
            has_failed.store(true, Ordering::Relaxed);
            return Box::pin(async { anyhow::bail!("model: seven do not fit") });
        }
        good(plan)
    });
    let scenario = async {
        host::all_see(&testbed).await;
        let running = config_report(&testbed, "edge1", "\"ok\"").await["hash"].clone();
        let text = testbed.text();
        let with_objects = |count: u32| {
            let budget = format!("model.max_objects = {count}\nmodel.budget");
            text.replace("model.budget", &budget)
        };
        testbed.reload(&with_objects(7));
        let report = config_report(&testbed, "edge1", "seven do not fit").await;
        assert_eq!(report["hash"], running, "{report}");
        assert!(failed.load(Ordering::Relaxed));
        until("all see it again", || host::all_present(&testbed)).await;

        // Another model that can be opened.
        testbed.reload(&with_objects(6));
        let report = config_report(&testbed, "edge1", "\"ok\"").await;
        assert_ne!(report["hash"], running, "{report}");
        until("all see it with the other model", || {
            host::all_present(&testbed)
        })
        .await;
        signal("-TERM");
    };
    let (report, ()) = testbed.run_with(machine_clock(), engines, scenario).await;
    assert!(report.balanced(), "{report}");
}
