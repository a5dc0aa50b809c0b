//! Where the time of a look went, and many looks as median and tail.

use std::time::Duration;

use serde::Serialize;

use spotter_core::{Answer, Mono};

/// Times of one look, milliseconds; the stages add up to the total.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct StageDurations {
    /// From the call to its return.
    pub total_ms: f64,
    /// Scaling and cutting of the picture.
    pub prepare_ms: f64,
    /// Vision encoder, projection and the prefix in the cache.
    pub encode_ms: f64,
    /// Prefill of the prompts, with their first decisions.
    pub prompt_ms: f64,
    /// The rest: all further steps, and the answers.
    pub generate_ms: f64,
}

impl StageDurations {
    /// From the marks of the first answer. The look began at `began` and was there at `ended`.
    pub fn of(answers: &[Answer], began: Mono, ended: Mono) -> Self {
        let marks = answers.first().map(|a| a.marks).unwrap_or_default();
        let total_ms = ms(ended.since(began));
        let prepare_ms = ms(marks.prepared.since(began));
        let encode_ms = ms(marks.encoded.since(marks.prepared));
        let prompt_ms = ms(marks.prefilled.since(marks.encoded));
        Self {
            total_ms,
            prepare_ms,
            encode_ms,
            prompt_ms,
            generate_ms: total_ms - prepare_ms - encode_ms - prompt_ms,
        }
    }
}

/// The middle and the tail of many times, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Half of the looks took this or less.
    pub median_ms: f64,
    /// 95 of 100 took this or less.
    pub p95_ms: f64,
}

impl Spread {
    /// By nearest rank; zeros when there is nothing.
    pub(super) fn of(times_ms: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = times_ms.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Self {
            median_ms: percentile(&sorted, 50),
            p95_ms: percentile(&sorted, 95),
        }
    }
}

/// Nearest rank: the smallest value that `percent` of all do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use spotter_core::{AnswerBody, Prompt, PromptId, StageTimes, Task};

    #[test]
    fn nearest_ranks() {
        let spread = Spread::of((1..=20).rev().map(f64::from));
        assert_eq!((spread.median_ms, spread.p95_ms), (10.0, 19.0));
        assert_eq!(Spread::of([7.0]).p95_ms, 7.0);
        assert_eq!(Spread::of([]), Spread::default());
    }

    #[test]
    fn stages_add_up() {
        let at = |ms: u64| Mono::from_nanos(ms * 1_000_000);
        let prompt = Prompt {
            id: PromptId::new("cars").unwrap(),
            revision: 1,
            task: Task::Detect {
                object: "car".into(),
            },
        };
        let answer = Answer {
            prompt: Arc::new(prompt),
            body: AnswerBody::Boxes(Vec::new()),
            truncated: false,
            marks: StageTimes {
                taken: at(100),
                prepared: at(103),
                encoded: at(143),
                prefilled: at(150),
                generated: at(160),
            },
        };
        let times = StageDurations::of(&[answer], at(99), at(162));
        assert_eq!(
            (times.total_ms, times.prepare_ms, times.encode_ms),
            (63.0, 4.0, 40.0)
        );
        assert_eq!((times.prompt_ms, times.generate_ms), (7.0, 12.0));
    }
}
