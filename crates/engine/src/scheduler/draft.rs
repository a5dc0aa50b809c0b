//! The previous answer as the draft of the next one: speculative decoding for cameras that mostly stand still.
//!
//! ```text
//!   fed        … prompt │ x1    y1    s1
//!   decides             x1    y1    s1    end          all as drafted: the answer is there, decode is zero steps
//!
//!   fed        … prompt │ x1    y1    s1
//!   decides             x1    y7    ?     ?            y differs: what follows was fed a wrong y and is ignored;
//!                             └─ the answer goes on from here, y1's place in the cache is written again
//! ```
//!
//! An answer that found nothing is a draft too: the end is expected right behind the prompt, so no row runs ahead of it.
//!
//! A draft is always verified: each position decides by itself what should be at the next one, and only decisions that
//! were fed what was decided count. So answers are the same with and without it, where a row's numbers do not depend on the other rows of
//! its step: on the CPU and the simulator. On a GPU ([`cuda`](crate::cuda)), a step with a draft has more positions and may run in other kernels.

use std::collections::HashMap;

use super::{backend::AdapterNumber, decision::Decision};
use spotter_core::{CameraId, Prompt, PromptId};

/// Answers that are remembered; many times what a box has of cameras and prompts.
const ANSWERS_MAX: usize = 4096;

/// Whose answer it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DraftKey {
    camera: CameraId,
    prompt: PromptId,
    revision: u32,
    adapter: Option<AdapterNumber>,
}

impl DraftKey {
    /// The answers of a prompt on a camera, until its text changes.
    pub fn new(camera: &CameraId, prompt: &Prompt) -> Self {
        Self {
            camera: camera.clone(),
            prompt: prompt.id.clone(),
            revision: prompt.revision,
            adapter: None,
        }
    }

    /// The same of answers that are given with an adapter.
    #[must_use]
    pub fn with_adapter(self, adapter: Option<AdapterNumber>) -> Self {
        Self { adapter, ..self }
    }
}

/// The last answer of each prompt of each camera.
#[derive(Debug, Default)]
pub struct Drafts {
    answers: HashMap<DraftKey, Vec<Decision>>,
}

impl Drafts {
    /// The last answer; `None` when there is none, which is less than one that found nothing.
    pub fn of(&self, key: &DraftKey) -> Option<&[Decision]> {
        self.answers.get(key).map(Vec::as_slice)
    }

    /// Remembers an answer in place of the one before it. Prompts that went away are forgotten together, when there are
    /// too many.
    pub fn remember(&mut self, key: DraftKey, answer: Vec<Decision>) {
        if self.answers.len() == ANSWERS_MAX && !self.answers.contains_key(&key) {
            self.answers.clear();
        }
        self.answers.insert(key, answer);
    }
}

/// How many of the drafted decisions were made, given the decisions after the prompt and after each drafted one.
pub fn accepted(draft: &[Decision], decided: &[Option<Decision>]) -> usize {
    let made = draft.iter().zip(decided);
    made.take_while(|&(draft, decided)| Some(*draft) == *decided)
        .count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn accepted_is_the_longest_common_beginning(
            draft in prop::collection::vec(0_u16..3, 0..8),
            decided in prop::collection::vec(prop::option::of(0_u16..3), 0..9),
        ) {
            let draft: Vec<_> = draft.into_iter().map(Decision::Coord).collect();
            let decided: Vec<_> = decided.into_iter().map(|bin| bin.map(Decision::Coord)).collect();
            let n = accepted(&draft, &decided);
            prop_assert!((0..n).all(|i| decided[i] == Some(draft[i])));
            prop_assert!(n == draft.len() || n == decided.len() || decided[n] != Some(draft[n]));
        }
    }
}
