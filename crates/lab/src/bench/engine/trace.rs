//! A timeline as a Chrome trace: open the file in `chrome://tracing` or ui.perfetto.dev.

use std::time::Duration;

use serde_json::{Value, json};

use spotter_core::Mono;
use spotter_engine::scheduler::{
    backend::{SlotId, StepTimes},
    cost::{Host, TimeSpan},
    timeline::Timeline,
};

/// Rows of the timeline.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

fn host_name(what: Host) -> &'static str {
    match what {
        Host::Plan => "plan",
        Host::Launch => "launch",
        Host::Finalize => "finalize",
        Host::Wait => "wait for device",
        Host::Commit => "commit",
    }
}

/// The trace as a JSON object.
pub fn chrome_trace(timeline: &Timeline) -> Value {
    let name = |(row, name)| json!({ "ph": "M", "name": "thread_name", "pid": 1, "tid": row, "args": { "name": name } });
    let rows = [(HOST, "host"), (DEVICE, "device")].map(name);
    let host = timeline.host.iter();
    let host = host.map(|(what, span)| event(HOST, host_name(*what), *span, None));
    let steps = timeline.steps.iter();
    let steps = steps.flat_map(|(slot, times)| parts(*slot, times));
    let events: Vec<Value> = rows.into_iter().chain(host).chain(steps).collect();
    json!({ "displayTimeUnit": "ms", "traceEvents": events })
}

/// A step as a chain of spans, without those that took no time.
fn parts(slot: SlotId, times: &StepTimes) -> Vec<Value> {
    let mut began = times.started;
    let mut events = Vec::new();
    for (name, duration) in [
        ("crops", times.prepare),
        ("encode", times.encode),
        ("forward", times.rows),
        ("idle: waits for masks", times.mask_wait),
        ("sampling", times.sampling),
    ] {
        let ended = began.after(duration);
        if duration > Duration::ZERO {
            events.push(event(DEVICE, name, TimeSpan { began, ended }, Some(slot)));
        }
        began = ended;
    }
    events
}

fn event(row: u32, name: &str, span: TimeSpan, slot: Option<SlotId>) -> Value {
    let micros = |at: Mono| at.as_nanos() as f64 * 1e-3;
    json!({
        "ph": "X", "name": name, "pid": 1, "tid": row,
        "ts": micros(span.began), "dur": micros(span.ended) - micros(span.began),
        "args": { "slot": slot.map(|slot| slot.0) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_a_chain_of_spans() {
        let ms = Duration::from_millis;
        let times = StepTimes {
            started: Mono::from_nanos(1_000_000),
            rows: ms(5),
            mask_wait: ms(2),
            sampling: ms(1),
            ..StepTimes::default()
        };
        let timeline = Timeline {
            steps: vec![(SlotId(1), times)],
            ..Timeline::default()
        };
        let trace = chrome_trace(&timeline);
        let spans = trace["traceEvents"].as_array().expect("events");
        let found: Vec<_> = spans[2..]
            .iter()
            .map(|e| (e["ts"].as_f64(), e["dur"].as_f64()))
            .collect();
        let expected = [(1000.0, 5000.0), (6000.0, 2000.0), (8000.0, 1000.0)];
        assert_eq!(found, expected.map(|(ts, dur)| (Some(ts), Some(dur))));
    }
}
