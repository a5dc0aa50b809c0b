//! The report of a soak with its verdict.

use std::fmt;

use serde::Serialize;

use spotter::ops::machine::Machine;

/// Looks by their ends, and answers by their likeness to those of the same request alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SoakTally {
    pub asked: u64,
    pub answered: u64,
    pub cancelled: u64,
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
        self.asked == self.answered + self.cancelled + self.failed
    }
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
        problems
    }

    /// The figures in one line.
    pub fn line(&self) -> String {
        let t = &self.tally;
        format!(
            "{:6.0} s: {} looks ({} answered, {} cancelled); answers {} same, {} near, {} close, {} wrong",
            self.seconds, t.asked, t.answered, t.cancelled, t.same, t.near, t.close, t.wrong,
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

    #[test]
    fn each_loss_is_a_problem() {
        let mut report = SoakReport {
            never_ended: 1,
            pages_lost: 2,
            ..SoakReport::default()
        };
        report.tally.asked = 3;
        report.tally.wrong = 4;
        assert_eq!(report.problems().len(), 4, "{:?}", report.problems());
        assert!(report.to_string().contains("verdict: NOT SOUND: 4 answers"));
        let sound = SoakReport::default().to_string();
        assert!(sound.ends_with("verdict: sound"));
    }
}
