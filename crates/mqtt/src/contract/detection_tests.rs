use proptest::prelude::*;

use super::*;
use std::time::Duration;

use spotter_core::{
    CameraId, Capture, CaptureSource, FrameInfo, FrameTimes, GroundedSpan, Prompt, PromptId,
    SkippedSinceLast, StageTimes, StripShape, Task, TrackId, ZoneId,
};

fn ms(ms: f64) -> Mono {
    Mono::from_nanos((ms * 1e6) as u64)
}

fn frame(camera: &str, capture: Option<Capture>) -> FrameInfo {
    FrameInfo {
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
    }
}

fn person() -> Task {
    Task::Detect {
        object: "person".into(),
    }
}

fn object(location: Location, score: f64) -> TrackedObject {
    TrackedObject {
        location,
        score,
        score_source: ScoreSource::TokenProb,
        sharpness: 0.912_67,
        track: TrackId::new("b7c1", &CameraId::new("gate").unwrap(), 37),
        age: Duration::from_millis(12_345),
        zones: Vec::new(),
        dwell: Vec::new(),
        outline: None,
    }
}

fn boxes(bounds: &[NormBox]) -> DetectionBody {
    let objects = bounds.iter().map(|&b| object(Location::Box(b), 0.831_23));
    DetectionBody::Objects(objects.collect())
}

fn words(text: &str, score: f64) -> DetectionBody {
    let text = text.into();
    DetectionBody::Text {
        text,
        score,
        source: ScoreSource::TokenProb,
    }
}

fn of(frame: FrameInfo, task: Task, body: DetectionBody) -> Detection {
    Detection {
        frame,
        prompt: Arc::new(Prompt::new(PromptId::new("person").unwrap(), 3, task)),
        region: None,
        body,
        reasoning: None,
        truncated: false,
        unchanged: false,
        model: "moondream-2b@9f3c".into(),
        model_size: (756, 425),
        stages: StageTimes {
            taken: ms(1016.4),
            prepared: ms(1018.6),
            encoded: ms(1028.2),
            prefilled: ms(1031.6),
            generated: ms(1063.4),
            ..StageTimes::default()
        },
        finished: ms(1063.7),
        since_last: SkippedSinceLast::default(),
    }
}

fn timed(camera: &str, body: DetectionBody) -> Detection {
    let capture = Capture {
        wall: WallTime::from_unix_millis(1_787_393_730_123),
        source: CaptureSource::Rtcp,
        error_ms: Some(20.0),
    };
    of(frame(camera, Some(capture)), person(), body)
}

fn in_drive(mut detection: Detection) -> Detection {
    if let DetectionBody::Objects(objects) = &mut detection.body {
        for object in objects {
            object.zones = vec![ZoneId::new("drive").unwrap()];
        }
    }
    detection
}

/// A detection with one box, for other tests of the crate.
pub(crate) fn detection(camera: &str) -> Detection {
    let bounds = NormBox::from_corners(0.412_04, 0.205, 0.488, 0.731);
    timed(camera, boxes(&[bounds]))
}

/// A detection without objects, for other tests of the crate.
pub(crate) fn empty(camera: &str) -> Detection {
    timed(camera, boxes(&[]))
}

fn drawn() -> ObjectOutline {
    let ring = [(0.42, 0.25), (0.48, 0.25), (0.45, 0.700_04)];
    ObjectOutline {
        frame: 190_230,
        bounds: NormBox::from_corners(0.412_04, 0.2, 0.487, 0.726),
        path: "M0.1 0.1 L0.9 0.1 L0.5 0.95 Z".into(),
        polygons: vec![ring.map(|(x, y)| NormPoint::new(x, y)).into()],
        area: 0.013_501,
        score: 0.871_23,
    }
}

/// A detection of a segment prompt; one object for each outline.
fn segmented(outlines: impl IntoIterator<Item = Option<ObjectOutline>>) -> Detection {
    let place = Location::Box(NormBox::from_corners(0.412_04, 0.205, 0.488, 0.731));
    let outlined = |outline: Option<ObjectOutline>| TrackedObject {
        outline: outline.map(Arc::new),
        ..object(place, 0.831_23)
    };
    let objects = outlines.into_iter().map(outlined).collect();
    let mut detection = timed("gate", DetectionBody::Objects(objects));
    Arc::make_mut(&mut detection.prompt).outlines_max = 3;
    detection
}

fn label() -> Label {
    Label {
        id: "01K37Q8Z7M2T9C4F0RXB6D1A5E".into(),
        boot: "b7c1".into(),
        epoch: None,
        seq: 48_211,
    }
}

proptest! {
    #[test]
    fn published_stages_add_up_to_the_published_total(
        ends in prop::array::uniform7(0u64..3_000_000_000),
        published in 0u64..3_000_000_000,
    ) {
        let mut detection = detection("gate");
        let [decoded, taken, prepared, encoded, prefilled, generated, finished] = ends.map(Mono::from_nanos);
        detection.frame.times.decoded = decoded;
        detection.stages = StageTimes { taken, prepared, encoded, prefilled, generated, ..StageTimes::default() };
        detection.finished = finished;
        let latency = Latency::of(&detection, Mono::from_nanos(published));
        let fields = latency_ms(latency);
        let sum: f64 = STAGES.iter().map(|stage| fields[*stage].as_f64().unwrap()).sum();
        prop_assert!((sum - fields["total"].as_f64().unwrap()).abs() < 1e-6);
    }
}

/// One payload of each kind, for other tests of the crate.
pub(crate) fn payloads() -> Vec<Vec<u8>> {
    let point = TrackedObject {
        score_source: ScoreSource::Verify,
        sharpness: 1.0,
        ..object(Location::Point(NormPoint::new(0.5, 0.25)), 0.5)
    };
    let unknown_capture = Detection {
        model: "embedded@0".into(),
        model_size: (378, 378),
        ..of(frame("gate", None), person(), boxes(&[]))
    };
    let arrival = Capture {
        wall: WallTime::from_unix_millis(1_787_393_730_265),
        source: CaptureSource::Arrival,
        error_ms: None,
    };
    let mut strip = detection("gate");
    Arc::make_mut(&mut strip.prompt).view.strip = Some(StripShape {
        frames: 9,
        over: Duration::from_millis(4500),
    });
    strip.region = Some(NormBox::from_corners(0.25, 0.5, 1.0 / 3.0, 1.0));
    strip.since_last = SkippedSinceLast {
        gated: 12,
        busy: 3,
        ..SkippedSinceLast::default()
    };
    let query = Task::question("Is it open?");
    let asked = |text: &str| {
        let detection = timed("gate", words(text, 0.75));
        of(detection.frame, query.clone(), detection.body)
    };
    let mut thought = asked("Two.");
    thought.reasoning = Some(Reasoning {
        text: "A man and a dog are at the door.".into(),
        grounding: vec![GroundedSpan {
            start: 2,
            end: 5,
            points: vec![NormPoint::new(0.412_04, 0.5)],
        }],
    });
    let all = [
        in_drive(detection("gate")),
        empty("gate"),
        timed("gate", DetectionBody::Objects(vec![point])),
        asked("Yes."),
        asked("A person walks by."),
        unknown_capture,
        Detection {
            unchanged: true,
            ..empty("gate")
        },
        of(frame("gate", Some(arrival)), person(), boxes(&[])),
        strip,
        asked("no"),
        asked("yesterday"),
        segmented([Some(drawn()), None]),
        thought,
    ];
    let payload = |detection: &Detection| to_json(detection, &label(), ms(1066.0));
    all.iter().map(payload).collect()
}

/// A payload of a fleet's camera.
pub(crate) fn payload_of_a_fleet() -> Vec<u8> {
    let label = Label {
        epoch: Some(Epoch(17)),
        ..label()
    };
    to_json(&detection("gate"), &label, ms(1066.0))
}

/// Key order and rounding are those of the first version, byte by byte.
#[test]
fn detection_payloads_are_byte_identical_to_the_list() {
    let payloads = payloads();
    let expected = include_str!("detection_payloads.jsonl").lines();
    assert_eq!(payloads.len(), expected.clone().count());
    for (payload, expected) in payloads.iter().zip(expected) {
        assert_eq!(String::from_utf8_lossy(payload), expected);
    }
}

/// The path of an outline has as many bytes as the model wants; half of a detection is for outlines.
#[test]
fn outlines_that_do_not_fit_are_null_in_detections() {
    let long = |bytes| {
        Some(ObjectOutline {
            path: "M".repeat(bytes),
            ..drawn()
        })
    };
    let outlines = [20_000, 20_000, 5_000, 100_000, 10].map(long);
    let others = std::iter::repeat_n(None, 45);
    let all = segmented(outlines.into_iter().chain(others));
    let payload = to_json(&all, &label(), ms(1066.0));
    assert!(payload.len() < 64 * 1024, "{}", payload.len());
    let payload: Value = serde_json::from_slice(&payload).unwrap();
    let sent: Vec<usize> = (0..5)
        .map(|i| payload["objects"][i]["outline"]["path"].as_str())
        .map(|path| path.map_or(0, str::len))
        .collect();
    assert_eq!(sent, [20_000, 0, 5_000, 0, 10]);
}
