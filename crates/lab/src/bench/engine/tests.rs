//! The parts that need a model, with the smallest golden one.

use std::sync::Arc;

use super::{
    EngineOptions, EnginePart, chrome_trace, engine,
    report::EngineReport,
    street::{StreetRow, prompts},
    street_camera::{PromptGrouping, StreetCamera, StreetDriver, StreetMotion},
};
use crate::bench::{ProgressLine, tests::micro_engine_with};
use spotter_core::{Clock, SystemClock};
use spotter_engine::scheduler::Options;

fn measure(part: EnginePart, looks: usize) -> EngineReport {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut build = |options| Ok((micro_engine_with(options, &clock), "micro".to_owned()));
    let options = EngineOptions {
        parts: vec![part],
        looks,
    };
    engine(&mut build, &options, &clock, &mut ProgressLine::silent()).expect("a report")
}

#[test]
fn shared_and_reused_work_is_not_repeated() {
    let report = measure(EnginePart::Street, 4);
    let street = report.street.as_ref().expect("the chosen part");
    let row = |street: &'static str, case: &str| -> &StreetRow {
        let mut rows = report.street.iter().flat_map(|report| &report.rows);
        let found = rows.find(|row| row.street == street && row.case.contains(case));
        found.expect("a row of that case")
    };
    for shown in ["moving", "still", "frozen"] {
        let (apart, together) = (row(shown, "all off"), row(shown, "image prefix shared"));
        assert_eq!(apart.crops_encoded, 4.0 * together.crops_encoded);
        assert!(apart.prefill_positions > 2.0 * together.prefill_positions);
        for same in street.rows.iter().filter(|row| row.street == shown) {
            assert_eq!(same.boxes, apart.boxes, "every case gives the same answers");
        }
        let (one, batch) = (row(shown, "default)"), row(shown, "batch"));
        assert!(batch.steps < one.steps, "looks share steps");
    }
    // Of a picture that stays the same only the first is encoded.
    let (off, tiles) = (
        row("frozen", "prefix shared"),
        row("frozen", "+ tile reuse"),
    );
    assert_eq!(tiles.crops_encoded, off.crops_encoded / 4.0);
    assert_eq!(tiles.crops_reused, off.crops_encoded * 3.0 / 4.0);
    assert!(report.to_string().contains("still street, 4 frames"));
}

/// The next measurement would count a step that is still in flight, with all the time until then.
#[test]
fn a_drive_leaves_nothing_in_flight() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut engine = micro_engine_with(Options::default(), &clock);
    let frames = StreetMotion::Frozen.frames(2).expect("frames");
    let tasks = prompts().collect();
    let camera = StreetCamera::new(0, tasks, PromptGrouping::Together, frames);
    let mut driver = StreetDriver {
        clock: clock.as_ref(),
        progress: &mut ProgressLine::silent(),
    };
    let times = driver
        .drive(&mut engine, &mut [camera.expect("a camera")], 3)
        .expect("answers");
    assert_eq!(times.frame_ms.len(), 3);
    assert!(engine.is_idle());
    assert!(
        engine.worker().work().zombies > 0,
        "without zombies the test proves nothing"
    );
}

#[test]
fn every_load_runs_at_both_depths_and_leaves_a_timeline() {
    let report = measure(EnginePart::Cameras, 2);
    let cameras = report.cameras.as_ref().expect("the chosen part");
    for row in &cameras.rows {
        let (block, pipe) = (&row.blocking, &row.pipelined);
        assert_eq!((block.depth, pipe.depth), (1, 2));
        assert_eq!(block.cost.zombies, 0.0, "a blocking loop has no zombies");
        assert!(block.looks_per_s > 0.0 && pipe.looks_per_s > 0.0);
    }
    let trace = chrome_trace(&report.timeline.expect("a timeline"));
    let events = trace["traceEvents"].as_array().expect("events");
    for row in [1, 2] {
        assert!(events.iter().any(|e| e["tid"] == row && e["ph"] == "X"));
    }
}
