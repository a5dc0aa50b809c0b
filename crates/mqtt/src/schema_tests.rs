//! Compares every payload of this crate with its schema in `docs/schemas`, and checks that the schemas reject invalid payloads.

use std::fmt::Display;

use schemas::Schemas;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::*;
use crate::{
    contract::{
        command::{InboundKind, Reply, ReplyValue, RequestHead},
        detection::tests::{payload_of_a_fleet, payloads},
        discovery::tests::{SITE, config},
        part::{self, PartLabel},
        report::{to_json, to_json_of},
    },
    testing::{
        camera, camera_status, event, health_of, identity, info, prompt, state, text_part, topics,
    },
};
use spotter_control::{Command, Override, Refusal, RefusalCode, RefusalDetails};
use spotter_core::{
    AdapterId, CameraShapes, DirectionId, EndReason, Epoch, Event, EventStep, GroundedSpan, LineId,
    Location, NormBox, NormPoint, ObjectOutline, Phase, Presence, PromptId, PromptQuality,
    PromptState, Reasoning, Setting, TextSubject, TrackId, UpdateReason, WallTime, ZoneId,
    testing::{crossing, prompt_text, rate},
};
use spotter_state::LoggedEvent;

#[path = "../../../tests/support/schemas.rs"]
mod schemas;

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn infos() -> [Info; 2] {
    let full = Info {
        gpus: vec!["a GPU".into()],
        model: Some(ModelInfo {
            name: "moondream-2b".into(),
            family: "Moondream 2".into(),
            sha256: "9f".repeat(32),
            precision: "bf16".into(),
            object_limit: 50,
        }),
        cams: vec![CameraInfo {
            id: "gate".into(),
            prompts: vec!["person".into()],
            zones: vec!["drive".into()],
            lines: vec!["door".into()],
            triggers: vec!["bell".into()],
            rate: 0.5,
        }],
        overrides: 3,
        features: vec!["mqtt_insecure".into()],
        ..info()
    };
    [info(), full]
}

fn statistics() -> [Stats; 2] {
    let full = Stats {
        time_ms: 1_787_393_740_000,
        started_ms: 1_787_393_730_123,
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
        state: Phase::Connecting,
        reason: Some("connection refused".into()),
        next_retry_s: Some(2.5),
        ..CameraHealth::default()
    };
    let streaming = CameraHealth {
        state: Phase::Streaming,
        codec: Some("h265".into()),
        w: Some(2560),
        h: Some(1440),
        fps_declared: Some(20.0),
        fps_measured: Some(14.9),
        gop_s: Some(2.0),
        transport: Some("tcp".into()),
        decoder: Some("avdec_h265".into()),
        note: Some("faster_than_declared".into()),
        clock: CameraClockHealth {
            trusted: false,
            offset_ms: Some(-38.0),
            drift_ppm: Some(21.4),
            sr_age_s: Some(3.1),
            note: Some("stepped".into()),
        },
        ..CameraHealth::default()
    };
    let why = Off::Schedule;
    let off = CameraHealth {
        state: Phase::Disabled,
        reason: Some(format!("{}: {}", why.code(), why.text())),
        ..CameraHealth::default()
    };
    [connecting, streaming, off]
}

fn replies() -> Vec<Vec<u8>> {
    let text = |words: &str| Setting::Text(prompt("person"), prompt_text(words));
    let [_, info] = infos();
    let answer = ReplyValue::Answer {
        text: "yes".into(),
        score: 0.912_67,
        reasoning: None,
    };
    let span = GroundedSpan {
        start: 3,
        end: 9,
        points: vec![NormPoint::new(0.25, 0.5)],
    };
    let thought = ReplyValue::Answer {
        text: "yes".into(),
        score: 0.5,
        reasoning: Some(Reasoning {
            text: "It is wet.".into(),
            grounding: vec![span],
        }),
    };
    let outline = ObjectOutline {
        frame: 7,
        bounds: NormBox::from_corners(0.0, 0.0, 0.5, 0.5),
        path: "M0 0 L1 0 L1 1 Z".into(),
        polygons: vec![
            [(0.0, 0.0), (0.5, 0.0), (0.5, 0.5)]
                .map(|(x, y)| NormPoint::new(x, y))
                .into(),
        ],
        area: 0.125,
        score: 0.75,
    };
    let changed = Override {
        camera: camera("gate"),
        file: text("person"),
        now: text("red car"),
        drawn_size: None,
    };
    let shapes = Setting::Shapes(CameraShapes::default());
    let settings = vec![Setting::Rate(rate(2.0)), text("person"), shapes];
    let refusal = Refusal::new(RefusalCode::TooLong, "240 characters, limit 200");
    let details = [
        RefusalDetails::Mistakes {
            errors: vec!["mask: needs an array".into()],
        },
        RefusalDetails::Shapes {
            now: CameraShapes::default(),
            version: "0123456789ab".into(),
        },
    ];
    let [mistaken, outdated] = details.map(|details| Refusal {
        details: Some(Box::new(details)),
        ..refusal.clone()
    });
    let all = [
        Ok(ReplyValue::Done),
        Ok(ReplyValue::Revision(3)),
        Ok(ReplyValue::ShapesVersion("0123456789ab".into())),
        Err(mistaken),
        Err(outdated),
        Ok(answer),
        Ok(thought),
        Ok(ReplyValue::Outline(Some(outline))),
        Ok(ReplyValue::Outline(None)),
        Ok(ReplyValue::Info(Box::new(info))),
        Ok(ReplyValue::Settings(vec![(camera("gate"), settings)])),
        Ok(ReplyValue::Overrides(vec![changed])),
        Err(refusal),
    ];
    let heads = [
        RequestHead::default(),
        RequestHead {
            id: Some("n1".into()),
            op: "prompt_set".into(),
            camera: Some("gate".into()),
            prompt: Some("person".into()),
            field: Some("text"),
            ..RequestHead::default()
        },
        RequestHead {
            op: "line_reset".into(),
            camera: Some("gate".into()),
            line: Some("door".into()),
            ..RequestHead::default()
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
    use UpdateReason::{Better, Described, Dwell, DwellEnd, Minute, Moved, Still, Zones};
    let updates = [
        Zones, Moved, Still, Better, Minute, Described, Dwell, DwellEnd,
    ];
    let ends = [
        EndReason::Left,
        EndReason::CameraLost,
        EndReason::EngineLost,
        EndReason::PromptChanged,
        EndReason::Disabled,
        EndReason::Shutdown,
        EndReason::Moved,
        EndReason::Restart,
    ];
    let steps = updates.map(EventStep::Update).into_iter();
    let steps = steps
        .chain(ends.map(EventStep::End))
        .chain([EventStep::New]);
    let on_a_box: Vec<Event> = steps.map(|step| event("gate", 37, step)).collect();
    let on_a_point: Vec<Event> = on_a_box
        .iter()
        .map(|event| Event {
            location: Location::Point(NormPoint { x: 0.5, y: 0.25 }),
            ..event.clone()
        })
        .collect();
    let id = "01K37Q8Z7M2T9C4F0RXB6D1A5E";
    let all = on_a_box.iter().chain(&on_a_point);
    let payload = |epoch| {
        let logged = move |event: &Event| LoggedEvent::new(id.into(), event, epoch);
        all.clone()
            .map(move |event| logged(event).payload(event.ended.is_some(), None))
    };
    payload(None).chain(payload(Some(Epoch(17)))).collect()
}

/// Of an answer, and the end of a description in a fleet.
fn parts() -> Vec<Vec<u8>> {
    let answer = text_part("gate", TextSubject::Frame(190_233), "It is ", false);
    let description = TextSubject::Track(TrackId::new("b7c1", &camera("gate"), 37));
    let last = text_part("gate", description, "", true);
    let all = [(answer, None), (last, Some(Epoch(17)))];
    all.map(|(part, epoch)| {
        let (boot, number) = ("b7c1", 3);
        let label = PartLabel {
            boot,
            number,
            epoch,
        };
        part::to_json(&part, label)
    })
    .into()
}

/// On a box and on a point, with and without a speed.
fn crossings() -> Vec<Vec<u8>> {
    let on_a_box = crossing("gate", 37);
    let mut on_a_point = Event {
        location: Location::Point(NormPoint { x: 0.5, y: 0.25 }),
        ..on_a_box.clone()
    };
    on_a_point.crossing.as_mut().unwrap().speed = None;
    let id = "01K37Q8Z7M2T9C4F0RXB6D1A5E";
    let all = [(on_a_box, None), (on_a_point, Some(Epoch(17)))];
    all.map(|(event, epoch)| {
        LoggedEvent::new(id.into(), &event, epoch).payload(epoch.is_some(), None)
    })
    .into()
}

fn quality() -> CameraQuality {
    let of = |prompt: &str, right, wrong, interval| {
        let unmarked = 12;
        let quality = PromptQuality {
            right,
            wrong,
            unmarked,
            interval,
        };
        (PromptId::new(prompt).unwrap(), quality)
    };
    let judged = of("person", 41, 2, Some([0.846, 0.987]));
    CameraQuality {
        prompts: [judged, of("car", 0, 0, None)].into(),
    }
}

/// Messages of a camera in a fleet.
fn of_a_fleet() -> Vec<(&'static str, Value)> {
    let owner = |node| {
        let epoch = Epoch(17);
        parsed(&to_json(&CameraOwner { node, epoch }))
    };
    let health = |health: &CameraHealth| {
        let payload = to_json_of(health, Some(Epoch(17)));
        ("health", parsed(&payload))
    };
    let detection = ("detection", parsed(&payload_of_a_fleet()));
    let owners = [Some(identity().node), None].map(|node| ("owner", owner(node)));
    let states = owners.into_iter().chain(healths().map(|of| health(&of)));
    states.chain([detection]).collect()
}

/// All payloads, each with the name of its schema.
fn everything() -> Vec<(&'static str, Value)> {
    let named = |name, payloads: Vec<Vec<u8>>| {
        let payloads = payloads.into_iter();
        payloads.map(move |bytes| (name, parsed(&bytes)))
    };
    let at = WallTime::from_unix_millis(1_787_393_730_123);
    let report = |errors| to_json(&ConfigReport::new("ab12".into(), at, errors));
    let known = [("was_here".to_owned(), "sensor".to_owned())].into();
    let records = discovery::records(&config("", SITE), &topics(), true).into_iter();
    let records = records.map(|record| record.forgetting(&known).payload());
    let all = [
        named("detection", payloads()),
        named("stats", statistics().iter().map(to_json).collect()),
        named("health", healths().iter().map(to_json).collect()),
        named("quality", vec![to_json(&quality())]),
        named("info", infos().iter().map(to_json).collect()),
        named(
            "config",
            vec![report(vec![]), report(vec!["a line".into()])],
        ),
        named("reply", replies()),
        named("discovery", records.collect()),
        named("event", events()),
        named("crossing", crossings()),
        named("part", parts()),
    ];
    all.into_iter().flatten().chain(of_a_fleet()).collect()
}

#[test]
fn payloads_of_the_node_are_read_back() {
    fn is_read_back<T: Serialize + DeserializeOwned + PartialEq>(payload: &T) -> bool {
        read_json::<T>(&to_json(payload)).as_ref() == Ok(payload)
    }
    assert!(infos().iter().all(is_read_back));
    assert!(statistics().iter().all(is_read_back));
    assert!(healths().iter().all(is_read_back));
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
    let mut below = |key: &dyn Display, value| {
        let at = format!("{at}/{key}");
        places(value, &at, found);
        found.push(at);
    };
    match value {
        Value::Object(keys) => keys.iter().for_each(|(key, value)| below(key, value)),
        Value::Array(all) => all
            .iter()
            .enumerate()
            .for_each(|(i, value)| below(&i, value)),
        _ => {}
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
            assert!(!schemas.accepts(name, &wrong), "{name}{place}");
            tried += 1;
        }
    }
    assert!(tried > 1000, "{tried}");
    for (name, payload) in everything() {
        if name != "discovery" {
            let mut without = payload.clone();
            without.as_object_mut().unwrap().remove("v");
            assert!(!schemas.accepts(name, &without), "{name} without `v`");
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
    assert!(!schemas.accepts("reply", &refused), "no reason");
}

/// The schema of requests and the parser accept the good requests of `requests.txt` and reject the bad ones.
#[test]
fn requests_are_parsed_as_their_schema_defines() {
    let schemas = Schemas::load();
    let topics = topics();
    // Its first camera has what prompts may name.
    let site = config("", SITE);
    let plates = ["plates"].map(|id| AdapterId::new(id).unwrap());
    for line in include_str!("requests.txt").lines() {
        let (word, request) = line.split_once(' ').unwrap();
        let (is_good, request) = (word == "good", &parsed(request.as_bytes()));
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
        let read = asked.command.and_then(|command| match command {
            Command::AddPrompt { prompt, .. } => {
                let read = spotter_config::prompt_of_keys(
                    &prompt.keys,
                    &prompt.id,
                    &site.cameras[0],
                    &plates,
                );
                read.map(|_| ())
                    .map_err(|wrong| Refusal::new(RefusalCode::BadValue, wrong))
            }
            Command::Ask { question, .. } => {
                let read = spotter_config::question_of_keys(&question, &site.cameras[0], &plates);
                read.map(|_| ()).map_err(Refusal::bad_value)
            }
            Command::SetShapes { shapes, .. } => {
                let read = spotter_config::with_shapes(&site.cameras[0], &shapes);
                read.map(|_| ())
                    .map_err(|wrong| Refusal::bad_value(wrong.join("; ")))
            }
            _ => Ok(()),
        });
        assert_eq!(read.is_ok(), is_good, "{request}: {read:?}");
    }
}

/// Texts of states, and undocumented topics.
#[test]
fn each_state_is_a_documented_value() {
    let schemas = Schemas::load();
    let topics = topics();
    let presences = [Presence::On, Presence::Off, Presence::Unknown].map(PromptState::Presence);
    let counts = [None, Some(0), Some(12)];
    let zone = ZoneId::new("drive").unwrap();
    let in_zone = |count| PromptState::ZoneCount {
        zone: zone.clone(),
        count,
    };
    let dwell = presences.clone().map(|presence| match presence {
        PromptState::Presence(presence) => PromptState::Dwell {
            zone: zone.clone(),
            presence,
        },
        other => other,
    });
    let at_line = [0, u64::MAX].map(|count| PromptState::LineCount {
        line: LineId::new("door").unwrap(),
        direction: DirectionId::in_and_out()[0].clone(),
        count,
    });
    let answers = [None, Some(String::new()), Some("sun".into())].map(PromptState::Answer);
    let states = presences.into_iter().chain(answers);
    let states = states.chain(counts.map(PromptState::Count));
    let states = states.chain(at_line).chain(dwell);
    let updates = states.chain(counts.map(in_zone)).map(state);
    let updates = updates.chain([true, false].map(camera_status));
    let updates = updates.chain(healths().map(health_of));
    let updates = updates.chain([Update::Quality {
        camera: camera("gate"),
        quality: quality(),
    }]);
    for update in updates {
        let message = message::Message::from_update(&topics, update, None);
        let message::MessageContent::State(state) = &message.content else {
            panic!("{message:?}")
        };
        let (_, levels) = topics.scope_of(&message.topic).unwrap();
        assert_eq!(schemas.faults_at(&levels, &state.payload), [""; 0]);
    }
    for (topic, wrong) in [
        ("status", "ONLINE"),
        ("cam/gate/present/person", "unknown"),
        ("cam/gate/count/person", "2.0"),
        ("cam/gate/count/person", ""),
        ("cam/gate/line/door/in/person", "None"),
        ("cam/gate/rate", "0"),
        ("cam/gate/prompt/person/text", ""),
        ("info", "{}"),
        ("cam/gate/health", "not JSON"),
        ("cam/gate/what", "ON"),
        ("cam/gate/snapshot/person", "GIF89a"),
    ] {
        let levels: Vec<_> = topic.split('/').collect();
        let faults = schemas.faults_at(&levels, wrong.as_bytes());
        assert!(!faults.is_empty(), "{topic} {wrong}");
    }
}
