//! One prompt on its way through the engine: what it feeds next, what was decided, what it has found.
//!
//! Pure: no tensors, no pages, no time. The scheduler asks for the [`NextInput`] feed, runs it as a row of a step, and hands the
//! decision back with [`Sequence::advance`]. While a decision is in flight, [`Sequence::pick_ahead`] says what follows it:
//! x is followed by y, so the next step can be launched before the decision is known. Which token ends an answer, and which may
//! not be chosen, is in the [`AnswerGrammar`] that the model family made (docs/moondream.md section 8).
//!
//! ```text
//!   detect   prompt ─▶ x ──▶ y ──▶ size ─┐      query    prompt ─▶ token ─┐
//!                      ▲ └─▶ end         │                          ▲     ├─▶ end
//!                      └─────────────────┘                          └─────┘
//!   point    prompt ─▶ x ──▶ y ─┐               thoughts prompt ─▶ token ─┐
//!                      ▲ └▶ end │                          ▲     ├─▶ a query's answer
//!                      └────────┘                          └─────┘
//! ```
//!
//! A token of a text may stand for a value, which is fed in its place ([`ValueTokens`](crate::model::ValueTokens)). What follows a thought
//! depends on it: a thought, or the answer, in which other tokens are banned. So nothing runs ahead of thoughts.

use std::sync::Arc;

use super::{
    backend::{DecoderInput, MaskSource, Pick, PickResult, TokenMask},
    constraint::{Choices, Cursor},
    decision::Decision,
};
use crate::model::{AnswerGrammar, ObjectBins, SequenceOutput, TextGrammar, ValueBins};

/// Where a sequence stops although the model goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Objects of a detect or point prompt.
    pub max_objects: usize,
    /// Tokens of an answer, and of the thoughts before it unless they have a bound of their own: the answer follows thoughts that would
    /// be longer.
    pub max_tokens: usize,
}

/// What a sequence wants from its next step.
#[derive(Clone, Debug, PartialEq)]
pub struct NextInput {
    /// New positions, at least one.
    pub inputs: Vec<DecoderInput>,
    /// The decision after the last of them.
    pub pick: Pick,
}

/// What the sequence waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SequenceState {
    X,
    Y(Begun),
    /// With the y bin.
    Size(Begun, u16),
    Thinking {
        first: bool,
    },
    Answering {
        first: bool,
    },
    Ended,
}

/// An object of which x is known.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Begun {
    x_bin: u16,
    probability: f32,
    sharpness: f32,
}

/// A decision that the state cannot take: the backend broke its contract.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("the backend answered {got:?} to a sequence in state {state}")]
pub struct UnexpectedPick {
    got: PickResult,
    state: String,
}

/// One prompt on its way.
#[derive(Clone, Debug)]
pub struct Sequence {
    grammar: AnswerGrammar,
    bounds: Bounds,
    max_thoughts: usize,
    choices: Option<Arc<Choices>>,
    cursor: Cursor,
    state: SequenceState,
    next: Vec<DecoderInput>,
    decisions: Vec<Decision>,
    found: SequenceOutput,
}

impl Sequence {
    /// A sequence whose first step feeds `prompt` (all positions after the image prefix; not empty).
    pub fn new(grammar: AnswerGrammar, prompt: Vec<DecoderInput>, bounds: Bounds) -> Self {
        let state = match &grammar {
            AnswerGrammar::Objects { .. } => SequenceState::X,
            AnswerGrammar::Text(_) => SequenceState::Answering { first: true },
            AnswerGrammar::Reasoned { .. } => SequenceState::Thinking { first: true },
        };
        Self {
            grammar,
            bounds,
            max_thoughts: bounds.max_tokens,
            choices: None,
            cursor: Cursor::default(),
            state,
            next: prompt,
            decisions: Vec::new(),
            found: SequenceOutput::default(),
        }
    }

    /// The answer must be one of these. Its masks are made on the host.
    #[must_use]
    pub fn choices(mut self, choices: Arc<Choices>) -> Self {
        self.choices = Some(choices);
        self
    }

    /// Its thoughts have at most this many tokens, instead of those of an answer.
    #[must_use]
    pub fn thoughts_within(mut self, max_tokens: usize) -> Self {
        self.max_thoughts = max_tokens;
        self
    }

    /// The next step of this sequence; `None` once it has ended.
    pub fn feed(&self) -> Option<NextInput> {
        Some(NextInput {
            inputs: self.next.clone(),
            pick: self.pick_ahead(0)?,
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
        let phase = match self.state {
            SequenceState::X => 0,
            SequenceState::Y(_) => 1,
            SequenceState::Size(..) => 2,
            SequenceState::Thinking { first } => {
                return (ahead == 0).then(|| self.token(first)).flatten();
            }
            SequenceState::Answering { first } => {
                let may_go_on = self.found.tokens.len() + ahead <= self.bounds.max_tokens;
                let is_first = first && ahead == 0;
                return may_go_on.then(|| self.token(is_first)).flatten();
            }
            SequenceState::Ended => return None,
        };
        let cycle: &[Pick] = match self.grammar {
            AnswerGrammar::Objects { has_size: true } => {
                &[Pick::CoordOrEnd, Pick::Coord, Pick::Size]
            }
            AnswerGrammar::Objects { has_size: false } => &[Pick::CoordOrEnd, Pick::Coord],
            AnswerGrammar::Text(_) | AnswerGrammar::Reasoned { .. } => return None,
        };
        let then = phase + ahead;
        let objects = self.found.objects.len() + then / cycle.len();
        (objects < self.bounds.max_objects).then(|| cycle[then % cycle.len()].clone())
    }

    /// The grammar of the text that is being written.
    fn text(&self) -> Option<&TextGrammar> {
        match &self.grammar {
            AnswerGrammar::Text(text) => Some(text),
            AnswerGrammar::Reasoned {
                thoughts, answer, ..
            } => match self.state {
                SequenceState::Thinking { .. } => Some(thoughts),
                _ => Some(answer),
            },
            AnswerGrammar::Objects { .. } => None,
        }
    }

    /// The next token of the text, the first one of it or another.
    fn token(&self, is_first: bool) -> Option<Pick> {
        let text = self.text()?;
        let mask = match (self.wants_mask(), is_first) {
            (true, _) => MaskSource::Host,
            (false, true) => MaskSource::Banned(Vec::new()),
            (false, false) => MaskSource::Banned(text.banned.clone()),
        };
        let values = text.values;
        Some(Pick::Token { mask, values })
    }

    /// True when its answer is a text of the model's own words, or one with thoughts before it.
    pub fn is_free_text(&self) -> bool {
        match self.grammar {
            AnswerGrammar::Objects { .. } => false,
            AnswerGrammar::Text(_) => self.choices.is_none(),
            AnswerGrammar::Reasoned { .. } => true,
        }
    }

    /// True when its decisions can be verified together with the prompt.
    pub fn takes_draft(&self) -> bool {
        self.choices.is_none() && !matches!(self.grammar, AnswerGrammar::Reasoned { .. })
    }

    /// True when the next decision needs a mask from the host.
    pub fn wants_mask(&self) -> bool {
        self.choices.is_some() && matches!(self.state, SequenceState::Answering { .. })
    }

    /// The tokens that may come next of a row with [`MaskSource::Host`]; all of them where nothing is forbidden.
    pub fn mask(&self, vocab: usize) -> TokenMask {
        match (&self.choices, self.text()) {
            (Some(choices), Some(text)) => choices.mask(self.cursor, text.end, vocab),
            _ => TokenMask(vec![u32::MAX; vocab.div_ceil(32)]),
        }
    }

    /// All decisions but the end, in order.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// True when nothing follows.
    pub fn has_ended(&self) -> bool {
        self.state == SequenceState::Ended
    }

    /// What was found so far; its objects are complete and may be shown before the sequence ends.
    pub fn found(&self) -> &SequenceOutput {
        &self.found
    }

    /// The result, once [`Self::feed`] gives `None`.
    pub fn into_found(self) -> SequenceOutput {
        self.found
    }

    /// Takes the next decision.
    pub fn advance(&mut self, picked: PickResult) -> Result<(), UnexpectedPick> {
        let decision = Decision::of(picked);
        if let Some(decision) = decision {
            self.decisions.push(decision);
            self.next = vec![decision.input()];
        }
        let (probability, sharpness) = (picked.probability(), picked.sharpness());
        self.state = match (self.state, decision) {
            (SequenceState::X, None) if matches!(picked, PickResult::End { .. }) => {
                SequenceState::Ended
            }
            (SequenceState::X, Some(Decision::Coord(x_bin))) => SequenceState::Y(Begun {
                x_bin,
                probability,
                sharpness,
            }),
            (SequenceState::Y(begun), Some(Decision::Coord(y_bin))) => {
                let begun = begun.sharp_to(sharpness);
                match self.grammar {
                    AnswerGrammar::Objects { has_size: true } => SequenceState::Size(begun, y_bin),
                    _ => self.object(begun, y_bin, None),
                }
            }
            (SequenceState::Size(begun, y_bin), Some(Decision::Size(width, height))) => {
                self.object(begun.sharp_to(sharpness), y_bin, Some((width, height)))
            }
            (state, decision) => {
                let written = decision.and_then(|decision| self.write(decision, probability));
                written.ok_or_else(|| UnexpectedPick {
                    got: picked,
                    state: format!("{state:?}"),
                })?
            }
        };
        Ok(())
    }

    fn object(&mut self, begun: Begun, y_bin: u16, size_bins: Option<(u16, u16)>) -> SequenceState {
        self.found.objects.push(ObjectBins {
            x_bin: begun.x_bin,
            y_bin,
            size_bins,
            probability: begun.probability,
            sharpness: begun.sharpness,
        });
        if self.found.objects.len() < self.bounds.max_objects {
            return SequenceState::X;
        }
        self.found.truncated = true;
        SequenceState::Ended
    }

    /// The text goes on with a decision; `None` when it cannot.
    fn write(&mut self, decision: Decision, probability: f32) -> Option<SequenceState> {
        let values = self.text()?.values;
        let id = match decision {
            Decision::Token(id) => id,
            Decision::Coord(_) => values.coord?,
            Decision::Size(..) => values.size?,
        };
        match self.state {
            SequenceState::Thinking { .. } => Some(self.think(id, decision)),
            SequenceState::Answering { .. } => Some(self.answer(id, decision, probability)),
            _ => None,
        }
    }

    fn think(&mut self, id: u32, decision: Decision) -> SequenceState {
        let thoughts = &mut self.found.thoughts;
        let is_full = thoughts.tokens.len() == self.max_thoughts;
        if let AnswerGrammar::Reasoned {
            thoughts: text,
            then,
            ..
        } = &self.grammar
            && (is_full || id == text.end)
        {
            self.next = then.iter().copied().map(DecoderInput::Token).collect();
            return SequenceState::Answering { first: true };
        }
        thoughts.tokens.push(id);
        thoughts.values.extend(bins(decision));
        SequenceState::Thinking { first: false }
    }

    fn answer(&mut self, id: u32, decision: Decision, probability: f32) -> SequenceState {
        self.found.log_probability += f64::from(probability).max(f64::MIN_POSITIVE).ln();
        if self.text().is_some_and(|text| text.end == id) {
            // The end is never fed, so it is no part of a draft.
            self.decisions.pop();
            return SequenceState::Ended;
        }
        if self.found.tokens.len() == self.bounds.max_tokens {
            self.found.truncated = true;
            return SequenceState::Ended;
        }
        if let Some(choices) = &self.choices {
            self.cursor = choices.after(self.cursor, id);
        }
        self.found.tokens.push(id);
        self.found.values.extend(bins(decision));
        SequenceState::Answering { first: false }
    }
}

fn bins(decision: Decision) -> Option<ValueBins> {
    match decision {
        Decision::Coord(bin) => Some(ValueBins::Coord(bin)),
        Decision::Size(width, height) => Some(ValueBins::Size(width, height)),
        Decision::Token(_) => None,
    }
}

impl Begun {
    /// An object is as sharp as its least sharp bin.
    fn sharp_to(self, sharpness: f32) -> Self {
        Self {
            sharpness: self.sharpness.min(sharpness),
            ..self
        }
    }
}
