//! The report of `spotter-lab load`.

use std::fmt;

use serde::Serialize;

use super::{
    MachineCeilings,
    rows::{LoadRow, PromptsRow, SteadyRow, known, strain, write_heading},
    text::{TextRow, TextRun},
};
use crate::bench::engine::COLUMNS;
use spotter::ops::machine::Machine;
use spotter_engine::scheduler::timeline::Timeline;

/// `Display` gives the tables, serde the JSON. A part that was not chosen is empty.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    pub machine: Machine,
    pub model: String,
    /// On which device, in which precision.
    pub device: String,
    /// Looks that a daemon would let into this engine at once.
    pub permits: usize,
    /// What the device sustains.
    pub ceilings: MachineCeilings,
    /// Load for each figure, seconds, of which the last half counts.
    pub load_s: f64,
    /// Requests by size, objects and clients.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub looks: Vec<LoadRow>,
    /// Prompts on one frame.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<PromptsRow>,
    /// One picture that does not change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steady: Vec<SteadyRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub text: Vec<TextRow>,
    /// Host and device in the counted part of the last figure.
    #[serde(skip)]
    pub timeline: Option<Timeline>,
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_setting(f)?;
        if !self.looks.is_empty() {
            writeln!(f, "\nfresh frames, nothing known before, one prompt\n")?;
            write_heading(f, &[])?;
            for row in &self.looks {
                writeln!(f, "{row}")?;
            }
        }
        if !self.prompts.is_empty() {
            writeln!(
                f,
                "\nprompts on one frame; ratio: median to that of one prompt\n"
            )?;
            write_heading(f, &["ratio"])?;
            for row in &self.prompts {
                writeln!(f, "{}{:>10.2}", row.load, row.ratio)?;
            }
        }
        if !self.steady.is_empty() {
            writeln!(
                f,
                "\nthe street standing still; draft and tile reuse off and on; crops and drafted decisions a request\n"
            )?;
            write_heading(f, &["reuse", "encoded", "reused", "drafted", "accepted"])?;
            for row in &self.steady {
                writeln!(f, "{row}")?;
            }
        }
        if !self.text.is_empty() {
            self.write_text(f)?;
        }
        Ok(())
    }
}

impl LoadReport {
    fn write_setting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        writeln!(
            f,
            "{}; {}; a daemon has {} permits",
            self.model, self.device, self.permits
        )?;
        let ceilings = self.ceilings;
        for (what, ceiling, unit) in [
            ("large products", ceilings.product_tflop, "TFLOP/s"),
            ("large products in fp8", ceilings.fp8_tflop, "TFLOP/s"),
            ("copies, read and written", ceilings.copy_gb, "GB/s"),
        ] {
            let Some(ceiling) = ceiling else { continue };
            write!(f, "{what}: {:.3} {unit}", ceiling.per_s)?;
            let (watts, mhz) = strain(ceiling.strain);
            match ceiling.strain {
                Some(_) => writeln!(f, " at {watts} W, {mhz} MHz")?,
                None => writeln!(f)?,
            }
        }
        writeln!(
            f,
            "each figure over the last half of {} s of load; ms: median / p95; floors: arithmetic at the products' speed (in fp8),\n\
             and a request alone, whose steps each read weights and keys",
            self.load_s
        )
    }

    fn write_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\ntext, blocking (depth 1) against pipelined (depth 2); milliseconds of a step: forward, sampling, bookkeeping,\n\
             what of it was exposed (the device did nothing meanwhile), period, and the device idle: no step from the host,\n\
             no masks, nothing asked. z: rows of zombies. gain predicted: from depth 1's costs and depth 2's z\n"
        )?;
        write!(f, "{:>7}{:>6}{:>10}", "streams", "depth", "tokens/s")?;
        for (name, width) in COLUMNS {
            write!(f, "{name:>width$}")?;
        }
        writeln!(
            f,
            "{:>8}{:>9}{:>26}{:>6}{:>6}",
            "busy %", "floor ms", "gain predicted, observed", "W", "MHz"
        )?;
        for row in &self.text {
            writeln!(f, "{:>7}{}", row.streams, row.blocking)?;
            let gain = format!(
                "{:+.1}, {:+.1} %",
                row.predicted_percent, row.observed_percent
            );
            let (watts, mhz) = strain(row.strain);
            let floor = known(row.floor_ms, 3);
            writeln!(
                f,
                "{:>7}{}{floor:>9}{gain:>26}{watts:>6}{mhz:>6}",
                row.streams, row.pipelined
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for TextRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (depth, tokens, cost, busy) =
            (self.depth, self.tokens_per_s, self.cost, self.busy_percent);
        write!(f, "{depth:>6}{tokens:>10.1}{cost}{busy:>8.2}")
    }
}
