//! The cost model of the pipeline: what a step costs, what the pipeline should gain, what it does gain.
//!
//! ```text
//!   depth 1     forward ─ sampling ─ bookkeeping ┆ forward ─ sampling ─ bookkeeping ┆      T_block = f + s + b
//!   depth 2     forward ─ sampling ┆ forward ─ sampling ┆ forward ─ sampling ┆             T_pipe  = max(f + s, b + s)
//!                    bookkeeping ────┘ bookkeeping ────┘  under the next forward pass
//! ```
//!
//! Bookkeeping is everything that the host does for a step: plan, launch, commit, finalize. When it is longer than the
//! forward pass, sampling waits for the masks that it makes. A share `z` of the rows are zombies, so
//! `speedup = T_block / T_pipe * (1 - z)`.

use std::time::Duration;

use super::backend::StepTimes;
use crate::domain::Mono;

/// A stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first moment.
    pub began: Mono,
    /// The first moment after it.
    pub ended: Mono,
}

impl Span {
    /// How long it is.
    pub fn duration(self) -> Duration {
        self.ended.since(self.began)
    }
}

/// What the host does for a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Chooses the rows of the next step.
    Plan,
    /// Hands it to the device.
    Launch,
    /// Makes masks and hands them over.
    Finalize,
    /// Waits for the device.
    Wait,
    /// Takes decisions and answers out.
    Commit,
}

/// Time of the device between its steps, and inside of them, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    /// The host was not ready with the next step.
    pub host: Duration,
    /// The host's masks were not there.
    pub masks: Duration,
    /// Nobody asked anything.
    pub empty: Duration,
}

/// Costs of the steps so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Steps committed.
    pub steps: u64,
    /// Their rows.
    pub rows: u64,
    /// Images, prefill and forward passes.
    pub forward: Duration,
    /// Decisions.
    pub sampling: Duration,
    /// Plan, launch, finalize and commit.
    pub bookkeeping: Duration,
    /// Of the device.
    pub idle: Idle,
    busy: Duration,
    since: Option<Mono>,
    device_ended: Option<Mono>,
    was_empty: bool,
}

impl Costs {
    pub(super) fn host(&mut self, what: Host, span: Span) {
        self.since.get_or_insert(span.began);
        if what != Host::Wait {
            self.bookkeeping += span.duration();
        }
    }

    pub(super) fn rows(&mut self, rows: usize) {
        self.rows += rows as u64;
    }

    /// A step is committed and its results are settled.
    pub(super) fn step(&mut self, times: StepTimes, settled: Mono) {
        self.steps += 1;
        self.forward += times.prepare + times.encode + times.rows;
        self.sampling += times.sampling;
        self.idle.masks += times.mask_wait;
        let gap = self
            .device_ended
            .map_or(Duration::ZERO, |ended| times.started.since(ended));
        match self.was_empty {
            true => self.idle.empty += gap,
            false => self.idle.host += gap,
        }
        self.was_empty = false;
        self.device_ended = Some(times.ended());
        if let Some(since) = self.since {
            self.busy += settled.since(since);
        }
        self.since = Some(settled);
    }

    /// Nothing is asked and nothing in flight.
    pub(super) fn idle(&mut self) {
        self.was_empty = true;
        self.since = None;
    }

    /// Mean of one step.
    pub fn per_step(&self) -> StepCost {
        let mean = |sum: Duration| sum.as_secs_f64() * 1e3 / self.steps.max(1) as f64;
        StepCost {
            forward_ms: mean(self.forward),
            sampling_ms: mean(self.sampling),
            bookkeeping_ms: mean(self.bookkeeping),
            period_ms: mean(self.busy),
        }
    }
}

/// Milliseconds of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepCost {
    /// Images, prefill and forward pass.
    pub forward_ms: f64,
    /// Decisions.
    pub sampling_ms: f64,
    /// The host's work.
    pub bookkeeping_ms: f64,
    /// From one step to the next, observed.
    pub period_ms: f64,
}

impl StepCost {
    /// Period of a blocking loop with these costs.
    pub fn blocking_ms(&self) -> f64 {
        self.forward_ms + self.sampling_ms + self.bookkeeping_ms
    }

    /// Period of the pipeline with these costs.
    pub fn pipelined_ms(&self) -> f64 {
        self.forward_ms.max(self.bookkeeping_ms) + self.sampling_ms
    }

    /// How many times as many rows the pipeline decides, when a share `zombies` (0..1) of its rows is for nobody.
    pub fn predicted_speedup(&self, zombies: f64) -> f64 {
        self.blocking_ms() / self.pipelined_ms() * (1.0 - zombies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_gives_the_published_gain() {
        // B200, 32 streams (architecture.md section 3, item 9): 5.55 ms blocking, 3.80 + 0.14 ms on the device.
        let cost = StepCost {
            forward_ms: 3.80,
            sampling_ms: 0.14,
            bookkeeping_ms: 5.55 - 3.94,
            period_ms: 0.0,
        };
        assert!((cost.predicted_speedup(1.0 / 110.0) - 1.391).abs() < 0.02);
    }

    #[test]
    fn a_slow_host_bounds_the_pipeline() {
        let cost = StepCost {
            forward_ms: 1.0,
            sampling_ms: 0.5,
            bookkeeping_ms: 4.0,
            period_ms: 0.0,
        };
        assert_eq!(cost.pipelined_ms(), 4.5);
    }
}
