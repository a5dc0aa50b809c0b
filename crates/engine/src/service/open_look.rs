//! A look inside the engine, and which of its prompts have no answer yet. Pure.

use std::sync::Arc;

use spotter_core::{Frame, Look, NormBox, Prompt};

pub(super) struct OpenLook {
    /// Its own prompts, and behind them those that follow answers.
    look: Look,
    own_prompts: usize,
    /// For each prompt of the look.
    is_answered: Vec<bool>,
}

impl OpenLook {
    pub fn new(look: Look) -> Self {
        Self {
            is_answered: vec![false; look.prompts.len()],
            own_prompts: look.prompts.len(),
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

    /// Adds prompts that follow an answer. Returns the index of the first.
    pub fn follow_up(&mut self, prompts: Vec<Arc<Prompt>>) -> usize {
        let first = self.look.prompts.len();
        self.look.prompts.extend(prompts);
        self.is_answered.resize(self.look.prompts.len(), false);
        first
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

    /// True when all prompts are, but for those that follow answers: the engine may not have got them in time.
    pub fn is_answered(&self) -> bool {
        let mut own = self.is_answered.iter().take(self.own_prompts);
        own.all(|&is_answered| is_answered)
    }

    /// The look with the prompts that have no answer.
    pub fn unanswered(self) -> Look {
        let Self {
            mut look,
            is_answered,
            ..
        } = self;
        let mut answered = is_answered.into_iter();
        look.prompts.retain(|_| answered.next() == Some(false));
        look
    }
}
