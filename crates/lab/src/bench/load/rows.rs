//! Rows of the tables of requests.

use std::fmt;

use serde::Serialize;

use crate::bench::spread::Spread;
use spotter_engine::gpu_stats::Strain;

/// Requests of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LoadCounters {
    pub asked: usize,
    /// Answered, with all their objects.
    pub answered: usize,
    /// Cancelled when the load ended.
    pub left: usize,
}

/// Requests of one kind under one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadRow {
    /// Pixels across and down of the frames.
    pub size: (usize, usize),
    /// Each with one request in the engine at a time.
    pub clients: usize,
    /// Detect prompts of a request.
    pub prompts: usize,
    /// Objects of each answer.
    pub objects: usize,
    /// Requests of the whole load.
    #[serde(rename = "books")]
    pub counters: LoadCounters,
    /// Requests that count: those that were answered in its last half.
    pub requests: usize,
    /// Per second of the last half.
    pub requests_per_s: f64,
    /// From submission to the answer.
    pub latency: Spread,
    /// Steps of the device, each of which may carry many requests.
    pub steps_per_request: f64,
    /// Share of the time in which the device worked.
    pub busy_percent: f64,
    /// Milliseconds in which it did not work, per step.
    pub idle_ms_per_step: f64,
    /// Arithmetic of a request, GFLOP.
    pub gflop: f64,
    /// Arithmetic of the requests per second, TFLOP.
    pub tflop_per_s: f64,
    /// Of what the device sustains in large products, percent.
    pub of_ceiling_percent: Option<f64>,
    /// Time of the arithmetic at that speed, milliseconds: the least distance between two requests.
    pub floor_ms: Option<f64>,
    /// The same with all of it in fp8.
    pub floor_fp8_ms: Option<f64>,
    /// Least latency of a request alone, milliseconds: arithmetic up to the first decisions, then a step for every further
    /// one, each of which reads the decoder's weights (bf16) and the image's keys and values.
    pub floor_alone_ms: Option<f64>,
    /// Power and clock of the GPU.
    pub strain: Option<Strain>,
    /// Energy of a request, J.
    pub joules: Option<f64>,
}

/// One frame with several prompts, one client.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromptsRow {
    #[serde(flatten)]
    pub load: LoadRow,
    /// Median against that of one prompt.
    pub ratio: f64,
}

/// One picture that does not change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SteadyRow {
    /// Draft and tile reuse are on.
    pub reuse: bool,
    /// What it took; the arithmetic is that without reuse.
    #[serde(flatten)]
    pub load: LoadRow,
    /// Crops of a request that went through the vision encoder.
    pub crops_encoded: f64,
    /// Crops of a request that were reused.
    pub crops_reused: f64,
    /// Decisions of a request that were offered as drafts.
    pub drafted: f64,
    /// Of these, confirmed by the model.
    pub accepted: f64,
}

/// Column names of a [`LoadRow`] and of `more` columns.
pub(super) fn write_heading(f: &mut fmt::Formatter<'_>, more: &[&str]) -> fmt::Result {
    write!(
        f,
        "{:>10}{:>8}{:>8}{:>8}{:>9}{:>18}{:>7}{:>9}{:>6}{:>16}{:>8}{:>7}{:>9}{:>6}{:>6}{:>7}",
        "size",
        "objects",
        "prompts",
        "clients",
        "/s",
        "ms",
        "steps",
        "TFLOP/s",
        "%",
        "floor ms (fp8)",
        "alone",
        "busy %",
        "idle/step",
        "W",
        "MHz",
        "J"
    )?;
    for name in more {
        write!(f, "{name:>10}")?;
    }
    writeln!(f)
}

impl fmt::Display for LoadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = format!("{}x{}", self.size.0, self.size.1);
        let floors = format!(
            "{} ({})",
            known(self.floor_ms, 2),
            known(self.floor_fp8_ms, 2)
        );
        let (watts, mhz) = strain(self.strain);
        write!(
            f,
            "{size:>10}{:>8}{:>8}{:>8}{:>9.2}{:>18}{:>7.2}{:>9.1}{:>6}{floors:>16}{:>8}{:>7.1}{:>9.3}{watts:>6}{mhz:>6}{:>7}",
            self.objects,
            self.prompts,
            self.clients,
            self.requests_per_s,
            self.latency.to_string(),
            self.steps_per_request,
            self.tflop_per_s,
            known(self.of_ceiling_percent, 0),
            known(self.floor_alone_ms, 2),
            self.busy_percent,
            self.idle_ms_per_step,
            known(self.joules, 1),
        )
    }
}

impl fmt::Display for SteadyRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reuse = if self.reuse { "on" } else { "off" };
        write!(f, "{}{reuse:>10}", self.load)?;
        for each in [
            self.crops_encoded,
            self.crops_reused,
            self.drafted,
            self.accepted,
        ] {
            write!(f, "{each:>10.2}")?;
        }
        Ok(())
    }
}

/// Watts and MHz.
pub(super) fn strain(strain: Option<Strain>) -> (String, String) {
    let part = |of: fn(Strain) -> Option<f64>| known(strain.and_then(of), 0);
    (part(|s| s.power_w), part(|s| s.sm_mhz))
}

/// A dash for what was not measured.
pub(super) fn known(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.decimals$}"))
}
