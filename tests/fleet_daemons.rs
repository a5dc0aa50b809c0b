//! Three boxes with one list of cameras, a real nats-server and a real broker: one is killed, one is stopped, and the cameras keep their topics.

#![expect(
    clippy::expect_used,
    reason = "in a test, what cannot be set up ends the test"
)]

#[allow(dead_code, reason = "each test file uses a part of it")]
mod support;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use support::{
    DONE, Program,
    broker::{publish, retained},
    room::Room,
    until,
};

const BOXES: [&str; 3] = ["edge1", "edge2", "edge3"];
const CAMERAS: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];

/// Who has a camera, and since which epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    node: Option<String>,
    epoch: u64,
}

/// A list of these cameras.
fn list(cameras: &[&str]) -> String {
    let camera = |id: &&str| {
        format!("[camera.{id}]\nurl = \"test://\"\nprompt.ball.detect = \"white ball\"\n")
    };
    let cameras: String = cameras.iter().map(camera).collect();
    format!("[defaults]\nrate = 1\nfirst_frame = \"60s\"\nstall = \"60s\"\n{cameras}")
}

/// By the retained messages.
fn owners(room: &Room) -> BTreeMap<String, Owner> {
    let retained = retained(room.address);
    let owners = retained.iter().filter_map(|(topic, payload)| {
        let camera = topic.strip_prefix("spotter/hall/cam/")?;
        let camera = camera.strip_suffix("/owner")?;
        let owner: Value = serde_json::from_str(payload).ok()?;
        let owner = Owner {
            node: owner["node"].as_str().map(str::to_owned),
            epoch: owner["epoch"].as_u64()?,
        };
        Some((camera.to_owned(), owner))
    });
    owners.collect()
}

/// Waits until each of the cameras is published by one of these boxes.
fn wait_until_watched(room: &Room, boxes: &[&str], cameras: &[&str]) -> BTreeMap<String, Owner> {
    let owners = until("owners of all cameras", || {
        let owners = owners(room);
        let is_watched = |camera: &&str| {
            let node = owners.get(*camera).and_then(|owner| owner.node.as_deref());
            node.is_some_and(|node| boxes.contains(&node))
        };
        cameras.iter().all(is_watched).then_some(owners)
    });
    let from = room.consumer.now();
    for camera in cameras {
        let epoch = owners[*camera].epoch;
        let topic = format!("spotter/hall/cam/{camera}/det/ball");
        room.consumer
            .wait_after(from, &topic, |text| epoch_of(text) == Some(epoch));
    }
    owners
}

fn epoch_of(payload: &str) -> Option<u64> {
    let message: Value = serde_json::from_str(payload).ok()?;
    message["epoch"].as_u64()
}

#[test]
fn cameras_keep_their_topics_when_boxes_fail_and_stop() {
    let room = Room::new();
    room.apply(&list(&CAMERAS));
    let mut programs: BTreeMap<&str, Program> = BOXES.map(|name| (name, room.start(name))).into();
    let first = wait_until_watched(&room, &BOXES, &CAMERAS);
    let nodes: BTreeSet<&str> = first.values().filter_map(|o| o.node.as_deref()).collect();
    let killed = *BOXES
        .iter()
        .find(|name| nodes.contains(*name))
        .expect("one has cameras");
    let its = |owners: &BTreeMap<String, Owner>, name: &str| -> Vec<String> {
        let its = owners
            .iter()
            .filter(|(_, o)| o.node.as_deref() == Some(name));
        its.map(|(camera, _)| camera.clone()).collect()
    };
    let moving = its(&first, killed);

    // A command reaches the owner, and one box answers.
    let from = room.consumer.now();
    let camera = &moving[0];
    publish(
        room.address,
        &format!("spotter/hall/cam/{camera}/rate/set"),
        "2",
        &[],
    );
    room.consumer
        .wait_after(from, &format!("cam/{camera}/rate"), |text| text == "2");
    let request = json!({"op": "get", "what": "settings", "id": "r1"});
    publish(
        room.address,
        &format!("spotter/{killed}/cmd"),
        &request.to_string(),
        &[],
    );
    room.consumer
        .wait_after(from, &format!("{killed}/reply"), |text| text.contains("r1"));

    // The membership writes it to the store at its next step.
    std::thread::sleep(std::time::Duration::from_secs(2));

    let from = room.consumer.now();
    programs.remove(killed);
    let others: Vec<&str> = BOXES.into_iter().filter(|name| *name != killed).collect();
    let second = wait_until_watched(&room, &others, &CAMERAS);
    for (camera, owner) in &second {
        match moving.contains(camera) {
            true => assert!(owner.epoch > first[camera].epoch, "{camera}: {owner:?}"),
            false => assert_eq!(owner, &first[camera], "{camera} did not have to move"),
        }
    }
    // What the command changed is known to the next owner.
    room.consumer
        .wait_after(from, &format!("cam/{camera}/rate"), |text| text == "2");

    // A stop hands over: the last message of the old epoch comes before the first of the new one.
    let [stopped, last] = others[..] else {
        panic!("{others:?}")
    };
    let moving = its(&second, stopped);
    programs
        .remove(stopped)
        .expect("it runs")
        .terminate()
        .expect(DONE);
    let third = wait_until_watched(&room, &[last], &CAMERAS);
    for camera in &moving {
        let heard = room.consumer.all();
        let prefix = format!("spotter/hall/cam/{camera}/");
        let epochs = heard
            .iter()
            .filter(|heard| heard.topic.starts_with(&prefix));
        let epochs: Vec<u64> = epochs
            .filter_map(|heard| epoch_of(&heard.payload))
            .collect();
        assert!(epochs.is_sorted(), "{camera}: {epochs:?}");
        assert!(third[camera].epoch > second[camera].epoch);
    }

    // A camera that is removed from the list leaves nothing on the broker.
    room.apply(&list(&CAMERAS[1..]));
    until("topics of a removed camera that are cleared", || {
        let retained = retained(room.address);
        let is_left = |topic: &String| topic.contains("/cam/c0/") || topic.contains("hall_c0");
        (!retained.keys().any(is_left)).then_some(())
    });
    programs
        .remove(last)
        .expect("it runs")
        .terminate()
        .expect(DONE);
    let owners = owners(&room);
    assert!(
        owners.values().all(|owner| owner.node.is_none()),
        "{owners:?}"
    );
}
