//! Whether messages leave within `model.budget`. Pure. It is logged, because nothing else shows a machine that is too slow: looks
//! that would be late are dropped, so no backlog forms.

use std::time::Duration;

/// Whether the 95th percentile, receive to publish, exceeds `model.budget`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LatencyBudget {
    is_exceeded: bool,
}

/// The budget began or ceased to be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetChange {
    Exceeded,
    /// Also when no messages are published.
    Met,
}

impl LatencyBudget {
    /// `p95_ms`: the percentile of the last minute, `None` without a message in it.
    pub fn judge(&mut self, p95_ms: Option<f64>, budget: Duration) -> Option<BudgetChange> {
        let exceeds = p95_ms.is_some_and(|ms| ms > budget.as_secs_f64() * 1e3);
        let has_changed = exceeds != std::mem::replace(&mut self.is_exceeded, exceeds);
        let change = if exceeds {
            BudgetChange::Exceeded
        } else {
            BudgetChange::Met
        };
        has_changed.then_some(change)
    }

    pub fn is_exceeded(self) -> bool {
        self.is_exceeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_reported_once_and_silence_meets_the_budget() {
        let budget = Duration::from_millis(250);
        let mut latency = LatencyBudget::default();
        let mut judge = |p95| {
            let change = latency.judge(p95, budget);
            (change, latency.is_exceeded())
        };
        assert_eq!(judge(Some(250.0)), (None, false), "just in time");
        assert_eq!(judge(Some(250.1)), (Some(BudgetChange::Exceeded), true));
        assert_eq!(judge(Some(900.0)), (None, true));
        assert_eq!(judge(Some(40.0)), (Some(BudgetChange::Met), false));
        assert_eq!(judge(None), (None, false));
        assert_eq!(judge(Some(900.0)), (Some(BudgetChange::Exceeded), true));
        assert_eq!(judge(None), (Some(BudgetChange::Met), false));
    }
}
