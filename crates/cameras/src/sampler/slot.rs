//! One camera's newest frame, with its schedule and its counters: one lock keeps all of them consistent.

use std::sync::Arc;

use super::policy::Schedule;
use spotter_core::{Frame, FrameCounters, FrameEnd, Mono, Prompt, PromptId, SkippedSinceLast};

/// One camera. The newest frame wins.
#[derive(Debug)]
pub struct FrameSlot {
    waiting: Option<Frame>,
    schedule: Schedule,
    prompts: Vec<PromptEntry>,
    /// Asked once, of the next frame.
    once: Vec<Arc<Prompt>>,
    counters: FrameCounters,
}

#[derive(Debug)]
struct PromptEntry {
    prompt: Arc<Prompt>,
    since_last: SkippedSinceLast,
}

impl FrameSlot {
    /// A camera with its looks a second and its prompts with theirs.
    pub fn new(camera_rate_hz: f64, prompts: Vec<(Arc<Prompt>, f64)>) -> Self {
        let rates_hz = prompts.iter().map(|&(_, rate_hz)| rate_hz);
        Self {
            waiting: None,
            schedule: Schedule::new(camera_rate_hz, rates_hz),
            prompts: prompts
                .into_iter()
                .map(|(prompt, _)| PromptEntry {
                    prompt,
                    since_last: SkippedSinceLast::default(),
                })
                .collect(),
            once: Vec::new(),
            counters: FrameCounters::default(),
        }
    }

    /// The camera has another pace or other prompts from now on. A prompt that stays as it was keeps its pace and its counts;
    /// one with other words is due at once. Returns the frame that waited when no prompt is left for it.
    pub fn change(
        &mut self,
        camera_rate_hz: f64,
        prompts: Vec<(Arc<Prompt>, f64)>,
    ) -> Option<Frame> {
        let before = std::mem::take(&mut self.prompts);
        let place_of = |prompt: &Prompt| before.iter().position(|old| *old.prompt == *prompt);
        let places: Vec<_> = prompts.iter().map(|(prompt, _)| place_of(prompt)).collect();
        let rates = prompts.iter().map(|&(_, rate_hz)| rate_hz);
        let paces: Vec<_> = rates.zip(places).collect();
        self.schedule.change(camera_rate_hz, &paces);
        let since_last = |prompt: &Prompt| {
            let old = before.iter().find(|old| old.prompt.id == prompt.id);
            old.map_or_else(SkippedSinceLast::default, |old| old.since_last)
        };
        let asked = |(prompt, _): (Arc<Prompt>, f64)| PromptEntry {
            since_last: since_last(&prompt),
            prompt,
        };
        self.prompts = prompts.into_iter().map(asked).collect();
        if self.due().is_none() {
            return self.close();
        }
        None
    }

    /// A prompt is to be asked once, of the next frame, at any pace.
    pub fn ask_once(&mut self, prompt: Arc<Prompt>) {
        self.once.push(prompt);
    }

    /// Every prompt is due on the next frame.
    pub fn make_due(&mut self) {
        self.schedule.make_due();
    }

    /// A prompt is to be asked once of the next frame, so it is looked at with or without motion.
    pub fn is_urgent(&self) -> bool {
        !self.once.is_empty()
    }

    fn due(&self) -> Option<Mono> {
        let at_once = self.is_urgent().then(Mono::default);
        at_once.or_else(|| self.schedule.due())
    }

    /// No prompt is left for the frame that waits; it is counted as skipped and returned.
    pub fn close(&mut self) -> Option<Frame> {
        let unneeded = self.waiting.take()?;
        self.counters.end_waiting(FrameEnd::Skipped);
        Some(unneeded)
    }

    /// A frame came from ingest. True when it waits for the engine now; with the frame that is no longer needed, so that the
    /// caller frees the decoder's memory outside of the lock.
    pub fn put(&mut self, frame: Frame, now: Mono) -> (bool, Option<Frame>) {
        if self.due().is_none_or(|due| now < due) {
            self.counters.arrive_and_end(FrameEnd::Skipped);
            return (false, Some(frame));
        }
        let replaced = self.waiting.replace(frame);
        if replaced.is_some() {
            self.counters.end_waiting(FrameEnd::Replaced);
            self.lost_on_due_prompts(FrameEnd::Replaced, now);
        }
        self.counters.arrive();
        (true, replaced)
    }

    /// Since when the waiting frame's look has been due; `None` when no frame waits.
    pub fn due_since(&self) -> Option<Mono> {
        self.waiting.as_ref().and_then(|_| self.due())
    }

    /// Takes the waiting frame. It must end by [`FrameSlot::let_go`], or by [`FrameSlot::look`] and then [`FrameSlot::end`].
    pub fn take(&mut self) -> Option<Frame> {
        let frame = self.waiting.take()?;
        self.counters.take();
        Some(frame)
    }

    /// The taken frame is not looked at: it is late, the motion gate held it back, or it could not be read. Its prompts stay due,
    /// so the next frame is measured again and motion is noticed at the camera's own rate.
    pub fn let_go(&mut self, end: FrameEnd, now: Mono) {
        self.counters.end(end);
        self.lost_on_due_prompts(end, now);
    }

    /// The taken frame goes to the engine, with the prompts returned here. A frame that arrived while the taken one was filtered
    /// has nothing due on it any more, is counted as skipped and handed back. Without prompts, because they were changed
    /// meanwhile, the taken frame is let go as skipped.
    pub fn look(&mut self, now: Mono) -> (Vec<Arc<Prompt>>, Option<Frame>) {
        let due = self.schedule.due_prompts(now);
        let prompt = |&index: &usize| self.prompts[index].prompt.clone();
        let mut prompts: Vec<_> = due.iter().map(prompt).collect();
        prompts.append(&mut self.once);
        if prompts.is_empty() {
            self.counters.end(FrameEnd::Skipped);
            return (prompts, None);
        }
        // A look that was asked for once does not move the pace.
        if !due.is_empty() {
            self.schedule.looked(&due, now);
        }
        let skipped = self.waiting.take();
        if skipped.is_some() {
            self.counters.end_waiting(FrameEnd::Skipped);
        }
        (prompts, skipped)
    }

    /// The engine is done with a frame; `prompts` are those of its look.
    pub fn end<'a>(&mut self, end: FrameEnd, prompts: impl IntoIterator<Item = &'a PromptId>) {
        self.counters.end(end);
        for id in prompts {
            if let Some(asked) = self.prompts.iter_mut().find(|a| a.prompt.id == *id) {
                asked.since_last.count(end);
            }
        }
    }

    /// The engine is gone, and the looks that it had will not end.
    pub fn abandon(&mut self) {
        for _ in 0..self.counters.in_flight {
            self.counters.end(FrameEnd::Failed);
        }
    }

    /// What was lost for a prompt since this was last asked; it counts from zero again.
    pub fn take_since_last(&mut self, prompt: &PromptId) -> SkippedSinceLast {
        let asked = self.prompts.iter_mut().find(|a| a.prompt.id == *prompt);
        asked.map_or_else(SkippedSinceLast::default, |a| {
            std::mem::take(&mut a.since_last)
        })
    }

    /// Where the camera's frames went.
    pub fn counters(&self) -> FrameCounters {
        self.counters
    }

    fn lost_on_due_prompts(&mut self, end: FrameEnd, now: Mono) {
        for index in self.schedule.due_prompts(now) {
            self.prompts[index].since_last.count(end);
        }
    }
}
