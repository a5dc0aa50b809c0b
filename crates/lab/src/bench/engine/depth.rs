//! Costs of steps at one depth over the parts of a measurement, with the gain that the cost model predicts.

use std::{fmt, time::Duration};

use serde::Serialize;

use spotter_engine::scheduler::{
    cost::{Costs, StepCost},
    request::Work,
};

/// Mean costs of a step, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DepthCost {
    /// Images, prefill and forward pass.
    pub forward_ms: f64,
    pub sampling_ms: f64,
    /// Plan, launch, finalize, commit.
    pub bookkeeping_ms: f64,
    /// The part of it in which the device was idle.
    pub exposed_ms: f64,
    /// From one step to the next.
    pub period_ms: f64,
    /// The device waited for the next step.
    pub idle_host_ms: f64,
    /// It waited for masks.
    pub idle_masks_ms: f64,
    /// The device waited for requests.
    pub idle_empty_ms: f64,
    /// Share of the rows that were zombies.
    pub zombies: f64,
}

/// Columns of [`DepthCost`], as its `Display` writes them.
pub(in crate::bench) const COLUMNS: [(&str, usize); 9] = [
    ("forward", 10),
    ("sampl.", 9),
    ("book.", 7),
    ("exposed", 9),
    ("period", 9),
    ("host", 7),
    ("masks", 7),
    ("empty", 7),
    ("z %", 8),
];

impl fmt::Display for DepthCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = [
            self.forward_ms,
            self.sampling_ms,
            self.bookkeeping_ms,
            self.exposed_ms,
            self.period_ms,
            self.idle_host_ms,
            self.idle_masks_ms,
            self.idle_empty_ms,
            100.0 * self.zombies,
        ];
        for (i, (value, (_, width))) in values.into_iter().zip(COLUMNS).enumerate() {
            let decimals = if i == values.len() - 1 { 1 } else { 3 };
            write!(f, "{value:>width$.decimals$}")?;
        }
        Ok(())
    }
}

/// Sums over the parts of a measurement.
#[derive(Clone, Debug, Default)]
pub(in crate::bench) struct StepSums {
    costs: Vec<Costs>,
    rows: u64,
    zombies: u64,
}

impl StepSums {
    /// Adds a part: its costs, and the engine's work before and after it.
    pub fn add(&mut self, costs: Costs, before: &Work, after: &Work) {
        let rows = |work: &Work| work.prefills + work.decodes;
        self.costs.push(costs);
        self.rows += rows(after) - rows(before);
        self.zombies += after.zombies - before.zombies;
    }

    pub fn steps(&self) -> u64 {
        self.costs.iter().map(|costs| costs.steps).sum()
    }

    fn mean(&self, of: impl Fn(&Costs) -> f64) -> f64 {
        self.costs.iter().map(of).sum::<f64>() / self.steps().max(1) as f64
    }

    fn step(&self) -> StepCost {
        let part =
            |of: fn(StepCost) -> f64| self.mean(|costs| of(costs.per_step()) * costs.steps as f64);
        StepCost {
            forward_ms: part(|cost| cost.forward_ms),
            sampling_ms: part(|cost| cost.sampling_ms),
            bookkeeping_ms: part(|cost| cost.bookkeeping_ms),
            exposed_ms: part(|cost| cost.exposed_ms),
            period_ms: part(|cost| cost.period_ms),
        }
    }

    pub fn cost(&self) -> DepthCost {
        let idle = |of: fn(&Costs) -> Duration| self.mean(|costs| of(costs).as_secs_f64() * 1e3);
        let step = self.step();
        DepthCost {
            forward_ms: step.forward_ms,
            sampling_ms: step.sampling_ms,
            bookkeeping_ms: step.bookkeeping_ms,
            exposed_ms: step.exposed_ms,
            period_ms: step.period_ms,
            idle_host_ms: idle(|costs| costs.idle.host),
            idle_masks_ms: idle(|costs| costs.idle.masks),
            idle_empty_ms: idle(|costs| costs.idle.empty),
            zombies: self.zombies as f64 / self.rows.max(1) as f64,
        }
    }

    /// Gain of depth 2 that the cost model predicts from these costs of depth 1, percent, when depth 2 has that share of
    /// zombies.
    pub fn predicted_percent(&self, zombies: f64) -> f64 {
        percent(self.step().predicted_speedup(zombies))
    }
}

/// A ratio as a gain.
pub(in crate::bench) fn percent(ratio: f64) -> f64 {
    100.0 * (ratio - 1.0)
}
