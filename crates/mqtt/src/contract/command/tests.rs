//! Requests, also malformed ones, and their replies.
//!
//! Faults: B28.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    contract::discovery::tests::config,
    testing::{camera, fleet_topics, prompt, topics},
};
use spotter_control::{LogLevel, NewPrompt, Override, RequestedInfo};
use spotter_core::{
    Epoch, PromptId, WallTime,
    testing::{prompt_text, rate, share},
};

fn message(topic: &str, payload: &str) -> Inbound {
    Inbound {
        topic: format!("spotter/edge1/{topic}"),
        payload: payload.into(),
        retained: false,
        reply_to: None,
    }
}

fn asked(topic: &str, payload: &str) -> CommandRequest {
    match parse_inbound(&topics(), None, &message(topic, payload)) {
        InboundKind::Request(asked) => *asked,
        other => panic!("{topic}: {other:?}"),
    }
}

fn command(request: serde_json::Value) -> Result<Command, Refusal> {
    asked("cmd", &request.to_string()).command
}

const CAMERA: &str = "[camera.gate]\nurl = \"test://\"\nprompt.car.detect = \"car\"\n";

fn gate() -> CameraId {
    camera("gate")
}

fn person() -> PromptId {
    prompt("person")
}

#[test]
fn each_set_topic_is_a_command() {
    let set = |setting| Command::Set {
        camera: gate(),
        setting,
    };
    let text = "person with a hat";
    let words = Setting::Text(person(), prompt_text(text));
    let off = Setting::PromptEnabled(person(), false);
    let score = Setting::MinScore(person(), share(0.35));
    let (camera, line) = (gate(), LineId::new("door").unwrap());
    let reset = Command::ResetLine { camera, line };
    let mode = Some(ModeId::new("night").unwrap());
    let (cam, prompt) = ("camera_set", "prompt_set");
    for (topic, payload, expected, op) in [
        ("cam/gate/enabled", "OFF", set(Setting::Enabled(false)), cam),
        ("cam/gate/rate", "2.5", set(Setting::Rate(rate(2.5))), cam),
        (
            "cam/gate/motion_gate",
            "ON\n",
            set(Setting::MotionGate(true)),
            cam,
        ),
        ("cam/gate/prompt/person/text", text, set(words), prompt),
        ("cam/gate/prompt/person/enabled", "OFF", set(off), prompt),
        (
            "cam/gate/prompt/person/min_score",
            "0.35",
            set(score),
            prompt,
        ),
        ("cam/gate/line/door", "RESET\n", reset, "line_reset"),
        ("mode", "night\n", Command::SetMode { mode }, "mode_set"),
        ("mode", "none", Command::SetMode { mode: None }, "mode_set"),
    ] {
        let request = asked(&format!("{topic}/set"), payload);
        assert_eq!(request.command, Ok(expected));
        assert_eq!(request.requester.head.op, op);
    }
}

/// `refusals.txt` has a topic below the node, a payload, and the code and a part of the text of the refusal.
#[test]
fn unreadable_command_is_refused_with_the_allowed_values() {
    for line in include_str!("refusals.txt").lines() {
        let [topic, payload, code, text] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let refusal = asked(topic, payload).command.unwrap_err();
        assert_eq!(json!(refusal.code), code, "{line}");
        assert!(refusal.text.contains(text), "{line}: {refusal}");
    }
    let endless = "x".repeat(REQUEST_MAX_BYTES + 1);
    for topic in ["cmd", "cam/gate/prompt/person/text/set"] {
        let refusal = asked(topic, &endless).command.unwrap_err();
        assert_eq!(refusal.code, RefusalCode::TooLong, "{topic}");
    }
    let refusal = asked("cam/gate/rate/set", &endless).command.unwrap_err();
    assert!(refusal.text.len() < 100, "{refusal}");
}

#[test]
fn each_operation_is_parsed() {
    let keys = json!({"query": "Is the door open?", "choices": ["yes", "no"], "rate": 0.5});
    let prompt = NewPrompt {
        id: prompt("door"),
        keys: serde_json::from_value(keys).unwrap(),
    };
    let ask = Command::Ask {
        camera: gate(),
        question: serde_json::from_value(json!({"text": "Is it raining?", "refs": ["drive"]}))
            .unwrap(),
    };
    let look = Command::Look {
        camera: gate(),
        lasting: Duration::from_secs(5),
        rate: Some(rate(4.0)),
    };
    let log_level = Command::LogLevel {
        level: LogLevel::Debug,
        lasting: Duration::from_secs(600),
    };
    let get = Command::Get {
        what: RequestedInfo::Overrides,
    };
    let camera = gate();
    let add = Command::AddPrompt { camera, prompt };
    for (request, expected) in [
        (
            json!({"op": "ask", "cam": "gate", "text": "Is it raining?", "refs": ["drive"], "reasoning": null}),
            ask,
        ),
        (json!({"op": "reload"}), Command::Reload {}),
        (
            json!({"op": "look", "cam": "gate", "seconds": 5, "rate": 4}),
            look,
        ),
        (json!({"op": "get", "what": "overrides"}), get),
        (
            json!({"op": "reset_overrides"}),
            Command::ResetOverrides { camera: None },
        ),
        (
            json!({"op": "log_level", "level": "debug", "minutes": 10}),
            log_level,
        ),
        (
            json!({"op": "prompt_add", "cam": "gate", "prompt":
            {"id": "door", "query": "Is the door open?", "choices": ["yes", "no"], "rate": 0.5, "crops": null}}),
            add,
        ),
    ] {
        assert_eq!(command(request), Ok(expected));
    }
}

/// What has a topic of its own over MQTT is the operation `set`; all else is as on `cmd`.
#[test]
fn page_sends_the_commands_of_mqtt() {
    let of_page = |request: &serde_json::Value| {
        let mut head = RequestHead::default();
        let command = parse_page_request(request.clone(), &mut head);
        (command, head)
    };
    let set = |cam, prompt: Option<&str>, field, value| json!({"op": "set", "id": "n1", "cam": cam, "prompt": prompt, "field": field, "value": value});
    for (topic, payload, request) in [
        (
            "cam/gate/enabled",
            "OFF",
            set("gate", None, "enabled", json!(false)),
        ),
        (
            "cam/gate/rate",
            "2.5",
            set("gate", None, "rate", json!(2.5)),
        ),
        (
            "cam/gate/prompt/person/text",
            "a \"dog\"",
            set("gate", Some("person"), "text", json!("a \"dog\"")),
        ),
        (
            "cam/gate/prompt/person/min_score",
            "0.4",
            set("gate", Some("person"), "min_score", json!(0.4)),
        ),
        (
            "cam/gate/prompt/person/min_score",
            "null",
            set("gate", Some("person"), "min_score", json!(null)),
        ),
        ("cam/gate/url", "x", set("gate", None, "url", json!("x"))),
        ("cam/Gate/rate", "1", set("Gate", None, "rate", json!(1))),
    ] {
        let mut expected = asked(&format!("{topic}/set"), payload);
        expected.requester.head.id = Some("n1".into());
        let expected = (expected.command, expected.requester.head);
        assert_eq!(of_page(&request), expected, "{topic}");
    }
    let reload = of_page(&json!({"op": "reload", "id": "n1"}));
    assert_eq!(
        (reload.0, reload.1.id),
        (Ok(Command::Reload {}), Some("n1".into()))
    );
    for wrong in [
        json!([]),
        json!({"op": "set", "cam": "gate", "field": "rate"}),
        json!({"op": "set", "cam": "gate", "field": "rate", "value": 1, "for": 2}),
    ] {
        let code = of_page(&wrong).0.unwrap_err().code;
        assert_eq!(code, RefusalCode::BadRequest, "{wrong}");
    }
}

#[test]
fn retained_commands_and_foreign_topics_are_ignored() {
    let parsed = |topic: &str, payload: &str, retained| {
        let inbound = Inbound {
            topic: topic.into(),
            retained,
            ..message("", payload)
        };
        parse_inbound(&topics(), Some("homeassistant/status"), &inbound)
    };
    let (reload, rate) = (r#"{"op":"reload"}"#, "spotter/edge1/cam/gate/rate");
    let set = &format!("{rate}/set");
    let ha = "homeassistant/status";
    for (topic, payload, retained, expected) in [
        ("spotter/edge1/cmd", reload, true, InboundKind::Old),
        (set, "1", true, InboundKind::Old),
        (set, "", true, InboundKind::Other),
        ("spotter/edge1/status", "x", false, InboundKind::Other),
        (rate, "x", false, InboundKind::Other),
        (
            "spotter/edge1/cam/gate/prompt/person/set",
            "x",
            false,
            InboundKind::Other,
        ),
        ("spotter/edge1/cmd/x", "x", false, InboundKind::Other),
        ("spotter/edge1/", "x", false, InboundKind::Other),
        (ha, "online", false, InboundKind::HomeAssistant),
        (ha, "online", true, InboundKind::Other),
        (ha, "offline", false, InboundKind::Other),
        ("hass/status", "online", false, InboundKind::Other),
    ] {
        let parsed = parsed(topic, payload, retained);
        assert_eq!(parsed, expected, "{topic} {payload}");
    }
}

#[test]
fn only_allowed_command_topics_are_subscribed() {
    let of = |topics: &Topics, commands: &str, more: &str| {
        let commands = format!("commands = \"{commands}\"");
        filters(topics, &config(&commands, &format!("{CAMERA}{more}")))
    };
    let site = |commands| of(&topics(), commands, "");
    assert!(site("off").is_empty());
    let basic = [
        "spotter/edge1/cam/+/+/set",
        "spotter/edge1/cam/+/prompt/+/+/set",
        "spotter/edge1/cam/+/line/+/set",
    ];
    assert_eq!(site("basic"), basic);
    let all = site("all");
    assert_eq!(all[..3], basic);
    assert_eq!(all[3..], ["spotter/edge1/cmd"]);
    let in_fleet = [
        "spotter/hall/cam/+/+/set",
        "spotter/hall/cam/+/prompt/+/+/set",
        "spotter/hall/cam/+/line/+/set",
        "spotter/edge1/cmd",
        "spotter/hall/cmd",
    ];
    assert_eq!(of(&fleet_topics(), "all", ""), in_fleet);
    let with_modes = of(&topics(), "basic", "[mode.night]\n");
    assert_eq!(with_modes[3..], ["spotter/edge1/mode/set"]);
    assert!(of(&topics(), "off", "[mode.night]\n").is_empty());
}

#[test]
fn replies_repeat_the_request() {
    let long = "x".repeat(240);
    let request = json!({"id": "n1", "op": "ask", "cam": "gate", "text": long}).to_string();
    let reply = |head, result| {
        let at = WallTime::from_unix_millis(1_787_393_740_000);
        let bytes = Reply { head, result, at }.to_json();
        serde_json::from_slice::<serde_json::Value>(&bytes).unwrap()
    };
    let code = RefusalCode::TooLong;
    let refusal = Refusal::new(code, "prompt text has 240 characters, limit is 200");
    let refused = reply(asked("cmd", &request).requester.head, Err(refusal));
    let expected = json!({"v": 1, "id": "n1", "ok": false, "op": "ask", "cam": "gate",
        "error": {"code": "too_long", "text": "prompt text has 240 characters, limit is 200"},
        "at_ms": 1_787_393_740_000_i64});
    assert_eq!(refused, expected);

    let head = asked("cam/gate/prompt/person/text/set", "dog")
        .requester
        .head;
    let done = reply(head, Ok(ReplyValue::Revision(3)));
    let expected = json!({"v": 1, "id": null, "ok": true, "op": "prompt_set", "cam": "gate",
        "prompt": "person", "field": "text", "rev": 3, "error": null, "at_ms": 1_787_393_740_000_i64});
    assert_eq!(done, expected);

    let settings = vec![
        Setting::Enabled(true),
        Setting::MinScore(person(), share(0.4)),
    ];
    let settings = ReplyValue::Settings(vec![(gate(), settings)]);
    let published = reply(RequestHead::default(), Ok(settings));
    let expected = json!({"gate": {"enabled": true, "prompts": {"person": {"min_score": 0.4}}}});
    assert_eq!(published["value"], expected);
    let changed = vec![Override {
        camera: gate(),
        file: Setting::Rate(rate(1.0)),
        now: Setting::Rate(rate(2.0)),
        drawn_size: None,
    }];
    let published = reply(RequestHead::default(), Ok(ReplyValue::Overrides(changed)));
    let expected =
        json!([{"cam": "gate", "prompt": null, "field": "rate", "file": 1.0, "now": 2.0}]);
    assert_eq!(published["value"], expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(spotter_core::testing::cases(256)))]

    #[test]
    fn no_payload_panics_the_command_parser(topic in "[a-z/+#]{0,30}|cam/gate/(prompt/)?[a-z]{1,6}/set|cmd", payload in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut inbound = message(&topic, "");
        inbound.payload = payload;
        parse_inbound(&topics(), Some("homeassistant/status"), &inbound);
    }

    #[test]
    fn accepted_owners_have_a_bounded_epoch(epoch in any::<u64>(), node in ".{0,40}", number in any::<f64>()) {
        let owner = json!({"v": 1, "node": node, "epoch": epoch}).to_string();
        let other = json!({"v": 1, "node": null, "epoch": number}).to_string();
        for payload in [owner, other, node] {
            let mut inbound = message("", &payload);
            inbound.topic = "spotter/hall/cam/gate/owner".into();
            if let Some((_, owner)) = parse_owner(&fleet_topics(), &inbound) {
                prop_assert!(owner.epoch <= Epoch::MAX);
            }
        }
    }
}

// Faults: B21.
#[test]
fn reply_goes_where_the_scope_and_the_sender_say() {
    let reload = r#"{"op":"reload"}"#;
    let fleet_cmd = "spotter/hall/cmd";
    let rate = "spotter/hall/cam/gate/rate/set";
    let (node, fleet) = (RequestScope::Node, RequestScope::Fleet);
    let (desk, lock) = ("spotter/desk/answers", "lock/front\n/set");
    let usual = "spotter/hall/reply";
    for (topic, payload, wanted, expected) in [
        ("spotter/edge1/cmd", reload, None, Some((node, None, None))),
        (fleet_cmd, reload, None, Some((fleet, Some(usual), None))),
        (rate, "2", None, Some((fleet, Some(usual), None))),
        (
            fleet_cmd,
            reload,
            Some(desk),
            Some((fleet, Some(desk), None)),
        ),
        (
            "spotter/edge1/cmd",
            reload,
            Some(lock),
            Some((node, None, Some("lock/front\u{fffd}/set"))),
        ),
        (
            fleet_cmd,
            reload,
            Some("lock/set"),
            Some((fleet, Some(usual), Some("lock/set"))),
        ),
        // Cameras are the fleet's, and its owners are read by the connection.
        ("spotter/edge1/cam/gate/rate/set", "2", None, None),
        ("spotter/hall/cam/gate/owner", "{\"epoch\":18}", None, None),
    ] {
        let message = Inbound {
            topic: topic.into(),
            reply_to: wanted.map(|wanted: &str| ReplyTo {
                topic: wanted.into(),
                correlation: None,
            }),
            ..message("", payload)
        };
        let found = parse_inbound(&fleet_topics(), None, &message);
        let found = match &found {
            InboundKind::Request(request) => {
                let reply_to = request.requester.reply_to.as_ref();
                let refused = request.refused_reply_topic.as_deref();
                Some((request.scope, reply_to.map(|to| to.topic.as_str()), refused))
            }
            _ => None,
        };
        assert_eq!(found, expected, "{topic} {wanted:?}");
    }
}
