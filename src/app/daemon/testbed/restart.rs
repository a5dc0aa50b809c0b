//! Reloads that restart all components inside the process.

use super::*;
use spotter_scripted::broker;

/// What the topic `config` reports, once it contains `expected`.
async fn config_report(testbed: &Testbed, expected: &str) -> Value {
    let report = || testbed.retained("config").unwrap_or_default();
    until(expected, || report().contains(expected)).await;
    serde_json::from_str(&report()).unwrap()
}

// Faults: K2, K3, K4, K9, K10, K20.
#[test]
fn restarting_reload_is_rejected_applied_or_undone() {
    let test = "app::daemon::testbed::restart::restarting_reload_is_rejected_applied_or_undone";
    let errors = [
        "new configuration rejected",
        "cannot be started; the previous",
        "draws no outlines",
    ];
    alone_with_errors(test, &errors, restarts());
}

async fn restarts() {
    let (servers, testbed) = testbed_with_good_cameras().await;
    let other = ScriptedBroker::start(broker::BrokerScript::default()).await;
    other.consume();
    let good = engines_of(&testbed.scene);
    let engines: Arc<OpenEngines> = Arc::new(move |plan| {
        if plan.config.model.max_objects == 7 {
            return Box::pin(async { anyhow::bail!("model: seven do not fit") });
        }
        good(plan)
    });
    let (page, api) = (testbed.page, free_address());
    let site = |page: SocketAddr, api: SocketAddr| {
        let text = testbed.text();
        let text = text.replace(&testbed.page.to_string(), &page.to_string());
        format!("{text}[api]\nlisten = \"{api}\"\n")
    };
    testbed.write(&site(page, api));
    let answers = |path: &str, at| get(at, path).0 == 200;
    let hash = async |expected: &str| {
        let report = config_report(&testbed, expected).await;
        report["hash"].clone()
    };
    let scenario = async {
        host::all_see(&testbed).await;
        let running = hash("\"ok\"").await;
        // These are found before the running components stop.
        let foreign = TcpListener::bind("127.0.0.1:0").unwrap();
        let occupied = foreign.local_addr().unwrap();
        let empty = testbed.directory.path().join("empty");
        fs::create_dir(&empty).unwrap();
        let model = format!("model.path = {empty:?}\nmodel.budget");
        for (new, expected) in [
            (site(occupied, api), "http.listen: cannot listen on"),
            (site(page, occupied), "api.listen: cannot listen on"),
            (
                site(page, api).replace("model.budget", &model),
                "config.json",
            ),
            (
                site(page, api).replace("{ detect =", "{ segment ="),
                "prompt.thing.segment: Moondream 2 draws no outlines",
            ),
        ] {
            testbed.reload(&new);
            assert_eq!(hash(expected).await, running, "{expected}");
        }
        assert!(answers("/readyz", page) && answers("/health", api));
        for server in &servers {
            assert_eq!(server.memory().connections, 1, "no camera was stopped");
        }
        testbed.reload(&site(api, page));
        until("each has the other's port", || {
            answers("/readyz", api) && answers("/health", page)
        })
        .await;
        let running = hash("\"ok\"").await;
        let with_objects = |count: u32| {
            let budget = format!("model.max_objects = {count}\nmodel.budget");
            testbed.reload(&site(api, page).replace("model.budget", &budget));
        };
        // It cannot start: the previous one runs again.
        with_objects(7);
        assert_eq!(hash("seven do not fit").await, running);
        until("all see it again", || host::all_present(&testbed)).await;
        with_objects(6);
        assert_ne!(hash("\"ok\"").await, running);
        until("all see it with the other model", || {
            host::all_present(&testbed)
        })
        .await;
        // Another broker, name and database: everything is published there.
        let (from, to) = (testbed.broker.port, other.port);
        let moved = site(api, page).replace(&format!(":{from}\""), &format!(":{to}\""));
        let other_state = testbed.directory.path().join("other");
        let [before, after] = [&testbed.state(), &other_state].map(|path| format!("{path:?}"));
        let moved = moved.replace(&before, &after);
        testbed.reload(&moved.replace("\"edge1\"", "\"edge2\""));
        let has_all = || {
            CAMERAS.iter().all(|camera| {
                let topic = format!("spotter/edge2/cam/{camera}/present/thing");
                other.retained(&topic).as_deref() == Some("ON")
            })
        };
        until("all states at the other broker", has_all).await;
        assert_eq!(testbed.retained("status").as_deref(), Some("offline"));
        assert!(other_state.join("state.db").is_file());
        // It is the last one.
        other.until_retained("spotter/edge2/status", "online").await;
        signal("-TERM");
    };
    let (report, ()) = testbed.run_with(machine_clock(), engines, scenario).await;
    assert!(report.balanced(), "{report}");
    let status = other.retained("spotter/edge2/status");
    assert_eq!(status.as_deref(), Some("offline"));
    for server in &servers {
        let memory = server.memory();
        assert_eq!((memory.open, memory.torn_down), (0, memory.sessions));
    }
}
