//! Reports of recorded events of a store.

use std::time::Duration;

use serde_json::json;
use spotter_core::Epoch;
use spotter_engine::model::ModelConfig;
use spotter_fleet::{
    entries::{Heartbeat, HeartbeatEntry, Ownership},
    testing::node,
};

use super::*;

const LIST: &str = "[camera.gate]\nurl = \"rtsp://192.0.2.10/a\"\nrate = 2\nprompt.car.detect = \"car\"\n\
    user = \"u\"\npassword = { cred = \"camera_gate\" }\n\
    [camera.ramp]\nurl = \"rtsp://192.0.2.11/a\"\nrate = 2\nprompt.car.detect = \"car\"\nlabel = \"hall2\"\n\
    [camera.yard]\nurl = \"rtsp://192.0.2.12/a\"\nrate = 2\nprompt.car.detect = \"car\"\n";

fn at(seconds: u64) -> Mono {
    Mono::default().after(Duration::from_secs(seconds))
}

fn camera(name: &str) -> CameraId {
    CameraId::new(name).unwrap()
}

/// A view of the fleet `hall`.
struct RecordedRoom(RoomView);

impl RecordedRoom {
    fn new() -> Self {
        let costs = CostBasis::new(ModelConfig::default(), None, 0, 0);
        let environment = Environment::new("box", |_| None);
        let mut room = Self(RoomView::new(node("hall"), costs, environment));
        room.see(StoreEvent::Connected, 0);
        room
    }

    /// Nodes `edge1` and `edge2`, which own the three cameras of the list.
    fn well() -> Self {
        let mut room = Self::new();
        room.list(7, LIST);
        room.heartbeats(0);
        for (camera, owner) in [("gate", "edge1"), ("ramp", "edge2"), ("yard", "edge1")] {
            room.owner(camera, Some(owner), 17);
        }
        room.see(StoreEvent::Current, 0);
        room
    }

    fn see(&mut self, event: StoreEvent, seconds: u64) {
        self.0.see(event, at(seconds));
    }

    fn list(&mut self, revision: u64, text: &str) {
        let text = text.to_owned();
        self.see(StoreEvent::List(ListRevision { revision, text }), 0);
    }

    fn heartbeats(&mut self, seconds: u64) {
        self.heartbeat("edge1", heartbeat(), seconds);
        let labels = BTreeSet::from(["hall2".to_owned()]);
        let second = Heartbeat {
            labels,
            ..heartbeat()
        };
        self.heartbeat("edge2", second, seconds);
    }

    fn heartbeat(&mut self, name: &str, heartbeat: Heartbeat, seconds: u64) {
        let entry = HeartbeatEntry {
            node: node(name),
            heartbeat,
            revision: 1,
        };
        self.see(StoreEvent::Heartbeat(entry), seconds);
    }

    fn owner(&mut self, name: &str, owner: Option<&str>, epoch: u64) {
        let ownership = Ownership {
            owner: owner.map(node),
            epoch: Epoch(epoch),
        };
        self.see(StoreEvent::Owned(camera(name), ownership), 0);
    }

    fn report(&self, seconds: u64) -> RoomReport {
        self.0.report(at(seconds), ShownCameras::None)
    }

    /// Below the table.
    fn lines(&self, seconds: u64) -> Vec<String> {
        let text = self.report(seconds).to_string();
        let below = text.rsplit_once("\n\n").map_or(&*text, |(_, below)| below);
        below.lines().map(str::to_owned).collect()
    }
}

fn heartbeat() -> Heartbeat {
    Heartbeat {
        version: "0.1.0".to_owned(),
        list_revision: Some(7),
        capacity_hz: 8.0,
        ..Heartbeat::default()
    }
}

#[test]
fn well_room_shows_loads_and_each_camera_with_its_owner() {
    let room = RecordedRoom::well();
    let report = room.0.report(at(1), ShownCameras::Each);
    assert!(!report.has_problems());
    let expected = "\
node    state  version  labels  list  looks/s  asked/s  load %  cameras  refused
edge1  online    0.1.0       -     7      8.0      4.0      50        2        0
edge2  online    0.1.0   hall2     7      8.0      2.0      25        1        0

camera   node  state  asked/s
gate    edge1  owned      2.0
ramp    edge2  owned      2.0
yard    edge1  owned      2.0

fleet hall: 2 nodes, 3 cameras, no problems";
    assert_eq!(report.to_string(), expected);
}

#[test]
fn node_without_heartbeat_is_gone_with_its_waiting_cameras() {
    let mut room = RecordedRoom::well();
    room.heartbeat("edge1", heartbeat(), 9);
    assert_eq!(room.lines(10).len(), 1);
    let expected = [
        "edge2: gone: it has no heartbeat; 1 camera waits for another box: ramp",
        "hall: the cameras ask for 2.00 looks/s more than the boxes can do",
        "fleet hall: 2 nodes, 3 cameras, 2 problems",
    ];
    assert_eq!(room.lines(11), expected);
    // A reader that connects now does not see a heartbeat of it at all.
    let mut later = RecordedRoom::new();
    later.list(7, LIST);
    later.heartbeat("edge1", heartbeat(), 1);
    later.owner("ramp", Some("edge2"), 17);
    later.owner("gate", Some("edge1"), 18);
    later.owner("yard", None, 19);
    later.owner("removed", Some("edge3"), 20);
    let report = later.0.report(at(1), ShownCameras::Each);
    let json = serde_json::to_value(&report).unwrap();
    let gone = &json["nodes"][1];
    assert_eq!(
        (&gone["node"], &gone["state"]),
        (&json!("edge2"), &json!("gone"))
    );
    assert_eq!(
        gone["problems"],
        json!([{"kind": "gone", "cameras": ["ramp"]}])
    );
    let states = json!(["owned", "waiting", "unowned"]);
    let cameras = [0, 1, 2].map(|index| json["cameras"][index]["state"].clone());
    assert_eq!(json!(cameras), states);
    let unowned = json!({"kind": "no_owner", "cameras": ["yard"]});
    assert_eq!(json["problems"][0], unowned);
    assert_eq!(json["problems"][1]["kind"], "missing_looks");
}

#[test]
fn other_revision_and_refused_cameras_are_problems_of_nodes() {
    let mut room = RecordedRoom::well();
    let reason = "credential \"gate\"\x1b is absent".to_owned();
    let old = Heartbeat {
        list_revision: Some(6),
        refused: BTreeMap::from([(camera("gate"), reason)]),
        ..heartbeat()
    };
    room.heartbeat("edge1", old, 1);
    let second = |is_leaving| Heartbeat {
        list_revision: None,
        labels: BTreeSet::from(["hall2".to_owned()]),
        is_leaving,
        ..heartbeat()
    };
    room.heartbeat("edge2", second(false), 1);
    let expected = [
        "edge1: follows revision 6 of the list, the newest is 7; its topic `config` has the reason",
        "edge1: cannot watch camera gate: credential \"gate\"\u{fffd} is absent",
        "edge2: follows no list yet, the newest is revision 7",
        "hall: the cameras ask for 4.00 looks/s more than the boxes can do",
        "fleet hall: 2 nodes, 3 cameras, 4 problems",
    ];
    assert_eq!(room.lines(1), expected);
    room.heartbeat("edge2", second(true), 1);
    let leaving = room.report(1).to_string();
    assert!(
        leaving.contains("edge2  leaving") && !leaving.contains("edge2: "),
        "{leaving}"
    );
}

#[test]
fn lack_of_looks_boxes_and_lists_is_a_problem() {
    let mut room = RecordedRoom::well();
    for (name, capacity_hz) in [("edge1", 2.0), ("edge2", 3.0)] {
        let slow = Heartbeat {
            capacity_hz,
            labels: BTreeSet::from(["hall2".to_owned()]),
            ..heartbeat()
        };
        room.heartbeat(name, slow, 1);
    }
    let expected = "hall: the cameras ask for 1.00 looks/s more than the boxes can do";
    assert_eq!(room.lines(1)[0], expected);
    room.list(8, "[camera.gate]\nurl = 5\n");
    let lines = room.lines(1);
    let unreadable = lines.iter().any(|line| {
        line.starts_with("hall: revision 8 of the list cannot be read by this version: list:1:1")
    });
    assert!(unreadable, "{lines:#?}");
    let expected = [
        "hall: no box takes part",
        "hall: no list of cameras; write one with `spotter fleet apply FILE`",
        "fleet hall: 0 nodes, 0 cameras, 2 problems",
    ];
    assert_eq!(RecordedRoom::new().lines(1), expected);
}
