//! Compares every payload of this crate with its schema in `docs/schemas`, and checks that the schemas reject invalid payloads.

use schemas::Schemas;
use serde_json::{Value, json};

use super::*;
use crate::{
    command::{InboundKind, Reply, ReplyValue, RequestHead},
    detection::tests::payloads,
    discovery::tests::{SITE, config},
    event::tests::event,
    report::to_json,
};
use spotter_core::{
    CameraId, EndReason, Event, EventStep, Location, NormPoint, PromptId, Refusal, RefusalCode,
    Setting, UpdateReason, WallTime,
};

#[path = "../../../tests/support/schemas.rs"]
mod schemas;

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn infos() -> [Info; 2] {
    let bare = Info {
        daemon: DaemonInfo {
            name: "spotter".into(),
            version: "0.1.0".into(),
        },
        boot: "b7c1".into(),
        started_ms: 1_787_393_730_123,
        host: "edge1".into(),
        gpus: Vec::new(),
        model: None,
        cams: Vec::new(),
        config_hash: "0123456789ab".into(),
        overrides: 0,
        features: Vec::new(),
    };
    let full = Info {
        gpus: vec!["a GPU".into()],
        model: Some(ModelInfo {
            name: "moondream-2b".into(),
            sha256: "9f".repeat(32),
            precision: "bf16".into(),
            object_limit: 50,
        }),
        cams: vec![CameraInfo {
            id: "gate".into(),
            prompts: vec!["person".into()],
            zones: vec!["drive".into()],
            rate: 0.5,
        }],
        overrides: 3,
        features: vec!["mqtt_insecure".into()],
        ..bare.clone()
    };
    [bare, full]
}

fn statistics() -> [Stats; 2] {
    let full = Stats {
        time_ms: 1_787_393_740_000,
        lat_total_p50_ms: Some(61.2),
        lat_total_p95_ms: Some(88.0),
        lat_total_p99_ms: Some(120.4),
        lat_e2e_p95_ms: Some(-3.5), // A camera's clock may be ahead by its error.
        lat_budget_ms: 250,
        lat_over_budget: 1,
        gpu: Some(GpuStats {
            gpu0_util_pct: Some(71.0),
            gpu0_busy_pct: Some(92.3),
            gpu0_mem_mib: Some(5120),
            gpu0_temp_c: Some(61),
            nvdec_pct: None,
        }),
        batch_mean: Some(3.2),
        mqtt_puback_p95_ms: Some(2.1),
        rss_mib: Some(410.0),
        cpu_pct: Some(223.5),
        ..Stats::default()
    };
    [Stats::default(), full]
}

fn healths() -> [CameraHealth; 3] {
    let connecting = CameraHealth {
        state: "connecting".into(),
        reason: Some("connection refused".into()),
        next_retry_s: Some(2.5),
        ..CameraHealth::default()
    };
    let streaming = CameraHealth {
        state: "streaming".into(),
        codec: Some("h265".into()),
        w: Some(2560),
        h: Some(1440),
        fps_declared: Some(20.0),
        fps_measured: Some(14.9),
        gop_s: Some(2.0),
        transport: Some("tcp".into()),
        decoder: Some("avdec_h265".into()),
        clock: CameraClockHealth {
            trusted: false,
            offset_ms: Some(-38.0),
            drift_ppm: Some(21.4),
            sr_age_s: Some(3.1),
            note: Some("stepped".into()),
        },
        ..CameraHealth::default()
    };
    let off = CameraHealth {
        state: "disabled".into(),
        reason: Some(format!(
            "{}: {}",
            Off::Schedule.code(),
            Off::Schedule.text()
        )),
        ..CameraHealth::default()
    };
    [connecting, streaming, off]
}

fn replies() -> Vec<Vec<u8>> {
    let gate = || CameraId::new("gate").unwrap();
    let person = || PromptId::new("person").unwrap();
    let text = |words: &str| Setting::Text(person(), words.into());
    let [_, info] = infos();
    let all = [
        Ok(ReplyValue::Done),
        Ok(ReplyValue::Revision(3)),
        Ok(ReplyValue::Answer {
            text: "yes".into(),
            score: 0.912_67,
        }),
        Ok(ReplyValue::Info(Box::new(info))),
        Ok(ReplyValue::Settings(vec![(
            gate(),
            vec![Setting::RateHz(2.0), text("person")],
        )])),
        Ok(ReplyValue::Overrides(vec![(
            gate(),
            text("person"),
            text("red car"),
        )])),
        Err(Refusal::new(
            RefusalCode::TooLong,
            "240 characters, limit 200",
        )),
    ];
    let heads = [
        RequestHead::default(),
        RequestHead {
            id: Some("n1".into()),
            op: "prompt_set".into(),
            camera: Some("gate".into()),
            prompt: Some("person".into()),
            field: Some("text"),
        },
    ];
    let reply = |(head, result): (&RequestHead, &Result<ReplyValue, Refusal>)| {
        let (head, result) = (head.clone(), result.clone());
        let at = WallTime::from_unix_millis(1_787_393_740_000);
        Reply { head, result, at }.to_json()
    };
    let pairs = heads
        .iter()
        .flat_map(|head| all.iter().map(move |result| (head, result)));
    pairs.map(reply).collect()
}

/// Each step, on a box and on a point.
fn events() -> Vec<Vec<u8>> {
    let steps = [
        EventStep::New,
        EventStep::Update(UpdateReason::Minute),
        EventStep::End(EndReason::Restart),
    ];
    let on_a_box = steps.map(|step| event("gate", 37, step));
    let on_a_point = on_a_box.clone().map(|event| Event {
        location: Location::Point(NormPoint { x: 0.5, y: 0.25 }),
        ..event
    });
    let id = "01K37Q8Z7M2T9C4F0RXB6D1A5E";
    let all = on_a_box.iter().chain(&on_a_point);
    all.map(|event| event::to_json(event, id, event.ended.is_some()))
        .collect()
}

/// All payloads, each with the name of its schema.
fn everything() -> Vec<(&'static str, Value)> {
    let named = |name, payloads: Vec<Vec<u8>>| {
        payloads
            .into_iter()
            .map(move |bytes| (name, parsed(&bytes)))
    };
    let at = WallTime::from_unix_millis(1_787_393_730_123);
    let report = |errors| to_json(&ConfigReport::new("ab12".into(), at, errors));
    let records = |way: &str| {
        let config = config(&format!("ha.discovery = \"{way}\""), SITE);
        let records = discovery::records(&config, true).into_iter();
        let known = [("was_here".to_owned(), "sensor".to_owned())].into();
        records
            .map(|record| record.forgetting(&known).payload())
            .collect::<Vec<_>>()
    };
    named("detection", payloads())
        .chain(named("stats", statistics().iter().map(to_json).collect()))
        .chain(named("health", healths().iter().map(to_json).collect()))
        .chain(named("info", infos().iter().map(to_json).collect()))
        .chain(named(
            "config",
            vec![report(vec![]), report(vec!["a line".into()])],
        ))
        .chain(named("reply", replies()))
        .chain(named("discovery", records("device")))
        .chain(named("discovery", records("single")))
        .chain(named("event", events()))
        .collect()
}

#[test]
fn each_payload_matches_its_schema() {
    let schemas = Schemas::load();
    for (name, payload) in everything() {
        assert_eq!(schemas.faults(name, &payload), [""; 0], "{payload:#}");
        // A consumer that follows the schema accepts the new keys of a later version.
        let mut later = payload.clone();
        later["a_key_of_later"] = json!(7);
        assert_eq!(schemas.accepts(name, &later), name != "discovery", "{name}");
        assert!(!schemas.faults(name, &later).is_empty(), "{name}");
    }
    let tried: std::collections::BTreeSet<_> = everything().iter().map(|(name, _)| *name).collect();
    let names: Vec<_> = tried.into_iter().chain(["command"]).collect();
    assert!(schemas.names().iter().all(|name| names.contains(name)));
}

/// The JSON pointers of all values in a payload.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    let below: Vec<(String, &Value)> = match value {
        Value::Object(keys) => keys
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        Value::Array(all) => all
            .iter()
            .enumerate()
            .map(|(i, value)| (i.to_string(), value))
            .collect(),
        _ => Vec::new(),
    };
    for (key, value) in below {
        let at = format!("{at}/{key}");
        places(value, &at, found);
        found.push(at);
    }
}

#[test]
fn a_payload_with_a_value_of_another_type_fails() {
    let schemas = Schemas::load();
    let mut tried = 0;
    for (name, payload) in everything() {
        let mut all = Vec::new();
        places(&payload, "", &mut all);
        // The value of a reply may have any type.
        all.retain(|place| !(name == "reply" && place.starts_with("/value")));
        for place in all {
            let mut wrong = payload.clone();
            let value = wrong.pointer_mut(&place).unwrap();
            *value = match value {
                Value::Object(_) | Value::Array(_) | Value::Null => json!(true),
                _ => json!({"wrong": []}),
            };
            assert!(
                !schemas.accepts(name, &wrong),
                "{name}{place} may be {:?}",
                wrong.pointer(&place)
            );
            tried += 1;
        }
    }
    assert!(tried > 1000, "{tried}");
    for (name, payload) in everything() {
        if name != "discovery" {
            let mut without = payload.clone();
            without.as_object_mut().unwrap().remove("v");
            assert!(
                !schemas.accepts(name, &without),
                "{name} without its version"
            );
        }
    }
}

#[test]
fn contradicting_payload_fails_its_schema() {
    let schemas = Schemas::load();
    let new = parsed(&events()[0]);
    for (key, value) in [
        ("type", json!("end")),
        ("reason", json!("left")),
        ("end_ms", json!(1)),
        ("box", json!([0, 0, 2, 1])),
    ] {
        let mut wrong = new.clone();
        wrong[key] = value;
        assert!(!schemas.accepts("event", &wrong), "{key}");
    }
    let mut refused = parsed(&replies()[0]);
    refused["ok"] = json!(false);
    assert!(
        !schemas.accepts("reply", &refused),
        "refused without a reason"
    );
}

/// The schema of requests and the parser accept and reject the same requests.
#[test]
fn requests_are_parsed_as_their_schema_defines() {
    let schemas = Schemas::load();
    let topics = Topics::new("spotter", &spotter_core::NodeId::new("edge1").unwrap());
    let add = |prompt: Value| json!({"op": "prompt_add", "cam": "gate", "prompt": prompt});
    let good = [
        json!({"id": "n1", "op": "reload"}),
        json!({"op": "snapshot", "cam": "gate"}),
        json!({"op": "reconnect", "cam": "gate", "id": null}),
        json!({"op": "look", "cam": "gate", "seconds": 5, "rate": 4}),
        json!({"op": "look", "cam": "gate"}),
        json!({"op": "ask", "cam": "gate", "text": "Is it raining?"}),
        add(
            json!({"id": "dog", "detect": "dog", "rate": 0.5, "min_score": 0.2, "zones": ["drive"]}),
        ),
        add(json!({"id": "rain", "query": "Is it raining?", "choices": ["yes", "no"]})),
        json!({"op": "prompt_del", "cam": "gate", "prompt": "dog"}),
        json!({"op": "reset_overrides"}),
        json!({"op": "reset_overrides", "cam": "gate"}),
        json!({"op": "get", "what": "settings"}),
        json!({"op": "log_level", "level": "debug", "minutes": 10}),
    ];
    let bad = [
        json!([]),
        json!({}),
        json!({"op": "restart"}),
        json!({"op": 7}),
        json!({"op": "reload", "id": 7}),
        json!({"op": "reload", "file": "/etc/passwd"}),
        json!({"op": "snapshot"}),
        json!({"op": "snapshot", "cam": "Front Door"}),
        json!({"op": "look", "cam": "gate", "seconds": "5"}),
        add(json!({"id": "dog"})),
        add(json!({"id": "dog", "detect": "dog", "point": "dog"})),
        add(json!({"id": "dog", "detect": "dog", "choices": ["yes", "no"]})),
        json!({"op": "get", "what": "password"}),
        json!({"op": "log_level", "level": "debug", "minutes": 0}),
    ];
    for (request, is_good) in good
        .iter()
        .map(|r| (r, true))
        .chain(bad.iter().map(|r| (r, false)))
    {
        assert_eq!(schemas.accepts("command", request), is_good, "{request}");
        let inbound = Inbound {
            topic: topics.command(),
            payload: request.to_string().into_bytes(),
            retained: false,
            reply_to: None,
        };
        let InboundKind::Request(asked) = parse_inbound(&topics, None, &inbound) else {
            panic!("{request} is no request");
        };
        assert_eq!(
            asked.command.is_ok(),
            is_good,
            "{request}: {:?}",
            asked.command
        );
    }
}

/// Texts of states, and undocumented topics.
#[test]
fn each_state_is_a_documented_value() {
    let schemas = Schemas::load();
    let topics = Topics::new("spotter", &spotter_core::NodeId::new("edge1").unwrap());
    let (camera, prompt) = (
        CameraId::new("gate").unwrap(),
        PromptId::new("person").unwrap(),
    );
    let mut updates: Vec<Update> = [
        spotter_core::Presence::On,
        spotter_core::Presence::Off,
        spotter_core::Presence::Unknown,
    ]
    .map(|presence| Update::State {
        camera: camera.clone(),
        prompt: prompt.clone(),
        state: spotter_core::PromptState::Presence(presence),
    })
    .into();
    for count in [None, Some(0), Some(12)] {
        let (camera, prompt) = (camera.clone(), prompt.clone());
        let zone = spotter_core::ZoneId::new("drive").unwrap();
        updates.push(Update::State {
            camera: camera.clone(),
            prompt: prompt.clone(),
            state: spotter_core::PromptState::ZoneCount { zone, count },
        });
        updates.push(Update::State {
            camera,
            prompt,
            state: spotter_core::PromptState::Count(count),
        });
    }
    for text in [None, Some(String::new()), Some("sun".into())] {
        updates.push(Update::State {
            camera: camera.clone(),
            prompt: prompt.clone(),
            state: spotter_core::PromptState::Answer(text),
        });
    }
    for online in [true, false] {
        updates.push(Update::CameraStatus {
            camera: camera.clone(),
            online,
        });
    }
    for health in healths() {
        updates.push(Update::Health {
            camera: camera.clone(),
            health: health.into(),
        });
    }
    for update in updates {
        let message = message::Message::from_update(&topics, update);
        let message::MessageContent::State(state) = &message.content else {
            panic!("{message:?}")
        };
        let levels = topics.levels_of(&message.topic).unwrap();
        assert_eq!(schemas.faults_at(&levels, &state.payload), [""; 0]);
    }
    for (topic, wrong) in [
        ("status", "ONLINE"),
        ("cam/gate/present/person", "unknown"),
        ("cam/gate/count/person", "2.0"),
        ("cam/gate/count/person", ""),
        ("cam/gate/rate", "0"),
        ("cam/gate/prompt/person/text", ""),
        ("info", "{}"),
        ("cam/gate/health", "not JSON"),
        ("cam/gate/what", "ON"),
        ("cam/gate/snapshot/person", "GIF89a"),
    ] {
        let levels: Vec<_> = topic.split('/').collect();
        assert!(
            !schemas.faults_at(&levels, wrong.as_bytes()).is_empty(),
            "{topic} {wrong}"
        );
    }
}
