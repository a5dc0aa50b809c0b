//! What operators, scripts and strangers say while it runs.

use serde_json::json;

use super::{super::*, faults::Chance};

/// Says one thing; returns what.
pub(super) fn say_something(field: &Field, chance: &mut Chance, number: u64) -> &'static str {
    let camera = chance.one(&CAMERAS);
    let set = |what: &str, value: String| field.say(&format!("cam/{camera}/{what}/set"), value);
    let ask = |mut request: serde_json::Value| {
        request["id"] = json!(format!("n{number}"));
        field.say("cmd", request.to_string());
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
            garbage(field, chance);
            "garbage"
        }
    }
}

fn garbage(field: &Field, chance: &mut Chance) {
    match chance.between(0, 6) {
        0 => {
            let bytes = (0..chance.between(1, 300)).map(|_| chance.between(0, 256) as u8);
            field.say("cmd", bytes.collect::<Vec<u8>>());
        }
        1 => field.say("cmd", vec![b'{'; 200_000]),
        2 => field.say("cmd", r#"{"op": "exec", "id": 7, "text": "rm"}"#),
        3 => field.say("cam/gate/rate/set", "99999"),
        4 => field.say("cam/nobody/prompt/none/enabled/set", "ON"),
        _ => field.broker.say(&Publish {
            topic: "spotter/edge1/cam/gate/enabled/set".into(),
            payload: b"OFF".to_vec(),
            retain: true,
            ..Publish::default()
        }),
    }
}

/// Edits the file and asks for a reload with a signal; returns how.
pub(super) fn edit(field: &Field, chance: &mut Chance) -> &'static str {
    let text = field.text();
    let (text, what) = match chance.between(0, 6) {
        0 => (text, "reload of what was there first"),
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
    field.write(&text);
    signal("-HUP");
    what
}
