//! `spotter fleet status` with a real broker: a daemon beside nodes whose retained messages a script published.

use std::net::SocketAddr;

use crate::support::{
    DONE, Ended, FAILED, Program,
    broker::{Consumer, broker, publish},
    file, free_address, spotter,
};
use serde_json::{Value, json};

/// Something is wrong with a node.
const TROUBLE: i32 = 2;

/// The least time to listen.
const WAIT: &str = "--wait=12s";

fn status(broker: SocketAddr, options: &[&str]) -> Ended {
    let url = format!("mqtt://{broker}");
    let arguments = ["fleet", "status", "--mqtt", &url];
    spotter(arguments.iter().chain(options))
}

fn retain(broker: SocketAddr, node: &str, topic: &str, payload: &str) {
    publish(broker, &format!("spotter/{node}/{topic}"), payload, &["-r"]);
}

fn info(started_ms: i64, host: &str) -> String {
    let info = json!({
        "v": 1, "daemon": {"name": "spotter", "version": "0.0.9"}, "boot": "77aa", "started_ms": started_ms, "host": host,
        "cams": [{"id": "dock", "prompts": [], "zones": [], "rate": 1.0}],
    });
    info.to_string()
}

#[test]
fn fleet_status_shows_daemon_and_offline_node_until_broker_stops() {
    let directory = tempfile::tempdir().expect("a directory");
    let address = free_address();
    let running_broker = broker(address, "");
    let consumer = Consumer::on(address);
    let state = directory.path().join("state");
    let text = format!(
        "node = {{ name = \"edge1\", state_dir = {state:?} }}\nhttp.listen = \"off\"\nmodel.budget = \"60s\"\n\
         mqtt.url = \"mqtt://{address}\"\n[camera.gate]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n"
    );
    let path = file(directory.path(), "site.toml", text);
    let daemon = Program::start(["run", "--config", path.to_str().expect("UTF-8")]);
    consumer.wait_for("spotter/edge1/stats", |_| true);

    let found = status(address, &["--wait=0s"]).expect(DONE);
    assert!(
        found.stdout.contains("1 streaming") && found.stdout.ends_with("1 node, no problems"),
        "{found:#?}"
    );

    let rejected = json!({"v": 1, "state": "rejected", "hash": "", "at": "", "errors": ["site.toml:1:1 x: unknown key"]});
    retain(address, "edge2", "info", &info(7, "box2"));
    retain(address, "edge2", "status", "offline");
    retain(address, "edge2", "config", &rejected.to_string());
    retain(address, "edge3", "info", &info(8, "box3"));
    retain(address, "edge3", "status", "online");
    let owner = r#"{"v":1,"node":"edge2","epoch":17}"#;
    retain(address, "hall", "cam/dock/owner", owner);
    let found = status(address, &[WAIT, "--json"]).expect(TROUBLE);
    let report: Value = serde_json::from_str(&found.stdout).expect("JSON");
    let of = |index: usize, key: &str| report["nodes"][index][key].clone();
    let states = [0, 1, 2].map(|index| of(index, "state"));
    assert_eq!(states, ["online", "offline", "silent"], "{report:#}");
    assert_eq!(of(0, "problems"), json!([]), "{report:#}");
    let camera = json!([{"camera": "gate", "state": "streaming", "reason": null}]);
    assert_eq!(of(0, "cameras"), camera);
    assert!(of(0, "figures")["time_ms"].is_i64(), "{report:#}");
    let problem = |kind: &str, text: &str| json!({"kind": kind, "text": text});
    let offline = problem("offline", "offline");
    let errors = problem(
        "config_rejected",
        "configuration rejected, the previous one is active: site.toml:1:1 x: unknown key",
    );
    assert_eq!(of(1, "problems"), json!([offline, errors]));
    let down = problem("owner_down", "camera dock: its box edge2 is offline");
    assert_eq!(report["fleets"][0]["problems"], json!([down]));

    daemon.terminate().expect(DONE);
    let found = status(address, &["--wait=0s"]).expect(TROUBLE);
    assert!(
        found.stdout.contains("edge1: offline; last figures at "),
        "{found:#?}"
    );
    drop(running_broker);
    let place = format!("reading the broker {address}");
    status(address, &[WAIT]).fails_with(FAILED, &[&place, "cannot reach the broker"]);
}

#[test]
fn removed_options_are_accepted_with_a_warning() {
    let options = [
        "--watch",
        "--cameras",
        "--nats=nats://127.0.0.1:1",
        "--fleet=hall",
    ];
    let found = spotter(["fleet", "status"].into_iter().chain(options)).expect(FAILED);
    for option in options.map(|option| option.split('=').next().unwrap_or(option)) {
        let warning = format!("warning: {option} was removed and will be an error");
        assert!(found.stderr.contains(&warning), "{found:#?}");
    }
    let advice = "--mqtt with the broker of the boxes";
    assert!(found.stderr.contains(advice), "{found:#?}");
}
