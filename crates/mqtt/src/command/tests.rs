//! Requests, also malformed ones, and their replies.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use spotter_core::{LogLevel, NewPrompt, NodeId, RequestedInfo, Task, WallTime};

fn topics() -> Topics {
    Topics::new("spotter", &NodeId::new("edge1").unwrap())
}

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

fn gate() -> CameraId {
    CameraId::new("gate").unwrap()
}

fn person() -> PromptId {
    PromptId::new("person").unwrap()
}

#[test]
fn each_settable_topic_is_a_setting() {
    let set = |topic: &str, payload: &str| match asked(topic, payload).command {
        Ok(Command::Set { camera, setting }) if camera == gate() => setting,
        other => panic!("{topic}: {other:?}"),
    };
    assert_eq!(set("cam/gate/enabled/set", "OFF"), Setting::Enabled(false));
    assert_eq!(set("cam/gate/rate/set", "2.5"), Setting::RateHz(2.5));
    assert_eq!(
        set("cam/gate/motion_gate/set", "ON\n"),
        Setting::MotionGate(true)
    );
    let text = Setting::Text(person(), "person with a hat".into());
    assert_eq!(
        set("cam/gate/prompt/person/text/set", "person with a hat"),
        text
    );
    let off = Setting::PromptEnabled(person(), false);
    assert_eq!(set("cam/gate/prompt/person/enabled/set", "OFF"), off);
    let score = Setting::MinScore(person(), 0.35);
    assert_eq!(set("cam/gate/prompt/person/min_score/set", "0.35"), score);
}

#[test]
fn unreadable_command_is_rejected_with_the_allowed_values() {
    for (topic, payload, code, text) in [
        (
            "cam/gate/enabled/set",
            "yes",
            "bad_value",
            "enabled: \"yes\" is not ON or OFF",
        ),
        (
            "cam/gate/rate/set",
            "fast",
            "bad_value",
            "rate: \"fast\" is not a number",
        ),
        (
            "cam/gate/rate/set",
            "NaN",
            "bad_value",
            "rate: \"NaN\" is not a number",
        ),
        (
            "cam/Front/rate/set",
            "1",
            "unknown_camera",
            "there is no camera \"Front\"",
        ),
        (
            "cam/gate/url/set",
            "rtsp://x",
            "unknown_op",
            "\"url\" cannot be set; there are enabled, rate, motion_gate",
        ),
        ("cmd", "reload", "bad_request", "not JSON"),
        ("cmd", "[]", "bad_request", "not a JSON object"),
        (
            "cmd",
            "{\"op\":\"exec\"}",
            "unknown_op",
            "there is no operation \"exec\"",
        ),
        (
            "cmd",
            "{\"op\":\"look\",\"cam\":\"gate\",\"second\":3}",
            "bad_request",
            "unknown field `second`",
        ),
        (
            "cmd",
            "{\"op\":\"look\"}",
            "bad_request",
            "missing field `cam`",
        ),
        (
            "cmd",
            "{\"op\":\"get\",\"what\":\"url\"}",
            "bad_value",
            "info, settings or overrides",
        ),
        (
            "cmd",
            "{\"op\":\"reload\",\"id\":7}",
            "bad_request",
            "id: a text of up to 64",
        ),
    ] {
        let refusal = asked(topic, payload).command.unwrap_err();
        assert_eq!(refusal.code.as_str(), code, "{topic} {payload}");
        assert!(refusal.text.contains(text), "{topic} {payload}: {refusal}");
    }
    let endless = "x".repeat(REQUEST_MAX_BYTES + 1);
    assert_eq!(
        asked("cmd", &endless).command.unwrap_err().code,
        RefusalCode::TooLong
    );
    let shown = asked("cam/gate/rate/set", &endless)
        .command
        .unwrap_err()
        .text;
    assert!(shown.len() < 100, "{shown}");
}

#[test]
fn each_operation_is_parsed() {
    let camera = gate();
    let ask = json!({"op": "ask", "cam": "gate", "text": "Is it raining?"});
    let question = "Is it raining?".to_owned();
    assert_eq!(command(ask), Ok(Command::Ask { camera, question }));
    assert_eq!(command(json!({"op": "reload"})), Ok(Command::Reload));
    let (lasting, rate_hz) = (Duration::from_secs(5), Some(4.0));
    let look = json!({"op": "look", "cam": "gate", "seconds": 5, "rate": 4});
    assert_eq!(
        command(look),
        Ok(Command::Look {
            camera: gate(),
            lasting,
            rate_hz
        })
    );
    let what = RequestedInfo::Overrides;
    assert_eq!(
        command(json!({"op": "get", "what": "overrides"})),
        Ok(Command::Get { what })
    );
    let reset = json!({"op": "reset_overrides"});
    assert_eq!(command(reset), Ok(Command::ResetOverrides { camera: None }));
    let (level, lasting) = (LogLevel::Debug, Duration::from_secs(600));
    let log = json!({"op": "log_level", "level": "debug", "minutes": 10});
    assert_eq!(command(log), Ok(Command::LogLevel { level, lasting }));
    let add = json!({"op": "prompt_add", "cam": "gate", "prompt":
        {"id": "door", "query": "Is the door open?", "choices": ["yes", "no"], "rate": 0.5}});
    let prompt = NewPrompt {
        id: PromptId::new("door").unwrap(),
        task: Task::Query {
            question: "Is the door open?".into(),
            choices: vec!["yes".into(), "no".into()],
        },
        rate_hz: Some(0.5),
        min_score: 0.0,
        zones: Vec::new(),
    };
    assert_eq!(
        command(add),
        Ok(Command::AddPrompt {
            camera: gate(),
            prompt
        })
    );
    for wrong in [
        json!({"id": "x"}),
        json!({"id": "x", "detect": "a", "point": "b"}),
        json!({"id": "x", "detect": "a", "choices": ["yes", "no"]}),
        json!({"id": "X", "detect": "a"}),
        json!({"id": "x", "query": "a", "choices": ["yes", "YES"]}),
        json!({"id": "x", "detect": "a", "zones": ["Über"]}),
    ] {
        let add = json!({"op": "prompt_add", "cam": "gate", "prompt": wrong});
        assert!(command(add).is_err());
    }
    for wrong in [-1.0, 1e300] {
        assert!(command(json!({"op": "look", "cam": "gate", "seconds": wrong})).is_err());
        assert!(command(json!({"op": "log_level", "level": "info", "minutes": wrong})).is_err());
    }
}

#[test]
fn retained_commands_and_foreign_topics_are_ignored() {
    let retained = |topic| Inbound {
        retained: true,
        ..message(topic, "{\"op\":\"reload\"}")
    };
    let ha = Some("homeassistant/status");
    assert_eq!(
        parse_inbound(&topics(), ha, &retained("cmd")),
        InboundKind::Old
    );
    assert_eq!(
        parse_inbound(&topics(), ha, &retained("cam/gate/rate/set")),
        InboundKind::Old
    );
    let cleared = Inbound {
        payload: Vec::new(),
        ..retained("cam/gate/rate/set")
    };
    assert_eq!(parse_inbound(&topics(), ha, &cleared), InboundKind::Other);
    for other in [
        "status",
        "cam/gate/rate",
        "cam/gate/prompt/person/set",
        "cmd/x",
        "",
    ] {
        assert_eq!(
            parse_inbound(&topics(), ha, &message(other, "x")),
            InboundKind::Other
        );
    }
    let mut online = message("", "online");
    online.topic = "homeassistant/status".into();
    assert_eq!(
        parse_inbound(&topics(), ha, &online),
        InboundKind::HomeAssistant
    );
    assert_eq!(parse_inbound(&topics(), None, &online), InboundKind::Other);
    online.payload = b"offline".to_vec();
    assert_eq!(parse_inbound(&topics(), ha, &online), InboundKind::Other);
}

#[test]
fn only_allowed_command_topics_are_subscribed() {
    assert!(filters(&topics(), Commands::Off).is_empty());
    let basic = [
        "spotter/edge1/cam/+/+/set",
        "spotter/edge1/cam/+/prompt/+/+/set",
    ];
    assert_eq!(filters(&topics(), Commands::Basic), basic);
    let all = filters(&topics(), Commands::All);
    assert_eq!(
        (&all[..2], &all[2][..]),
        (&basic.map(String::from)[..], "spotter/edge1/cmd")
    );
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
    let refused = reply(asked("cmd", &request).head, Err(refusal));
    let expected = json!({"v": 1, "id": "n1", "ok": false, "op": "ask", "cam": "gate",
        "error": {"code": "too_long", "text": "prompt text has 240 characters, limit is 200"},
        "at_ms": 1_787_393_740_000_i64});
    assert_eq!(refused, expected);

    let head = asked("cam/gate/prompt/person/text/set", "dog").head;
    let done = reply(head, Ok(ReplyValue::Revision(3)));
    let expected = json!({"v": 1, "id": null, "ok": true, "op": "prompt_set", "cam": "gate",
        "prompt": "person", "field": "text", "rev": 3, "error": null, "at_ms": 1_787_393_740_000_i64});
    assert_eq!(done, expected);

    let settings = vec![Setting::Enabled(true), Setting::MinScore(person(), 0.4)];
    let published = reply(
        RequestHead::default(),
        Ok(ReplyValue::Settings(vec![(gate(), settings)])),
    );
    let expected = json!({"gate": {"enabled": true, "prompts": {"person": {"min_score": 0.4}}}});
    assert_eq!(published["value"], expected);
    let changed = vec![(gate(), Setting::RateHz(1.0), Setting::RateHz(2.0))];
    let published = reply(RequestHead::default(), Ok(ReplyValue::Overrides(changed)));
    let expected =
        json!([{"cam": "gate", "prompt": null, "field": "rate", "file": 1.0, "now": 2.0}]);
    assert_eq!(published["value"], expected);
}

proptest! {
    #[test]
    fn no_payload_panics_the_command_parser(topic in "[a-z/+#]{0,30}|cam/gate/(prompt/)?[a-z]{1,6}/set|cmd", payload in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut inbound = message(&topic, "");
        inbound.payload = payload;
        parse_inbound(&topics(), Some("homeassistant/status"), &inbound);
    }
}
