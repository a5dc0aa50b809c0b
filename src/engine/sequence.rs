//! One prompt on its way through the engine: what it feeds next, what was decided, what it has found.
//!
//! Pure: no tensors, no pages, no time. The scheduler asks for the [`Next`] feed, runs it as a row of a step, and hands the
//! decision back with [`Sequence::advance`]. While a decision is in flight, [`Sequence::pick_ahead`] says what follows it:
//! x is followed by y whatever it is, so the next step can be launched before the decision is known. The loops are those of the Moondream 2 reference (moondream-model.md
//! section 8), with the rule of the newer engine that x decides between the coordinate and the end alone.
//!
//! ```text
//!   detect   prompt ─▶ x ──▶ y ──▶ size ─┐      query    prompt ─▶ token ─┐
//!                      ▲ └─▶ end         │                          ▲     ├─▶ end
//!                      └─────────────────┘                          └─────┘
//!   point    prompt ─▶ x ──▶ y ─┐               reasoning runs before the answer and ends at the answer id; then
//!                      ▲ └▶ end │               the suffix is fed again and the answer starts
//!                      └────────┘
//! ```

use std::sync::Arc;

use super::{
    backend::{Input, MaskSource, Pick, Picked, TokenMask},
    constraint::{Choices, Cursor},
    decision::{Choosing, Decision},
};
use crate::model::ModelConfig;

/// The loop that a prompt runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skill {
    /// x, y, size, …
    Detect,
    /// x, y, …
    Point,
    /// Tokens of an answer, after thinking when `reasoning`.
    Text {
        /// Think first. The prompt must end with the thinking id.
        reasoning: bool,
    },
}

/// The ids that steer a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenIds {
    /// Ends an answer.
    pub eos: u32,
    /// Ends the thinking; suppressed inside of an answer.
    pub answer: u32,
    /// A coordinate follows.
    pub coord: u32,
    /// A size follows.
    pub size: u32,
    /// Begins a grounded stretch of thinking.
    pub start_ground: u32,
    /// Ends it.
    pub end_ground: u32,
    /// Fed between thinking and answer.
    pub answer_suffix: Vec<u32>,
}

impl TokenIds {
    /// The ids of a model.
    pub fn of(config: &ModelConfig) -> Self {
        let ids = &config.tokenizer;
        Self {
            eos: ids.eos_id,
            answer: ids.answer_id,
            coord: ids.coord_id,
            size: ids.size_id,
            start_ground: ids.start_ground_points_id,
            end_ground: ids.end_ground_id,
            answer_suffix: ids.templates.query.suffix.clone(),
        }
    }
}

/// Where a sequence stops although the model goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Objects of a detect or point prompt.
    pub max_objects: usize,
    /// Tokens of an answer, and of the thinking before it.
    pub max_tokens: usize,
}

/// What a sequence wants from its next step.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    /// New positions, at least one.
    pub inputs: Vec<Input>,
    /// The decision after the last of them.
    pub pick: Pick,
}

/// A found object as the model's bins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Object {
    /// 0..1024; `model::coord_from_bin` gives the share of the width.
    pub x_bin: u16,
    /// The same for the height.
    pub y_bin: u16,
    /// Width and height bins of a box; `model::size_from_bin` gives the shares. `None` for a point.
    pub size_bins: Option<(u16, u16)>,
    /// Probability of going on instead of ending, when this object was begun.
    pub probability: f32,
}

/// A stretch of the model's thinking with the points it looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thought {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Coordinate bins in the order they came; two make a point (x, y).
    pub coord_bins: Vec<u16>,
}

/// What was found so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Of detect and point.
    pub objects: Vec<Object>,
    /// Token ids of the answer.
    pub tokens: Vec<u32>,
    /// Sum of the natural logarithms of the answer tokens' probabilities, the end included.
    pub log_probability: f64,
    /// Thinking before the answer; empty unless reasoning was asked for. A new stretch begins at each grounding mark.
    pub thoughts: Vec<Thought>,
    /// A bound ended it, not the model.
    pub truncated: bool,
}

/// What the sequence waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    X,
    Y {
        x_bin: u16,
        probability: f32,
    },
    Size {
        x_bin: u16,
        y_bin: u16,
        probability: f32,
    },
    Thinking {
        first: bool,
        count: usize,
    },
    Answering {
        first: bool,
    },
    Ended,
}

/// A decision that the state cannot take: the backend broke its contract.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("the backend answered {got:?} to a sequence in state {state}")]
pub struct Unexpected {
    got: Picked,
    state: String,
}

/// One prompt on its way.
#[derive(Clone, Debug)]
pub struct Sequence {
    skill: Skill,
    bounds: Bounds,
    ids: TokenIds,
    choosing: Choosing,
    choices: Option<Arc<Choices>>,
    cursor: Cursor,
    state: State,
    next: Vec<Input>,
    decisions: Vec<Decision>,
    found: Found,
}

impl Sequence {
    /// A sequence whose first step feeds `prompt` (all positions after the image prefix; not empty).
    pub fn new(skill: Skill, prompt: Vec<Input>, ids: TokenIds, bounds: Bounds) -> Self {
        let state = match skill {
            Skill::Detect | Skill::Point => State::X,
            Skill::Text { reasoning: true } => State::Thinking {
                first: true,
                count: 0,
            },
            Skill::Text { reasoning: false } => State::Answering { first: true },
        };
        let found = match state {
            State::Thinking { .. } => Found {
                thoughts: vec![Thought::default()],
                ..Found::default()
            },
            _ => Found::default(),
        };
        Self {
            skill,
            bounds,
            ids,
            choosing: Choosing::Greedy,
            choices: None,
            cursor: Cursor::default(),
            state,
            next: prompt,
            decisions: Vec::new(),
            found,
        }
    }

    /// Chooses tokens in another way than greedily.
    #[must_use]
    pub fn choosing(mut self, choosing: Choosing) -> Self {
        self.choosing = choosing;
        self
    }

    /// The answer must be one of these. Its masks are made on the host.
    #[must_use]
    pub fn choices(mut self, choices: Arc<Choices>) -> Self {
        self.choices = Some(choices);
        self
    }

    /// The next step of this sequence; `None` once it has ended.
    pub fn feed(&self) -> Option<Next> {
        let pick = match self.state {
            State::X => Pick::CoordOrEnd,
            State::Y { .. } => Pick::Coord,
            State::Size { .. } => Pick::Size,
            // The reference suppresses ids from the second token on.
            State::Thinking { first: true, .. } => self.banning(vec![], 0),
            State::Thinking { .. } => self.banning(vec![self.ids.eos, self.ids.size], 0),
            State::Answering { first } => self.answer_pick(first, 0),
            State::Ended => return None,
        };
        Some(Next {
            inputs: self.next.clone(),
            pick,
        })
    }

    /// The decision that follows `ahead` decisions which are not known yet, if none of them is the end; `None` when one of
    /// them certainly is, or when what follows depends on them.
    ///
    /// ```text
    ///   known      in flight          ahead = 2
    ///   x y size   x?     y?      ─▶  size
    /// ```
    pub fn pick_ahead(&self, ahead: usize) -> Option<Pick> {
        if ahead == 0 {
            return self.feed().map(|next| next.pick);
        }
        let cycle: &[Pick] = match self.skill {
            Skill::Point => &[Pick::CoordOrEnd, Pick::Coord],
            Skill::Detect | Skill::Text { .. } => &[Pick::CoordOrEnd, Pick::Coord, Pick::Size],
        };
        let phase = match self.state {
            State::X => 0,
            State::Y { .. } => 1,
            State::Size { .. } => 2,
            State::Answering { .. } => {
                let may_go_on = self.found.tokens.len() + ahead <= self.bounds.max_tokens;
                return may_go_on.then(|| self.answer_pick(false, ahead));
            }
            State::Thinking { .. } | State::Ended => return None,
        };
        let then = phase + ahead;
        let objects = self.found.objects.len() + then / cycle.len();
        (objects < self.bounds.max_objects).then(|| cycle[then % cycle.len()].clone())
    }

    /// True when its decisions can be verified together with the prompt.
    pub fn takes_draft(&self) -> bool {
        self.choices.is_none() && !matches!(self.state, State::Thinking { .. })
    }

    /// True when the next decision needs a mask from the host.
    pub fn wants_mask(&self) -> bool {
        self.choices.is_some() && matches!(self.state, State::Answering { .. })
    }

    /// The tokens that may come next of a row with [`MaskSource::Host`]; all of them where nothing is forbidden.
    pub fn mask(&self, vocab: usize) -> TokenMask {
        match &self.choices {
            Some(choices) => choices.mask(self.cursor, self.ids.eos, vocab),
            None => TokenMask(vec![u32::MAX; vocab.div_ceil(32)]),
        }
    }

    fn answer_pick(&self, first: bool, ahead: usize) -> Pick {
        match (&self.choices, first) {
            (Some(_), _) => self.token(MaskSource::Host, ahead),
            (None, true) => self.banning(vec![], ahead),
            (None, false) => self.banning(vec![self.ids.answer], ahead),
        }
    }

    fn banning(&self, banned: Vec<u32>, ahead: usize) -> Pick {
        self.token(MaskSource::Banned(banned), ahead)
    }

    fn token(&self, mask: MaskSource, ahead: usize) -> Pick {
        Pick::Token {
            mask,
            sampling: self.choosing.sampling(self.found.tokens.len() + ahead),
        }
    }

    /// All decisions but the end, in order.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// True when nothing follows.
    pub fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// How many objects are complete: new ones may be shown before the sequence ends.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// The result, once [`Self::feed`] gives `None`.
    pub fn into_found(self) -> Found {
        self.found
    }

    /// Takes the next decision.
    pub fn advance(&mut self, picked: Picked) -> Result<(), Unexpected> {
        self.decisions.extend(Decision::of(picked));
        self.state = match (self.state, picked) {
            (State::X, Picked::End { .. }) => State::Ended,
            (
                State::X,
                Picked::Coord {
                    bin, probability, ..
                },
            ) => {
                self.next = vec![Decision::Coord(bin).input()];
                State::Y {
                    x_bin: bin,
                    probability,
                }
            }
            (State::Y { x_bin, probability }, Picked::Coord { bin, .. }) => {
                self.next = vec![Decision::Coord(bin).input()];
                match self.skill {
                    Skill::Point => self.object(Object {
                        x_bin,
                        y_bin: bin,
                        size_bins: None,
                        probability,
                    }),
                    _ => State::Size {
                        x_bin,
                        y_bin: bin,
                        probability,
                    },
                }
            }
            (
                State::Size {
                    x_bin,
                    y_bin,
                    probability,
                },
                Picked::Size {
                    width_bin,
                    height_bin,
                    ..
                },
            ) => {
                self.next = vec![Decision::Size(width_bin, height_bin).input()];
                self.object(Object {
                    x_bin,
                    y_bin,
                    size_bins: Some((width_bin, height_bin)),
                    probability,
                })
            }
            (State::Thinking { count, .. }, Picked::Token { id, coord_bin, .. }) => {
                self.think(id, coord_bin, count)
            }
            (
                State::Answering { .. },
                Picked::Token {
                    id, probability, ..
                },
            ) => self.answer(id, probability),
            (state, got) => {
                return Err(Unexpected {
                    got,
                    state: format!("{state:?}"),
                });
            }
        };
        Ok(())
    }

    fn object(&mut self, object: Object) -> State {
        self.found.objects.push(object);
        if self.found.objects.len() < self.bounds.max_objects {
            return State::X;
        }
        self.found.truncated = true;
        State::Ended
    }

    /// One token of thinking. A coordinate id stands for the bin decoded from the same hidden state.
    fn think(&mut self, id: u32, coord_bin: u16, count: usize) -> State {
        if id == self.ids.answer || count == self.bounds.max_tokens {
            self.next = self
                .ids
                .answer_suffix
                .iter()
                .map(|&id| Input::Token(id))
                .collect();
            return State::Answering { first: true };
        }
        let mark = id == self.ids.start_ground || id == self.ids.end_ground;
        if mark {
            self.found.thoughts.push(Thought::default());
        }
        if let Some(thought) = self.found.thoughts.last_mut() {
            match id == self.ids.coord {
                true => thought.coord_bins.push(coord_bin),
                false if !mark => thought.tokens.push(id),
                false => {}
            }
        }
        self.next = match id == self.ids.coord {
            true => vec![Decision::Coord(coord_bin).input()],
            false => vec![Input::Token(id)],
        };
        State::Thinking {
            first: false,
            count: count + 1,
        }
    }

    fn answer(&mut self, id: u32, probability: f32) -> State {
        self.found.log_probability += f64::from(probability).max(f64::MIN_POSITIVE).ln();
        if id == self.ids.eos {
            // The end is never fed, so it is no part of a draft.
            self.decisions.pop();
            return State::Ended;
        }
        if self.found.tokens.len() == self.bounds.max_tokens {
            self.found.truncated = true;
            return State::Ended;
        }
        if let Some(choices) = &self.choices {
            self.cursor = choices.after(self.cursor, id);
        }
        self.found.tokens.push(id);
        self.next = vec![Input::Token(id)];
        State::Answering { first: false }
    }
}
