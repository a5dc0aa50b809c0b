//! `spotter-lab load`: throughput and latency of the engine, compared with what its device sustains.
//!
//! ```text
//!   looks    sizes x clients x objects, every frame another one      ─▶ closed loop ─▶ requests/s, latency, power
//!   prompts  1, 2, 4, 8 prompts on one frame                         ─▶ closed loop ─▶ cost of another prompt
//!   steady   the still street, reuse off and on                      ─▶ closed loop ─▶ work saved by reuse
//!   text     tokens of many streams, depth 1 and 2 in turns          ─▶ the cost model, predicted and observed
//! ```
//!
//! Answers end at their bounds and never before (`model::without_ends`), so every request is the same work; one that is
//! not ends the measurement. Each figure is taken from the last half of its load, when the device has its final temperature.
//! `closed` is the loop, `frames` has the pictures, `looks` the first three parts, `text` the last, `busy` the time in which the
//! device works, `rows` and `report` the tables. The caller builds the engine.

mod busy;
mod closed;
mod frames;
mod looks;
mod report;
mod rows;
mod text;

use std::time::Duration;

pub use report::LoadReport;
use serde::Serialize;

use super::{ask::MeasureError, progress::ProgressLine};
use spotter::ops::machine::Machine;
use spotter_core::Clock;
use spotter_engine::{
    gpu_stats::{Gauge, Strain},
    scheduler::timeline::Timeline,
    service::Engine,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadPart {
    /// Requests by size, clients and objects.
    Looks,
    /// Several prompts on one frame.
    Prompts,
    /// One picture that does not change.
    Steady,
    /// Text, blocking against pipelined.
    Text,
}

impl LoadPart {
    pub const ALL: [Self; 4] = [Self::Looks, Self::Prompts, Self::Steady, Self::Text];
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    pub parts: Vec<LoadPart>,
    /// Pixels across and down of the frames; at least one. `prompts` and `steady` take 1280x720 if it is among them, else
    /// the first.
    pub sizes: Vec<(usize, usize)>,
    /// Clients, each with one request in the engine at a time; at least one number.
    pub clients: Vec<usize>,
    /// Objects that each answer has; at least one number. `prompts` takes the first, `steady` the last.
    pub objects: Vec<usize>,
    /// Streams of text; more than the device has rows for are left out.
    pub streams: Vec<usize>,
    /// Tokens of each answer in text.
    pub tokens: usize,
    /// Load for each figure; the first half of it does not count.
    pub load: Duration,
}

/// What the device sustains, measured in the same run. What was not measured is `None`, and so are the floors from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MachineCeilings {
    /// Large products in bf16, or in f32 on a processor, TFLOP.
    pub product_tflop: Option<Ceiling>,
    /// Large products in fp8, TFLOP.
    pub fp8_tflop: Option<Ceiling>,
    /// Copies of its memory, read and written together, GB.
    pub copy_gb: Option<Ceiling>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ceiling {
    pub per_s: f64,
    /// Power and clock of the GPU.
    pub strain: Option<Strain>,
}

impl MachineCeilings {
    /// Milliseconds for this arithmetic.
    fn product_ms(&self, gflop: f64) -> Option<f64> {
        // GFLOP by TFLOP/s are milliseconds, as are MB by GB/s.
        self.product_tflop.map(|ceiling| gflop / ceiling.per_s)
    }

    /// The same in fp8.
    fn fp8_ms(&self, gflop: f64) -> Option<f64> {
        self.fp8_tflop.map(|ceiling| gflop / ceiling.per_s)
    }

    /// Milliseconds for reading `mb` MB.
    fn read_ms(&self, mb: f64) -> Option<f64> {
        self.copy_gb.map(|ceiling| mb / ceiling.per_s)
    }
}

/// The engine under load and its device.
pub struct Load<'a> {
    /// Its answers must end at their bounds only.
    pub engine: &'a mut Engine,
    /// Real time.
    pub clock: &'a dyn Clock,
    /// Of the GPU; `None` on a processor.
    pub gauge: Option<&'a Gauge>,
    pub ceilings: MachineCeilings,
    /// Which model, for the report.
    pub model: String,
    /// Which device in which precision, for the report.
    pub device: String,
    /// Looks that a daemon would let into this engine at once, for the report.
    pub permits: usize,
}

impl Load<'_> {
    /// Measures the parts in their order. Blocks for all of it: the load for every figure, twice that for those of text.
    pub fn run(
        self,
        options: &LoadOptions,
        progress: &mut ProgressLine,
    ) -> Result<LoadReport, MeasureError> {
        let has = |part| options.parts.contains(&part);
        let mut bench = LoadBench {
            engine: self.engine,
            clock: self.clock,
            gauge: self.gauge,
            ceilings: self.ceilings,
            options,
            progress,
            timeline: None,
        };
        let (mut looks, mut prompts, mut steady, mut text) = Default::default();
        if has(LoadPart::Looks) {
            looks = bench.looks()?;
        }
        if has(LoadPart::Prompts) {
            prompts = bench.prompts()?;
        }
        if has(LoadPart::Steady) {
            steady = bench.steady()?;
        }
        if has(LoadPart::Text) {
            text = bench.text()?;
        }
        let timeline = bench.timeline.take();
        Ok(LoadReport {
            machine: Machine {
                gpu: self.gauge.map(|gauge| gauge.card().clone()),
                ..Machine::now()
            },
            model: self.model,
            device: self.device,
            permits: self.permits,
            ceilings: self.ceilings,
            load_s: options.load.as_secs_f64(),
            looks,
            prompts,
            steady,
            text,
            timeline,
        })
    }
}

impl LoadOptions {
    /// Steps of the progress line, for an engine with `rows` rows.
    pub fn figures(&self, rows: usize) -> usize {
        let of = |part| match part {
            LoadPart::Looks => self.sizes.len() * self.clients.len() * self.objects.len(),
            LoadPart::Prompts => looks::PROMPTS.len(),
            LoadPart::Steady => 2 * self.clients.len(),
            LoadPart::Text => self.fitting(rows).count(),
        };
        self.parts.iter().map(|&part| of(part)).sum()
    }

    fn fitting(&self, rows: usize) -> impl Iterator<Item = usize> {
        self.streams.iter().copied().filter(move |&n| n <= rows)
    }

    /// The size for the parts with only one size.
    fn scene_size(&self) -> (usize, usize) {
        let usual = self.sizes.iter().find(|&&size| size == (1280, 720));
        let size = usual.or(self.sizes.first()).copied();
        size.unwrap_or((1280, 720))
    }
}

struct LoadBench<'a> {
    engine: &'a mut Engine,
    clock: &'a dyn Clock,
    gauge: Option<&'a Gauge>,
    ceilings: MachineCeilings,
    options: &'a LoadOptions,
    progress: &'a mut ProgressLine,
    /// Of the last figure.
    timeline: Option<Timeline>,
}

#[cfg(test)]
mod tests;
