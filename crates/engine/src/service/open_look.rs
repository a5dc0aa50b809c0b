//! A look inside the engine, and which of its prompts have no answer yet. Pure.

use std::sync::Arc;

use spotter_core::{Frame, Look, NormBox, Prompt};

pub(super) struct OpenLook {
    look: Look,
    /// For each prompt of the look.
    is_answered: Vec<bool>,
}

impl OpenLook {
    pub fn new(look: Look) -> Self {
        Self {
            is_answered: vec![false; look.prompts.len()],
            look,
        }
    }

    pub fn frame(&self) -> &Frame {
        &self.look.frame
    }

    pub fn prompts(&self) -> &[Arc<Prompt>] {
        &self.look.prompts
    }

    /// The part of the picture that the prompt sees; `None`: all of it.
    pub fn region_of(&self, prompt: &Prompt) -> Option<NormBox> {
        self.look.region_of(&prompt.view)
    }

    /// A prompt, given by its index, that has no answer yet.
    pub fn unanswered_prompt(&self, index: usize) -> Option<&Arc<Prompt>> {
        let prompt = self.look.prompts.get(index);
        prompt.filter(|_| self.is_answered.get(index) == Some(&false))
    }

    /// A prompt, given by its index, is answered now; `None` when it was before, or does not exist.
    pub fn answer(&mut self, index: usize) -> Option<&Arc<Prompt>> {
        let is_answered = self.is_answered.get_mut(index)?;
        let was_answered = std::mem::replace(is_answered, true);
        self.look.prompts.get(index).filter(|_| !was_answered)
    }

    /// True when all prompts are.
    pub fn is_answered(&self) -> bool {
        self.is_answered.iter().all(|&is_answered| is_answered)
    }

    /// The look with the prompts that have no answer.
    pub fn unanswered(self) -> Look {
        let Self {
            mut look,
            is_answered,
        } = self;
        let mut answered = is_answered.into_iter();
        look.prompts.retain(|_| answered.next() == Some(false));
        look
    }
}
