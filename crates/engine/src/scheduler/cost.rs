//! The cost model of the pipeline: what a step costs, what the pipeline should gain, what it does gain.
//!
//! ```text
//!   depth 1   device  ▓▓ forward ▓▓▓▓▓▓▓ sampling ▓                      ▓▓ forward ▓▓▓▓▓▓▓ sampling ▓
//!             host    nch ┆                        ┆commit ── plan ── lau┆nch ┆
//!                     beside                       └────── exposed ─────┘beside
//!
//!   depth 2   device  ▓▓ forward ▓▓▓▓▓▓▓ sampling ▓▓▓ forward ▓▓▓▓▓▓▓ sampling ▓▓▓ forward ▓▓▓▓▓▓▓ sampling ▓
//!             host     ── bookkeeping ──            ── bookkeeping ──            ── bookkeeping ──
//!
//!   T_block = f + s + e        T_pipe = max(f, b) + s
//! ```
//!
//! Bookkeeping `b` is everything that the host does for a step: plan, launch, commit, finalize. In a blocking loop a part of
//! it is exposed, `e`: the device does nothing meanwhile. The rest runs beside the device there too: later kernels of a step
//! are queued, and masks made, while its first kernels run. In the pipeline all of it does, and when it is longer than the
//! forward pass, sampling waits for the masks that it makes. A share `z` of the rows are zombies, so
//! `speedup = T_block / T_pipe * (1 - z)`.
//!
//! What is exposed is measured: the spans of the host, less their overlap with the device's working times, which a backend
//! gives in the host's time. A backend that places all steps some microseconds late or early moves both ends of a gap between
//! two steps, so what was exposed in it stays as long. The observed period is no part of the prediction. It holds more than
//! `T_block`: the device also waits for what is no bookkeeping, such as the way of a launch to it.

use std::time::Duration;

use super::backend::StepTimes;
use spotter_core::Mono;

/// A stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    pub began: Mono,
    /// The first moment after it.
    pub ended: Mono,
}

impl TimeSpan {
    /// How long it is.
    pub fn duration(self) -> Duration {
        self.ended.since(self.began)
    }

    /// How much of it is in the other one too.
    pub fn overlap(self, other: Self) -> Duration {
        self.ended
            .min(other.ended)
            .since(self.began.max(other.began))
    }
}

/// When the device worked on a step: before its wait for masks, and after it. A device whose kernels wait for their own
/// launches works, because its times do not show the waits; they are in its forward pass.
pub fn working(times: &StepTimes) -> [TimeSpan; 2] {
    let forward = times.prepare + times.encode + times.rows;
    let forwarded = times.started.after(forward);
    [
        TimeSpan {
            began: times.started,
            ended: forwarded,
        },
        TimeSpan {
            began: forwarded.after(times.mask_wait),
            ended: times.ended(),
        },
    ]
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
    /// No look was inside.
    pub empty: Duration,
}

/// Spans of the host that wait for the step which the device did meanwhile. Few steps are in flight, each with a handful of
/// spans, so more wait only where the device's time does not go on, as a simulated one's; the oldest is then given up.
const OPEN_MAX: usize = 64;

/// Costs of the steps so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    pub steps: u64,
    pub rows: u64,
    /// Images, prefill and forward passes.
    pub forward: Duration,
    pub sampling: Duration,
    /// Plan, launch, finalize and commit.
    pub bookkeeping: Duration,
    pub idle: Idle,
    /// Bookkeeping while the device worked.
    beside: Duration,
    /// Bookkeeping after the end of the last step: what the device did meanwhile comes with the next one.
    open: Vec<TimeSpan>,
    busy: Duration,
    since: Option<Mono>,
    device_ended: Option<Mono>,
    was_empty: bool,
}

impl Costs {
    pub(super) fn host(&mut self, what: Host, span: TimeSpan) {
        self.since.get_or_insert(span.began);
        if what != Host::Wait {
            self.bookkeeping += span.duration();
            if self.open.len() == OPEN_MAX {
                self.open.remove(0);
            }
            self.open.push(span);
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
        self.meet(times);
        if let Some(since) = self.since {
            self.busy += settled.since(since);
        }
        self.since = Some(settled);
    }

    /// Splits the host's spans by what the device did. Steps come in their order, so all is known up to this one's end.
    fn meet(&mut self, times: StepTimes) {
        for worked in working(&times) {
            let beside = self.open.iter().map(|span| span.overlap(worked));
            self.beside += beside.sum::<Duration>();
        }
        self.open.retain_mut(|span| {
            span.began = span.began.max(times.ended());
            span.began < span.ended
        });
    }

    /// Bookkeeping while the device did nothing. Of what came after the last step's end it is all.
    pub fn exposed(&self) -> Duration {
        self.bookkeeping.saturating_sub(self.beside)
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
            exposed_ms: mean(self.exposed()),
            period_ms: mean(self.busy),
        }
    }
}

/// Milliseconds of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepCost {
    /// Images, prefill and forward pass.
    pub forward_ms: f64,
    pub sampling_ms: f64,
    pub bookkeeping_ms: f64,
    /// The part of it in which the device did nothing, at the depth at which it was measured. At depth 2 it is next to
    /// nothing and says nothing about depth 1.
    pub exposed_ms: f64,
    /// From one step to the next, observed.
    pub period_ms: f64,
}

impl StepCost {
    /// Period of the blocking loop (depth 1) in which these costs were measured, as the model has it.
    pub fn blocking_ms(&self) -> f64 {
        self.forward_ms + self.sampling_ms + self.exposed_ms
    }

    /// Period of the pipeline with these costs, at whichever depth they were measured.
    pub fn pipelined_ms(&self) -> f64 {
        self.forward_ms.max(self.bookkeeping_ms) + self.sampling_ms
    }

    /// How many times as many rows the pipeline decides, when a share `zombies` (0..1) of its rows is discarded. From costs
    /// of depth 1, as [`Self::blocking_ms`].
    pub fn predicted_speedup(&self, zombies: f64) -> f64 {
        self.blocking_ms() / self.pipelined_ms() * (1.0 - zombies)
    }
}

#[cfg(test)]
mod tests;
