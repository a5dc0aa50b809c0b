//! One camera's newest frame, with its schedule and its counters: one lock keeps all of them consistent.

use std::{mem, sync::Arc, time::Duration};

use super::cadence::Cadence;
use spotter_core::{
    Frame, FrameCounters, FrameEnd, LookRate, Mono, Prompt, PromptId, PromptRegion, PromptView,
    RegionBox, SkippedSinceLast, TriggeredLooks,
};

/// A prompt that is asked once waits for its frame for this time: longer than a strip needs, and than an answer is waited for.
const ONCE_LIMIT: Duration = Duration::from_secs(120);

/// One camera. The newest frame wins.
///
/// The camera's rate is the ceiling of its looks. A look is due when one of the prompts is; the others that will be
/// due within half a camera period ride along, because a further prompt on the same picture costs little and a picture
/// of its own costs much. A prompt may so be answered that much early, never more often.
#[derive(Debug)]
pub struct FrameSlot {
    waiting: Option<Frame>,
    starts: LookStart,
    cadence: Cadence,
    prompts: Vec<PromptEntry>,
    /// Asked once, of the next frame.
    once: Vec<OncePrompt>,
    /// Where the camera's frames went.
    pub counters: FrameCounters,
    /// It is not looked at, and is dropped outside of the lock, because that may free a decoder's memory.
    pub unneeded: Option<Frame>,
}

/// What starts the looks of a camera.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookStart {
    /// The rates alone.
    Always,
    /// None of its triggers is active: no prompt is due.
    Waiting,
    /// The rates, for one look.
    Once,
    /// The rates, until its triggers end.
    Triggered,
}

#[derive(Debug)]
struct OncePrompt {
    prompt: Arc<Prompt>,
    /// Nothing waits for its answer after this time.
    until: Mono,
}

#[derive(Debug)]
struct PromptEntry {
    prompt: Arc<Prompt>,
    cadence: Cadence,
    /// With the region `motion`: its last look at the whole picture.
    whole_at: Option<Mono>,
    /// It asks for a free text, and the last one is still being written.
    is_open: bool,
    since_last: SkippedSinceLast,
}

/// Where something moved, for the prompts that look there.
#[derive(Clone, Copy, Debug)]
pub struct MovedRecently {
    /// `None`: nothing moved for a while.
    pub region: Option<RegionBox>,
    /// Such a prompt looks at the whole picture at least so often.
    pub whole_every: Duration,
}

/// What a taken frame is looked at for.
#[derive(Debug)]
pub struct TakenLook {
    pub prompts: Vec<Arc<Prompt>>,
    /// As [`Look::moved`](spotter_core::Look::moved).
    pub moved: Option<RegionBox>,
}

impl PromptEntry {
    fn follows_motion(&self) -> bool {
        self.prompt.view.region == PromptRegion::Motion
    }

    /// True when it has to look at the whole picture, moved or not.
    fn is_whole_due(&self, every: Duration, now: Mono) -> bool {
        self.whole_at.is_none_or(|at| now.since(at) >= every)
    }
}

impl FrameSlot {
    /// A camera without prompts, with its looks a second and the [phase](Cadence::new) of them.
    pub fn new(camera_rate: LookRate, phase: f64) -> Self {
        Self {
            waiting: None,
            starts: LookStart::Always,
            cadence: Cadence::new(camera_rate, phase),
            prompts: Vec::new(),
            once: Vec::new(),
            counters: FrameCounters::default(),
            unneeded: None,
        }
    }

    /// No prompt is asked any more.
    pub fn retire(&mut self) {
        self.change(LookRate::nearest(1.0), Vec::new());
    }

    /// The camera has another pace or other prompts from now on, with their looks a second. A prompt that stays as it was keeps its
    /// pace and its counts; one with other words is due at once.
    pub fn change(&mut self, camera_rate: LookRate, prompts: Vec<(Arc<Prompt>, LookRate)>) {
        self.cadence.set_rate(camera_rate);
        let before = mem::take(&mut self.prompts);
        for (prompt, rate) in prompts {
            let old = before.iter().find(|old| old.prompt.id == prompt.id);
            let same = old.filter(|old| old.prompt == prompt);
            let mut cadence = same.map_or_else(|| Cadence::new(rate, 0.0), |same| same.cadence);
            cadence.set_rate(rate);
            self.prompts.push(PromptEntry {
                prompt,
                cadence,
                whole_at: same.and_then(|same| same.whole_at),
                is_open: old.is_some_and(|old| old.is_open),
                since_last: old.map(|old| old.since_last).unwrap_or_default(),
            });
        }
        self.close_when_idle();
    }

    /// The camera has triggers, or none. With its first one it waits.
    pub fn set_triggers(&mut self, has_triggers: bool) {
        match (has_triggers, self.starts) {
            (false, _) => self.starts = LookStart::Always,
            (true, LookStart::Always) => self.starts = LookStart::Waiting,
            (true, _) => {}
        }
        self.close_when_idle();
    }

    /// Which looks of a camera with triggers are taken from now on: with one or all, every prompt is due on the next frame. True when
    /// looks start that were not taken before.
    pub fn trigger(&mut self, looks: TriggeredLooks) -> bool {
        self.starts = match (looks, self.starts) {
            (_, LookStart::Always) | (TriggeredLooks::All, LookStart::Triggered) => return false,
            (TriggeredLooks::None, _) => LookStart::Waiting,
            (TriggeredLooks::One, _) => LookStart::Once,
            (TriggeredLooks::All, _) => LookStart::Triggered,
        };
        if self.starts == LookStart::Waiting {
            self.close_when_idle();
            return false;
        }
        self.make_due();
        true
    }

    /// A prompt is to be asked once, of the next frame, at any pace.
    pub fn ask_once(&mut self, prompt: Arc<Prompt>, now: Mono) {
        let until = now.after(ONCE_LIMIT);
        self.once.push(OncePrompt { prompt, until });
    }

    /// Every prompt is due on the next frame.
    pub fn make_due(&mut self) {
        self.cadence.make_due();
        for entry in &mut self.prompts {
            entry.cadence.make_due();
            entry.whole_at = None;
        }
    }

    /// A prompt is to be asked once of this frame, so it is looked at with or without motion. `is_ready` says whether what a prompt
    /// sees is there.
    pub fn is_urgent(&self, is_ready: impl Fn(&PromptView) -> bool) -> bool {
        self.once.iter().any(|once| is_ready(&once.prompt.view))
    }

    /// When the next look is due; `None` without prompts.
    fn due(&self) -> Option<Mono> {
        if !self.once.is_empty() {
            return Some(Mono::default());
        }
        Some(self.prompt_due()?.max(self.cadence.due()))
    }

    /// When the first prompt is due; `None` when there is none that can be asked.
    fn prompt_due(&self) -> Option<Mono> {
        if self.starts == LookStart::Waiting {
            return None;
        }
        let prompts = self.prompts.iter().filter(|entry| !entry.is_open);
        prompts.map(|entry| entry.cadence.due()).min()
    }

    /// The prompts of a look taken now; none when no look is due.
    fn due_prompts(&mut self, now: Mono) -> impl Iterator<Item = &mut PromptEntry> {
        let soon = now.after(self.cadence.period() / 2);
        let is_due = self.prompt_due().is_some_and(|due| due <= now) && self.cadence.is_due(now);
        let prompts = self.prompts.iter_mut();
        prompts.filter(move |entry| is_due && !entry.is_open && entry.cadence.is_due(soon))
    }

    /// A frame does not wait when no prompt is left for it.
    fn close_when_idle(&mut self) {
        if self.due().is_none() {
            self.skip_waiting();
        }
    }

    fn skip_waiting(&mut self) {
        if let Some(frame) = self.waiting.take() {
            self.counters.end_waiting(FrameEnd::Skipped);
            self.unneeded = Some(frame);
        }
    }

    /// A frame came from ingest. True when it waits for the engine now.
    pub fn put(&mut self, frame: Frame, now: Mono) -> bool {
        self.once.retain(|once| now < once.until);
        if self.due().is_none_or(|due| now < due) {
            self.counters.arrive_and_end(FrameEnd::Skipped);
            self.unneeded = Some(frame);
            return false;
        }
        if let Some(replaced) = self.waiting.replace(frame) {
            self.counters.end_waiting(FrameEnd::Replaced);
            self.lost_on_due_prompts(FrameEnd::Replaced, now);
            self.unneeded = Some(replaced);
        }
        self.counters.arrive();
        true
    }

    /// Since when the waiting frame's look has been due; `None` when no frame waits.
    pub fn due_since(&self) -> Option<Mono> {
        self.waiting.as_ref().and_then(|_| self.due())
    }

    /// Width and height of the waiting frame.
    pub fn waiting_size(&self) -> Option<(usize, usize)> {
        self.waiting.as_ref().map(|frame| frame.picture.size())
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
    /// has nothing due on it any more and is counted as skipped. Prompts that follow motion are not asked, and stay
    /// due, while nothing moved, and so do prompts for which `is_ready` is false. `None` without prompts; the taken frame is then let
    /// go: as gated when only motion was missing, as skipped when the prompts were changed meanwhile or are not ready.
    pub fn look(
        &mut self,
        moved: MovedRecently,
        is_ready: impl Fn(&PromptView) -> bool,
        now: Mono,
    ) -> Option<TakenLook> {
        let MovedRecently {
            region,
            whole_every,
        } = moved;
        // One look has one region for what moved, so one prompt that needs the whole picture gives it to all of them.
        let whole = self
            .due_prompts(now)
            .any(|entry| entry.follows_motion() && entry.is_whole_due(whole_every, now));
        let moved = region.filter(|_| !whole);
        let (mut prompts, mut is_still) = (Vec::new(), false);
        for entry in self.due_prompts(now) {
            if !is_ready(&entry.prompt.view) {
                continue;
            }
            if entry.follows_motion() {
                if whole {
                    entry.whole_at = Some(now);
                } else if moved.is_none() {
                    is_still = true;
                    continue;
                }
            }
            entry.cadence.looked(now);
            entry.is_open = entry.prompt.task.is_free_text();
            prompts.push(Arc::clone(&entry.prompt));
        }
        // A look that was asked for once does not move the pace.
        if !prompts.is_empty() {
            self.cadence.looked(now);
            if self.starts == LookStart::Once {
                self.starts = LookStart::Waiting;
            }
        }
        let ready = (self.once).extract_if(.., |once| is_ready(&once.prompt.view));
        prompts.extend(ready.map(|once| once.prompt));
        if prompts.is_empty() {
            match is_still {
                true => self.let_go(FrameEnd::Gated, now),
                false => self.counters.end(FrameEnd::Skipped),
            }
            return None;
        }
        self.skip_waiting();
        Some(TakenLook { prompts, moved })
    }

    /// The engine is done with a frame; `prompts` are those of its look that have no answer.
    pub fn end(&mut self, end: FrameEnd, prompts: &[Arc<Prompt>]) {
        self.counters.end(end);
        for prompt in prompts {
            self.close_text(prompt);
            if let Some(entry) = self.entry(&prompt.id) {
                entry.since_last.count(end);
            }
        }
    }

    /// A look with these prompts could not be made of its frame. Those that are asked once are asked of the next one.
    pub fn fail(&mut self, mut prompts: Vec<Arc<Prompt>>, now: Mono) {
        let once = prompts.extract_if(.., |prompt| prompt.revision == Prompt::ONCE);
        for prompt in once {
            self.ask_once(prompt, now);
        }
        self.end(FrameEnd::Failed, &prompts);
    }

    /// A prompt has its answer: it may be asked again. What was lost for it since this was last asked.
    pub fn answered(&mut self, prompt: &Prompt) -> SkippedSinceLast {
        self.close_text(prompt);
        self.take_since_last(&prompt.id)
    }

    /// It counts from zero again.
    pub fn take_since_last(&mut self, prompt: &PromptId) -> SkippedSinceLast {
        let entry = self.entry(prompt);
        entry.map_or_else(Default::default, |entry| mem::take(&mut entry.since_last))
    }

    fn close_text(&mut self, prompt: &Prompt) {
        if let Some(entry) = self.entry(&prompt.id)
            && prompt.revision != Prompt::ONCE
        {
            entry.is_open = false;
        }
    }

    fn entry(&mut self, id: &PromptId) -> Option<&mut PromptEntry> {
        self.prompts.iter_mut().find(|entry| entry.prompt.id == *id)
    }

    fn lost_on_due_prompts(&mut self, end: FrameEnd, now: Mono) {
        for entry in self.due_prompts(now) {
            entry.since_last.count(end);
        }
    }
}
