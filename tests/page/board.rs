//! A site made by hand: cameras in every state, with looks, answers and a minute of messages.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use spotter::ops::page::{
    Answer, Bar, Broker, COLUMNS, Camera, Clock, Config, Engine, EngineState, Found, Frames,
    Latency, Look, Mood, Node, Place, Prompt, Scene, Still, Stream, View,
};
use spotter_core::WallTime;
use spotter_street::{
    Street, draw,
    truth::{self, truth},
};

const NOW_MS: i64 = 1_787_393_730_500;
/// The street in clear daylight, with people, cars and a dog.
const STREET: (u64, i64) = (7, 1_780_318_245_000);
const SIZE: (u32, u32) = (640, 360);

/// Shows the same site, each time with a look later.
pub struct Painted {
    view: View,
    still: Arc<Still>,
    looks: AtomicU64,
}

impl Painted {
    /// A site to be shown.
    pub fn new(view: View) -> Self {
        let street = Street::new(STREET.0).at(WallTime::from_unix_millis(STREET.1));
        let still = Still {
            frame: 1,
            width: SIZE.0,
            height: SIZE.1,
            rgb: draw(&street, SIZE.0, SIZE.1),
        };
        Self {
            view,
            still: Arc::new(still),
            looks: AtomicU64::new(0),
        }
    }
}

impl Scene for Painted {
    fn view(&self, _: bool) -> View {
        let look_now = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        let mut view = self.view.clone();
        let fresh = view.cameras.iter_mut().filter(|c| c.mood == Mood::Good);
        for look in fresh.filter_map(|camera| camera.look.as_mut()) {
            look.frame = look_now;
        }
        view
    }

    fn still(&self, camera: &str) -> Option<Arc<Still>> {
        let known = self.view.cameras.iter().any(|c| c.id == camera);
        known.then(|| Arc::clone(&self.still))
    }
}

/// As long as a name can be.
pub fn long_name() -> String {
    "entrance-of-the-north-east-wing0".to_owned()
}

/// A site with so many cameras: the first delivers, the second refuses the login, the third has not been looked at, the
/// fourth stalled, the fifth is off, all others deliver.
pub fn site(cameras: usize) -> View {
    let names = [
        "gate", "yard", "dock", "drive", "porch", "garage", "garden", "lobby", "stairs", "roof",
        "cellar", "shop", "till", "store", "ramp", "fence",
    ];
    let cameras: Vec<Camera> = (0..cameras)
        .map(|index| camera(names[index % names.len()], index))
        .collect();
    let bars = cameras.iter().take(3).cycle().take(14).enumerate();
    View {
        v: 1,
        time_ms: NOW_MS,
        node: Node {
            name: "edge1".into(),
            version: "0.1.0",
            model: "moondream-2b (bf16)".into(),
            uptime_s: 273_900,
            looks_per_s: Some(7.9),
            total_p95_ms: Some(88.0),
            rss_mib: Some(410.0),
            cpu_pct: Some(23.5),
        },
        stages: vec![
            "decode", "wait", "prep", "vision", "prompt", "generate", "post", "out",
        ],
        engines: vec![Engine {
            device: "cuda 0".into(),
            state: EngineState::Runs,
            busy_pct: 61.5,
            under_way: 2,
            span_ms: 5000,
            bars: bars.map(|(i, camera)| bar(i, &camera.id)).collect(),
        }],
        broker: Broker {
            mood: Mood::Good,
            state: "online, MQTT 5".into(),
            address: "127.0.0.1:1883".into(),
            topics: "spotter/edge1".into(),
            sent: 48_211,
            dropped: vec![("offline", 12), ("full", 0)],
            puback_p95_ms: Some(2.1),
            ..Broker::default()
        },
        config: Config {
            hash: "9f3c2ab81d07".into(),
            at: "2026-08-22T06:09:51.123Z".into(),
            errors: Vec::new(),
        },
        cameras,
    }
}

fn bar(index: usize, camera: &str) -> Bar {
    let from = index as f64 * 350.0 - 120.0;
    let marks = [0.0, 12.0, 160.0, 210.0, 380.0];
    Bar {
        camera: camera.to_owned(),
        marks_ms: marks.map(|ms| from + ms),
    }
}

fn camera(id: &str, index: usize) -> Camera {
    let (mood, state, reason) = match index {
        1 => (
            Mood::Bad,
            "auth_failed",
            Some(
                "auth_failed: 10.0.0.7:554 refused the login of camera yard; check user and password",
            ),
        ),
        2 => (Mood::Busy, "connecting", None),
        3 => (
            Mood::Bad,
            "stalled",
            Some(
                "stalled: no frame for 10 s from rtsp://10.0.0.9/main; reconnecting. Check power and network",
            ),
        ),
        4 => (
            Mood::Off,
            "disabled",
            Some("switched_off: by `enabled`, in the configuration or by a command"),
        ),
        _ => (Mood::Good, "streaming", None),
    };
    let good = mood == Mood::Good;
    let age_ms = if good { 377 } else { 193_000 };
    Camera {
        id: id.into(),
        mood,
        state: state.into(),
        reason: reason.map(str::to_owned),
        since_ms: NOW_MS - if good { 7_500_000 } else { 190_000 },
        next_retry_s: (index == 1).then_some(112.0),
        stream: stream(good),
        look: (index != 2).then(|| look(age_ms)),
        prompts: prompts(age_ms, index != 2),
        latency: if good {
            latency(index)
        } else {
            Latency::default()
        },
        frames: Frames {
            arrived: 192_811,
            looked: 1203,
            skipped: 191_021,
            gated: 570,
            replaced: 11,
            late: 3,
            failed: u64::from(index == 5),
            open: 3,
        },
    }
}

fn stream(good: bool) -> Stream {
    Stream {
        codec: Some("h265".into()),
        size: Some((2560, 1440)),
        fps: good.then_some(14.9),
        transport: Some("tcp".into()),
        decoder: Some("avdec_h265".into()),
        rtp_lost: 0,
        frames_corrupt: 2,
        frames_late: if good { 0 } else { 37 },
        reconnects_1h: u32::from(!good),
        stalls_1h: 0,
        clock: Clock {
            trusted: good,
            offset_ms: Some(-38.0),
            drift_ppm: Some(21.4),
            note: (!good).then(|| "looks_like_time_zone".into()),
        },
    }
}

/// What is really there, of the first two prompts.
fn look(age_ms: u64) -> Look {
    let street = Street::new(STREET.0).at(WallTime::from_unix_millis(STREET.1));
    let prompt = |seen: &truth::Seen| match seen.class {
        spotter_street::scene::Class::Person => Some(0),
        spotter_street::scene::Class::Car => Some(1),
        _ => None,
    };
    let truth = truth(&street);
    let found = truth.seen.iter().filter_map(|seen| {
        let b = seen.box_in_frame;
        Some(Found {
            prompt: prompt(seen)?,
            place: Place::Box([b.x0, b.y0, b.x1, b.y1]),
            score: 0.83,
        })
    });
    let point = Found {
        prompt: 2,
        place: Place::Point([0.97, 0.03]),
        score: 0.5,
    };
    Look {
        frame: 1,
        time_ms: NOW_MS - age_ms as i64,
        age_ms,
        size: SIZE,
        pictured: true,
        found: found.chain([point]).collect(),
    }
}

fn prompts(age_ms: u64, asked: bool) -> Vec<Prompt> {
    let counted = |n| Answer {
        age_ms,
        count: Some(n),
        text: None,
        score: Some(0.83),
    };
    let said = Answer {
        age_ms: age_ms + 3100,
        count: None,
        text: Some("a man & a <dog> on the pavement, walking towards the red car".into()),
        score: Some(0.7),
    };
    [
        ("person", "detect", "person", counted(2)),
        ("car", "detect", "car", counted(1)),
        ("dog", "point", "a dog without a lead", counted(0)),
        ("what", "query", "What is going on?", said),
    ]
    .map(|(id, kind, words, answer)| Prompt {
        id: id.into(),
        kind,
        words: words.into(),
        answer: asked.then_some(answer),
    })
    .to_vec()
}

fn latency(index: usize) -> Latency {
    let mean_ms = [12.3, 4.1, 2.2, 9.6, 3.4, 31.8, 0.3, 2.3];
    let column = |number: usize| {
        let wave = 1.0 + 0.35 * ((number * 7 + index * 5) % 11) as f64 / 11.0;
        let away = (18..21).contains(&number) && index == 0;
        (!away).then(|| mean_ms.map(|ms| ms * wave))
    };
    Latency {
        messages: 118,
        p50_ms: Some(66.0),
        p95_ms: Some(88.0),
        mean_ms,
        columns_ms: (0..COLUMNS).map(column).collect(),
    }
}
