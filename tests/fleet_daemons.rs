//! Three boxes with one list of cameras, a real nats-server and a real broker: one is killed, one is stopped, and the cameras keep their topics,
//! their triggers and their webhooks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
};

use crate::support::{
    DONE, Program,
    broker::{publish, retained},
    checkout, free_address, request,
    room::Room,
    until,
};
use serde_json::{Value, json};
use spotter_scripted::receiver::ScriptedReceiver;

const BOXES: [&str; 3] = ["edge1", "edge2", "edge3"];
const CAMERAS: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];

/// A topic of another program, which all cameras except the first read.
const PIR: &str = "home/pir";

/// Who has a camera, and since which epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    node: Option<String>,
    epoch: u64,
}

/// A list of these cameras.
fn list(cameras: &[&str]) -> String {
    let camera = |id: &&str| {
        let triggers = match *id {
            "c0" => String::new(),
            _ => format!(
                "trigger.pir = {{ mqtt = \"{PIR}\", value = \"ON\", off = \"OFF\", for = \"1s\" }}\n\
                 trigger.app = {{ http = true, for = \"1s\" }}\n"
            ),
        };
        format!(
            "[camera.{id}]\nurl = \"test://\"\n{triggers}\
             prompt.ball = {{ detect = \"white ball\", events = {{ confirm = \"1 of 1\" }} }}\n"
        )
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

/// Waits until each of the cameras has a detection by its owner, which is one of these boxes. Cameras may still move meanwhile.
fn wait_until_watched(room: &Room, boxes: &[&str], cameras: &[&str]) -> BTreeMap<String, Owner> {
    let from = room.consumer.now();
    until("a detection of all cameras by their owners", || {
        let owners = owners(room);
        let heard = room.consumer.after(from);
        let is_watched = |camera: &&str| {
            let owner = owners.get(*camera);
            let topic = format!("spotter/hall/cam/{camera}/det/ball");
            owner.is_some_and(|owner| {
                let node = owner.node.as_deref();
                let mut detections = heard.iter().filter(|heard| heard.topic == topic);
                node.is_some_and(|node| boxes.contains(&node))
                    && detections.any(|heard| epoch_of(&heard.payload) == Some(owner.epoch))
            })
        };
        cameras.iter().all(is_watched).then_some(owners)
    })
}

/// What stays of a box when it has ended.
struct BoxSurroundings {
    /// Of its webhook.
    receiver: ScriptedReceiver,
    api: SocketAddr,
}

impl BoxSurroundings {
    fn new() -> Self {
        Self {
            receiver: ScriptedReceiver::start(),
            api: free_address(),
        }
    }

    fn start(&self, room: &Room, name: &str) -> Program {
        let url = self.receiver.url();
        let tables = format!(
            "[webhook.log]\nurl = \"{url}\"\n[api]\nlisten = \"{}\"\n",
            self.api
        );
        room.start_with(name, &tables)
    }

    /// The events that its webhook had posted, in order.
    fn posted(&self) -> Vec<PostedEvent> {
        let requests = self.receiver.requests().into_iter();
        let event = requests.map(|request| {
            let body: Value = serde_json::from_slice(&request.body).expect("JSON");
            PostedEvent::of(&body).expect("an event of a fleet")
        });
        event.collect()
    }

    fn wait_for_call(&self, camera: &str, parts: &[&str]) {
        let path = format!("/v1/cameras/{camera}/trigger/app");
        until("an answer to a call", || {
            let answer = request(self.api, "POST", &path)?;
            let is_wanted = parts.iter().all(|part| answer.contains(part));
            is_wanted.then_some(())
        });
    }
}

/// An event as it was posted or published.
#[derive(Debug)]
struct PostedEvent {
    id: String,
    camera: String,
    epoch: u64,
    is_new: bool,
}

impl PostedEvent {
    fn of(json: &Value) -> Option<Self> {
        Some(Self {
            id: json["id"].as_str()?.to_owned(),
            camera: json["cam"].as_str()?.to_owned(),
            epoch: json["epoch"].as_u64()?,
            is_new: json["type"] == "new",
        })
    }
}

/// Waits until each camera has an event of this ownership at the receiver of its owner.
fn wait_until_posted(boxes: &BTreeMap<&str, BoxSurroundings>, owners: &BTreeMap<String, Owner>) {
    for (camera, owner) in owners {
        let node = owner.node.as_deref().expect("an owner");
        until("an event at the receiver of the owner", || {
            let posted = boxes[node].posted();
            let is_it = |event: &PostedEvent| {
                event.is_new && event.camera == *camera && event.epoch == owner.epoch
            };
            posted.iter().any(is_it).then_some(())
        });
    }
}

/// Each event is posted once, by the box that owned its camera then. All are posted, but for some of the last ones of a killed box.
fn each_event_is_posted_once(room: &Room, boxes: &BTreeMap<&str, BoxSurroundings>, killed: &str) {
    let mut owners: BTreeMap<(String, u64), String> = BTreeMap::new();
    let mut published: Vec<PostedEvent> = Vec::new();
    for heard in room.consumer.all() {
        let levels: Vec<&str> = heard.topic.split('/').collect();
        match levels[..] {
            [_, "hall", "cam", camera, "owner"] if !heard.payload.is_empty() => {
                let owner = heard.json();
                if let (Some(node), Some(epoch)) = (owner["node"].as_str(), owner["epoch"].as_u64())
                {
                    owners.insert((camera.to_owned(), epoch), node.to_owned());
                }
            }
            [_, "hall", "cam", _, "event", ..] => published.extend(PostedEvent::of(&heard.json())),
            _ => {}
        }
    }
    let owner_of = |event: &PostedEvent| {
        let owner = owners.get(&(event.camera.clone(), event.epoch));
        owner.map(String::as_str)
    };
    for (name, surroundings) in boxes {
        let posted = surroundings.posted();
        let ids: BTreeSet<&String> = posted.iter().map(|event| &event.id).collect();
        assert_eq!(ids.len(), posted.len(), "{name} posted an event twice");
        for event in &posted {
            assert_eq!(owner_of(event), Some(*name), "{event:?}");
        }
        let own = published
            .iter()
            .filter(|event| owner_of(event) == Some(*name));
        let missing: Vec<_> = own.filter(|event| !ids.contains(&event.id)).collect();
        let is_complete = *name == killed || missing.is_empty();
        assert!(is_complete, "{name} did not post {missing:?}");
    }
}

fn epoch_of(payload: &str) -> Option<u64> {
    let message: Value = serde_json::from_str(payload).ok()?;
    message["epoch"].as_u64()
}

// Faults: F1, F2, F3.
#[test]
fn cameras_keep_their_topics_when_boxes_fail_and_stop() {
    let room = Room::new();
    room.apply(&list(&CAMERAS));
    publish(room.address, PIR, "ON", &["-r"]);
    let boxes: BTreeMap<&str, BoxSurroundings> =
        BOXES.map(|name| (name, BoxSurroundings::new())).into();
    let programs = boxes
        .iter()
        .map(|(name, its)| (*name, its.start(&room, name)));
    let mut programs: BTreeMap<&str, Program> = programs.collect();
    // The first box has all cameras, until the others have started.
    room.wait_until_settled(&BOXES);
    let first = wait_until_watched(&room, &BOXES, &CAMERAS);
    wait_until_posted(&boxes, &first);
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

    // A call is for the owner of the camera; another box says who that is.
    let owner = first["c1"].node.as_deref().expect("an owner");
    let other = BOXES.into_iter().find(|name| *name != owner);
    let of_owner = format!("camera c1 is watched by node {owner}");
    let other = &boxes[other.expect("there are three")];
    other.wait_for_call("c1", &["HTTP/1.1 421 ", &of_owner]);
    other.wait_for_call("c9", &["HTTP/1.1 404 ", "no camera c9 has triggers"]);
    boxes[owner].wait_for_call("c1", &["HTTP/1.1 204 "]);

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
    room.wait_for_stored_settings(camera);

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
    wait_until_posted(&boxes, &second);

    // The new owners read the triggers' topic, of which the retained message was enough until now.
    for payload in ["OFF", "ON"] {
        let from = room.consumer.now();
        publish(room.address, PIR, payload, &["-r"]);
        for camera in &CAMERAS[1..] {
            let topic = format!("spotter/hall/cam/{camera}/trigger/pir");
            room.consumer
                .wait_after(from, &topic, |text| text == payload);
        }
    }
    wait_until_watched(&room, &others, &CAMERAS);

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
    wait_until_posted(&boxes, &third);
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
    each_event_is_posted_once(&room, &boxes, killed);
}

/// Waits until a topic has a message with all of these words.
fn wait_for_words(room: &Room, topic: &str, from: usize, words: &[&str]) {
    let has_all = |text: &str| words.iter().all(|word| text.contains(word));
    room.consumer.wait_after(from, topic, has_all);
}

// Faults: F20.
#[test]
fn camera_whose_prompts_a_box_cannot_answer_is_for_others() {
    let room = Room::new();
    let prompts = [
        ("c0", "detect = \"ball\""),
        ("c1", "detect = \"ball\", adapter = \"balls\""),
        ("c2", "segment = \"ball\""),
    ];
    let cameras = prompts.map(|(id, prompt)| {
        format!("[camera.{id}]\nurl = \"test://\"\nprompt.ball = {{ {prompt} }}\n")
    });
    room.apply(&format!("[defaults]\nrate = 1\n{}", cameras.concat()));
    let model = checkout("tests/golden/md2-micro");
    let model = model.to_str().expect("UTF-8");
    let no_adapter = "\\\"balls\\\" is not a configured adapter";
    let no_outlines = "Moondream 2 draws no outlines";

    let without = room.start_model(model, "edge1", "");
    let refused = [no_adapter, no_outlines];
    wait_for_words(&room, "edge1/config", 0, &refused);
    // A reload changes nothing about that.
    let from = room.consumer.now();
    without.signal("HUP");
    wait_for_words(&room, "edge1/config", from, &refused);

    let directory = tempfile::tempdir().expect("a directory");
    let adapter = directory.path().join("balls");
    let golden = checkout("tests/golden/md2-lora-micro/variant.safetensors");
    let bytes = fs::read(golden).expect("an adapter");
    fs::write(&adapter, &bytes).expect("a file");
    let table = format!("[adapter.balls]\npath = {adapter:?}\n");
    let with = room.start_model(model, "edge2", &table);
    wait_until_watched(&room, &["edge2"], &["c1"]);
    wait_until_watched(&room, &["edge1", "edge2"], &["c0"]);
    let owners = owners(&room);
    assert!(
        owners.get("c2").is_none_or(|owner| owner.node.is_none()),
        "{owners:?}"
    );
    wait_for_words(&room, "edge2/config", 0, &[no_outlines]);

    // An adapter that breaks later disables its prompts; the camera stays, with all others.
    let from = room.consumer.now();
    fs::write(&adapter, &bytes[..100]).expect("a file");
    with.signal("HUP");
    wait_for_words(
        &room,
        "c1/health",
        from,
        &["broken_adapter: ", "it is cut off"],
    );
    assert_eq!(self::owners(&room)["c1"], owners["c1"]);

    // Without the adapter, no box can watch it.
    room.write(model, "edge2", "");
    with.signal("HUP");
    until("a camera without an owner", || {
        let owner = self::owners(&room).remove("c1")?;
        owner.node.is_none().then_some(())
    });
    for program in [with, without] {
        program.terminate().expect(DONE);
    }
}
