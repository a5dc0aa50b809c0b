//! The second look. With `verify`, a thing that is there has no event before the model has said yes to a question, which
//! is asked of the whole picture and so for all things of the prompt that wait for it.
//!
//! ```text
//!   confirmed ──▶ due ──question──▶ asked ──yes──▶ event
//!                  ▲                  │
//!                  └───── pause ◀── no, or nobody answered
//! ```
//!
//! The pause after a no doubles as long as the thing stays: a statue that is taken for a person must not cost a question
//! at every look, and a person whom the first look showed half is not missed for long. There is never an event unasked.

use std::{sync::Arc, time::Duration};

use spotter_core::{AnswerBody, Mono, Prompt, PromptId, Task, yes_or_no};

/// After the first no a thing is asked about again when so long has passed; it doubles with each.
const PAUSE_MIN: Duration = Duration::from_secs(10);
/// And grows no longer than this. A question without an answer (a look that came too late, a camera that went away) tells
/// nothing of the thing and takes the shortest.
const PAUSE_MAX: Duration = Duration::from_secs(5 * 60);
/// What may be answered, as models write it.
const CHOICES: [&str; 2] = ["Yes", "No"];

/// What came of a question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// So sure, 0..1.
    Yes(f64),
    /// It is not what it was taken for.
    No,
    /// Nobody answered.
    Silence,
}

impl Verdict {
    /// What an answer says.
    pub fn of(answer: &AnswerBody) -> Self {
        let AnswerBody::Text { text, score } = answer else {
            return Self::Silence;
        };
        match yes_or_no(text) {
            Some(true) => Self::Yes(*score),
            Some(false) => Self::No,
            None => Self::Silence,
        }
    }
}

/// Of a thing that is there and has no event yet.
#[derive(Clone, Copy, Debug)]
pub struct Doubt {
    state: State,
    /// After the next no.
    pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The next question from then on is about it too.
    Due(Mono),
    /// A question is under way.
    Asked,
}

impl Doubt {
    /// Confirmed just now.
    pub fn new(now: Mono) -> Self {
        Self {
            state: State::Due(now),
            pause: PAUSE_MIN,
        }
    }

    /// It is to be asked about.
    pub fn is_due(&self, now: Mono) -> bool {
        matches!(self.state, State::Due(from) if from <= now)
    }

    /// The question under way is about it.
    pub fn is_asked(&self) -> bool {
        self.state == State::Asked
    }

    /// A question is under way.
    pub fn ask(&mut self) {
        self.state = State::Asked;
    }

    /// The question under way brought no yes, which it says when `refuted`.
    pub fn stays(&mut self, refuted: bool, now: Mono) {
        let pause = if refuted { self.pause } else { PAUSE_MIN };
        self.state = State::Due(now.after(pause));
        if refuted {
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }
}

/// A prompt's question under way; there is one at a time.
#[derive(Clone, Debug, Default)]
pub struct Inquiry(Option<Asked>);

#[derive(Clone, Debug)]
struct Asked {
    prompt: Arc<Prompt>,
    at: Mono,
}

impl Inquiry {
    /// A new question, known by a `number` that no other of the camera has. `None` when it cannot be named.
    pub fn ask(&mut self, question: &str, number: u64, now: Mono) -> Option<Arc<Prompt>> {
        let prompt = Arc::new(Prompt {
            id: PromptId::new(&format!("verify-{number}")).ok()?,
            revision: Prompt::ONCE,
            task: Task::Query {
                question: question.to_owned(),
                choices: CHOICES.map(str::to_owned).to_vec(),
            },
        });
        let asked = Arc::clone(&prompt);
        self.0 = Some(Asked {
            prompt: asked,
            at: now,
        });
        Some(prompt)
    }

    /// Nothing is under way.
    pub fn is_free(&self) -> bool {
        self.0.is_none()
    }

    /// True, once, when that is the question under way: it is settled.
    pub fn settle(&mut self, prompt: &Prompt) -> bool {
        self.0.take_if(|asked| *asked.prompt == *prompt).is_some()
    }

    /// True, once, when nothing has come to the question under way for `patience`: it is lost.
    pub fn give_up(&mut self, now: Mono, patience: Duration) -> bool {
        let lost = |asked: &mut Asked| now.since(asked.at) > patience;
        self.0.take_if(lost).is_some()
    }

    /// Whatever comes to the question under way is about something else than what is there now.
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
    fn the_pause_doubles_with_each_no_up_to_five_minutes_and_not_with_silence() {
        let mut doubt = Doubt::new(at(0));
        let mut now = 0;
        let mut pauses = Vec::new();
        for refuted in [true, false, true, true, false, true, true, true, true] {
            assert!(doubt.is_due(at(now)) && !doubt.is_asked());
            doubt.ask();
            assert!(
                doubt.is_asked() && !doubt.is_due(at(now + 1000)),
                "one at a time"
            );
            doubt.stays(refuted, at(now));
            let pause = (0..).find(|&s| doubt.is_due(at(now + s))).unwrap();
            pauses.push(pause);
            now += pause;
        }
        assert_eq!(pauses, [10, 10, 20, 40, 10, 80, 160, 300, 300]);
    }

    #[test]
    fn only_a_plain_yes_or_no_is_a_verdict() {
        let says = |text: &str| {
            let text = text.into();
            Verdict::of(&AnswerBody::Text { text, score: 0.75 })
        };
        assert_eq!(says("Yes"), Verdict::Yes(0.75));
        assert_eq!(says("no."), Verdict::No);
        for neither in ["", "Yesterday", "I do not know", "yes and no"] {
            assert_eq!(says(neither), Verdict::Silence, "{neither}");
        }
        assert_eq!(
            Verdict::of(&AnswerBody::Boxes(Vec::new())),
            Verdict::Silence
        );
    }

    #[test]
    fn a_question_is_settled_once_and_by_itself() {
        let mut inquiry = Inquiry::default();
        let first = inquiry.ask("Is it?", 1, at(0)).unwrap();
        assert!(!inquiry.give_up(at(30), Duration::from_secs(30)));
        assert!(inquiry.give_up(at(31), Duration::from_secs(30)));
        let second = inquiry.ask("Is it?", 2, at(40)).unwrap();
        assert!(!inquiry.settle(&first), "too late");
        assert!(inquiry.settle(&second) && !inquiry.settle(&second));
        assert!(inquiry.is_free());
    }
}
