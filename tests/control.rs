//! The daemon changed while it runs, as a person at a broker and an editor does it: commands, answers, reloads.
//!
//! Faults: B28, K1, K13, K14, K15.

use std::{fs, net::SocketAddr, path::PathBuf, sync::Arc};

use crate::support::{
    DONE, Program, ask_page,
    broker::{Consumer, broker, publish, retained},
    command_of_page, file, free_address, get, spotter, until,
};
use serde_json::{Value, json};
use spotter_core::SystemClock;
use spotter_state::{Document, StateStore};

/// Two cameras with GStreamer's ball, and a third that is added later.
const GATE: &str =
    "[camera.gate]\nurl = \"test://\"\nrate = 4\nprompt.ball.detect = \"white ball\"\n";
const YARD: &str = "[camera.yard]\nurl = \"test://\"\nrate = 1\nprompt.ball.detect = \"white ball\"\n\
                    prompt.dog = { detect = \"dog\", rate = 0.5 }\n";
const ROOF: &str = "[camera.roof]\nurl = \"test://\"\nprompt.ball.detect = \"white ball\"\n";

/// Two modes of that camera.
const MODES: &str = "[mode.night.camera.gate]\nrate = 8\nprompt.ball.text = \"round thing\"\n\
                     [mode.away]\ncamera.gate = { enabled = true, rate = 2 }\n";

/// Of the page, where a site has one.
const TOKEN: &str = "a-token-of-the-page-for-tests";

struct Site {
    /// Keys above the first table.
    more: String,
    directory: tempfile::TempDir,
    address: SocketAddr,
    page: SocketAddr,
    _broker: spotter_street::broker::Mosquitto,
    consumer: Consumer,
}

impl Site {
    fn new() -> Self {
        Self::heard_by(Consumer::on)
    }

    fn heard_by(consumer: fn(SocketAddr) -> Consumer) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let address = free_address();
        let broker = broker(address, "");
        let consumer = consumer(address);
        Self {
            more: String::new(),
            directory,
            address,
            page: free_address(),
            _broker: broker,
            consumer,
        }
    }

    fn write(&self, cameras: &[&str]) -> PathBuf {
        let state = self.directory.path().join("state");
        let head = format!(
            "node = {{ name = \"edge1\", state_dir = {state:?} }}\nhttp.listen = \"{}\"\nmodel.budget = \"60s\"\n\
             defaults = {{ first_frame = \"60s\", stall = \"60s\" }}\n\
             mqtt = {{ url = \"mqtt://{}\", commands = \"all\" }}\n{}",
            self.page, self.address, self.more
        );
        let text = format!("{head}{}", cameras.concat());
        file(self.directory.path(), "site.toml", text)
    }

    fn start(&self, cameras: &[&str]) -> Program {
        let path = self.write(cameras);
        let path = path.to_str().expect("UTF-8");
        let program = Program::start(["run", "--json", "--config", path]);
        for camera in cameras {
            let id = &camera[8..12];
            self.consumer
                .wait_for(&format!("cam/{id}/status"), |text| text == "online");
        }
        program
    }

    fn set(&self, topic: &str, payload: &str) {
        publish(
            self.address,
            &format!("spotter/edge1/{topic}/set"),
            payload,
            &[],
        );
    }

    /// Sends a request and gives its answer.
    fn ask(&self, mut request: Value) -> Value {
        let from = self.consumer.now();
        let id = format!("r{from}");
        request["id"] = json!(id);
        publish(self.address, "spotter/edge1/cmd", &request.to_string(), &[]);
        let own = |text: &str| text.contains(&format!("\"id\":\"{id}\""));
        self.consumer.wait_after(from, "/reply", own).json()
    }

    /// The payload that comes next on a topic.
    fn next(&self, from: usize, topic: &str) -> String {
        self.consumer.wait_after(from, topic, |_| true).payload
    }

    /// The next reply.
    fn reply(&self, from: usize) -> Value {
        self.consumer
            .wait_after(from, "edge1/reply", |_| true)
            .json()
    }

    /// The next detection of a prompt that passes.
    fn detection(&self, from: usize, topic: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let wanted = |text: &str| serde_json::from_str(text).is_ok_and(|json: Value| wanted(&json));
        self.consumer.wait_after(from, topic, wanted).json()
    }

    fn health(&self, camera: &str) -> Value {
        let retained = retained(self.address);
        let text = &retained[&format!("spotter/edge1/cam/{camera}/health")];
        serde_json::from_str(text).expect("JSON")
    }
}

#[test]
fn run_time_values_survive_a_restart_until_the_file_changes() {
    let site = Site::new();
    let program = site.start(&[GATE, YARD]);
    let settings = retained(site.address);
    for (topic, payload) in [
        ("gate/enabled", "ON"),
        ("gate/rate", "4"),
        ("gate/motion_gate", "OFF"),
        ("gate/prompt/ball/text", "white ball"),
        ("gate/prompt/ball/enabled", "ON"),
        ("gate/prompt/ball/min_score", "0"),
    ] {
        assert_eq!(settings[&format!("spotter/edge1/cam/{topic}")], payload);
    }
    let connected = site.health("gate")["since_ms"].clone();

    // The words: with their number in every detection, and an answer.
    let from = site.consumer.now();
    site.set("cam/gate/prompt/ball/text", "round thing");
    let reply = site.reply(from);
    assert_eq!(
        (&reply["ok"], &reply["op"], &reply["rev"]),
        (&json!(true), &json!("prompt_set"), &json!(2))
    );
    assert_eq!(site.next(from, "gate/prompt/ball/text"), "round thing");
    let seen = site.detection(from, "gate/det/ball", |json| json["prompt"]["rev"] == 2);
    assert_eq!(seen["prompt"]["text"], "round thing");

    // A value causes three messages: the value, the number of overrides, the reply.
    let from = site.consumer.now();
    site.set("cam/gate/prompt/ball/min_score", "0.01");
    let is_counted = |text: &str| text.contains("\"overrides\":2");
    site.consumer.wait_after(from, "/info", is_counted);
    site.next(from, "/reply");
    let caused = ["ball/min_score", "/reply", "/info", "/config"];
    let mut heard = site.consumer.after(from);
    heard.retain(|heard| caused.iter().any(|topic| heard.topic.ends_with(topic)));
    assert_eq!(heard.len(), 3, "{heard:#?}");
    let from = site.consumer.now();
    site.set("cam/gate/prompt/ball/min_score", "0");
    site.next(from, "/reply");

    // An invalid value is rejected, and the state is published again so that a switch returns to it.
    let from = site.consumer.now();
    site.set("cam/gate/rate", "99");
    let reply = site.reply(from);
    assert_eq!(
        (&reply["ok"], &reply["error"]["code"]),
        (&json!(false), &json!("bad_value"))
    );
    assert_eq!(site.next(from, "cam/gate/rate"), "4");

    // Off: the connection ends too, and what was known is not any more.
    let from = site.consumer.now();
    site.set("cam/yard/enabled", "OFF");
    site.consumer
        .wait_after(from, "yard/status", |text| text == "offline");
    site.consumer.wait_after(from, "yard/health", |text| {
        text.contains("\"disabled\"") && text.contains("\"switched_off: ")
    });
    assert_eq!(
        site.health("gate")["since_ms"],
        connected,
        "the other camera is not disturbed"
    );

    // A retained command is ignored, or it would be repeated at every start. The log names its topic.
    let kept = ["gate/enabled", "gate/rate"].map(|of| format!("spotter/edge1/cam/{of}/set"));
    let keep = |topic: &str, payload: &str| publish(site.address, topic, payload, &["-r"]);
    for (topic, payload) in kept.iter().zip(["OFF", "9"]) {
        keep(topic, payload);
        let line = program.stderr.wait_for(topic);
        assert!(line.contains("retained command ignored"), "{line}");
    }
    until("retained commands that are counted", || {
        let page = get(site.page, "/metrics")?;
        page.contains("spotter_publish_inbound_retained_total 2\n")
            .then_some(())
    });
    let overrides = site.ask(json!({"op": "get", "what": "overrides"}));
    assert_eq!(
        overrides["value"].as_array().map(Vec::len),
        Some(2),
        "{overrides}"
    );
    let ended = program.terminate().expect(DONE);
    says_the_same(&ended.stdout, &site.consumer);
    for topic in &kept {
        keep(topic, "");
    }

    // The words are kept over a restart, until the file says something else.
    let from = site.consumer.now();
    let program = site.start(&[GATE]);
    let seen = site.detection(from, "gate/det/ball", |_| true);
    assert_eq!(
        (&seen["prompt"]["text"], &seen["prompt"]["rev"]),
        (&json!("round thing"), &json!(2))
    );
    program.terminate().expect(DONE);
    let from = site.consumer.now();
    let edited = GATE.replace("white ball", "grey ball");
    let program = site.start(&[&edited]);
    program
        .stderr
        .wait_for("configuration changed; run-time override discarded");
    let is_new = |json: &Value| json["prompt"]["rev"] == 3;
    let seen = site.detection(from, "gate/det/ball", is_new);
    assert_eq!(seen["prompt"]["text"], "grey ball");
    program.terminate().expect(DONE);
}

// Faults: H24.
/// The page needs no `mqtt.commands`; what it changes is published as if it were changed over MQTT.
#[test]
fn page_executes_commands_as_over_mqtt() {
    let mut site = Site::new();
    site.more = format!("allow_plain_secrets = true\nhttp.tokens = [\"{TOKEN}\"]\n");
    let program = site.start(&[GATE]);
    let send = |command: Value| command_of_page(site.page, TOKEN, &command);
    let hat = json!({"id": "hat", "detect": "hat", "rate": 4});
    let from = site.consumer.now();
    let (status, added) = send(json!({"op": "prompt_add", "cam": "gate", "prompt": hat}));
    assert_eq!((status, &added["ok"]), (200, &json!(true)), "{added}");
    site.consumer.wait_after(from, "gate/det/hat", |_| true);
    let from = site.consumer.now();
    let (status, set) = send(
        json!({"op": "set", "cam": "gate", "prompt": "ball", "field": "min_score", "value": 0.4}),
    );
    assert_eq!((status, &set["op"]), (200, &json!("prompt_set")), "{set}");
    assert_eq!(site.next(from, "gate/prompt/ball/min_score"), "0.4");
    let (status, overrides) = send(json!({"op": "get", "what": "overrides"}));
    assert_eq!((status, &overrides["value"][0]["now"]), (200, &json!(0.4)));
    for (command, status, code) in [
        (
            json!({"op": "snapshot", "cam": "yard"}),
            404,
            "unknown_camera",
        ),
        (
            json!({"op": "prompt_add", "cam": "gate", "prompt": {"id": "hat", "detect": "hat"}}),
            409,
            "conflict",
        ),
        (
            json!({"op": "prompt_add", "cam": "gate", "prompt": {"id": "cap", "detect": "cap", "rate": 9}}),
            422,
            "bad_value",
        ),
        (json!({"op": "look"}), 400, "bad_request"),
    ] {
        let (found, reply) = send(command.clone());
        assert_eq!(
            (found, &reply["error"]["code"]),
            (status, &json!(code)),
            "{command}: {reply}"
        );
    }
    program.terminate().expect(DONE);
}

/// Masks, regions and zones take effect at the next look, on the same connection, and stay over a restart.
#[test]
fn shapes_of_the_page_apply_while_the_camera_streams() {
    let mut site = Site::new();
    site.more = format!("allow_plain_secrets = true\nhttp.tokens = [\"{TOKEN}\"]\n");
    let camera = "[camera.gate]\nurl = \"test://\"\nrate = 4\nmask = [[[0, 0], [0.1, 0], [0, 0.1]]]\n\
                  prompt.ball = { detect = \"white ball\", region = [0, 0, 1, 1] }\n";
    let program = site.start(&[camera]);
    let send = |command: Value| command_of_page(site.page, TOKEN, &command);
    let shapes = || {
        let (status, shapes) = ask_page(site.page, TOKEN, "GET /camera/gate/shapes.json", "");
        assert_eq!(status, 200, "{shapes}");
        shapes
    };
    let from = site.consumer.now();
    site.detection(from, "gate/det/ball", |json| json["region"][2] == 1.0);
    let connected = site.health("gate")["since_ms"].clone();
    let before = until("the size of the stream", || {
        Some(shapes()).filter(|shapes| !shapes["size"].is_null())
    });
    assert_eq!(
        (&before["file"], &before["drawn_size"]),
        (&before["now"], &json!(null))
    );
    assert_eq!(before["prompts"][0]["words"], "white ball");

    let masks = json!([[[0, 0], [0.1, 0], [0, 0.1]], [[0.9, 0.9], [1, 0.9], [1, 1]]]);
    let everywhere = json!({"polygon": [[0, 0], [1, 0], [1, 1], [0, 1]], "point": "centre"});
    let drawn = json!({"mask": masks, "zone": {"all": everywhere}, "prompt": {"ball": {"zones": ["all"], "region": [0, 0, 0.5, 0.5]}}});
    let set =
        json!({"op": "shapes_set", "cam": "gate", "seen": before["version"], "shapes": drawn});
    let from = site.consumer.now();
    let (status, saved) = send(set.clone());
    assert_eq!((status, &saved["ok"]), (200, &json!(true)), "{saved}");
    let is_new = |json: &Value| json["region"] == json!([0.0, 0.0, 0.5, 0.5]);
    site.detection(from, "gate/det/ball", is_new);
    site.consumer
        .wait_after(from, "gate/zone/all/ball", |_| true);
    assert_eq!(
        site.health("gate")["since_ms"],
        connected,
        "the same connection"
    );
    let after = shapes();
    assert_eq!(
        (&after["version"], &after["drawn_size"]),
        (&saved["version"], &before["size"])
    );
    assert_eq!(after["file"], before["file"]);
    let lines = after["toml"].as_str().expect("a text");
    assert!(
        lines.contains("[camera.gate.zone.all]") && lines.contains("region = [0.0, 0.0, 0.5, 0.5]"),
        "{lines}"
    );

    // A client that has seen the shapes before, and shapes with two mistakes and without the file's mask.
    let (status, late) = send(set);
    assert_eq!(
        (status, &late["error"]["code"]),
        (409, &json!("conflict")),
        "{late}"
    );
    assert_eq!(late["error"]["now"], after["now"]);
    let wrong = json!({"zone": {"all": {"polygon": [[0, 0], [1, 1], [1, 0], [0, 1]]}}, "prompt": {"ball": {"zones": ["gone"]}}});
    let (status, wrong) =
        send(json!({"op": "shapes_set", "cam": "gate", "seen": saved["version"], "shapes": wrong}));
    assert_eq!(
        (status, wrong["error"]["errors"].as_array().map(Vec::len)),
        (422, Some(3)),
        "{wrong}"
    );

    program.terminate().expect(DONE);
    let from = site.consumer.now();
    let program = site.start(&[camera]);
    site.detection(from, "gate/det/ball", is_new);
    assert_eq!(shapes()["now"], after["now"]);
    let overrides = site.ask(json!({"op": "get", "what": "overrides"}));
    assert_eq!(overrides["value"][0]["field"], "shapes", "{overrides}");
    // Beside the daemon that uses the database.
    let file = site.directory.path().join("site.toml");
    let checked = spotter(["check", "--effective", file.to_str().expect("UTF-8")]).expect(DONE);
    let shown = checked.stdout;
    assert!(
        shown.contains("1 change by commands") && shown.contains("[camera.gate.zone.all]"),
        "{shown}"
    );

    // The file's own shapes are newer, and what was masked at the page stays so.
    let edited = camera.replace("[0, 0.1]]]", "[0, 0.2]]]");
    site.write(&[&edited]);
    let reloaded = site.ask(json!({"op": "reload"}));
    assert_eq!(reloaded["ok"], true, "{reloaded}");
    program.stderr.wait_for("run-time override discarded");
    let mut expected = shapes()["file"].clone();
    let areas = expected["mask"].as_array_mut().expect("a list");
    areas.push(after["now"]["mask"][1].clone());
    assert_eq!(shapes()["now"], expected);
    program.terminate().expect(DONE);
}

/// A line with counts of an earlier run, before any object crosses it.
#[test]
fn counts_at_a_line_survive_restarts_until_their_reset() {
    let site = Site::new();
    let camera = format!(
        "{}line.door.points = [[0.5, 1.0], [0.5, 0.0]]\nprompt.person = {{ detect = \"person\", lines = [\"door\"] }}\n",
        GATE
    );
    let state = site.directory.path().join("state");
    fs::create_dir(&state).expect("a directory");
    let earlier = json!({"v": 1, "lines": [{"camera": "gate", "prompt": "person", "line": "door",
        "counts": {"in": 7, "out": 3}, "since": 1}]});
    // The file of version 0.1.0.
    file(&state, "lines.json", earlier.to_string());
    let counts = || {
        let retained = retained(site.address);
        ["in", "out"]
            .map(|way| retained[&format!("spotter/edge1/cam/gate/line/door/{way}/person")].clone())
    };
    let program = site.start(&[&camera]);
    assert_eq!(counts(), ["7", "3"]);
    let page = until("the page", || get(site.page, "/status.json"));
    assert!(
        page.contains("\"lines\":{\"door\":{\"in\":7,\"out\":3}}"),
        "{page}"
    );

    program.terminate().expect(DONE);
    let from = site.consumer.now();
    let program = site.start(&[&camera]);
    site.detection(from, "gate/det/ball", |_| true);
    assert_eq!(counts(), ["7", "3"]);
    let from = site.consumer.now();
    site.set("cam/gate/line/door", "RESET");
    let reply = site.reply(from);
    assert_eq!(reply["ok"], true, "{reply}");
    for topic in ["line/door/in/person", "line/door/out/person"] {
        site.consumer.wait_after(from, topic, |text| text == "0");
    }
    program.terminate().expect(DONE);
    let state = StateStore::open(&state, Arc::new(SystemClock::new())).expect("a state database");
    let written = state.get(Document::LineCounts).expect("counts");
    let written: Value = serde_json::from_str(&written).expect("JSON");
    assert_eq!(written["lines"][0]["counts"], json!({}), "{written}");
}

/// What `run --json` printed is what the consumer heard, line by line: all JSON of the node, nothing of Home Assistant's.
fn says_the_same(printed: &str, consumer: &Consumer) {
    let json = |text: &str| -> Value { serde_json::from_str(text).expect("JSON") };
    let printed: Vec<(String, Value)> = printed
        .lines()
        .map(|line| {
            let Value::Object(mut line) = json(line) else {
                panic!("{line}")
            };
            assert_eq!(line.len(), 2, "{line:?}");
            let topic = line["topic"].as_str().expect("a topic").to_owned();
            assert!(topic.starts_with("spotter/edge1/"), "{topic}");
            (topic, line["payload"].take())
        })
        .collect();
    for kind in ["/info", "gate/health", "gate/det/ball", "/reply"] {
        let is_told = printed.iter().any(|(topic, _)| topic.ends_with(kind));
        assert!(is_told, "{kind} is not in {printed:#?}");
    }
    let heard = consumer.all();
    let own = heard
        .iter()
        .filter(|heard| heard.payload.starts_with('{') && !heard.topic.ends_with("/cmd"));
    for heard in own {
        let said = (heard.topic.clone(), heard.json());
        assert!(printed.contains(&said), "{said:?} is not in {printed:#?}");
    }
}

#[test]
fn requests_are_answered_once_each() {
    let site = Site::new();
    let program = site.start(&[GATE]);
    let info = site.ask(json!({"op": "get", "what": "info"}));
    assert_eq!(info["value"]["cams"][0]["id"], "gate");

    // A prompt for a while, and more looks for a while.
    let hat = json!({"id": "hat", "detect": "hat", "rate": 4});
    let from = site.consumer.now();
    let added = site.ask(json!({"op": "prompt_add", "cam": "gate", "prompt": hat}));
    assert_eq!(added["ok"], true, "{added}");
    site.consumer.wait_after(from, "gate/det/hat", |_| true);
    let removed = site.ask(json!({"op": "prompt_del", "cam": "gate", "prompt": "hat"}));
    assert_eq!(removed["ok"], true, "{removed}");
    let look = site.ask(json!({"op": "look", "cam": "gate", "seconds": 2, "rate": 20}));
    assert_eq!(look["ok"], true, "{look}");

    // A question about the next frame.
    let answer = site.ask(json!({"op": "ask", "cam": "gate", "text": "Is it night?"}));
    assert!(
        answer["ok"] == true && answer["value"].is_string(),
        "{answer}"
    );

    // The same id again is answered again and not done again.
    let request = json!({"id": "once", "op": "reset_overrides"}).to_string();
    for _ in 0..2 {
        let from = site.consumer.now();
        publish(site.address, "spotter/edge1/cmd", &request, &[]);
        site.consumer
            .wait_after(from, "/reply", |text| text.contains("\"once\""));
    }
    assert_eq!(
        program
            .stderr
            .text()
            .matches("op=\"reset_overrides\"")
            .count(),
        1
    );

    // Where an MQTT 5 sender wants it.
    let from = site.consumer.now();
    let properties = ["-D", "publish", "response-topic", "spotter/answers"];
    publish(
        site.address,
        "spotter/edge1/cmd",
        "{\"op\":\"exec\"}",
        &properties,
    );
    let refused = site
        .consumer
        .wait_after(from, "spotter/answers", |_| true)
        .json();
    assert_eq!(refused["error"]["code"], "unknown_op");

    let from = site.consumer.now();
    let picture = site.ask(json!({"op": "snapshot", "cam": "gate"}));
    assert_eq!(picture["ok"], true, "{picture}");
    site.consumer
        .wait_after(from, "gate/snapshot/ball", |_| true);

    let again = site.ask(json!({"op": "reconnect", "cam": "gate"}));
    assert_eq!(again["ok"], true, "{again}");
    let asked = picture["at_ms"].as_i64();
    site.detection(from, "gate/health", |health| {
        health["state"] == "streaming" && health["since_ms"].as_i64() > asked
    });
    program.terminate().expect(DONE);
}

#[test]
fn mode_changes_values_and_survives_a_restart() {
    let site = Site::new();
    let gate = format!("{GATE}{MODES}");
    let program = site.start(&[&gate]);
    let state = |from: usize, topic: &str, value: &str| {
        site.consumer.wait_after(from, topic, |text| text == value)
    };
    let switch = |mode: &str| {
        let from = site.consumer.now();
        site.set("mode", mode);
        (from, site.reply(from))
    };
    state(0, "edge1/mode", "none");
    let node = &retained(site.address)["homeassistant/device/spotter_edge1/config"];
    let node: Value = serde_json::from_str(node).expect("JSON");
    let options = json!(["No mode", "night", "away"]);
    assert_eq!(node["components"]["mode"]["options"], options);

    let (from, reply) = switch("night");
    assert_eq!(
        (&reply["ok"], &reply["op"]),
        (&json!(true), &json!("mode_set"))
    );
    state(from, "edge1/mode", "night");
    state(from, "gate/rate", "8");
    let seen = site.detection(from, "gate/det/ball", |json| json["prompt"]["rev"] == 2);
    assert_eq!(seen["prompt"]["text"], "round thing");

    // An unknown mode is rejected, and the state is published again.
    let (from, reply) = switch("day");
    assert_eq!(reply["error"]["code"], "unknown_mode", "{reply}");
    let text = "there is no mode day; there are night, away";
    assert_eq!(reply["error"]["text"], text);
    state(from, "edge1/mode", "night");

    // A command is newer than the mode, and the next mode is newer than the command.
    let from = site.consumer.now();
    site.set("cam/gate/rate", "3");
    state(from, "gate/rate", "3");
    let from = site.consumer.now();
    site.set("cam/gate/enabled", "OFF");
    state(from, "gate/enabled", "OFF");
    let (from, reply) = switch("away");
    assert_eq!(reply["ok"], true, "{reply}");
    state(from, "gate/rate", "2");
    state(from, "gate/enabled", "ON");
    state(from, "gate/prompt/ball/text", "white ball");
    // Figures are at most a second old.
    until("the mode on the page", || {
        get(site.page, "/status.json").filter(|page| page.contains("\"mode\":\"away\""))
    });
    program.terminate().expect(DONE);

    let from = site.consumer.now();
    let program = site.start(&[&gate]);
    state(from, "edge1/mode", "away");
    state(from, "gate/rate", "2");
    let (from, _) = switch("none");
    state(from, "edge1/mode", "none");
    state(from, "gate/rate", "4");

    // A file without modes has no such topic.
    let (_, reply) = switch("away");
    assert_eq!(reply["ok"], true, "{reply}");
    let from = site.consumer.now();
    site.write(&[GATE]);
    program.signal("HUP");
    state(from, "gate/rate", "4");
    state(from, "edge1/mode", "");
    program.terminate().expect_balanced();
}

#[test]
fn a_reload_changes_what_changed_and_nothing_else() {
    let site = Site::new();
    let program = site.start(&[GATE, YARD]);
    let connected = ["gate", "yard"].map(|camera| site.health(camera)["since_ms"].clone());
    let boot = site.ask(json!({"op": "get", "what": "info"}))["value"]["boot"].clone();

    // One camera is added and a prompt of another changes: no camera reconnects, and the model is not loaded again.
    let from = site.consumer.now();
    site.write(&[GATE, &YARD.replace("\"dog\"", "\"cat\""), ROOF]);
    program.signal("HUP");
    site.consumer
        .wait_after(from, "edge1/config", |text| text.contains("\"ok\""));
    site.consumer
        .wait_after(from, "roof/status", |text| text == "online");
    let seen = site.detection(from, "yard/det/dog", |json| json["prompt"]["rev"] == 2);
    assert_eq!(seen["prompt"]["text"], "cat");
    for (camera, since) in ["gate", "yard"].iter().zip(&connected) {
        assert_eq!(site.health(camera)["since_ms"], *since, "{camera}");
    }
    assert_eq!(program.stderr.text().matches("model loaded").count(), 1);

    // An invalid file changes nothing; the topic `config` and the reply both contain the reason.
    let from = site.consumer.now();
    let path = site.write(&[GATE, "[camera.yard]\nurl = \"http://x\"\n"]);
    let refused = site.ask(json!({"op": "reload"}));
    assert_eq!(refused["error"]["code"], "failed", "{refused}");
    let report = site
        .consumer
        .wait_after(from, "edge1/config", |text| text.contains("rejected"));
    assert!(report.payload.contains("camera.yard.url"), "{report:?}");
    program.stderr.wait_for("new configuration rejected");
    site.detection(from, "roof/det/ball", |_| true);

    // One goes: it is said goodbye to, and its states are gone.
    fs::write(
        &path,
        fs::read_to_string(site.write(&[GATE, ROOF])).expect("a file"),
    )
    .expect("written");
    let reloaded = site.ask(json!({"op": "reload"}));
    assert_eq!(reloaded["ok"], true, "{reloaded}");
    let info = site.ask(json!({"op": "get", "what": "info"}));
    let cams = info["value"]["cams"].as_array().expect("a list");
    assert_eq!(
        cams.iter().map(|cam| &cam["id"]).collect::<Vec<_>>(),
        ["gate", "roof"]
    );
    assert_eq!(info["value"]["boot"], boot, "it is the same run");
    assert_eq!(site.health("gate")["since_ms"], connected[0]);
    program.terminate().expect_balanced();
}

/// What is announced to Home Assistant, and what is cleared while the daemon runs and at the next start.
#[test]
fn removed_cameras_and_prompts_leave_no_topics() {
    let site = Site::heard_by(Consumer::on_all);
    let record = |of: &str| format!("homeassistant/device/spotter_edge1{of}/config");
    let of = |topic: &str| format!("spotter/edge1/cam/{topic}");
    let program = site.start(&[GATE, YARD]);
    // Something is known of it, which is not any more when it goes.
    site.consumer
        .wait_for("yard/count/ball", |payload| payload != "None");
    let left = retained(site.address);
    let yard: Vec<_> = left.keys().filter(|topic| topic.contains("yard")).collect();
    for topic in [record("_yard"), of("yard/count/ball"), of("yard/rate")] {
        assert!(yard.contains(&&topic), "{topic}: {yard:?}");
    }
    // What Home Assistant reads and what it sets is there: each entity's state is at a topic that holds something.
    let device = &left[&record("_gate")];
    for topic in ["count/ball", "enabled", "prompt/ball/text"] {
        let topic = of(&format!("gate/{topic}"));
        assert!(device.contains(&topic), "{topic}: {device}");
        assert!(!left[&topic].is_empty());
    }

    // A temporary prompt has no entities, and its topics are cleared afterwards.
    let hat = json!({"id": "hat", "detect": "hat"});
    site.ask(json!({"op": "prompt_add", "cam": "gate", "prompt": hat}));
    site.consumer
        .wait_for("gate/count/hat", |payload| payload == "None");
    let from = site.consumer.now();
    site.ask(json!({"op": "prompt_del", "cam": "gate", "prompt": "hat"}));
    site.consumer
        .wait_after(from, "gate/count/hat", str::is_empty);

    // A camera is removed: all its topics are cleared, and with them its device in Home Assistant.
    let from = site.consumer.now();
    site.write(&[GATE]);
    program.signal("HUP");
    for topic in &yard {
        site.consumer.wait_after(from, topic, str::is_empty);
    }
    assert_eq!(&retained(site.address)[&record("_gate")], device);

    // Home Assistant restarts: the records are published again.
    let from = site.consumer.now();
    publish(site.address, "homeassistant/status", "online", &[]);
    for topic in [record(""), record("_gate")] {
        site.consumer
            .wait_after(from, &topic, |payload| payload.contains("state_topic"));
    }
    program.terminate().expect(DONE);
    let left = retained(site.address);
    let stale = |topic: &&String| topic.contains("yard") || topic.contains("hat");
    assert_eq!(left.keys().filter(stale).count(), 0, "{left:#?}");
    assert!(left.contains_key(&record("_gate")) && left["spotter/edge1/status"] == "offline");

    // A camera is removed while Spotter is stopped.
    let from = site.consumer.now();
    let program = site.start(&[ROOF]);
    for topic in [record("_gate"), of("gate/count/ball")] {
        site.consumer.wait_after(from, &topic, str::is_empty);
    }
    program.terminate().expect(DONE);
    let left = retained(site.address);
    let is_of_gate = |topic: &String| topic.contains("/gate/") || topic.contains("_gate/");
    assert!(!left.keys().any(is_of_gate), "{left:#?}");
}
