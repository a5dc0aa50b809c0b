//! Reports of recorded messages.

use serde_json::{Value, json};

use super::*;

const INFO: &str = r#"{"v":1,"daemon":{"name":"spotter","version":"0.1.0"},"boot":"b7c1","started_ms":1000,"host":"box1",
    "gpus":["a GPU"],"model":null,"cams":[{"id":"gate","prompts":["person"],"zones":[],"rate":0.5},
    {"id":"yard","prompts":[],"zones":[],"rate":1.0}],"config_hash":"0123456789ab","overrides":0,"features":[]}"#;
const CONFIG: &str =
    r#"{"v":1,"state":"ok","hash":"ab12","at":"2026-08-22T10:15:30.123Z","errors":[]}"#;
const STATS: &str = r#"{"v":1,"time_ms":1787393740000,"started_ms":1000,"uptime_s":10,"cams_online":2,"cams_total":2,
    "frames_analysed_ps":9.0,"frames_late_ps":1.0,"lat_total_p95_ms":88.4,"lat_budget_ms":250,"lat_over_budget":0,
    "gpu0_util_pct":71.0,"gpu0_busy_pct":92.3,"gpu0_mem_mib":5120,"gpu0_temp_c":61,"nvdec_pct":null,"cpu_pct":223.5}"#;
const STREAMING: &str =
    r#"{"v":1,"state":"streaming","reason":null,"since_ms":1787393730123,"rtp_lost":3}"#;
/// The topics of a node without problems.
const WELL: [(&str, &str); 6] = [
    ("info", INFO),
    ("status", "online"),
    ("config", CONFIG),
    ("stats", STATS),
    ("cam/gate/health", STREAMING),
    ("cam/yard/health", STREAMING),
];

/// A view of the node `edge1`, or of others below the base.
#[derive(Default)]
struct Recorded(FleetView);

impl Recorded {
    fn well() -> Self {
        let mut recorded = Self::default();
        for (topic, payload) in WELL {
            recorded.retained(topic, payload);
        }
        recorded
    }

    fn retained(&mut self, topic: &str, payload: &str) {
        self.receive("edge1", topic, payload, true);
    }

    fn live(&mut self, topic: &str, payload: &str) {
        self.receive("edge1", topic, payload, false);
    }

    fn receive(&mut self, name: &str, topic: &str, payload: &str, retained: bool) {
        let message = Inbound {
            topic: format!("spotter/{name}/{topic}"),
            payload: payload.into(),
            retained,
            reply_to: None,
        };
        self.0.receive("spotter", &message);
    }

    /// Nodes `edge1` (online) and `edge2` of the fleet `hall`, which own the cameras `gate` and `yard`.
    fn fleet() -> Self {
        let mut recorded = Self::default();
        let without_cameras =
            r#"{"daemon":{"name":"spotter","version":"0.1.0"},"started_ms":1000,"cams":[]}"#;
        for (node, info) in [("edge1", INFO), ("edge2", without_cameras)] {
            for (topic, payload) in [("info", info), ("status", "online"), ("config", CONFIG)] {
                recorded.receive(node, topic, payload, true);
            }
        }
        // `info` of both follows later: `yard` has moved.
        for (camera, owner) in [("gate", "edge1"), ("yard", "edge2")] {
            recorded.owner(camera, &json!(owner), 17);
            let health = STREAMING.replacen('{', "{\"epoch\":17,", 1);
            recorded.receive("hall", &format!("cam/{camera}/health"), &health, true);
        }
        recorded
    }

    fn owner(&mut self, camera: &str, node: &Value, epoch: u64) {
        let owner = json!({"v": 1, "node": node, "epoch": epoch});
        let topic = format!("cam/{camera}/owner");
        self.receive("hall", &topic, &owner.to_string(), true);
    }

    fn report(&self) -> FleetReport {
        self.0.report("spotter", false)
    }

    fn listened(&self) -> FleetReport {
        self.0.report("spotter", true)
    }

    /// Below the table.
    fn lines(&self) -> Vec<String> {
        let text = self.report().to_string();
        let below = text.split_once("\n\n").map_or("", |(_, below)| below);
        below.lines().map(str::to_owned).collect()
    }

    fn problems(&self) -> Vec<String> {
        let report = self.report();
        let problems = report.problems();
        problems.map(|(_, problem)| problem.text.clone()).collect()
    }
}

#[test]
fn well_node_is_a_row_without_problems() {
    let report = Recorded::well().report();
    assert!(!report.has_problems());
    let expected = "\
node    state  version    config  looks/s  late %  p95 ms  budget ms      cameras
edge1  online    0.1.0  accepted      9.0      10      88        250  2 streaming

1 node, no problems";
    assert_eq!(report.to_string(), expected);
}

/// Each is one retained message more than those of a node that is well.
#[test]
fn each_problem_of_a_node_is_a_line() {
    let rejected = json!({"v": 1, "state": "rejected", "hash": "ab12", "errors": ["site.toml:3:1 url: no host", "one\x1b[2J"]});
    let late = STATS.replace("\"lat_over_budget\":0", "\"lat_over_budget\":1");
    let refused =
        r#"{"state":"auth_failed","reason":"auth_failed: 10.0.0.7:554 refused the login"}"#;
    for (topic, payload, expected) in [
        (
            "config",
            &*rejected.to_string(),
            "configuration rejected, the previous one is active: site.toml:3:1 url: no host; one\u{fffd}[2J",
        ),
        (
            "stats",
            &late,
            "answers are too late: 95 % within 88 ms, the budget is 250 ms",
        ),
        ("status", "asleep", "no readable status"),
        (
            "info",
            "not json",
            "no readable info; its cameras and its version are unknown",
        ),
        (
            "cam/gate/health",
            refused,
            "camera gate: auth_failed: 10.0.0.7:554 refused the login",
        ),
        (
            "cam/gate/health",
            r#"{"state":"connecting","reason":"unreachable: no route"}"#,
            "camera gate: connecting: unreachable: no route",
        ),
        (
            "cam/gate/health",
            r#"{"state":"stalled"}"#,
            "camera gate: stalled",
        ),
        (
            "cam/gate/health",
            r#"{"state":"asleep"}"#,
            "camera gate: configured, and without readable health",
        ),
    ] {
        let mut recorded = Recorded::well();
        recorded.retained(topic, payload);
        let expected = [
            format!("edge1: {expected}"),
            "1 node, 1 with problems".into(),
        ];
        assert_eq!(recorded.lines(), expected, "{payload}");
    }
    let mut recorded = Recorded::well();
    let off = r#"{"state":"disabled","reason":"schedule: its `schedule` leaves this time out"}"#;
    recorded.retained("cam/gate/health", off);
    assert_eq!(recorded.problems(), [""; 0], "off on purpose");
}

#[test]
fn silent_or_offline_node_shows_its_last_time() {
    let mut recorded = Recorded::well();
    let last = "; last figures at 2026-08-22T10:15:40Z by its own clock";
    let silent = format!("silent: its status is online, but it publishes nothing{last}");
    assert_eq!(recorded.listened().nodes[0].problems[0].text, silent);
    recorded.live("stats", STATS);
    assert_eq!(recorded.listened().nodes[0].state, NodeState::Online);
    // The broker publishes the will.
    recorded.live("status", "offline");
    recorded.retained("cam/yard/health", r#"{"state":"stalled","reason":null}"#);
    assert_eq!(recorded.problems(), [format!("offline{last}")]);
    let text = recorded.listened().to_string();
    assert!(
        text.contains("1 streaming, 1 stalled") && !text.contains("250"),
        "{text}"
    );
}

#[test]
fn two_daemons_side_by_side_are_found_by_their_stats() {
    let mut recorded = Recorded::well();
    recorded.live("stats", STATS);
    assert_eq!(recorded.problems(), [""; 0]);
    let of_another_run = STATS.replace("\"started_ms\":1000", "\"started_ms\":2000");
    recorded.live("stats", &of_another_run);
    let expected =
        "two daemons publish as this node (known hosts: box1); give each box its own node.name";
    assert_eq!(recorded.problems(), [expected]);
}

#[test]
fn payloads_of_other_versions_are_read() {
    let mut recorded = Recorded::well();
    for (topic, payload) in WELL.into_iter().filter(|(topic, _)| *topic != "status") {
        let more = r#"{"new_key":{"deep":[1,"two"]},"#;
        recorded.retained(topic, &payload.replacen('{', more, 1));
    }
    // An older node does not name the run in its stats, and one without a GPU has no keys of it.
    recorded.live("stats", r#"{"v":1,"time_ms":5,"frames_analysed_ps":2.0}"#);
    let report = recorded.report();
    assert!(!report.has_problems(), "{report}");
    assert_eq!(report.nodes[0].figures.as_ref().map(|f| f.gpu), Some(None));
}

#[test]
fn cleared_node_is_not_shown() {
    let mut recorded = Recorded::well();
    for (topic, _) in WELL {
        recorded.retained(topic, "");
    }
    let report = recorded.report();
    assert!(report.nodes.is_empty() && report.has_problems());
    assert!(
        report.to_string().starts_with("no node below spotter/"),
        "{report}"
    );
}

#[test]
fn health_below_a_fleet_counts_for_the_owner() {
    let mut recorded = Recorded::fleet();
    let expected = "\
node    state  version    config  looks/s  late %  p95 ms  budget ms      cameras
edge1  online    0.1.0  accepted        -       -       -          -  1 streaming
edge2  online    0.1.0  accepted        -       -       -          -  1 streaming

2 nodes, no problems; fleet hall: 2 cameras, no problems";
    let report = recorded.report();
    assert_eq!(report.to_string(), expected);
    assert!(!report.has_problems());
    let stalled = r#"{"state":"stalled","reason":null,"epoch":17}"#;
    recorded.receive("hall", "cam/yard/health", stalled, true);
    let expected = [
        "edge2: camera yard: stalled",
        "2 nodes, 1 with problems; fleet hall: 2 cameras, no problems",
    ];
    assert_eq!(recorded.lines(), expected);
    // The last state of the earlier owner.
    recorded.owner("yard", &json!("edge2"), 18);
    let expected = "edge2: camera yard: configured, and without readable health";
    assert_eq!(recorded.lines()[0], expected);
}

#[test]
fn cameras_without_an_online_owner_are_problems_of_the_fleet() {
    let mut recorded = Recorded::fleet();
    recorded.owner("gate", &Value::Null, 18);
    recorded.receive("edge2", "status", "offline", true);
    let expected = [
        "edge2: offline",
        "hall: camera gate: no box has it",
        "hall: camera yard: its box edge2 is offline",
        "2 nodes, 1 with problems; fleet hall: 2 cameras, 2 problems",
    ];
    assert_eq!(recorded.lines(), expected);
    recorded.receive("edge2", "status", "online", true);
    let silent = recorded.listened().to_string();
    let line = "hall: camera yard: its box edge2 is silent\n";
    assert!(silent.contains(line), "{silent}");
    recorded.owner("yard", &json!("edge9"), 18);
    let json = serde_json::to_value(recorded.report()).unwrap();
    let problems = json!([
        {"kind": "no_owner", "text": "camera gate: no box has it"},
        {"kind": "owner_down", "text": "camera yard: its box edge9 is unknown"},
    ]);
    let cameras = json!([{"camera": "gate", "node": null}, {"camera": "yard", "node": "edge9"}]);
    let expected = json!([{"fleet": "hall", "cameras": cameras, "problems": problems}]);
    assert_eq!(json["fleets"], expected);
    // A node has the name of the fleet.
    recorded.receive("hall", "status", "online", true);
    let expected = "hall: a node has the name of this fleet; give one of them another name";
    assert!(recorded.lines().contains(&expected.to_owned()));
    assert_eq!(recorded.report().nodes.len(), 3);
}
