//! Percentiles over the last minutes. Pure.

use std::{collections::VecDeque, time::Duration};

use crate::Mono;

/// Values of the last `span`, at most `capacity` of them; the oldest go first.
#[derive(Clone, Debug)]
pub struct PercentileWindow {
    span: Duration,
    capacity: usize,
    values: VecDeque<(Mono, f64)>,
}

impl PercentileWindow {
    /// An empty window. `capacity` bounds the memory: 16 bytes a value.
    pub fn new(span: Duration, capacity: usize) -> Self {
        Self {
            span,
            capacity: capacity.max(1),
            values: VecDeque::new(),
        }
    }

    /// Adds a value seen at `now`.
    pub fn add(&mut self, now: Mono, value: f64) {
        self.forget(now);
        if self.values.len() == self.capacity {
            self.values.pop_front();
        }
        self.values.push_back((now, value));
    }

    /// The values below which each of `shares` (0..1) of all values lie, by nearest rank; `None` when nothing was seen.
    pub fn percentiles<const N: usize>(&mut self, now: Mono, shares: [f64; N]) -> [Option<f64>; N] {
        self.forget(now);
        let mut sorted: Vec<f64> = self.values.iter().map(|&(_, value)| value).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        shares.map(|share| {
            let rank = (share * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.max(1) - 1).copied()
        })
    }

    fn forget(&mut self, now: Mono) {
        while self
            .values
            .front()
            .is_some_and(|&(at, _)| now.since(at) > self.span)
        {
            self.values.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank_over_the_span_only() {
        let at = |seconds| Mono::default().after(Duration::from_secs(seconds));
        let mut window = PercentileWindow::new(Duration::from_secs(60), 1000);
        assert_eq!(window.percentiles(at(0), [0.5]), [None]);
        window.add(at(0), 1e9);
        for value in 1..=100 {
            window.add(at(61), f64::from(value));
        }
        let found = window.percentiles(at(61), [0.5, 0.95, 0.99, 1.0]);
        assert_eq!(found, [Some(50.0), Some(95.0), Some(99.0), Some(100.0)]);
        assert_eq!(window.percentiles(at(122), [0.5]), [None]);
    }

    #[test]
    fn memory_is_bounded_and_the_newest_stay() {
        let mut window = PercentileWindow::new(Duration::from_secs(60), 3);
        for value in 0..10 {
            window.add(Mono::default(), f64::from(value));
        }
        assert_eq!(
            window.percentiles(Mono::default(), [0.0, 1.0]),
            [Some(7.0), Some(9.0)]
        );
    }
}
