//! Answers of a topic in the order in which its looks were taken; engines may give them in another order. A topic is one
//! prompt of one camera. Presence and counts are about time, so an older picture must not have the last word on a prompt.
//!
//! ```text
//!   taken   gate/person 1   gate/scene 1   gate/person 2   gate/person 3
//!
//!   heard   person 3 ─▶ waits for person 2
//!           person 1 ─▶ handed on
//!           person 2 ─▶ handed on, and person 3 after it: topics do not delay each other, here by scene 1
//! ```
//!
//! Pure. Nothing waits for ever, because every look ends; so what waits is bounded by the time a look may take.

use spotter_core::{CameraId, Look, LookNews, PromptId};

/// The looks that are not over, on all engines, in the order in which they were taken.
#[derive(Default)]
pub struct AnswerOrder {
    looks: Vec<OrderedLook>,
    taken: u64,
}

struct OrderedLook {
    number: u64,
    camera: CameraId,
    /// Prompts whose answer is to come, or waits in `heard`.
    open: Vec<PromptId>,
    /// What is not handed on yet, in the order of the engine.
    heard: Vec<LookNews>,
    has_ended: bool,
}

impl AnswerOrder {
    /// A look is begun. Returns its number.
    pub fn take(&mut self, look: &Look) -> u64 {
        self.taken += 1;
        self.looks.push(OrderedLook {
            number: self.taken,
            camera: look.frame.camera.clone(),
            open: look.prompts.iter().map(|p| p.id.clone()).collect(),
            heard: Vec::new(),
            has_ended: false,
        });
        self.taken
    }

    /// A look has news. Returns what is to be handed on now: an answer after those of the topic's earlier looks, what is said of the
    /// look itself after all its answers before.
    pub fn hear(&mut self, number: u64, news: LookNews) -> Vec<LookNews> {
        let Some(index) = self.looks.iter().position(|look| look.number == number) else {
            return Vec::new();
        };
        self.looks[index].hear(news);
        let mut ready = Vec::new();
        for index in index..self.looks.len() {
            let (before, rest) = self.looks.split_at_mut(index);
            let look = &mut rest[0];
            let camera = look.camera.clone();
            let is_open = |prompt: &PromptId| {
                let mut before = before.iter().filter(|earlier| earlier.camera == camera);
                before.any(|earlier| earlier.open.contains(prompt))
            };
            ready.extend(look.hand_on(is_open));
        }
        (self.looks).retain(|look| !look.has_ended || !look.heard.is_empty());
        ready
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.looks.is_empty()
    }
}

impl OrderedLook {
    fn hear(&mut self, news: LookNews) {
        self.has_ended |= matches!(news, LookNews::Ended(_));
        self.heard.push(news);
        if self.has_ended {
            let heard = &self.heard;
            let is_answered =
                |prompt: &PromptId| heard.iter().any(|news| answered(news) == Some(prompt));
            self.open.retain(is_answered);
        }
    }

    /// `is_open` of a prompt: an earlier look of the camera has it.
    fn hand_on(&mut self, is_open: impl Fn(&PromptId) -> bool) -> Vec<LookNews> {
        let (mut ready, mut waiting) = (Vec::new(), Vec::new());
        for news in std::mem::take(&mut self.heard) {
            match (&news, answered(&news)) {
                (_, Some(prompt)) if is_open(prompt) => waiting.push(news),
                (LookNews::Piece { prompt, .. }, _) if is_open(&prompt.id) => waiting.push(news),
                (LookNews::ShortAnswered(_) | LookNews::Ended(_), _) if !waiting.is_empty() => {
                    waiting.push(news);
                }
                (_, prompt) => {
                    self.open.retain(|open| Some(open) != prompt);
                    ready.push(news);
                }
            }
        }
        self.heard = waiting;
        ready
    }
}

/// The prompt of an answer.
fn answered(news: &LookNews) -> Option<&PromptId> {
    match news {
        LookNews::Answer { answer, .. } => Some(&answer.prompt.id),
        LookNews::Piece { .. } | LookNews::ShortAnswered(_) | LookNews::Ended(_) => None,
    }
}

#[cfg(test)]
mod tests;
