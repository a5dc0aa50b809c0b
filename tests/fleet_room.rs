//! `spotter fleet status --nats` with a real nats-server, whose heartbeats and owners a test writes.

#![expect(
    clippy::expect_used,
    reason = "in a test, what cannot be set up ends the test"
)]

#[allow(dead_code, reason = "each test file uses a part of it")]
mod support;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use spotter_core::{CameraId, Epoch};
use spotter_fleet::{
    entries::Heartbeat,
    store::FleetStore,
    testing::{NatsServer, node},
};
use support::{DONE, Ended, FAILED, Program, command, spotter};

/// Something is wrong with a node.
const TROUBLE: i32 = 2;

const LIST: &str = "[camera.gate]\nurl = \"rtsp://192.0.2.10/a\"\nrate = 2\nprompt.car.detect = \"car\"\n\
    [camera.ramp]\nurl = \"rtsp://192.0.2.11/a\"\nrate = 2\nprompt.car.detect = \"car\"\n\
    [camera.yard]\nurl = \"rtsp://192.0.2.12/a\"\nrate = 2\nprompt.car.detect = \"car\"\n";

/// `look` can read three buckets, and can neither write a key nor make a bucket. In a test, the password is the name.
const ACCOUNTS: &str = r#"
accounts { SPOTTER { jetstream: enabled, users = [
  { user: node, password: node }
  { user: look, password: look, permissions {
    publish: [
      "$JS.API.STREAM.INFO.KV_spotter-hall-list"
      "$JS.API.STREAM.INFO.KV_spotter-hall-nodes"
      "$JS.API.STREAM.INFO.KV_spotter-hall-owners"
      "$JS.API.CONSUMER.CREATE.KV_spotter-hall-list"
      "$JS.API.CONSUMER.CREATE.KV_spotter-hall-nodes"
      "$JS.API.CONSUMER.CREATE.KV_spotter-hall-owners"
      "$JS.API.CONSUMER.DELETE.KV_spotter-hall-list.*"
      "$JS.API.CONSUMER.DELETE.KV_spotter-hall-nodes.*"
      "$JS.API.CONSUMER.DELETE.KV_spotter-hall-owners.*"
      "$JS.FC.KV_spotter-hall-list.>"
      "$JS.FC.KV_spotter-hall-nodes.>"
      "$JS.FC.KV_spotter-hall-owners.>"
    ]
    subscribe: [ "_INBOX.>" ]
  } }
] } }
"#;

/// A server, and the connection of the nodes to it.
struct Room {
    server: NatsServer,
    store: FleetStore,
    runtime: tokio::runtime::Runtime,
}

impl Room {
    fn start() -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let server = NatsServer::start_with(ACCOUNTS);
        let store = runtime.block_on(FleetStore::connect(server.settings_of("node")));
        Self {
            store: store.expect("a connection"),
            server,
            runtime,
        }
    }

    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.server.port())
    }

    fn apply(&self, text: &str, before: Option<u64>) -> u64 {
        let put = self.runtime.block_on(self.store.put_list(text, before));
        put.expect("a list")
    }

    fn renew(&self, name: &str, heartbeat: &Heartbeat) {
        let renewed = self
            .runtime
            .block_on(self.store.renew(&node(name), heartbeat));
        renewed.expect("a heartbeat");
    }

    fn own(&self, camera: &str, owner: Option<&str>, expected: Option<Epoch>) -> Epoch {
        let camera = CameraId::new(camera).expect("a name");
        let owned = self.store.set_owner(&camera, owner.map(node), expected);
        let epoch = self.runtime.block_on(owned).expect("an answer");
        epoch.expect("the expected epoch")
    }

    fn start_status(&self, options: &[&str]) -> Program {
        let url = self.url();
        let arguments = ["fleet", "status", "--nats", &url, "--fleet", "hall"];
        let login = ["--user", "look"];
        let arguments = arguments.iter().chain(&login).chain(options);
        Program::from_command(command(arguments).env("NATS_PASSWORD", "look"))
    }

    fn status(&self, options: &[&str]) -> Ended {
        self.start_status(options).end()
    }
}

fn heartbeat(list_revision: u64) -> Heartbeat {
    Heartbeat {
        version: "0.1.0".to_owned(),
        list_revision: Some(list_revision),
        capacity_hz: 8.0,
        ..Heartbeat::default()
    }
}

#[test]
fn room_is_shown_to_a_login_that_may_only_read() {
    let room = Room::start();
    let nothing = "the fleet hall has no boxes in NATS";
    room.status(&[]).fails_with(FAILED, &[nothing]);

    let revision = room.apply(LIST, None);
    room.renew("edge1", &heartbeat(revision));
    let labels = BTreeSet::from(["hall2".to_owned()]);
    let second = Heartbeat {
        labels,
        ..heartbeat(revision)
    };
    room.renew("edge2", &second);
    for (camera, owner) in [("gate", "edge1"), ("ramp", "edge2"), ("yard", "edge1")] {
        room.own(camera, Some(owner), None);
    }
    let expected = "\
node    state  version  labels  list  looks/s  asked/s  load %  cameras  refused
edge1  online    0.1.0       -     1      8.0      4.0      50        2        0
edge2  online    0.1.0   hall2     1      8.0      2.0      25        1        0

camera   node  state  asked/s
gate    edge1  owned      2.0
ramp    edge2  owned      2.0
yard    edge1  owned      2.0

fleet hall: 2 nodes, 3 cameras, no problems";
    let found = room.status(&["--cameras"]).expect(DONE);
    assert_eq!(found.stdout, expected);
}

#[test]
fn problems_of_a_room_end_with_exit_status_two() {
    let room = Room::start();
    let before = room.apply(LIST, None);
    let revision = room.apply(&format!("# Changed\n{LIST}"), Some(before));
    room.renew("edge1", &heartbeat(before));
    room.own("gate", Some("edge1"), None);
    room.own("ramp", Some("edge9"), None);
    let found = room.status(&["--json"]).expect(TROUBLE);
    let report: Value = serde_json::from_str(&found.stdout).expect("JSON");
    let states = [0, 1].map(|index| report["nodes"][index]["state"].clone());
    assert_eq!(states, ["online", "gone"], "{report:#}");
    let other = json!([{"kind": "other_list", "revision": before, "newest": revision}]);
    assert_eq!(report["nodes"][0]["problems"], other);
    let gone = json!([{"kind": "gone", "cameras": ["ramp"]}]);
    assert_eq!(report["nodes"][1]["problems"], gone);
    let unowned = json!([{"kind": "no_owner", "cameras": ["yard"]}]);
    assert_eq!(report["problems"], unowned);

    let (wrong, closed) = (["--user", "look"], room.url());
    let arguments = ["fleet", "status", "--nats", &closed, "--fleet", "hall"];
    let arguments = arguments.iter().chain(&wrong);
    let rejected = Program::from_command(command(arguments).env("NATS_PASSWORD", "canary")).end();
    rejected.fails_with(FAILED, &["rejected the login"]);
}

#[test]
fn watch_of_a_room_prints_a_camera_that_is_released() {
    let room = Room::start();
    let revision = room.apply(LIST, None);
    room.renew("edge1", &heartbeat(revision));
    let owned = ["gate", "ramp", "yard"].map(|camera| room.own(camera, Some("edge1"), None));
    let watch = room.start_status(&["--watch", "--json"]);
    let first = watch.stdout.wait_for("edge1");
    assert!(first.ends_with("\"problems\":[]}"), "{first}");
    room.own("yard", None, Some(owned[2]));
    let line = watch.stdout.wait_for("no_owner");
    assert!(line.contains("[\"yard\"]"), "{line}");
}

#[test]
fn options_of_two_kinds_of_status_exclude_each_other() {
    let nats = ["--nats", "nats://127.0.0.1:1", "--fleet", "hall"];
    let mqtt = ["--mqtt", "mqtt://127.0.0.1"];
    for (arguments, part) in [
        (vec![], "<--mqtt <URL>|--nats <URL>>"),
        ([&nats[..], &mqtt].concat(), "cannot be used with"),
        ([&mqtt[..], &["--cameras"]].concat(), "cannot be used with"),
        (
            [&nats[..], &["--wait", "0s"]].concat(),
            "cannot be used with",
        ),
        (nats[..2].to_vec(), "--fleet <NAME>"),
    ] {
        let ended = spotter(["fleet", "status"].iter().chain(&arguments)).expect(FAILED);
        assert!(ended.stderr.contains(part), "{ended:#?}");
    }
    let canary = ["--nats", "nats://u:canary@127.0.0.1", "--fleet", "hall"];
    let ended = spotter(["fleet", "status"].iter().chain(&canary)).expect(FAILED);
    let wrong = "--nats contains a user name or password";
    assert!(
        ended.stderr.contains(wrong) && !ended.stderr.contains("canary"),
        "{ended:#?}"
    );
}
