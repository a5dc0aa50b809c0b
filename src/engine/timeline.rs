//! Spans of host and device as a Chrome trace: open the file in `chrome://tracing` or ui.perfetto.dev.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    backend::{SlotId, StepTimes},
    cost::{Host, Span},
};
use crate::domain::Mono;

/// Spans that are kept; later ones are left out. A step has up to nine.
const SPANS_MAX: usize = 200_000;

/// Rows of the picture.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// What happened when.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    spans: Vec<(u32, &'static str, Span, Option<SlotId>)>,
}

impl Timeline {
    pub(super) fn host(&mut self, what: Host, span: Span) {
        self.add(HOST, what.name(), span, None);
    }

    pub(super) fn step(&mut self, slot: SlotId, times: StepTimes) {
        let mut began = times.started;
        for (name, duration) in [
            ("crops", times.prepare),
            ("encode", times.encode),
            ("forward", times.rows),
            ("idle: waits for masks", times.mask_wait),
            ("sampling", times.sampling),
        ] {
            let ended = began.after(duration);
            if duration > Duration::ZERO {
                self.add(DEVICE, name, Span { began, ended }, Some(slot));
            }
            began = ended;
        }
    }

    /// The host's spans of one kind, in order.
    pub fn host_spans(&self, what: Host) -> impl Iterator<Item = Span> + '_ {
        let host = self.spans.iter().filter(|(row, ..)| *row == HOST);
        let named = host.filter(move |(_, name, ..)| *name == what.name());
        named.map(|(.., span, _)| *span)
    }

    fn add(&mut self, row: u32, name: &'static str, span: Span, slot: Option<SlotId>) {
        if self.spans.len() < SPANS_MAX {
            self.spans.push((row, name, span, slot));
        }
    }

    /// The trace as a JSON object.
    pub fn chrome_trace(&self) -> Value {
        let micros = |at: Mono| at.as_nanos() as f64 * 1e-3;
        let name = |(row, name)| json!({ "ph": "M", "name": "thread_name", "pid": 1, "tid": row, "args": { "name": name } });
        let rows = [(HOST, "host"), (DEVICE, "device")].map(name);
        let spans = self.spans.iter().map(|(row, name, span, slot)| {
            json!({
                "ph": "X", "name": name, "pid": 1, "tid": row,
                "ts": micros(span.began), "dur": micros(span.ended) - micros(span.began),
                "args": { "slot": slot.map(|slot| slot.0) },
            })
        });
        let events: Vec<Value> = rows.into_iter().chain(spans).collect();
        json!({ "displayTimeUnit": "ms", "traceEvents": events })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_a_chain_of_spans() {
        let ms = Duration::from_millis;
        let mut timeline = Timeline::default();
        timeline.step(
            SlotId(1),
            StepTimes {
                started: Mono::from_nanos(1_000_000),
                rows: ms(5),
                mask_wait: ms(2),
                sampling: ms(1),
                ..StepTimes::default()
            },
        );
        let trace = timeline.chrome_trace();
        let spans = trace["traceEvents"].as_array().expect("events");
        let found: Vec<_> = spans[2..]
            .iter()
            .map(|e| (e["ts"].as_f64(), e["dur"].as_f64()))
            .collect();
        let expected = [(1000.0, 5000.0), (6000.0, 2000.0), (8000.0, 1000.0)];
        assert_eq!(found, expected.map(|(ts, dur)| (Some(ts), Some(dur))));
    }
}
