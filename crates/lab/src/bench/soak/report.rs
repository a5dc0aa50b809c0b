//! The report of a soak with its verdict.

use std::fmt;

use serde::Serialize;

use spotter::ops::machine::Machine;

/// Allowed growth of memory from half time to the end, MiB: graphs of rare shapes, and what allocators keep.
const GROWTH_MAX_MIB: f64 = 64.0;

/// Looks by their ends, and answers by their likeness to those of the same request alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SoakTally {
    /// Looks.
    pub asked: u64,
    pub answered: u64,
    /// Not begun or not answered in time.
    pub late: u64,
    pub cancelled: u64,
    /// The engine cannot answer them.
    pub failed: u64,
    /// Prompts with the same answer.
    pub same: u64,
    /// The same but for single bins.
    pub near: u64,
    /// Different behind a decision that could go either way.
    pub close: u64,
    /// Different where the model was sure.
    pub wrong: u64,
    /// Compared prompts with a model that was sure of every decision of the answer alone.
    pub sure: u64,
}

impl SoakTally {
    /// Every look has ended.
    pub fn is_balanced(&self) -> bool {
        self.asked == self.answered + self.late + self.cancelled + self.failed
    }
}

/// Memory at a moment, MiB; `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SoakMemory {
    /// Since the beginning, seconds.
    pub at_s: f64,
    /// Resident in the host.
    pub rss_mib: Option<f64>,
    /// Not in use on the GPU.
    pub gpu_free_mib: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SoakReport {
    pub machine: Machine,
    pub device: String,
    pub model: String,
    pub seconds: f64,
    pub tally: SoakTally,
    /// Steps of the device.
    pub steps: u64,
    /// Rows that were evicted for lack of pages.
    pub evicted: u64,
    /// From the first answers to the end.
    pub memory: Vec<SoakMemory>,
    /// Pages that were not given back.
    pub pages_lost: usize,
    /// Looks that did not end.
    pub never_ended: u64,
    /// The first answer that is wrong.
    pub first_wrong: Option<String>,
}

impl SoakReport {
    /// Violated requirements; none if the verdict is sound.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut wants_zero = |count: u64, what: &str| {
            if count > 0 {
                problems.push(format!("{count} {what}"));
            }
        };
        wants_zero(
            self.tally.wrong,
            "answers are not those of the request alone",
        );
        wants_zero(self.tally.failed, "looks failed that fit alone");
        wants_zero(self.never_ended, "looks never ended");
        wants_zero(self.pages_lost as u64, "pages were not given back");
        if !self.tally.is_balanced() {
            problems.push(format!("the counters do not balance: {:?}", self.tally));
        }
        let growths = [
            ("the host's memory", self.growth(|m| m.rss_mib)),
            (
                "the GPU's memory",
                self.growth(|m| m.gpu_free_mib.map(|free| -free)),
            ),
        ];
        for (what, growth) in growths {
            if let Some(mib) = growth.filter(|mib| *mib > GROWTH_MAX_MIB) {
                problems.push(format!(
                    "{what} grew by {mib:.0} MiB in the second half, {GROWTH_MAX_MIB:.0} are allowed"
                ));
            }
        }
        problems
    }

    /// From half time to the end. `None` if unknown, or without a second half.
    fn growth(&self, of: impl Fn(&SoakMemory) -> Option<f64>) -> Option<f64> {
        let half = self.memory.iter().find(|m| m.at_s >= self.seconds / 2.0)?;
        Some(of(self.memory.last()?)? - of(half)?)
    }

    /// The figures in one line.
    pub fn line(&self) -> String {
        let t = &self.tally;
        let memory = self.memory.last().copied().unwrap_or_default();
        let mib = |value: Option<f64>| value.map_or("-".into(), |mib| format!("{mib:.0}"));
        format!(
            "{:6.0} s: {} looks ({} answered, {} late, {} cancelled), {} evicted; answers {} same, {} near, {} close, \
             {} wrong; RSS {} MiB, GPU free {} MiB",
            self.seconds,
            t.asked,
            t.answered,
            t.late,
            t.cancelled,
            self.evicted,
            t.same,
            t.near,
            t.close,
            t.wrong,
            mib(memory.rss_mib),
            mib(memory.gpu_free_mib),
        )
    }
}

impl fmt::Display for SoakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.machine.spotter;
        writeln!(f, "spotter {version}, {}, {}", self.model, self.device)?;
        writeln!(f, "{}", self.line())?;
        writeln!(
            f,
            "{} steps; of {} answers the model was sure throughout",
            self.steps, self.tally.sure
        )?;
        if let Some(wrong) = &self.first_wrong {
            writeln!(f, "first wrong answer: {wrong}")?;
        }
        let problems = self.problems();
        match problems.is_empty() {
            true => write!(f, "verdict: sound"),
            false => write!(f, "verdict: NOT SOUND: {}", problems.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(memory: &[(f64, f64, f64)]) -> SoakReport {
        let memory = memory.iter().map(|&(at_s, rss, free)| SoakMemory {
            at_s,
            rss_mib: Some(rss),
            gpu_free_mib: Some(free),
        });
        SoakReport {
            seconds: 100.0,
            memory: memory.collect(),
            ..SoakReport::default()
        }
    }

    #[test]
    fn memory_may_grow_in_the_first_half_only() {
        let warming = report(&[
            (0.0, 100.0, 9000.0),
            (50.0, 900.0, 8000.0),
            (100.0, 930.0, 7990.0),
        ]);
        assert_eq!(warming.problems(), [""; 0]);
        let leaking = report(&[
            (0.0, 100.0, 9000.0),
            (50.0, 200.0, 8000.0),
            (100.0, 300.0, 7900.0),
        ]);
        assert_eq!(
            leaking.problems(),
            [
                "the host's memory grew by 100 MiB in the second half, 64 are allowed",
                "the GPU's memory grew by 100 MiB in the second half, 64 are allowed"
            ]
        );
    }

    #[test]
    fn every_loss_is_a_problem() {
        let mut report = SoakReport {
            never_ended: 1,
            pages_lost: 2,
            ..SoakReport::default()
        };
        report.tally.asked = 3;
        report.tally.wrong = 4;
        assert_eq!(report.problems().len(), 4, "{:?}", report.problems());
        assert!(report.to_string().contains("verdict: NOT SOUND: 4 answers"));
        assert!(
            SoakReport::default()
                .to_string()
                .ends_with("verdict: sound")
        );
    }
}
