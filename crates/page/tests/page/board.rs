//! A scripted site: cameras in every state, with looks, answers and a minute of messages.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use spotter_config::{LineConfig, ZoneConfig, ZonePoint};
use spotter_core::{
    DirectionId, FrameCounters, Latency, LineId, Phase, PromptId, STAGES, StreamCounters, WallTime,
    ZoneId,
};
use spotter_page::{
    AnswerStatus, ApiLine, BrokerStatus, COLUMNS, CameraLooks, CameraStatus, ClockStatus,
    ConfigLine, EngineState, EngineStatus, FleetNodeStatus, FleetStatus, LatencyHistograms,
    LookBar, LookStatus, MarkPlace, MinuteLatency, Mood, NodeStatus, PictureMark, PromptCost,
    PromptStatus, Status, StatusSource, StreamStatus, Thumbnail, WebhookLine, encode_metrics,
};
use spotter_pictures::{RgbPixels, jpeg_file};
use spotter_street::{Street, draw, scene::Class, truth::truth};

const NOW_MS: i64 = 1_787_393_730_500;
/// The street in clear daylight, with people, cars and a dog.
const STREET: (u64, i64) = (7, 1_780_318_245_000);
const SIZE: (u32, u32) = (640, 360);

/// Shows the same site, each time with a look later.
pub struct Painted {
    status: Status,
    thumbnail: Arc<Thumbnail>,
    looks: AtomicU64,
}

impl Painted {
    /// A site to be shown.
    pub fn new(status: Status) -> Self {
        let street = Street::new(STREET.0).at(WallTime::from_unix_millis(STREET.1));
        let rgb = draw(&street, SIZE.0, SIZE.1);
        let pixels = RgbPixels {
            rgb: &rgb,
            width: SIZE.0 as usize,
            height: SIZE.1 as usize,
        };
        let jpeg = jpeg_file(pixels, 75).expect("a JPEG");
        let thumbnail = Thumbnail {
            frame: 1,
            jpeg: jpeg.into(),
        };
        Self {
            status,
            thumbnail: Arc::new(thumbnail),
            looks: AtomicU64::new(0),
        }
    }
}

impl StatusSource for Painted {
    fn metrics(&self) -> String {
        let mut latencies = LatencyHistograms::default();
        latencies.observe(&Latency {
            stages_tenth_ms: [1000; 8],
            total_tenth_ms: 8000,
            camera_tenth_ms: None,
        });
        encode_metrics(&self.status, &latencies)
    }

    fn troubles(&self) -> Vec<String> {
        self.status.troubles.clone()
    }

    fn status(&self, _: bool) -> Status {
        let look_now = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        let mut status = self.status.clone();
        let fresh = status.cameras.iter_mut().filter(|c| c.mood == Mood::Good);
        for look in fresh.filter_map(|camera| camera.looks.look.as_mut()) {
            look.frame = look_now;
        }
        status
    }

    fn thumbnail(&self, camera: &str, _: Option<u64>) -> Option<Arc<Thumbnail>> {
        let known = self.status.cameras.iter().any(|c| c.id == camera);
        known.then(|| Arc::clone(&self.thumbnail))
    }
}

/// As long as a name can be.
pub fn long_name() -> String {
    "entrance-of-the-north-east-wing0".to_owned()
}

/// A site with several cameras: the first streams, the second refuses the login, the third has no look yet, the
/// fourth stalled, the fifth is off, all others stream.
pub fn site(cameras: usize) -> Status {
    let names = [
        "gate", "yard", "dock", "drive", "porch", "garage", "garden", "lobby", "stairs", "roof",
        "cellar", "shop", "till", "store", "ramp", "fence",
    ];
    let cameras: Vec<CameraStatus> = (0..cameras)
        .map(|index| camera(names[index % names.len()], index))
        .collect();
    let bars = cameras.iter().take(3).cycle().take(14).enumerate();
    Status {
        v: 1,
        time_ms: NOW_MS,
        node: NodeStatus {
            name: "edge1".into(),
            version: "0.1.0",
            model: "moondream-2b (bf16)".into(),
            mode: Some("night".into()),
            uptime_s: 273_900,
            looks_per_s: Some(7.9),
            total_p95_ms: Some(88.0),
            rss_mib: Some(410.0),
            cpu_pct: Some(23.5),
            ..NodeStatus::default()
        },
        stages: STAGES,
        engines: vec![EngineStatus {
            device: "cuda 0".into(),
            state: EngineState::Runs,
            busy_pct: 61.5,
            under_way: 2,
            span_ms: 5000,
            bars: bars.map(|(i, camera)| bar(i, &camera.id)).collect(),
            turns: Some(1),
            ..EngineStatus::default()
        }],
        broker: BrokerStatus {
            mood: Mood::Good,
            state: "online, MQTT 5".into(),
            address: "127.0.0.1:1883".into(),
            topics: "spotter/edge1".into(),
            sent: 48_211,
            dropped: vec![("offline", 12), ("full", 0)],
            puback_p95_ms: Some(2.1),
            ..BrokerStatus::default()
        },
        config: ConfigLine {
            state: "ok",
            hash: "9f3c2ab81d07".into(),
            at: "2026-08-22T06:09:51.123Z".into(),
            errors: Vec::new(),
        },
        cameras,
        ..Status::default()
    }
}

pub fn api() -> ApiLine {
    ApiLine {
        address: "127.0.0.1:2020".into(),
        tokens: 2,
        open: 1,
        answered: 1203,
        refused: 7,
        ..ApiLine::default()
    }
}

/// A webhook whose receiver fails, and one that works.
pub fn webhooks() -> Vec<WebhookLine> {
    let failing = WebhookLine {
        name: "door".into(),
        address: "flows.example.net:443".into(),
        mood: Mood::Bad,
        state: "failing",
        reason: Some("flows.example.net:443 answered with HTTP 503".into()),
        next_retry_s: Some(32.0),
        waiting: 12,
        posted: 4_211,
        retried: 7,
        ..WebhookLine::default()
    };
    let working = WebhookLine {
        name: "log".into(),
        address: "127.0.0.1:1880".into(),
        mood: Mood::Good,
        state: "accepting",
        posted: 4_223,
        ..WebhookLine::default()
    };
    vec![failing, working]
}

/// A fleet with a box that has failed and a camera that no box has.
pub fn fleet() -> FleetStatus {
    let node = |name: &str, mood, state, cameras: &[&str]| FleetNodeStatus {
        name: name.into(),
        mood,
        state,
        version: "0.1.0".into(),
        labels: vec!["hall2".into()],
        capacity_hz: 41.5,
        load_pct: 31.0 * cameras.len() as f64,
        cameras: cameras.iter().map(ToString::to_string).collect(),
        refused: cameras.len(),
        list_revision: Some(7),
    };
    FleetStatus {
        name: "hall".into(),
        mood: Mood::Bad,
        reason: Some("fleet: NATS server nats://nats.example.net:4222 cannot be reached".into()),
        nodes: vec![
            node("edge1", Mood::Good, "online", &["gate", "yard"]),
            node("edge2", Mood::Bad, "no heartbeat", &[]),
        ],
        missing_hz: 3.25,
        unowned: vec!["vault".into()],
        ..FleetStatus::default()
    }
}

fn bar(index: usize, camera: &str) -> LookBar {
    let from = index as f64 * 350.0 - 120.0;
    let marks = [0.0, 12.0, 160.0, 210.0, 380.0];
    LookBar {
        camera: camera.to_owned(),
        marks_ms: marks.map(|ms| from + ms),
    }
}

fn camera(id: &str, index: usize) -> CameraStatus {
    let (mood, state, reason) = match index {
        1 => (
            Mood::Bad,
            Phase::AuthFailed,
            Some(
                "auth_failed: 10.0.0.7:554 refused the login of camera yard; check user and password",
            ),
        ),
        2 => (Mood::Busy, Phase::Connecting, None),
        3 => (
            Mood::Bad,
            Phase::Stalled,
            Some(
                "stalled: no frame for 10 s from rtsp://10.0.0.9/main; reconnecting. Check power and network",
            ),
        ),
        4 => (
            Mood::Off,
            Phase::Disabled,
            Some("switched_off: by `enabled`, in the configuration or by a command"),
        ),
        _ => (Mood::Good, Phase::Streaming, None),
    };
    let good = mood == Mood::Good;
    let age_ms = if good { 377 } else { 193_000 };
    CameraStatus {
        id: id.into(),
        mood,
        state,
        reason: reason.map(str::to_owned),
        since_ms: NOW_MS - if good { 7_500_000 } else { 190_000 },
        next_retry_s: (index == 1).then_some(112.0),
        stream: stream(good),
        looks: CameraLooks {
            look: (index != 2).then(|| look(age_ms)),
            prompts: prompts(age_ms, index != 2),
            zones: vec![zone()],
            lines: vec![line()],
            latency: if good {
                latency(index)
            } else {
                MinuteLatency::default()
            },
        },
        frames: FrameCounters {
            arrived: 192_811,
            looked: 1203,
            skipped: 191_021,
            gated: 570,
            replaced: 11,
            late: 3,
            failed: u64::from(index == 5),
            waiting: 1,
            in_flight: 2,
        },
        ..CameraStatus::default()
    }
}

fn stream(good: bool) -> StreamStatus {
    StreamStatus {
        codec: Some("h265".into()),
        size: Some((2560, 1440)),
        fps: good.then_some(14.9),
        transport: Some("tcp".into()),
        decoder: Some("avdec_h265".into()),
        counters: StreamCounters {
            frames_corrupt: 2,
            frames_late: if good { 0 } else { 37 },
            ..StreamCounters::default()
        },
        reconnects_1h: u32::from(!good),
        clock: ClockStatus {
            trusted: good,
            offset_ms: Some(-38.0),
            drift_ppm: Some(21.4),
            note: (!good).then(|| "looks_like_time_zone".into()),
        },
        ..StreamStatus::default()
    }
}

/// The true people and cars of the street, and a point in a corner.
fn look(age_ms: u64) -> LookStatus {
    let street = Street::new(STREET.0).at(WallTime::from_unix_millis(STREET.1));
    let truth = truth(&street);
    let prompt_of = |class| {
        [Class::Person, Class::Car]
            .iter()
            .position(|of| *of == class)
    };
    let boxes = truth.seen.iter().filter_map(|seen| {
        let b = seen.box_in_frame;
        Some(PictureMark {
            prompt: prompt_of(seen.class)?,
            place: MarkPlace::Box([b.x0, b.y0, b.x1, b.y1]),
            score: 0.83,
        })
    });
    let mut found: Vec<_> = boxes.collect();
    found.sort_by_key(|mark| mark.prompt);
    found.push(PictureMark {
        prompt: 2,
        place: MarkPlace::Point([0.97, 0.03]),
        score: 0.5,
    });
    LookStatus {
        frame: 1,
        time_ms: NOW_MS - age_ms as i64,
        age_ms,
        size: SIZE,
        pictured: true,
        found,
        ..LookStatus::default()
    }
}

fn prompts(age_ms: u64, asked: bool) -> Vec<PromptStatus> {
    let count = |count| AnswerStatus {
        count: Some(count),
        score: (count > 0).then_some(0.83),
        ..AnswerStatus::default()
    };
    let text = AnswerStatus {
        text: Some("a man & a <dog> on the pavement, walking towards the red car".into()),
        score: Some(0.7),
        ..AnswerStatus::default()
    };
    [
        ("person", "detect", "person", count(2), age_ms),
        ("car", "detect", "car", count(1), age_ms),
        ("dog", "point", "a dog without a lead", count(0), age_ms),
        ("what", "query", "What is going on?", text, age_ms + 3100),
    ]
    .map(|(id, kind, words, answer, age_ms)| PromptStatus {
        id: PromptId::new(id).expect("an id"),
        kind,
        words: words.into(),
        answer: asked.then_some(AnswerStatus { age_ms, ..answer }),
        cost: Some(cost(id)),
        lines: lines(id),
    })
    .to_vec()
}

fn zone() -> ZoneConfig {
    ZoneConfig {
        id: ZoneId::new("corner").expect("an id"),
        polygon: vec![(0.68, 0.55), (0.99, 0.55), (0.99, 0.97), (0.66, 0.97)],
        point: ZonePoint::Bottom,
    }
}

/// Across the pavement.
fn line() -> LineConfig {
    LineConfig {
        id: LineId::new("kerb").expect("an id"),
        points: vec![(0.46, 0.55), (0.42, 0.95)],
        directions: DirectionId::in_and_out(),
        point: ZonePoint::Bottom,
        reset: None,
    }
}

fn lines(prompt: &str) -> BTreeMap<LineId, BTreeMap<DirectionId, u64>> {
    let [into, out] = DirectionId::in_and_out();
    let counted = (prompt == "person").then(|| (line().id, BTreeMap::from([(into, 12), (out, 9)])));
    counted.into_iter().collect()
}

fn cost(prompt: &str) -> PromptCost {
    let (crops, tflop, shared_by) = match prompt {
        "what" => (1, 2.58, 1),
        _ => (9, 7.98, 3),
    };
    PromptCost {
        pixels: (1280, 720),
        crops,
        follows_motion: prompt == "what",
        shared_by,
        tflop,
        tflop_per_s: tflop / shared_by as f64,
        share: Some(0.021),
    }
}

fn latency(index: usize) -> MinuteLatency {
    let mean_ms = [12.3, 4.1, 2.2, 9.6, 3.4, 31.8, 0.3, 2.3];
    let column = |number: usize| {
        let wave = 1.0 + 0.35 * ((number * 7 + index * 5) % 11) as f64 / 11.0;
        let away = (18..21).contains(&number) && index == 0;
        (!away).then(|| mean_ms.map(|ms| ms * wave))
    };
    MinuteLatency {
        messages: 118,
        p50_ms: Some(66.0),
        p95_ms: Some(88.0),
        mean_ms,
        columns_ms: (0..COLUMNS).map(column).collect(),
    }
}
