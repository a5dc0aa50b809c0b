//! What the pipeline gains over the blocking loop, in virtual time: the real scheduler on a simulated device with
//! published step costs ([`super::published`] names the source). It needs no GPU and takes a second.

use std::fmt;

use serde::Serialize;

use super::published::{CONFIGURATIONS, PublishedConfiguration, run};
use spotter_engine::scheduler::worker::DeviceError;

/// One device under one number of streams, at depth 1 and 2. Times in milliseconds a step, gains in percent of tokens a
/// second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PipelineRow {
    pub device: &'static str,
    /// Requests at a time.
    pub streams: usize,
    /// Period of the blocking loop, here and published.
    pub blocking_ms: (f64, f64),
    /// Period of the pipelined loop, here and published.
    pub pipelined_ms: (f64, f64),
    /// Share of the rows that ran for requests that had ended.
    pub zombies: f64,
    /// Gain that the cost model predicts from the two periods and the zombies.
    pub predicted_percent: f64,
    /// Gain while all streams decode, here and as published (a prediction).
    pub steady_percent: (f64, f64),
    /// Gain of a whole finite run, here and as published (a measurement).
    pub whole_percent: (f64, f64),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PipelineReport(pub Vec<PipelineRow>);

/// Runs them all. Blocks for a second or two of real time.
pub fn pipeline() -> Result<PipelineReport, DeviceError> {
    let rows: Result<_, _> = CONFIGURATIONS.iter().map(row).collect();
    rows.map(PipelineReport)
}

fn row(published: &PublishedConfiguration) -> Result<PipelineRow, DeviceError> {
    let (block, pipe) = (run(published, 1)?, run(published, 2)?);
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    let steady = percent(pipe.steady_tokens_per_s / block.steady_tokens_per_s);
    let whole = percent(block.whole.as_secs_f64() / pipe.whole.as_secs_f64());
    Ok(PipelineRow {
        device: published.device.name,
        streams: published.streams,
        blocking_ms: (block.cost.period_ms, published.blocking_ms),
        pipelined_ms: (pipe.cost.period_ms, published.pipelined_ms),
        zombies: pipe.zombies,
        predicted_percent: percent(block.cost.predicted_speedup(pipe.zombies)),
        steady_percent: (steady, published.predicted_gain_percent),
        whole_percent: (whole, published.measured_gain_percent),
    })
}

impl fmt::Display for PipelineReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "blocking (depth 1) against pipelined (depth 2), simulated device, virtual time; published figures in brackets\n"
        )?;
        writeln!(
            f,
            "device     streams    blocking ms   pipelined ms  zombies  predicted   steady gain %    whole run %"
        )?;
        for row in &self.0 {
            let pair = |(here, published): (f64, f64), decimals: usize| {
                format!("{here:.decimals$} ({published:.decimals$})")
            };
            writeln!(
                f,
                "{:10} {:>7} {:>14} {:>14} {:>6.1} % {:>+8.1} % {:>15} {:>14}",
                row.device,
                row.streams,
                pair(row.blocking_ms, 2),
                pair(row.pipelined_ms, 2),
                row.zombies * 100.0,
                row.predicted_percent,
                pair(row.steady_percent, 1),
                pair(row.whole_percent, 1),
            )?;
        }
        Ok(())
    }
}
