//! Descriptions: with `describe`, the model is asked about the object of each event, once the event is open.
//!
//! ```text
//!   event opens ──▶ due ──question──▶ asked ──text──▶ answered, the event is published again
//!                    ▲                  │
//!                    └── the look was late or failed; given up after some attempts
//! ```
//!
//! The question is about the part of the picture around the object, on the camera's next frame. It has a region of its own for each object, so each is
//! an encoding of its own for the model: there are few at a time. With `frames` it is about this part of several frames (a strip).

use std::{sync::Arc, time::Duration};

use spotter_core::{
    AnswerBody, Location, Mono, NormBox, NormPoint, Prompt, PromptId, PromptRegion, PromptView,
    RegionBox, StripShape, Task, TrackId,
};

/// Questions of a prompt that are under way at a time.
const QUESTIONS_MAX: usize = 4;
/// A look that is late or fails may be followed by a better one; a model that is always too busy is left alone.
const ATTEMPTS_MAX: u32 = 3;
/// The object may have moved since it was seen: its box is widened by this share of its size, on each side.
const MARGIN: f64 = 0.5;
/// The same for a strip: the object was elsewhere in its older frames.
const STRIP_MARGIN: f64 = 1.0;
/// Of an object that is a point, half a side of the part of the picture.
const POINT_REACH: f64 = 0.15;

/// How far the description of one event is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DescriptionState {
    /// The question can be asked; this many attempts brought no answer.
    Due(u32),
    /// The question is under way, after this many attempts.
    Asked(u32),
    /// Answered or given up.
    #[default]
    Settled,
}

impl DescriptionState {
    /// Of an event that starts.
    pub fn begin() -> Self {
        Self::Due(0)
    }

    /// True when the question is to be asked now; it is under way then.
    pub fn ask(&mut self) -> bool {
        let Self::Due(attempts) = *self else {
            return false;
        };
        *self = Self::Asked(attempts);
        true
    }

    /// The text, when it answers the question under way.
    pub fn answered<'a>(&mut self, answer: Option<&'a str>) -> Option<&'a str> {
        let Self::Asked(attempts) = *self else {
            return None;
        };
        *self = match answer {
            None if attempts + 1 < ATTEMPTS_MAX => Self::Due(attempts + 1),
            _ => Self::Settled,
        };
        answer
    }
}

/// The answer as a description; `None`: it is no text.
pub fn description_of(answer: &AnswerBody) -> Option<&str> {
    match answer {
        AnswerBody::Text { text, .. } => Some(text.trim()).filter(|text| !text.is_empty()),
        AnswerBody::Boxes(_) | AnswerBody::Points(_) | AnswerBody::Outline(_) => None,
    }
}

/// A prompt's questions that are under way.
#[derive(Clone, Debug, Default)]
pub struct DescriptionQuestions(Vec<OpenDescription>);

#[derive(Clone, Debug)]
struct OpenDescription {
    prompt: Arc<Prompt>,
    track: TrackId,
    at: Mono,
}

/// A question about an object.
pub struct NewDescription<'a> {
    pub question: &'a str,
    /// Of the prompt.
    pub crops_max: Option<u8>,
    /// Of the prompt.
    pub strip: Option<StripShape>,
    pub track: TrackId,
    pub location: Location,
    /// No other question of the camera has it.
    pub number: u64,
}

impl DescriptionQuestions {
    /// Whether one more can be under way.
    pub fn has_room(&self) -> bool {
        self.0.len() < QUESTIONS_MAX
    }

    /// `None` when the number makes no prompt id.
    pub fn ask(&mut self, new: NewDescription<'_>, now: Mono) -> Option<Arc<Prompt>> {
        let margin = match new.strip {
            Some(_) => STRIP_MARGIN,
            None => MARGIN,
        };
        let prompt = Arc::new(Prompt {
            id: PromptId::new(&format!("describe-{}", new.number)).ok()?,
            revision: Prompt::ONCE,
            task: Task::Query {
                question: new.question.to_owned(),
                choices: Vec::new(),
                options: Default::default(),
            },
            view: PromptView {
                region: PromptRegion::Fixed(around(new.location, margin)),
                crops_max: new.crops_max,
                width_max: None,
                strip: new.strip,
            },
            adapter: None,
        });
        self.0.push(OpenDescription {
            prompt: Arc::clone(&prompt),
            track: new.track,
            at: now,
        });
        Some(prompt)
    }

    /// The track that `prompt` asks about, once.
    pub fn settle(&mut self, prompt: &Prompt) -> Option<TrackId> {
        let place = self.0.iter().position(|asked| *asked.prompt == *prompt)?;
        Some(self.0.swap_remove(place).track)
    }

    /// The tracks whose questions had no answer for `patience`, once.
    pub fn give_up(&mut self, now: Mono, patience: Duration) -> Vec<TrackId> {
        let is_lost = |asked: &mut OpenDescription| now.since(asked.at) > patience;
        self.0
            .extract_if(.., is_lost)
            .map(|lost| lost.track)
            .collect()
    }

    /// Answers to the questions under way are not wanted any more.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

/// The part of the picture around an object, with this margin around a box.
fn around(location: Location, margin: f64) -> RegionBox {
    let (x0, y0, x1, y1) = match location {
        Location::Box(NormBox { x0, y0, x1, y1 }) => {
            let (dx, dy) = (margin * (x1 - x0), margin * (y1 - y0));
            (x0 - dx, y0 - dy, x1 + dx, y1 + dy)
        }
        Location::Point(NormPoint { x, y }) => (
            x - POINT_REACH,
            y - POINT_REACH,
            x + POINT_REACH,
            y + POINT_REACH,
        ),
    };
    let [x0, y0, x1, y1] = [x0, y0, x1, y1].map(|share| share.clamp(0.0, 1.0));
    RegionBox::new(NormBox::from_corners(x0, y0, x1, y1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unanswered_question_is_asked_again_a_few_times() {
        let mut state = DescriptionState::begin();
        let mut asked = 0;
        while state.ask() {
            asked += 1;
            assert!(!state.ask(), "under way");
            assert_eq!(state.answered(None), None);
        }
        assert_eq!(asked, ATTEMPTS_MAX);
        let mut state = DescriptionState::begin();
        assert_eq!(state.answered(Some("early")), None, "not asked");
        assert!(state.ask());
        assert_eq!(state.answered(Some("It waves.")), Some("It waves."));
        assert!(!state.ask());
    }

    #[test]
    fn part_around_an_object_stays_in_the_picture() {
        let area = |location| around(location, MARGIN).norm_box();
        let here = Location::Box(NormBox::from_corners(0.4, 0.2, 0.6, 0.6));
        assert_eq!(area(here), NormBox::from_corners(0.3, 0.0, 0.7, 0.8));
        let corner = Location::Point(NormPoint::new(0.95, 0.0));
        assert_eq!(area(corner), NormBox::from_corners(0.8, 0.0, 1.0, 0.15));
    }
}
