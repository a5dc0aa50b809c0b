//! The confirmed answer to a question, as a state.

use std::collections::VecDeque;

use super::hysteresis::HysteresisRules;
use spotter_core::yes_or_no;

/// The confirmed answer to one question.
#[derive(Clone, Debug, Default)]
pub struct BelievedAnswer {
    /// The last answers, at most `n`, oldest first.
    recent: VecDeque<String>,
    believed: Option<String>,
}

impl BelievedAnswer {
    /// The model answered `text`. A choice, yes or no is confirmed when `m` of the last `n` looks gave it. Free text differs
    /// from look to look, so it is confirmed at once.
    pub fn look(&mut self, text: &str, choices: &[String], rules: HysteresisRules) {
        let (needed, window) = rules.confirm;
        let (text, sure) = match yes_or_no(text) {
            _ if !choices.is_empty() => (text, false),
            Some(true) => ("yes", false),
            Some(false) => ("no", false),
            None => (text, true),
        };
        self.recent.push_back(text.to_owned());
        let beyond = self.recent.len().saturating_sub(window as usize);
        self.recent.drain(..beyond);
        let agree = self.recent.iter().filter(|recent| *recent == text).count();
        if sure || agree >= needed as usize {
            self.believed = Some(text.to_owned());
        }
    }

    /// A choice, `yes` or `no`, or free text; `None` = unknown.
    pub fn believed(&self) -> Option<&str> {
        self.believed.as_deref()
    }

    /// The answer becomes unknown.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The confirmed answer after each look; `-` = unknown.
    fn states(answers: &[&str], choices: &[&str]) -> Vec<String> {
        let rules = HysteresisRules {
            confirm: (2, 3),
            end_after: Duration::from_secs(3),
            stale_after: Duration::from_secs(30),
        };
        let mut answer = BelievedAnswer::default();
        let choices: Vec<String> = choices.iter().map(|&choice| choice.into()).collect();
        let mut after = |text: &&str| {
            answer.look(text, &choices, rules);
            answer.believed().unwrap_or("-").to_owned()
        };
        answers.iter().map(&mut after).collect()
    }

    #[test]
    fn choice_is_confirmed_after_two_of_three_looks() {
        let [open, shut] = ["open", "shut"];
        let seen = states(&[open, open, shut, open, shut, shut], &[open, shut]);
        assert_eq!(seen, ["-", open, open, open, shut, shut]);
    }

    #[test]
    fn yes_and_no_are_confirmed_in_any_spelling() {
        let seen = states(&["Yes", "yes.", "No", "Yes!", "no", "No."], &[]);
        assert_eq!(seen, ["-", "yes", "yes", "yes", "no", "no"]);
    }

    #[test]
    fn free_text_is_confirmed_at_once() {
        let seen = states(&["A van.", "Two vans, yes.", "A van."], &[]);
        assert_eq!(seen, ["A van.", "Two vans, yes.", "A van."]);
    }
}
