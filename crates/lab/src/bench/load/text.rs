//! Tokens of several streams, blocking (depth 1) against pipelined (depth 2), with predicted and observed gain.
//!
//! ```text
//!   round   every stream has a frame of its own ─▶ all prefilled ─▶ ▓▓▓ steps that count ▓▓▓ ─▶ cancelled
//!   depths  1 2 1 2 1 2 …  in turns, so that a device that gets slower does so for both
//! ```
//!
//! Only steps in which every stream decodes count, so that a step is the same work at both depths.

use std::time::Duration;

use serde::Serialize;

use super::{LoadBench, frames::noise};
use crate::bench::{
    ask::MeasureError,
    engine::{DepthCost, StepSums, percent},
    work::{decoder_mb, kv_mb, token_gflop, vocabulary_mb},
};
use spotter_core::{CameraId, Look, Picture, Task};
use spotter_engine::{
    gpu_stats::Strain,
    scheduler::{
        Options,
        request::{LookId, Work},
        sequence::Bounds,
    },
};

/// Pixels across and down: one crop, so that streams begin soon after each other.
const SIDE: usize = 378;
const QUESTION: &str = "What is happening here?";
/// Turns until the steps that carried prompts are settled.
const SETTLE: usize = 4;

/// One number of streams at both depths.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TextRow {
    /// Answers that are decoded together.
    pub streams: usize,
    /// Depth 1.
    pub blocking: TextRun,
    /// Depth 2.
    pub pipelined: TextRun,
    /// Gain in tokens a second that the cost model predicts from the costs at depth 1 and the zombies at depth 2.
    pub predicted_percent: f64,
    pub observed_percent: f64,
    /// Least time of a step, milliseconds: arithmetic at the ceiling, or reading weights (bf16), keys and values at the
    /// speed of a copy, whichever is longer.
    pub floor_ms: Option<f64>,
    /// Power and clock of the GPU, both depths together.
    pub strain: Option<Strain>,
}

/// Streams at one depth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TextRun {
    /// Steps in flight.
    pub depth: usize,
    /// Of all streams together.
    pub tokens_per_s: f64,
    pub steps: u64,
    #[serde(flatten)]
    pub cost: DepthCost,
    /// Share of a step's period in which the device works.
    pub busy_percent: f64,
}

/// Sums over the rounds of one depth.
#[derive(Default)]
struct RoundSums {
    sums: StepSums,
    took: Duration,
}

impl RoundSums {
    fn run(&self, depth: usize, streams: usize) -> TextRun {
        let cost = self.sums.cost();
        let steps = self.sums.steps();
        let device_ms = cost.forward_ms + cost.sampling_ms;
        TextRun {
            depth,
            tokens_per_s: steps as f64 * streams as f64 / self.took.as_secs_f64().max(1e-9),
            steps,
            cost,
            busy_percent: 100.0 * device_ms / cost.period_ms.max(1e-9),
        }
    }
}

impl LoadBench<'_> {
    /// Every number of streams that the device has rows for.
    pub(super) fn text(&mut self) -> Result<Vec<TextRow>, MeasureError> {
        let frames = noise(SIDE, SIDE)?;
        let rows = self.engine.worker().limits().rows;
        let fitting = self.options.fitting(rows);
        fitting
            .map(|streams| self.streams(streams, &frames))
            .collect()
    }

    fn streams(&mut self, streams: usize, frames: &[Picture]) -> Result<TextRow, MeasureError> {
        let (began, load) = (self.clock.now(), self.options.load);
        let mut rounds = [RoundSums::default(), RoundSums::default()];
        // The first rounds warm up the device.
        let mut counts = false;
        let mut from = began;
        loop {
            for (depth, rounds) in (1..).zip(&mut rounds) {
                let mut warm_up = RoundSums::default();
                let counted = if counts { rounds } else { &mut warm_up };
                self.round(depth, streams, frames, counted)?;
            }
            let past = self.clock.now().since(began);
            if counts && past >= 2 * load {
                break;
            }
            if !counts && past >= load {
                (counts, from) = (true, self.clock.now());
            }
        }
        self.progress.step();
        let [blocking, pipelined] = &rounds;
        let predicted = blocking
            .sums
            .predicted_percent(pipelined.sums.cost().zombies);
        let (blocking, pipelined) = (blocking.run(1, streams), pipelined.run(2, streams));
        Ok(TextRow {
            streams,
            predicted_percent: predicted,
            observed_percent: percent(pipelined.tokens_per_s / blocking.tokens_per_s),
            blocking,
            pipelined,
            floor_ms: self.floor_ms(streams),
            strain: self
                .gauge
                .and_then(|gauge| gauge.between(from, self.clock.now())),
        })
    }

    fn round(
        &mut self,
        depth: usize,
        streams: usize,
        frames: &[Picture],
        rounds: &mut RoundSums,
    ) -> Result<(), MeasureError> {
        let bounds = Bounds {
            max_objects: 1,
            max_tokens: self.options.tokens,
        };
        let options = Options {
            depth,
            draft: false,
            tile_reuse: false,
            ..Options::default()
        };
        self.engine.restart(bounds, options);
        let looks: Vec<LookId> = (0..streams)
            .map(|stream| Ok(self.engine.submit(look(stream, frames)?, false)?))
            .collect::<Result<_, MeasureError>>()?;
        let steps = self.all_decoding(streams)?;
        let worker = self.engine.worker();
        worker.record();
        worker.reset_costs();
        let (from, before) = (self.clock.now(), worker.work());
        while self.engine.worker().costs().steps < steps {
            self.engine.turn()?;
        }
        let worker = self.engine.worker();
        let (took, after) = (self.clock.now().since(from), worker.work());
        let costs = worker.costs().clone();
        check_all_decoded(&before, &after, streams)?;
        rounds.took += took;
        rounds.sums.add(costs, &before, &after);
        for look in looks {
            self.engine.cancel(look);
        }
        while !self.engine.is_idle() {
            self.engine.turn()?;
        }
        self.timeline = self.engine.worker().timeline().cloned();
        Ok(())
    }

    /// Turns the engine until every stream decodes; returns the number of further steps in which all of them do.
    fn all_decoding(&mut self, streams: usize) -> Result<u64, MeasureError> {
        let work = |bench: &mut Self| bench.engine.worker().work();
        while work(self).prefills < streams as u64 {
            self.engine.turn()?;
        }
        for _ in 0..SETTLE {
            self.engine.turn()?;
        }
        // The oldest stream has decoded in every step but the first. One step is left for the depth.
        let tokens = self.options.tokens as u64;
        let left = tokens.saturating_sub(work(self).steps);
        match left {
            0 => Err(MeasureError::Unanswered(format!(
                "{streams} streams do not all begin within {tokens} tokens; choose fewer streams or more tokens"
            ))),
            _ => Ok(left),
        }
    }

    fn floor_ms(&self, streams: usize) -> Option<f64> {
        let (config, _) = self.engine.model();
        // On average half of the answer is decoded.
        let position = config.prefix_positions() + self.options.tokens / 2;
        let gflop = streams as f64 * token_gflop(config, position);
        let read_mb = decoder_mb(config) + vocabulary_mb(config);
        let read_mb = read_mb + streams as f64 * kv_mb(config, position);
        let arithmetic = self.ceilings.product_ms(gflop)?;
        Some(arithmetic.max(self.ceilings.read_ms(read_mb)?))
    }
}

fn look(stream: usize, frames: &[Picture]) -> Result<Look, MeasureError> {
    let question = Task::Query {
        question: QUESTION.into(),
        choices: Vec::new(),
    };
    let mut look = Look::still(frames[stream % frames.len()].clone(), [question])?;
    look.frame.camera = CameraId::new(&format!("stream-{stream}"))?;
    Ok(look)
}

/// Fails when a stream was missing in a step that counts: it was evicted or had ended.
fn check_all_decoded(before: &Work, after: &Work, streams: usize) -> Result<(), MeasureError> {
    let decodes = after.decodes - before.decodes;
    let rows = (after.steps - before.steps) * streams as u64;
    if decodes == rows && after.evicted == 0 {
        return Ok(());
    }
    Err(MeasureError::Unanswered(format!(
        "{decodes} of {rows} rows of text decoded, {} were evicted for lack of memory; choose fewer streams",
        after.evicted
    )))
}
