//! `spotter-lab load`: throughput and latency of the engine, compared with what its device sustains.
//!
//! ```text
//!   looks    sizes x clients x objects, every frame another one      ─▶ closed loop ─▶ requests/s, latency, power
//!   prompts  1, 2, 4, 8 prompts on one frame                         ─▶ closed loop ─▶ cost of another prompt
//! ```
//!
//! Answers end at their bounds and never before (`model::without_ends`), so every request is the same work; one that is
//! not ends the measurement. Each figure is taken from the last half of its load, when the device has its final temperature.
//! `closed` is the loop, `frames` has the pictures, `looks` the parts. The caller builds the engine.

mod closed;
mod frames;
mod looks;

use std::{fmt, time::Duration};

use serde::Serialize;

pub use self::frames::noise;
use self::looks::{LoadRow, PromptsRow};
use super::table::{TextTable, known};
use crate::args::{LoadArgs, LoadPart};
use spotter::ops::{gpu_stats::Gauge, machine::Machine, strain::Strain};
use spotter_core::Clock;
use spotter_engine::{network::format::Number, service::Engine};

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

impl Ceiling {
    /// Milliseconds for this number of GFLOP, or of MB.
    fn ms(self, work: f64) -> f64 {
        // GFLOP by TFLOP/s are milliseconds, as are MB by GB/s.
        work / self.per_s
    }
}

/// The engine under load and its device.
pub struct Load<'a> {
    /// Its answers must end at their bounds only.
    pub engine: &'a mut Engine,
    /// What its device stores experts in.
    pub experts: Number,
    pub clock: &'a dyn Clock,
    /// Of the GPU; `None` on a processor.
    pub gauge: Option<&'a Gauge>,
    pub ceilings: MachineCeilings,
    /// Which model, on which device in which precision.
    pub subject: LoadSubject,
    pub args: &'a LoadArgs,
    /// Load for each figure; the first half of it does not count.
    pub load: Duration,
}

/// What is measured, for the report.
#[derive(Clone, Debug, Serialize)]
pub struct LoadSubject {
    pub model: String,
    /// On which device, in which precision.
    pub device: String,
    /// Looks that a daemon would let into this engine at once.
    pub permits: usize,
}

impl Load<'_> {
    /// Measures the parts in their order. Blocks for all of it: the load for every figure.
    pub fn run(mut self) -> anyhow::Result<LoadReport> {
        let chosen = &self.args.part;
        let has = |part| chosen.is_empty() || chosen.contains(&part);
        let mut report = LoadReport {
            machine: Machine::default(),
            subject: self.subject.clone(),
            ceilings: self.ceilings,
            load_s: self.load.as_secs_f64(),
            looks: Vec::new(),
            prompts: Vec::new(),
        };
        if has(LoadPart::Looks) {
            report.looks = self.looks()?;
        }
        if has(LoadPart::Prompts) {
            report.prompts = self.prompts()?;
        }
        report.machine = Machine {
            gpu: self.gauge.map(|gauge| gauge.card().clone()),
            ..Machine::now()
        };
        Ok(report)
    }
}

/// `Display` gives the tables, serde the JSON. A part that was not chosen is empty.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    pub machine: Machine,
    #[serde(flatten)]
    pub subject: LoadSubject,
    pub ceilings: MachineCeilings,
    /// Load for each figure, seconds, of which the last half counts.
    pub load_s: f64,
    /// Requests by size, objects and clients.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub looks: Vec<LoadRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<PromptsRow>,
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_setting(f)?;
        let looks = TextTable::new(self.looks.iter().map(LoadRow::cells));
        let prompts = TextTable::new(self.prompts.iter().map(PromptsRow::cells));
        for (heading, table) in [
            ("fresh frames, nothing known before, one prompt", looks),
            (
                "prompts on one frame; ratio: median to that of one prompt",
                prompts,
            ),
        ] {
            if !table.is_empty() {
                write!(f, "\n{heading}\n\n{table}")?;
            }
        }
        Ok(())
    }
}

impl LoadReport {
    fn write_setting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = &self.subject;
        writeln!(f, "{}", self.machine)?;
        writeln!(
            f,
            "{}; {}; a daemon has {} permits",
            subject.model, subject.device, subject.permits
        )?;
        let ceilings = self.ceilings;
        for (what, ceiling, unit) in [
            ("large products", ceilings.product_tflop, "TFLOP/s"),
            ("large products in fp8", ceilings.fp8_tflop, "TFLOP/s"),
            ("copies, read and written", ceilings.copy_gb, "GB/s"),
        ] {
            let Some(Ceiling { per_s, strain }) = ceiling else {
                continue;
            };
            write!(f, "{what}: {per_s:.3} {unit}")?;
            if let Some(strain) = strain {
                let (watts, mhz) = (known(strain.power_w, 0), known(strain.sm_mhz, 0));
                write!(f, " at {watts} W, {mhz} MHz")?;
            }
            writeln!(f)?;
        }
        writeln!(
            f,
            "each figure over the last half of {} s of load; ms: median / p95; floors: arithmetic at the products' speed (in fp8),\n\
             and a request alone, whose steps each read weights and keys",
            self.load_s
        )
    }
}

#[cfg(test)]
mod tests;
