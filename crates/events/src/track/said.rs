//! The answer to a question as a state: what it is believed to be, until another one is.

use std::collections::VecDeque;

use super::hysteresis::Rules;
use spotter_core::yes_or_no;

/// What is believed of one question.
#[derive(Clone, Debug)]
pub struct Said {
    rules: Rules,
    /// The last answers, at most `n`, oldest first.
    recent: VecDeque<String>,
    believed: Option<String>,
}

impl Said {
    /// Nothing is known.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            recent: VecDeque::new(),
            believed: None,
        }
    }

    /// The model said `text`. One of several `choices`, or yes or no, is believed when `m` of the last `n` looks said so;
    /// nobody can say that of free words, which are believed at once.
    pub fn look(&mut self, text: &str, choices: &[String]) {
        let (needed, window) = self.rules.confirm;
        let (text, sure) = match yes_or_no(text) {
            _ if !choices.is_empty() => (text, false),
            Some(true) => ("yes", false),
            Some(false) => ("no", false),
            None => (text, true),
        };
        self.recent.push_back(text.to_owned());
        let beyond = self.recent.len().saturating_sub(window as usize);
        self.recent.drain(..beyond);
        let agree = self.recent.iter().filter(|said| *said == text).count();
        if sure || agree >= needed as usize {
            self.believed = Some(text.to_owned());
        }
    }

    /// What is believed: a choice, `yes` or `no`, or free words; `None` = unknown.
    pub fn believed(&self) -> Option<&str> {
        self.believed.as_deref()
    }

    /// Nobody looks any more, or the question has changed.
    pub fn forget(&mut self) {
        *self = Self::new(self.rules);
    }

    /// Other rules from now on; what is known is kept.
    pub fn obey(&mut self, rules: Rules) {
        self.rules = rules;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn beliefs(answers: &[&str], choices: &[&str]) -> Vec<Option<String>> {
        let mut said = Said::new(Rules {
            confirm: (2, 3),
            end_after: Duration::from_secs(3),
            stale_after: Duration::from_secs(30),
        });
        let choices: Vec<String> = choices.iter().map(|&choice| choice.into()).collect();
        let mut after = |answer: &&str| {
            said.look(answer, &choices);
            said.believed().map(str::to_owned)
        };
        answers.iter().map(&mut after).collect()
    }

    #[test]
    fn a_choice_is_believed_when_it_was_said_twice() {
        let seen = beliefs(
            &["open", "open", "shut", "open", "shut", "shut"],
            &["open", "shut"],
        );
        let [open, shut] = ["open", "shut"].map(|text| Some(text.to_owned()));
        assert_eq!(
            seen,
            [None, open.clone(), open.clone(), open, shut.clone(), shut]
        );
    }

    #[test]
    fn yes_and_no_are_one_answer_in_every_spelling() {
        let seen = beliefs(&["Yes", "yes.", "No", "Yes!", "no", "No."], &[]);
        let texts: Vec<&str> = seen
            .iter()
            .map(|text| text.as_deref().unwrap_or("-"))
            .collect();
        assert_eq!(texts, ["-", "yes", "yes", "yes", "no", "no"]);
    }

    #[test]
    fn free_words_are_believed_at_once() {
        let seen = beliefs(&["A van.", "Two vans, yes.", "A van."], &[]);
        let texts: Vec<&str> = seen.iter().flatten().map(String::as_str).collect();
        assert_eq!(texts, ["A van.", "Two vans, yes.", "A van."]);
    }
}
