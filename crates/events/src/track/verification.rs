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

use std::time::Duration;

use crate::record::RecordedVerification;
use spotter_core::{AnswerBody, Mono, ScoreSource, yes_or_no};

/// Pause after the first no; it doubles with each.
const PAUSE_MIN: Duration = Duration::from_secs(10);
/// The longest pause. After a question without an answer (a late look, a lost camera) the pause is the shortest.
const PAUSE_MAX: Duration = Duration::from_secs(5 * 60);
/// The possible answers, as models write them.
pub const VERIFICATION_CHOICES: [&str; 2] = ["Yes", "No"];

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

    /// As a record has it; `at`: when the frame was received that the question was asked of.
    pub fn recorded(self, at: Mono) -> RecordedVerification {
        let (is_yes, score, source) = match self {
            Self::Yes { score, source } => (Some(true), score, source),
            Self::No => (Some(false), 0.0, ScoreSource::Verify),
            Self::NoAnswer => (None, 0.0, ScoreSource::Verify),
        };
        RecordedVerification {
            at,
            is_yes,
            score,
            source,
        }
    }
}

/// A confirmed track without an event: when it is asked about.
#[derive(Clone, Copy, Debug)]
pub struct PendingVerification {
    /// The next question from this moment on is about the track.
    due: Mono,
    /// The pause after the next no.
    pause: Duration,
}

impl PendingVerification {
    /// A track that was confirmed at `now`.
    pub fn new(now: Mono) -> Self {
        Self {
            due: now,
            pause: PAUSE_MIN,
        }
    }

    pub fn is_due(&self, now: Mono) -> bool {
        self.due <= now
    }

    /// A question about the track brought no yes; `refuted`: the answer was no.
    pub fn postpone(&mut self, refuted: bool, now: Mono) {
        let pause = if refuted { self.pause } else { PAUSE_MIN };
        self.due = now.after(pause);
        if refuted {
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let (score, source) = (0.75, ScoreSource::VerifyCalibrated);
        let yes = VerificationResult::Yes { score, source };
        assert_eq!(result_of("Yes"), yes);
        assert_eq!(result_of("no."), VerificationResult::No);
        for text in ["", "Yesterday", "I do not know", "yes and no"] {
            assert_eq!(result_of(text), VerificationResult::NoAnswer, "{text}");
        }
        let of_boxes = VerificationResult::of(&AnswerBody::Boxes(Vec::new()));
        assert_eq!(of_boxes, VerificationResult::NoAnswer);
    }
}
