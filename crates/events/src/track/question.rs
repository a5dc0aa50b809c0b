//! Questions about tracks, each asked once, of the camera's next frame or of the frame of a look. At most a few of a prompt are under way.

use std::{sync::Arc, time::Duration};

use spotter_core::{
    Mono, NormBox, Prompt, PromptId, PromptView, RegionBox, SpatialReference, Task, TrackId,
};

/// The questions of one kind of a prompt that are under way.
#[derive(Clone, Debug, Default)]
pub struct OpenQuestions(Vec<OpenQuestion>);

#[derive(Clone, Debug)]
struct OpenQuestion {
    prompt: Arc<Prompt>,
    tracks: Vec<TrackId>,
    at: Mono,
}

/// A question that is asked once. No other one of the camera has its id.
pub fn question(id: PromptId, text: &str, choices: Vec<String>, view: PromptView) -> Prompt {
    Prompt {
        view,
        ..Prompt::new(
            id,
            Prompt::ONCE,
            Task::Query {
                question: text.to_owned(),
                choices,
                options: Default::default(),
            },
        )
    }
}

/// The question for the outline of an object that the answer to `prompt` has in this box.
pub fn outline_question(id: PromptId, prompt: &Prompt, bounds: NormBox) -> Arc<Prompt> {
    let task = Task::Segment {
        object: prompt.task.text().to_owned(),
        places: vec![SpatialReference::Box(RegionBox::new(bounds))],
    };
    Arc::new(Prompt {
        view: prompt.view,
        adapter: prompt.adapter.clone(),
        ..Prompt::new(id, Prompt::ONCE, task)
    })
}

impl OpenQuestions {
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// A question about this track is under way.
    pub fn is_about(&self, track: &TrackId) -> bool {
        self.0.iter().any(|open| open.tracks.contains(track))
    }

    /// A question about these tracks is under way now.
    pub fn add(&mut self, prompt: &Arc<Prompt>, tracks: Vec<TrackId>, at: Mono) {
        let prompt = Arc::clone(prompt);
        self.0.push(OpenQuestion { prompt, tracks, at });
    }

    /// The tracks that `prompt` asks about.
    pub fn tracks_of(&self, prompt: &Prompt) -> Option<&[TrackId]> {
        let open = self.0.iter().find(|open| *open.prompt == *prompt)?;
        Some(&open.tracks)
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

    /// The look at the frame that was received at `at` is over: questions asked of it get no answer any more.
    pub fn end_of_look(&mut self, at: Mono) {
        self.0.retain(|open| open.at != at);
    }

    /// Answers to the questions under way are not wanted any more.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}
