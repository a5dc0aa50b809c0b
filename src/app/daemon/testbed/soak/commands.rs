//! Random commands, malformed messages and edits of the configuration file.

use serde_json::json;

use super::{super::*, faults::RandomDraws};

/// Sends one command; returns its name.
pub(super) fn send_command(
    testbed: &Testbed,
    chance: &mut RandomDraws,
    number: u64,
) -> &'static str {
    let camera = chance.one(&CAMERAS);
    let set = |name: &'static str, what: &str, value: String| {
        testbed.say(&format!("cam/{camera}/{what}/set"), value);
        name
    };
    let ask = |name: &'static str, mut request: Value| {
        request["id"] = json!(format!("n{number}"));
        request["op"] = json!(name);
        request["cam"] = json!(camera);
        testbed.say("cmd", request.to_string());
        name
    };
    match chance.between(0, 20) {
        0 => set("rate", "rate", chance.between(1, 12).to_string()),
        1 => {
            let score = format!("0.{}", chance.between(0, 5));
            set("score", "prompt/thing/min_score", score)
        }
        2 => {
            let words = chance.one(&["thing", "object", "white ball"]);
            set("text", "prompt/thing/text", words.into())
        }
        3 => set("off", "enabled", "OFF".into()),
        4..=6 => set("on", "enabled", "ON".into()),
        7 => set(
            "motion gate",
            "motion_gate",
            chance.one(&["ON", "OFF"]).into(),
        ),
        8 => ask("look", json!({"seconds": 2, "rate": 20})),
        9 => ask("ask", json!({"text": "Is it night?"})),
        10 => ask("snapshot", json!({})),
        11 => {
            let what = chance.one(&["info", "settings", "overrides"]);
            let request = json!({"op": "get", "id": format!("n{number}"), "what": what});
            testbed.say("cmd", request.to_string());
            "get"
        }
        12 | 17 | 18 => ask("reconnect", json!({})),
        13 => {
            let hat = json!({"id": "hat", "detect": "hat", "rate": 2});
            ask("prompt_add", json!({"prompt": hat}))
        }
        14 => ask("prompt_del", json!({"prompt": "hat"})),
        15 => ask("reset_overrides", json!({})),
        _ => {
            garbage(testbed, chance);
            "garbage"
        }
    }
}

fn garbage(testbed: &Testbed, chance: &mut RandomDraws) {
    match chance.between(0, 6) {
        0 => {
            let bytes = (0..chance.between(1, 300)).map(|_| chance.between(0, 256) as u8);
            testbed.say("cmd", bytes.collect::<Vec<u8>>());
        }
        1 => testbed.say("cmd", vec![b'{'; 200_000]),
        2 => testbed.say("cmd", r#"{"op": "exec", "id": 7, "text": "rm"}"#),
        3 => testbed.say("cam/gate/rate/set", "99999"),
        4 => testbed.say("cam/missing/prompt/none/enabled/set", "ON"),
        _ => testbed.broker.say(&Publish {
            topic: "spotter/edge1/cam/gate/enabled/set".into(),
            payload: b"OFF".to_vec(),
            retain: true,
            ..Publish::default()
        }),
    }
}

/// Edits the file and sends SIGHUP; returns the name of the edit.
pub(super) fn edit(testbed: &Testbed, chance: &mut RandomDraws) -> &'static str {
    let extra = "[camera.extra]\nurl = \"test://\"\nprompt.thing.detect = \"thing\"\n[camera.gate]";
    let (from, to, what) = chance.one(&[
        ("", "", "reload of the first file"),
        ("it dark?", "it dark outside?", "reload with other words"),
        ("[camera.gate]", extra, "reload with a camera more"),
        ("\"2 of 3\"", "\"1 of 1\"", "reload with other events"),
        (
            "budget = \"5s\"",
            "budget = \"6s\"",
            "reload with another model",
        ),
        ("\"rtsp", "\"gopher", "reload of a bad file"),
    ]);
    testbed.reload(&testbed.text().replace(from, to));
    what
}
