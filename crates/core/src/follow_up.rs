//! Further prompts about the picture of a look, asked when an answer is known.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use super::Prompt;

/// Takes the prompts of a follow-up, or none. Called once.
type PromptReceiver = Box<dyn FnOnce(Vec<Arc<Prompt>>) + Send>;

/// The right to ask further prompts about the picture of a look, while the engine has the picture encoded for it. Copies are the same
/// right: one of them can ask. Nothing is asked when all are dropped before.
///
/// The answers are further news of the look, like free texts: nothing waits for them, and they have no time limit. A look that ended
/// before answers nothing.
#[derive(Clone)]
pub struct FollowUp(Arc<FollowUpRight>);

struct FollowUpRight(Mutex<Option<PromptReceiver>>);

impl FollowUp {
    pub fn new(receiver: impl FnOnce(Vec<Arc<Prompt>>) + Send + 'static) -> Self {
        let receiver: PromptReceiver = Box::new(receiver);
        Self(Arc::new(FollowUpRight(Mutex::new(Some(receiver)))))
    }

    /// Asks prompts that see what the answered one saw, with its adapter. Does not wait.
    pub fn ask(self, prompts: Vec<Arc<Prompt>>) {
        self.0.settle(prompts);
    }
}

impl FollowUpRight {
    fn settle(&self, prompts: Vec<Arc<Prompt>>) {
        let receiver = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(receiver) = receiver {
            receiver(prompts);
        }
    }
}

impl Drop for FollowUpRight {
    fn drop(&mut self) {
        self.settle(Vec::new());
    }
}

impl fmt::Debug for FollowUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FollowUp").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{Task, testing::asked};

    #[test]
    fn follow_up_of_all_copies_is_asked_once_or_dropped() {
        let outline = || {
            let object = "car".into();
            asked(
                "outline",
                Prompt::ONCE,
                Task::Segment {
                    object,
                    places: Vec::new(),
                },
            )
        };
        let (sender, receiver) = mpsc::channel();
        let follow_up = || {
            let sender = sender.clone();
            FollowUp::new(move |prompts: Vec<_>| sender.send(prompts.len()).unwrap())
        };
        let first = follow_up();
        let copy = first.clone();
        first.ask(vec![outline()]);
        copy.ask(vec![outline(), outline()]);
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [1], "once");
        let unasked = follow_up();
        drop(unasked.clone());
        assert_eq!(receiver.try_iter().count(), 0, "a copy is left");
        drop(unasked);
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [0]);
    }
}
