//! Questions about tracks, each asked once, of the camera's next frame. At most a few of a prompt are under way.

use std::{sync::Arc, time::Duration};

use spotter_core::{Mono, Prompt, PromptId, PromptView, Task, TrackId};

/// The questions of one kind of a prompt that are under way.
#[derive(Clone, Debug, Default)]
pub struct OpenQuestions(Vec<OpenQuestion>);

#[derive(Clone, Debug)]
struct OpenQuestion {
    prompt: Arc<Prompt>,
    tracks: Vec<TrackId>,
    at: Mono,
}

/// A question about these tracks.
pub struct NewQuestion<'a> {
    /// Kind and number: no other question of the camera has it.
    pub id: String,
    pub text: &'a str,
    pub choices: Vec<String>,
    pub view: PromptView,
    pub tracks: Vec<TrackId>,
}

impl OpenQuestions {
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// A question about this track is under way.
    pub fn is_about(&self, track: &TrackId) -> bool {
        self.0.iter().any(|open| open.tracks.contains(track))
    }

    /// `None` when `id` is none of a prompt.
    pub fn ask(&mut self, new: NewQuestion<'_>, now: Mono) -> Option<Arc<Prompt>> {
        let prompt = Arc::new(Prompt {
            id: PromptId::new(&new.id).ok()?,
            revision: Prompt::ONCE,
            task: Task::Query {
                question: new.text.to_owned(),
                choices: new.choices,
                options: Default::default(),
            },
            view: new.view,
            adapter: None,
        });
        self.0.push(OpenQuestion {
            prompt: Arc::clone(&prompt),
            tracks: new.tracks,
            at: now,
        });
        Some(prompt)
    }

    /// The tracks that `prompt` asks about, once.
    pub fn settle(&mut self, prompt: &Prompt) -> Option<Vec<TrackId>> {
        let place = self.0.iter().position(|open| *open.prompt == *prompt)?;
        Some(self.0.swap_remove(place).tracks)
    }

    /// The tracks whose questions had no answer for `patience`, once.
    pub fn give_up(&mut self, now: Mono, patience: Duration) -> Vec<TrackId> {
        let is_lost = |open: &mut OpenQuestion| now.since(open.at) > patience;
        let lost = self.0.extract_if(.., is_lost);
        lost.flat_map(|open| open.tracks).collect()
    }

    /// Answers to the questions under way are not wanted any more.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}
