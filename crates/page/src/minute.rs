//! Latency of a camera's messages over the last minute: means of two-second columns, and percentiles. Pure.

use std::{collections::VecDeque, time::Duration};

use crate::status::{COLUMNS, MinuteLatency};
use spotter_core::{Latency, Mono, PercentileWindow};

const STAGES: usize = spotter_core::STAGES.len();

const MINUTE: Duration = Duration::from_secs(60);
const COLUMN_NS: u64 = MINUTE.as_nanos() as u64 / COLUMNS as u64;
/// Bounds the messages for percentiles; 16 bytes each.
const VALUES: usize = 2048;

#[derive(Clone, Copy, Debug, Default)]
struct Column {
    /// Counted from the start of the clock.
    number: u64,
    messages: u64,
    tenth_ms: [u64; STAGES],
}

#[derive(Clone, Debug)]
pub struct Minute {
    columns: VecDeque<Column>,
    totals: PercentileWindow,
}

impl Default for Minute {
    fn default() -> Self {
        Self {
            columns: VecDeque::new(),
            totals: PercentileWindow::new(MINUTE, VALUES),
        }
    }
}

impl Minute {
    /// A message was published `now`.
    pub fn add(&mut self, now: Mono, latency: &Latency) {
        self.totals.add(now, latency.total_tenth_ms as f64 / 10.0);
        let number = now.as_nanos() / COLUMN_NS;
        if self.columns.back().is_none_or(|last| last.number != number) {
            self.columns.push_back(Column {
                number,
                ..Column::default()
            });
        }
        self.forget(number);
        let Some(column) = self.columns.back_mut() else {
            return;
        };
        column.messages += 1;
        for (sum, tenth_ms) in column.tenth_ms.iter_mut().zip(latency.stages_tenth_ms) {
            *sum += tenth_ms;
        }
    }

    pub fn status(&mut self, now: Mono) -> MinuteLatency {
        let newest = now.as_nanos() / COLUMN_NS;
        self.forget(newest);
        let [p50_ms, p95_ms] = self.totals.percentiles(now, [0.5, 0.95]);
        let mut all = Column::default();
        let mut columns_ms = vec![None; COLUMNS];
        for column in &self.columns {
            let age = newest.saturating_sub(column.number) as usize;
            if let Some(shown) = columns_ms.iter_mut().rev().nth(age) {
                *shown = Some(column.mean_ms());
            }
            all.messages += column.messages;
            for (sum, tenth_ms) in all.tenth_ms.iter_mut().zip(column.tenth_ms) {
                *sum += tenth_ms;
            }
        }
        MinuteLatency {
            messages: all.messages,
            p50_ms,
            p95_ms,
            mean_ms: all.mean_ms(),
            columns_ms,
        }
    }

    fn forget(&mut self, newest: u64) {
        let is_old = |column: &Column| newest.saturating_sub(column.number) >= COLUMNS as u64;
        while self.columns.front().is_some_and(is_old) {
            self.columns.pop_front();
        }
    }
}

impl Column {
    fn mean_ms(&self) -> [f64; STAGES] {
        let messages = self.messages.max(1) as f64;
        self.tenth_ms.map(|sum| sum as f64 / 10.0 / messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(tenth_ms: u64) -> Latency {
        Latency {
            stages_tenth_ms: [tenth_ms; STAGES],
            total_tenth_ms: tenth_ms * STAGES as u64,
            camera_tenth_ms: None,
        }
    }

    #[test]
    fn minute_has_columns_of_means_and_drops_older_messages() {
        let at = |seconds| Mono::default().after(Duration::from_secs(seconds));
        let mut minute = Minute::default();
        assert_eq!(minute.status(at(100)).messages, 0);
        minute.add(at(100), &latency(10));
        minute.add(at(101), &latency(30));
        minute.add(at(158), &latency(50));
        let view = minute.status(at(159));
        assert_eq!((view.messages, view.mean_ms), (3, [3.0; STAGES]));
        assert_eq!(view.columns_ms.len(), COLUMNS);
        assert_eq!(view.columns_ms[0], Some([2.0; STAGES]));
        assert_eq!(view.columns_ms[29], Some([5.0; STAGES]));
        assert!(view.columns_ms[1..29].iter().all(Option::is_none));
        assert_eq!(view.p50_ms, Some(24.0));

        let later = minute.status(at(162));
        assert_eq!(later.columns_ms[28], None);
        assert_eq!(
            (later.messages, later.columns_ms[27]),
            (1, Some([5.0; STAGES]))
        );
        assert_eq!(minute.status(at(300)).p95_ms, None);
    }
}
