use rand::RngExt as _;

use super::*;

#[test]
fn a_growing_delay_differs_from_a_noisy_one() {
    // Deterministic noise of ±5 ms, and a growth of 36 ms an hour.
    let noisy = |slope: f64| {
        let point = |at: f64| (at, 20.0 + slope * at + 5.0 * (at * 2.4).sin());
        (0..600).map(f64::from).map(point).collect::<Vec<_>>()
    };
    let still = Trend::of(&noisy(0.0)).unwrap();
    assert!(!still.grows(), "{still:?}");
    let growing = Trend::of(&noisy(0.01)).unwrap();
    assert!(growing.grows(), "{growing:?}");
    assert!((growing.ms_per_hour - 36.0).abs() < growing.ci95_ms_per_hour);
    // The interval of a short run is wide.
    let short = Trend::of(&noisy(0.01)[..20]).unwrap();
    assert!(short.ci95_ms_per_hour > 5.0 * growing.ci95_ms_per_hour);
    assert_eq!(Trend::of(&noisy(0.0)[..9]), None);
    assert_eq!(Trend::of(&[(1.0, 2.0); 20]), None);
}

/// A correlated disturbance: each point is nine tenths of the one before, plus noise.
#[test]
fn correlated_noise_is_rarely_called_growth() {
    let mut random = rand_pcg::Pcg64::new(7, 7);
    let mut grows = || {
        let mut off_ms = 0.0;
        let points = (0..60).map(|i| {
            off_ms = 0.9 * off_ms + random.random_range(-1.0..1.0);
            (f64::from(i) * 60.0, 20.0 + off_ms)
        });
        Trend::of(&points.collect::<Vec<_>>()).unwrap().grows()
    };
    // 10 would be right for long runs; 127 if each point counted fully.
    let growing = (0..400).filter(|_| grows()).count();
    assert!(growing <= 60, "{growing} of 400");
}

#[test]
fn delays_have_a_spread_and_a_trend_in_constant_memory() {
    let mut delays = Delays::new(100, 10);
    let capacities = |of: &Delays| (of.recent_ms.capacity(), of.medians_ms.capacity());
    let before = capacities(&delays);
    for i in 0..20_000 {
        let at_s = f64::from(i) * 0.01;
        // Nine of ten take 5 ms, one takes 40.
        delays.add(at_s, if i % 10 == 0 { 40.0 } else { 5.0 });
    }
    delays.add(200.0, 1e9);
    let spread = delays.spread();
    assert!((spread.median_ms - 5.1).abs() < 1e-6, "{spread:?}");
    assert!((spread.p95_ms - 40.1).abs() < 1e-6, "{spread:?}");
    let trend = delays.trend().unwrap();
    assert_eq!((trend.ms_per_hour, trend.grows()), (0.0, false));
    assert_eq!(capacities(&delays), before);
    assert_eq!(Delays::new(1, 1).spread(), Spread::default());
}

fn row(cameras: usize, rss_mib: f64) -> CamerasRow {
    CamerasRow {
        cameras,
        seconds: 60.0,
        cpu_pct: 5.5 * cameras as f64,
        rss_mib: Some(rss_mib),
        threads: vec![ThreadUse {
            name: "decoder".into(),
            count: cameras,
            cpu_pct: 4.0 * cameras as f64,
        }],
        course_ms: vec![3.0, 3.5],
        trend: Trend::of(&(0..20).map(|i| (f64::from(i), 3.0)).collect::<Vec<_>>()),
        ..CamerasRow::default()
    }
}

#[test]
fn the_table_has_the_floor_beside_the_figure() {
    let rows = vec![row(1, 110.0), row(8, 180.0), row(16, 260.0)];
    let slope = memory_slope(&rows).unwrap();
    assert!((slope - 10.0).abs() < 0.1, "{slope}");
    assert_eq!(memory_slope(&rows[..1]), None);
    let report = CamerasReport {
        machine: Machine::default(),
        stream: (1280, 720, 15, 2000),
        looks_hz: 1.0,
        floor: DecodeFloor {
            ms_per_picture: 2.0,
            cpu_pct: 3.0,
        },
        floor_after: DecodeFloor::default(),
        mib_per_camera: Some(slope),
        rows,
    };
    let text = report.to_string();
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.lines().map(words).collect::<Vec<_>>().join("\n");
    for expected in [
        "\n16 60 88.0 5.50 3.00",
        "\ndecoder 16 4.00",
        "memory: 10.0 MiB more",
        "+0.0 ± 0.0 ms an hour (no growth seen)",
        "ms: 3.0 3.5",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["rows"][2]["cameras"], 16);
    assert_eq!(json["floor"]["cpu_pct"], 3.0);
}

#[test]
fn frames_are_counted_between_two_readings() {
    let before = FrameCounters {
        arrived: 10,
        looked: 4,
        ..FrameCounters::default()
    };
    let after = FrameCounters {
        arrived: 40,
        looked: 6,
        skipped: 20,
        ..before
    };
    let frames = frames_between([(&before, &after); 2]);
    let counts = ["arrived", "looked", "skipped", "late"].map(|name| frames[name]);
    assert_eq!(counts, [60, 4, 40, 0]);
}
