//! One prompt of a look on its way through steps: a sequence with its place in the cache.
//!
//! ```text
//!              launch: inflight_refs + 1    commit: inflight_refs - 1
//!   Running ───────────────────────▶ ◀─────────────────────      0..=depth steps carry the row
//!      │ ended, cancelled, failed: Finalized     │ out of pages: Evicted
//!      ▼                                         ▼
//!   no further launches; at 0 the pages go back, and an evicted job returns to the queue
//! ```
//!
//! A step that was launched before its row was finalized carries a *zombie*: it computes, and its result is ignored. That
//! is all there is to cancelling, to deadlines and to clients that disconnect: they finalize.

use std::sync::Arc;

use super::{
    backend::{DecoderInput, Feed, KvTable, LoadedAdapter, Pick, RowRef},
    decision::Decision,
    draft::DraftKey,
    request::{Ask, LookId},
    sequence::Sequence,
};
use crate::model::OutputLength;
use spotter_core::{StageTimes, TokenCounts};

/// What happens with a job's next result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobState {
    Running,
    /// Its pages are needed by an older one; it starts again when there is room.
    Evicted,
    /// Its answer is out, or the look was cancelled.
    Finalized,
}

/// The look and the prompt in it; smaller is older.
pub(super) type JobId = (LookId, usize);

#[derive(Debug)]
pub(super) struct Job {
    pub id: JobId,
    pub state: JobState,
    pub sequence: Sequence,
    /// Its answer is a free text: it takes many steps, and nothing waits for it.
    pub is_text: bool,
    pub draft_key: Option<DraftKey>,
    pub in_pieces: bool,
    pub has_follow_up: bool,
    pub adapter: Option<Arc<LoadedAdapter>>,
    pub kv: KvTable,
    pub marks: StageTimes,
    /// What was counted already, and reported if it is in pieces.
    pub reported: OutputLength,
    /// Steps that carry the row and are not committed, 0..=depth.
    pub inflight_refs: usize,
    /// The sequence before its first step.
    fresh: Sequence,
    /// Decisions to verify in the next step, and behind them the end, or what replaces them. Without a draft nothing is
    /// expected, and rows run ahead.
    draft: Option<Vec<Decision>>,
    /// A draft is in flight: where the next input goes is not known.
    is_verifying: bool,
    /// The decisions behind a wrong draft become the next draft.
    may_redraft: bool,
    /// Where the next input goes; everything before it is written, or will be by steps in flight.
    position: usize,
    last: Option<RowRef>,
}

/// What a job puts into a step.
pub(super) struct RowRequest {
    pub feed: Feed,
    pub picks: Vec<Pick>,
    pub position: usize,
    /// Drafted decisions, the last of the inputs; `None` when nothing is expected.
    pub draft: Option<Vec<Decision>>,
}

impl RowRequest {
    /// Decisions among the inputs that may turn out otherwise.
    pub fn drafted(&self) -> usize {
        self.draft.as_ref().map_or(0, Vec::len)
    }
}

impl Job {
    pub fn new(id: JobId, ask: Ask, adapter: Option<Arc<LoadedAdapter>>) -> Self {
        Self {
            id,
            state: JobState::Running,
            fresh: ask.sequence.clone(),
            is_text: ask.sequence.is_free_text(),
            sequence: ask.sequence,
            draft_key: ask.draft,
            in_pieces: ask.in_pieces,
            has_follow_up: ask.has_follow_up,
            adapter,
            kv: KvTable::default(),
            marks: StageTimes::default(),
            reported: OutputLength::default(),
            inflight_refs: 0,
            draft: None,
            is_verifying: false,
            may_redraft: true,
            position: 0,
            last: None,
        }
    }

    /// Among the waiting prompts of a look, smaller is served first: texts come last.
    pub fn order(&self) -> impl Ord + use<> {
        (self.is_text, self.id)
    }

    pub fn is_running(&self) -> bool {
        self.state == JobState::Running
    }

    /// No step carries it and none will.
    pub fn is_finished(&self) -> bool {
        self.state != JobState::Running && self.inflight_refs == 0
    }

    /// What it feeds next without a draft; before its first step the whole prompt.
    pub fn prompt(&self) -> Vec<DecoderInput> {
        self.sequence.feed().map_or(Vec::new(), |next| next.inputs)
    }

    /// The prompt that it fed in its first step.
    pub fn first_inputs(&self) -> Vec<DecoderInput> {
        self.fresh.feed().map_or(Vec::new(), |next| next.inputs)
    }

    /// What its answer took so far.
    pub fn token_counts(&self) -> TokenCounts {
        let count = |positions: usize| u32::try_from(positions).unwrap_or(u32::MAX);
        // The end is decided too, unless a limit was reached before.
        let end = usize::from(!self.sequence.found().truncated);
        TokenCounts {
            prompt: count(self.kv.prefix_positions + self.first_inputs().len()),
            answer: count(self.sequence.decisions().len() + end),
        }
    }

    /// Its draft, unless it has one: an evicted job returns with its own decisions.
    pub fn offer_draft(&mut self, draft: &[Decision]) {
        if self.draft.is_none() && self.sequence.takes_draft() {
            self.draft = Some(draft.to_vec());
        }
    }

    /// At most `length` decisions are verified next.
    pub fn shorten_draft(&mut self, length: usize) {
        self.draft
            .iter_mut()
            .for_each(|draft| draft.truncate(length));
    }

    /// The same of a draft of tokens.
    pub fn shorten_drafted_tokens(&mut self, length: usize) {
        let has_tokens = || self.sequence.pick_ahead(0).is_some_and(|p| p.is_token());
        if self.draft.is_some() && has_tokens() {
            self.shorten_draft(length);
        }
    }

    /// Starts without a draft; true when it had one that takes room.
    pub fn withdraw_draft(&mut self) -> bool {
        self.draft_key = None;
        self.draft.take().is_some_and(|draft| !draft.is_empty())
    }

    fn drafted(&self) -> &[Decision] {
        self.draft.as_deref().unwrap_or_default()
    }

    /// The position after what it feeds next, if a draft follows that.
    pub fn end_without_draft(&self) -> Option<usize> {
        (!self.drafted().is_empty()).then(|| self.position + self.prompt().len())
    }

    /// Positions of the prefill, the draft included.
    pub fn prefill_positions(&self) -> usize {
        self.prompt().len() + self.drafted().len()
    }

    /// The prefill, when the first `known` inputs of the prompt are in the cache.
    pub fn prefill(&mut self, known: usize) -> RowRequest {
        self.position = self.kv.prefix_positions + known;
        self.fed_by_host(known)
    }

    /// True when [`Self::decode`] has a row.
    pub fn can_decode(&self, carry: bool) -> bool {
        let may_run = self.is_running() && !self.is_verifying;
        let runs_ahead = || carry && self.sequence.pick_ahead(self.inflight_refs).is_some();
        may_run && (self.inflight_refs == 0 || runs_ahead())
    }

    /// The next decode row. With `carry` the row may follow decisions that are still in flight.
    pub fn decode(&self, carry: bool) -> Option<RowRequest> {
        if self.state != JobState::Running || self.is_verifying {
            return None;
        }
        match (self.inflight_refs, self.last) {
            (0, _) => Some(self.fed_by_host(0)),
            (refs, Some(last)) if carry => Some(RowRequest {
                feed: Feed::Carry(last),
                picks: vec![self.sequence.pick_ahead(refs)?],
                position: self.position,
                draft: None,
            }),
            _ => None,
        }
    }

    /// What the sequence feeds next, without the first `known` of it, and the draft behind it.
    fn fed_by_host(&self, known: usize) -> RowRequest {
        let mut inputs = self.prompt().split_off(known);
        let picks = (0..=self.drafted().len()).map_while(|ahead| self.sequence.pick_ahead(ahead));
        let picks: Vec<Pick> = picks.collect();
        let drafted = &self.drafted()[..picks.len().saturating_sub(1)];
        inputs.extend(drafted.iter().map(|decision| decision.input()));
        let draft = self.draft.is_some().then(|| drafted.to_vec());
        RowRequest {
            feed: Feed::Host(inputs),
            picks,
            position: self.position,
            draft,
        }
    }

    /// The request goes into a step.
    pub fn launched(&mut self, request: &RowRequest, at: RowRef) {
        self.position = request.position + request.feed.positions();
        self.is_verifying = request.draft.is_some();
        self.draft = None;
        self.last = Some(at);
        self.inflight_refs += 1;
    }

    /// A step that carried it is committed.
    pub fn committed(&mut self) {
        self.inflight_refs -= 1;
    }

    /// Of `drafted` decisions `accepted` were made, and the one after them, which takes the place of the first wrong one.
    /// What was decided behind that was fed a wrong element, often by a bin: it is the best guess there is, and the next
    /// draft, until a pass accepts nothing.
    pub fn verified(&mut self, drafted: usize, accepted: usize, guess: Vec<Decision>) {
        self.position -= drafted - accepted;
        self.is_verifying = false;
        if (accepted > 0 || self.may_redraft) && !guess.is_empty() {
            self.draft = Some(guess);
        }
        self.may_redraft = accepted > 0;
    }

    /// Starts again, with the decisions so far as its draft. They were made by the model, so verifying them gives them
    /// again.
    pub fn restarted(mut self) -> Self {
        let draft = self.sequence.decisions().to_vec();
        self.sequence = self.fresh.clone();
        if self.sequence.takes_draft() {
            self.draft = Some(draft);
        }
        self.state = JobState::Running;
        self.kv = KvTable::default();
        (self.is_verifying, self.may_redraft, self.last) = (false, true, None);
        self
    }
}
