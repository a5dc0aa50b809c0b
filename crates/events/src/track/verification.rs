//! Verification: with `verify`, a confirmed track has no event before the model has answered a question with yes. The
//! question is asked about the whole picture, and so for all tracks of the prompt that wait.
//!
//! ```text
//!   confirmed ──▶ due ──question──▶ asked ──yes──▶ event
//!                  ▲                  │
//!                  └───── pause ◀── no, or no answer
//! ```
//!
//! The pause after a no doubles as long as the object stays: a statue that the model detects as a person must not cost a
//! question at every look, and a person of whom the first look showed a half is not missed for long.

use std::{sync::Arc, time::Duration};

use spotter_core::{AnswerBody, Mono, Prompt, PromptId, PromptView, ScoreSource, Task, yes_or_no};

/// Pause after the first no; it doubles with each.
const PAUSE_MIN: Duration = Duration::from_secs(10);
/// The longest pause. After a question without an answer (a late look, a lost camera) the pause is the shortest.
const PAUSE_MAX: Duration = Duration::from_secs(5 * 60);
/// The possible answers, as models write them.
const CHOICES: [&str; 2] = ["Yes", "No"];

/// The result of a verification question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VerificationResult {
    /// With the score of the answer, 0..1, and what it is as the score of an event.
    Yes {
        score: f64,
        source: ScoreSource,
    },
    No,
    /// The look was late or failed, or the answer is neither yes nor no.
    NoAnswer,
}

impl VerificationResult {
    pub fn of(answer: &AnswerBody) -> Self {
        let AnswerBody::Text {
            text,
            score,
            source,
        } = answer
        else {
            return Self::NoAnswer;
        };
        match yes_or_no(text) {
            Some(true) => Self::Yes {
                score: *score,
                source: source.of_verification(),
            },
            Some(false) => Self::No,
            None => Self::NoAnswer,
        }
    }
}

/// A confirmed track without an event: when it is asked about.
#[derive(Clone, Copy, Debug)]
pub struct PendingVerification {
    state: VerificationState,
    /// The pause after the next no.
    pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VerificationState {
    /// The next question from this moment on is about the track.
    Due(Mono),
    /// The question under way is about the track.
    Asked,
}

impl PendingVerification {
    /// A track that was confirmed at `now`.
    pub fn new(now: Mono) -> Self {
        Self {
            state: VerificationState::Due(now),
            pause: PAUSE_MIN,
        }
    }

    pub fn is_due(&self, now: Mono) -> bool {
        matches!(self.state, VerificationState::Due(from) if from <= now)
    }

    pub fn is_asked(&self) -> bool {
        self.state == VerificationState::Asked
    }

    pub fn mark_asked(&mut self) {
        self.state = VerificationState::Asked;
    }

    /// The question under way brought no yes; `refuted`: the answer was no.
    pub fn postpone(&mut self, refuted: bool, now: Mono) {
        let pause = if refuted { self.pause } else { PAUSE_MIN };
        self.state = VerificationState::Due(now.after(pause));
        if refuted {
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }
}

/// A prompt's question under way. There is at most one.
#[derive(Clone, Debug, Default)]
pub struct VerificationQuestion(Option<OpenQuestion>);

#[derive(Clone, Debug)]
struct OpenQuestion {
    prompt: Arc<Prompt>,
    at: Mono,
}

impl VerificationQuestion {
    /// A new question about what the prompt sees, with a `number` that no other of the camera has. `None` when the number makes
    /// no prompt id.
    pub fn ask(
        &mut self,
        question: &str,
        view: PromptView,
        number: u64,
        now: Mono,
    ) -> Option<Arc<Prompt>> {
        let prompt = Arc::new(Prompt {
            id: PromptId::new(&format!("verify-{number}")).ok()?,
            revision: Prompt::ONCE,
            task: Task::Query {
                question: question.to_owned(),
                choices: CHOICES.map(str::to_owned).to_vec(),
                options: Default::default(),
            },
            view,
            adapter: None,
        });
        let asked = Arc::clone(&prompt);
        self.0 = Some(OpenQuestion {
            prompt: asked,
            at: now,
        });
        Some(prompt)
    }

    /// No question is under way.
    pub fn is_free(&self) -> bool {
        self.0.is_none()
    }

    /// True, once, when `prompt` is the question under way.
    pub fn settle(&mut self, prompt: &Prompt) -> bool {
        self.0.take_if(|asked| *asked.prompt == *prompt).is_some()
    }

    /// True, once, when the question under way had no answer for `patience`.
    pub fn give_up(&mut self, now: Mono, patience: Duration) -> bool {
        let lost = |asked: &mut OpenQuestion| now.since(asked.at) > patience;
        self.0.take_if(lost).is_some()
    }

    /// The answer to the question under way is not about the objects of now.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn pause_doubles_after_each_no_up_to_five_minutes() {
        let mut pending = PendingVerification::new(at(0));
        let mut now = 0;
        let mut pauses = Vec::new();
        for refuted in [true, false, true, true, false, true, true, true, true] {
            assert!(pending.is_due(at(now)) && !pending.is_asked());
            pending.mark_asked();
            // A track is not due while its question is under way.
            assert!(pending.is_asked() && !pending.is_due(at(now + 1000)));
            pending.postpone(refuted, at(now));
            let pause = (0..).find(|&s| pending.is_due(at(now + s))).unwrap();
            pauses.push(pause);
            now += pause;
        }
        assert_eq!(pauses, [10, 10, 20, 40, 10, 80, 160, 300, 300]);
    }

    #[test]
    fn answer_other_than_yes_or_no_is_no_result() {
        let result_of = |text: &str| {
            let text = text.into();
            VerificationResult::of(&AnswerBody::Text {
                text,
                score: 0.75,
                source: ScoreSource::Calibrated,
            })
        };
        let yes = VerificationResult::Yes {
            score: 0.75,
            source: ScoreSource::VerifyCalibrated,
        };
        assert_eq!(result_of("Yes"), yes);
        assert_eq!(result_of("no."), VerificationResult::No);
        for neither in ["", "Yesterday", "I do not know", "yes and no"] {
            assert_eq!(
                result_of(neither),
                VerificationResult::NoAnswer,
                "{neither}"
            );
        }
        let of_boxes = VerificationResult::of(&AnswerBody::Boxes(Vec::new()));
        assert_eq!(of_boxes, VerificationResult::NoAnswer);
    }

    #[test]
    fn question_is_settled_once_and_by_its_own_answer() {
        let mut question = VerificationQuestion::default();
        let first = question
            .ask("Is it?", PromptView::default(), 1, at(0))
            .unwrap();
        assert!(!question.give_up(at(30), Duration::from_secs(30)));
        assert!(question.give_up(at(31), Duration::from_secs(30)));
        let second = question
            .ask("Is it?", PromptView::default(), 2, at(40))
            .unwrap();
        assert!(!question.settle(&first), "too late");
        assert!(question.settle(&second) && !question.settle(&second));
        assert!(question.is_free());
    }
}
