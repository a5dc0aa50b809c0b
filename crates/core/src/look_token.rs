//! Counts how a look ends, exactly once.

use std::{fmt, sync::Arc};

use super::{FrameEnd, Prompt, SkippedSinceLast};

/// Who counts what becomes of looks.
pub trait LookCounter: Send + Sync {
    /// A prompt of a look has its answer. Returns the frames that were lost for the prompt since its answer before.
    fn answered(&self, prompt: &Arc<Prompt>) -> SkippedSinceLast;

    /// A look is over; `unanswered` are its prompts without an answer.
    fn ended(&self, end: FrameEnd, unanswered: &[Arc<Prompt>]);
}

/// Belongs to one look. The look's end is counted by [`LookToken::end`], or as failed when the token is dropped before: with its engine,
/// in a queue, at a shutdown. A copy counts nothing, and so does the token of a look that is not a camera's.
#[derive(Default)]
pub struct LookToken(Option<CountedLook>);

struct CountedLook {
    counter: Arc<dyn LookCounter>,
    unanswered: Vec<Arc<Prompt>>,
}

impl LookToken {
    pub fn new(counter: Arc<dyn LookCounter>, prompts: &[Arc<Prompt>]) -> Self {
        Self(Some(CountedLook {
            counter,
            unanswered: prompts.to_vec(),
        }))
    }

    /// As [`LookCounter::answered`].
    pub fn answered(&mut self, prompt: &Arc<Prompt>) -> SkippedSinceLast {
        let Some(look) = &mut self.0 else {
            return SkippedSinceLast::default();
        };
        look.unanswered.retain(|other| !Arc::ptr_eq(other, prompt));
        look.counter.answered(prompt)
    }

    pub fn end(&mut self, end: FrameEnd) {
        if let Some(look) = self.0.take() {
            look.counter.ended(end, &look.unanswered);
        }
    }
}

impl Drop for LookToken {
    fn drop(&mut self) {
        self.end(FrameEnd::Failed);
    }
}

impl Clone for LookToken {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for LookToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LookToken").field(&self.0.is_some()).finish()
    }
}
