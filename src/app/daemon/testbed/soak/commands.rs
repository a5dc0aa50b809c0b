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
    let set = |what: &str, value: String| testbed.say(&format!("cam/{camera}/{what}/set"), value);
    let ask = |mut request: serde_json::Value| {
        request["id"] = json!(format!("n{number}"));
        testbed.say("cmd", request.to_string());
    };
    match chance.between(0, 20) {
        0 => {
            set("rate", chance.between(1, 12).to_string());
            "rate"
        }
        1 => {
            set(
                "prompt/thing/min_score",
                format!("0.{}", chance.between(0, 5)),
            );
            "score"
        }
        2 => {
            let words = chance.one(&["thing", "object", "white ball"]);
            set("prompt/thing/text", words.into());
            "text"
        }
        3 => {
            set("enabled", "OFF".into());
            "off"
        }
        4..=6 => {
            set("enabled", "ON".into());
            "on"
        }
        7 => {
            set("motion_gate", chance.one(&["ON", "OFF"]).into());
            "motion gate"
        }
        8 => {
            ask(json!({"op": "look", "cam": camera, "seconds": 2, "rate": 20}));
            "look"
        }
        9 => {
            ask(json!({"op": "ask", "cam": camera, "text": "Is it night?"}));
            "ask"
        }
        10 => {
            ask(json!({"op": "snapshot", "cam": camera}));
            "snapshot"
        }
        11 => {
            let what = chance.one(&["info", "settings", "overrides"]);
            ask(json!({"op": "get", "what": what}));
            "get"
        }
        12 | 17 | 18 => {
            ask(json!({"op": "reconnect", "cam": camera}));
            "reconnect"
        }
        13 => {
            let hat = json!({"id": "hat", "detect": "hat", "rate": 2});
            ask(json!({"op": "prompt_add", "cam": camera, "prompt": hat}));
            "prompt_add"
        }
        14 => {
            ask(json!({"op": "prompt_del", "cam": camera, "prompt": "hat"}));
            "prompt_del"
        }
        15 => {
            ask(json!({"op": "reset_overrides", "cam": camera}));
            "reset"
        }
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
    let text = testbed.text();
    let (text, what) = match chance.between(0, 6) {
        0 => (text, "reload of the first file"),
        1 => (
            text.replace("\"Is it dark?\"", "\"Is it dark outside?\""),
            "reload with other words",
        ),
        2 => (
            text + "[camera.extra]\nurl = \"test://\"\nprompt.thing.detect = \"thing\"\n",
            "reload with a camera more",
        ),
        3 => (
            text.replace("confirm = \"2 of 3\"", "confirm = \"1 of 1\""),
            "reload with other events",
        ),
        4 => (
            text.replace("budget = \"5s\"", "budget = \"6s\""),
            "reload with another model",
        ),
        _ => (
            text.replace("url = \"rtsp", "url = \"gopher"),
            "reload of a bad file",
        ),
    };
    testbed.write(&text);
    signal("-HUP");
    what
}
