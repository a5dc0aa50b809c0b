use proptest::prelude::*;
use serde_json::json;

use super::*;
use spotter_core::{Capture, Picture, Prompt, PromptId, StageTimes, Task};

fn ms(ms: f64) -> Mono {
    Mono::from_nanos((ms * 1e6) as u64)
}

fn frame(camera: &str, capture: Option<Capture>) -> Frame {
    Frame {
        camera: CameraId::new(camera).unwrap(),
        number: 190_233,
        camera_size: (2560, 1440),
        key: false,
        times: FrameTimes {
            received: ms(1000.0),
            received_wall: WallTime::from_unix_millis(1_787_393_730_265),
            decoded: ms(1012.3),
            capture,
            rtp: Some(3_051_186_240),
        },
        picture: Picture::from_rgb(1, 1, vec![0; 3]).unwrap(),
    }
}

fn answer(task: Task, body: AnswerBody) -> Answer {
    Answer {
        prompt: Arc::new(Prompt {
            id: PromptId::new("person").unwrap(),
            revision: 3,
            task,
        }),
        body,
        truncated: false,
        marks: StageTimes {
            taken: ms(1016.4),
            prepared: ms(1018.6),
            encoded: ms(1028.2),
            prefilled: ms(1031.6),
            generated: ms(1063.4),
        },
    }
}

fn person() -> Task {
    Task::Detect {
        object: "person".into(),
    }
}

fn boxes(places: &[NormBox]) -> AnswerBody {
    let found = places.iter().map(|&place| FoundObject {
        place,
        score: 0.831_23,
        source: ScoreSource::TokenProb,
        sharpness: 0.912_67,
    });
    AnswerBody::Boxes(found.collect())
}

fn of(camera: &str, body: AnswerBody) -> Detection {
    let capture = Capture {
        wall: WallTime::from_unix_millis(1_787_393_730_123),
        source: CaptureSource::Rtcp,
        error_ms: Some(20.0),
    };
    let frame = frame(camera, Some(capture));
    let model = "moondream-2b@9f3c".into();
    Detection::new(
        &frame,
        model,
        (756, 425),
        answer(person(), body),
        ms(1063.7),
    )
}

/// A detection with one box, for other tests of the room.
pub(crate) fn detection(camera: &str) -> Detection {
    of(
        camera,
        boxes(&[NormBox::from_corners(0.412_04, 0.205, 0.488, 0.731)]),
    )
}

/// A detection without objects, for other tests of the room.
pub(crate) fn empty(camera: &str) -> Detection {
    of(camera, boxes(&[]))
}

fn label() -> Label {
    Label {
        id: "01K37Q8Z7M2T9C4F0RXB6D1A5E".into(),
        boot: "b7c1".into(),
        seq: 48_211,
    }
}

fn payload(detection: &Detection) -> Value {
    serde_json::from_slice(&detection.to_json(&label(), ms(1066.0))).unwrap()
}

#[test]
fn the_payload_is_the_contracts_field_by_field() {
    let since_last = SkippedSinceLast {
        gated: 12,
        busy: 3,
        ..SkippedSinceLast::default()
    };
    let drive = vec![vec![ZoneId::new("drive").unwrap()]];
    let expected = json!({
        "v": 1,
        "id": "01K37Q8Z7M2T9C4F0RXB6D1A5E",
        "boot": "b7c1",
        "cam": "gate",
        "prompt": {"id": "person", "rev": 3, "kind": "detect", "text": "person"},
        "model": "moondream-2b@9f3c",
        "seq": 48211,
        "frame": {"n": 190233, "w": 2560, "h": 1440, "model_w": 756, "model_h": 425, "key": false},
        "time": {
            "capture": "2026-08-22T10:15:30.123Z", "capture_ms": 1787393730123i64,
            "capture_src": "rtcp", "capture_err_ms": 20.0,
            "recv_ms": 1787393730265i64, "publish_ms": 1787393730331i64, "rtp": 3051186240u32
        },
        "lat_ms": {
            "camera": 142.0, "decode": 12.3, "wait": 4.1, "prep": 2.2, "vision": 9.6, "prompt": 3.4,
            "generate": 31.8, "post": 0.3, "out": 2.3, "total": 66.0, "end_to_end": 208.0
        },
        "since_last": {"gated": 12, "late": 0, "busy": 3, "error": 0},
        "count": 1, "truncated": false,
        "objects": [{
            "box": [0.412, 0.205, 0.488, 0.731], "point": [0.45, 0.468], "score": 0.831,
            "score_src": "token_prob", "sharpness": 0.913, "track": null, "age_s": null, "zones": ["drive"],
            "area": 0.04
        }]
    });
    assert_eq!(
        payload(&detection("gate").after(since_last).in_zones(drive)),
        expected
    );
}

#[test]
fn without_a_trusted_capture_time_nothing_is_guessed() {
    let arrival = Capture {
        wall: WallTime::from_unix_millis(1_787_393_730_265),
        source: CaptureSource::Arrival,
        error_ms: None,
    };
    for (capture, source) in [(Some(arrival), "arrival"), (None, "none")] {
        let frame = frame("gate", capture);
        let answer = answer(person(), boxes(&[]));
        let found = payload(&Detection::new(
            &frame,
            "m".into(),
            (1, 1),
            answer,
            ms(1064.0),
        ));
        assert_eq!(found["time"]["capture_src"], source);
        assert!(found["lat_ms"]["camera"].is_null() && found["lat_ms"]["end_to_end"].is_null());
        assert_eq!(found["time"]["capture_ms"].is_null(), capture.is_none());
        assert!(found["time"]["capture_err_ms"].is_null());
    }
}

#[test]
fn points_have_no_box_and_texts_no_count() {
    let found = vec![FoundObject {
        place: NormPoint::new(0.25, 0.5),
        score: 0.5,
        source: ScoreSource::Verify,
        sharpness: 0.25,
    }];
    let points = payload(&of("gate", AnswerBody::Points(found)));
    assert!(points["objects"][0].get("box").is_none());
    assert_eq!(points["objects"][0]["point"], json!([0.25, 0.5]));
    assert_eq!(points["objects"][0]["score_src"], "verify");
    assert_eq!(points["objects"][0]["sharpness"], 0.25);
    for (text, value) in [
        ("Yes.", json!(true)),
        ("no", json!(false)),
        ("yesterday", Value::Null),
        ("I do not know", Value::Null),
    ] {
        let body = AnswerBody::Text {
            text: text.into(),
            score: 0.9,
        };
        let found = payload(&of("gate", body));
        assert_eq!((&found["answer"], &found["value"]), (&json!(text), &value));
        assert!(found["count"].is_null() && found["score"] == 0.9);
    }
}

proptest! {
    #[test]
    fn stages_add_up_to_the_total_whatever_the_moments(moments in prop::array::uniform8(0u64..3_000_000_000), received in 0u64..1_000_000_000) {
        let latency = Latency::new(Mono::from_nanos(received), moments.map(Mono::from_nanos), None);
        let fields = latency.to_json();
        let sum: f64 = STAGES.iter().map(|stage| fields[*stage].as_f64().unwrap()).sum();
        prop_assert!((sum - fields["total"].as_f64().unwrap()).abs() < 1e-6);
        prop_assert_eq!(latency.stages_tenth_ms.iter().sum::<u64>(), latency.total_tenth_ms);
    }
}

/// One payload of each kind, for other tests of the room.
pub(crate) fn payloads() -> Vec<Vec<u8>> {
    let at = NormPoint::new(0.5, 0.25);
    let point = FoundObject {
        place: at,
        score: 0.5,
        source: ScoreSource::Verify,
        sharpness: 1.0,
    };
    let words = |text: &str| AnswerBody::Text {
        text: text.into(),
        score: 0.75,
    };
    let unknown_capture = Detection::new(
        &frame("gate", None),
        "embedded@0".into(),
        (378, 378),
        answer(person(), boxes(&[])),
        ms(1063.7),
    );
    let query = Task::Query {
        question: "Is it open?".into(),
        choices: Vec::new(),
    };
    let asked = |text: &str| {
        let mut detection = of("gate", words(text));
        detection.answer = answer(query.clone(), words(text));
        detection
    };
    let zones = vec![vec![ZoneId::new("drive").unwrap()]];
    let all = [
        detection("gate").in_zones(zones),
        empty("gate"),
        of("gate", AnswerBody::Points(vec![point])),
        asked("Yes."),
        asked("A person walks by."),
        unknown_capture,
    ];
    let payload = |detection: &Detection| detection.to_json(&label(), ms(1066.0));
    all.iter().map(payload).collect()
}
