//! SIGTERM in every phase of the daemon.

use serde_json::json;

use super::*;
use spotter_scripted::rtsp::script::CameraFault;

// Faults: D8.
#[test]
fn stop_ends_in_time_at_every_moment() {
    let test = "app::daemon::testbed::host::stop::stop_ends_in_time_at_every_moment";
    alone_without_an_error(test, stop_everywhere());
}

/// Runs a testbed of cameras that play `script` until `scenario` ends, and asserts that the daemon then ends in time.
async fn stopped(
    name: &'static str,
    script: CameraScript,
    scenario: impl AsyncFnOnce(&Testbed),
) -> (Testbed, Vec<Server>) {
    stopped_with(name, script, 0, scenario).await
}

/// With a broker that answers CONNECT with `connack` from the start.
async fn stopped_with(
    name: &'static str,
    script: CameraScript,
    connack: u8,
    scenario: impl AsyncFnOnce(&Testbed),
) -> (Testbed, Vec<Server>) {
    let mut servers = Vec::new();
    for _ in CAMERAS {
        let script = script.clone();
        servers.push(Server::start(move |_| script.clone()).await);
    }
    let testbed = Testbed::new(servers.iter().map(Server::url).collect(), PATIENT).await;
    testbed.broker.script(|script| script.connack = connack);
    let clock = machine_clock();
    let asked = async {
        scenario(&testbed).await;
        let at = clock.now();
        signal("-TERM");
        at
    };
    let (report, at) = testbed.run_while(Arc::clone(&clock), asked).await;
    let took = clock.now().since(at);
    println!("{name}: ended after {:.1} s", took.as_secs_f64());
    assert!(took < STOP_LIMIT, "{name}: {took:?}");
    assert!(report.balanced(), "{name}: {report}");
    until_disconnected(&servers).await;
    for server in &servers {
        let memory = server.memory();
        // A session that is being set up has no id for TEARDOWN yet.
        assert!(
            memory.count("TEARDOWN") >= memory.count("PLAY"),
            "{name}: {memory:?}"
        );
    }
    (testbed, servers)
}

/// As [`stopped`] with a good broker, which must know afterwards that the node is offline.
async fn offline(
    name: &'static str,
    script: CameraScript,
    scenario: impl AsyncFnOnce(&Testbed),
) -> (Testbed, Vec<Server>) {
    let (testbed, servers) = stopped(name, script, scenario).await;
    let status = testbed.retained("status");
    assert_eq!(status.as_deref(), Some("offline"), "{name}");
    (testbed, servers)
}

async fn stop_everywhere() {
    let is_online = |testbed: &Testbed| testbed.retained("status").as_deref() == Some("online");
    while_the_model_loads().await;

    let at_once = async |_: &Testbed| sleep(Duration::ZERO).await;
    stopped("at once", good(), at_once).await;
    let silent = good().at("DESCRIBE", CameraFault::Silence);
    offline("while cameras connect", silent, async |testbed| {
        until("online", || is_online(testbed)).await;
    })
    .await;
    let runs = async |testbed: &Testbed| all_see(testbed).await;
    let (testbed, servers) = offline("while everything runs", good(), runs).await;
    let mut servers = servers.iter();
    assert!(servers.all(|server| server.memory().sessions == 1));
    let messages = testbed.broker.consumed();
    let ends = messages.iter().filter(|message| is_end(message));
    assert_eq!(ends.count(), CAMERAS.len(), "all events end with it");

    let sees_pictures = async |testbed: &Testbed| {
        until("pictures", || {
            let online = "camera_online{camera=\"gate\"} 1";
            testbed.metrics().contains(online)
        })
        .await;
    };
    stopped_with("while the broker refuses", good(), 0x89, sees_pictures).await;
    stopped("while the broker is away", good(), async |testbed| {
        testbed.broker.leave();
        sees_pictures(testbed).await;
    })
    .await;
    stopped("while the broker is silent", good(), async |testbed| {
        all_see(testbed).await;
        testbed.broker.script(|script| script.is_half_open = true);
    })
    .await;
    let name = "while the broker acknowledges nothing";
    stopped(name, good(), async |testbed| {
        until("online", || is_online(testbed)).await;
        let never = spotter_scripted::broker::Acknowledges::Never;
        testbed.broker.script(|script| script.acknowledges = never);
        sees_pictures(testbed).await;
    })
    .await;

    let edit = |testbed: &Testbed, from: &str, to: &str| {
        testbed.reload(&testbed.text().replace(from, to));
    };
    offline("in a reload", good(), async |testbed| {
        all_see(testbed).await;
        edit(testbed, "\"Is it dark?\"", "\"Is it night?\"");
    })
    .await;
    let name = "in a reload that restarts for another model";
    offline(name, good(), async |testbed| {
        all_see(testbed).await;
        edit(testbed, "budget = \"5s\"", "budget = \"6s\"");
    })
    .await;
    let mute = good().after(0, CameraFault::Silence);
    offline("while a question waits", mute, async |testbed| {
        until("online", || is_online(testbed)).await;
        let question = json!({"op": "ask", "cam": "gate", "text": "Is it night?"});
        testbed.say("cmd", question.to_string());
        sleep(Duration::from_millis(300)).await;
    })
    .await;
}

pub(super) fn is_end(message: &Publish) -> bool {
    let text = String::from_utf8_lossy(&message.payload);
    message.topic.contains("/event/") && text.contains("\"type\":\"end\"")
}

async fn while_the_model_loads() {
    let (servers, testbed) = testbed_with_good_cameras().await;
    let (loading, is_loading) = tokio::sync::watch::channel(false);
    let engines: Arc<OpenEngines> = Arc::new(move |_| {
        loading.send_replace(true);
        Box::pin(pending())
    });
    let scenario = async {
        let mut is_loading = is_loading;
        is_loading.wait_for(|is_loading| *is_loading).await.unwrap();
        signal("-TERM");
    };
    testbed.run_with(machine_clock(), engines, scenario).await;
    assert!(
        servers
            .iter()
            .all(|server| server.memory().connections == 0)
    );
    assert_eq!(testbed.retained("status"), None);
}
