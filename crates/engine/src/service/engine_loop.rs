//! The engine's loop: looks from the inbox in, their news to their callers out.

use std::{
    collections::HashMap,
    sync::{atomic::Ordering, mpsc},
    time::Duration,
};

use tokio::sync::{mpsc as news, oneshot};

use super::{
    engine::Engine,
    inbox::{EngineEndSender, EngineInbox, EngineMessage, EngineStopped, LookSubmission},
    look_limit::LookLimit,
    places::Place,
};
use crate::scheduler::request::LookId;
use spotter_core::{Frame, LookNews, Outcome};

/// How often an idle engine shows that it is alive.
const IDLE_BEAT: Duration = Duration::from_secs(1);

/// Who waits for the news of a look.
struct WaitingCaller {
    news: news::Sender<LookNews>,
    /// `None` when the short answers are there.
    place: Option<Place>,
    answers: usize,
    /// Of them, those that repeat an earlier answer without a step.
    unchanged: usize,
}

impl WaitingCaller {
    fn new(news: news::Sender<LookNews>, place: Place) -> Self {
        Self {
            news,
            place: Some(place),
            answers: 0,
            unchanged: 0,
        }
    }
}

/// An engine with its inbox.
pub struct EngineLoop {
    engine: Engine,
    inbox: EngineInbox,
    limit: LookLimit,
    waiting: HashMap<LookId, WaitingCaller>,
    /// Dropped with the loop, which says that the thread is over.
    end: Option<EngineEndSender>,
}

fn stopped(error: impl std::fmt::Display) -> EngineStopped {
    EngineStopped(error.to_string())
}

impl EngineLoop {
    pub(super) fn new(mut engine: Engine, inbox: EngineInbox, limit: LookLimit) -> Self {
        engine.offer_follow_ups(inbox.follow_ups.clone());
        Self {
            engine,
            inbox,
            limit,
            waiting: HashMap::new(),
            end: None,
        }
    }

    /// Keeps the sender until the loop is dropped.
    pub(super) fn with_end(mut self, end: EngineEndSender) -> Self {
        self.end = Some(end);
        self
    }

    /// Serves until the end. The [`EngineEnd`](super::handle::EngineEnd) learns the reason first, then waiting callers that
    /// nothing comes any more, and neither waits for the device to be released.
    pub(super) fn run(mut self, ended: oneshot::Sender<Result<(), EngineStopped>>) {
        let reason = self.serve();
        let _ = ended.send(reason);
        drop((self.inbox, self.waiting));
        drop(self.engine);
    }

    /// Turns while there is something to do, and sleeps until a message comes.
    fn serve(&mut self) -> Result<(), EngineStopped> {
        loop {
            if self.engine.is_idle() {
                // One short piece of work at a time, so that a look that arrives waits for one at most.
                let is_prepared = !self.engine.prepare_shape().map_err(stopped)?;
                let wait = if is_prepared {
                    IDLE_BEAT
                } else {
                    Duration::ZERO
                };
                match self.inbox.messages.recv_timeout(wait) {
                    Ok(message) => self.take(message),
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) if self.waiting.is_empty() => {
                        return Ok(());
                    }
                    // No message can come that they wait for.
                    Err(mpsc::RecvTimeoutError::Disconnected) => self.engine.end_follow_ups(),
                }
            }
            self.wait_for_next_looks();
            self.turn()?;
        }
    }

    /// A look begins some hundred microseconds after another one has freed its place. It would miss a step that is launched meanwhile, so
    /// where the device has enough to do, looks for all free places are waited for.
    pub(super) fn wait_for_next_looks(&mut self) {
        let until = self.engine.worker().spare_until();
        while self.has_free_place() {
            let left = until.since(self.engine.worker().now());
            // No caller may have a look for the place.
            let Ok(message) = self.inbox.messages.recv_timeout(left) else {
                return;
            };
            self.take(message);
        }
    }

    pub(super) fn has_free_place(&mut self) -> bool {
        let taken = self
            .waiting
            .values()
            .filter(|caller| caller.place.is_some());
        taken.count() < self.open_places()
    }

    /// Takes all looks that wait, so that they can share a step, and turns the engine once: waits for at most one step of the
    /// device. An error is fatal.
    pub fn turn(&mut self) -> Result<(), EngineStopped> {
        self.inbox.beats.fetch_add(1, Ordering::Relaxed);
        self.take_waiting();
        let all = self.engine.turn().map_err(stopped)?;
        for (id, news) in &all {
            self.learn_from(*id, news);
        }
        // A client that went away waits for nothing.
        for (id, _) in (self.waiting).extract_if(|_, caller| caller.news.is_closed()) {
            self.engine.cancel(id);
        }
        // A place that becomes free goes to the next look at once, so their number is set before.
        let open = self.open_places();
        self.inbox.places.set(open);
        for (id, news) in all {
            self.report(id, news);
        }
        Ok(())
    }

    /// Takes all looks and follow-ups that wait.
    pub fn take_waiting(&mut self) {
        while let Ok(message) = self.inbox.messages.try_recv() {
            self.take(message);
        }
    }

    fn take(&mut self, message: EngineMessage) {
        match message {
            EngineMessage::Look(submission) => self.submit(*submission),
            EngineMessage::FollowUp(asked) => self.engine.follow_up(asked),
        }
    }

    /// Looks that may be in flight now.
    pub fn in_flight(&self) -> usize {
        self.limit.looks()
    }

    /// A look that others do not wait for any more shows what looks cost, unless all its answers came without a step.
    fn learn_from(&mut self, id: LookId, news: &LookNews) {
        let Some(caller) = self.waiting.get_mut(&id) else {
            return;
        };
        match news {
            LookNews::Answer { answer, .. } => {
                caller.answers += 1;
                caller.unchanged += usize::from(answer.unchanged);
            }
            // The budget is about the age of cameras' answers.
            LookNews::ShortAnswered(frame)
                if caller.unchanged < caller.answers.max(1) && !frame.camera.is_of_still() =>
            {
                self.learn(frame);
            }
            LookNews::Piece { .. } | LookNews::ShortAnswered(_) | LookNews::Ended(_) => {}
        }
    }

    /// Passes news on to who waits for it. The place of a look that others do not wait for any more is free before.
    fn report(&mut self, id: LookId, news: LookNews) {
        let Some(mut caller) = self.waiting.remove(&id) else {
            return;
        };
        let is_over = matches!(news, LookNews::Ended(_));
        if is_over || matches!(news, LookNews::ShortAnswered(_)) {
            caller.place = None;
        }
        // There is room for all news of a look; without a receiver no caller waits.
        let _ = caller.news.try_send(news);
        if !is_over {
            self.waiting.insert(id, caller);
        }
    }

    /// An answered look shows what looks cost and how old they become, up to where others wait for them.
    fn learn(&mut self, frame: &Frame) {
        let worker = self.engine.worker();
        let age = worker.now().since(frame.times.received);
        let images_max = worker.limits().images;
        self.limit.answered(age, worker.pace(), images_max);
        worker.hurry_after(self.limit.hurry_after());
    }

    /// Looks begin only while they can join the next step: behind a look in a hurry they would only grow older.
    fn open_places(&mut self) -> usize {
        match self.engine.worker().is_in_a_hurry() {
            true => 0,
            false => self.limit.looks(),
        }
    }

    /// True when a turn has nothing to do but to take what waits in the inbox.
    pub fn is_idle(&self) -> bool {
        self.engine.is_idle()
    }

    /// The engine.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    fn submit(&mut self, submission: LookSubmission) {
        let LookSubmission {
            look,
            requests,
            news,
            place,
        } = submission;
        let requests = requests.unwrap_or_else(|| self.engine.request_maker().requests(&look));
        match requests {
            Ok(requests) => {
                let id = self.engine.admit(look, requests);
                self.waiting.insert(id, WaitingCaller::new(news, place));
            }
            Err(e) => {
                drop(place);
                let failed = Outcome::Failed(look, e.into());
                // No caller waits when the daemon is shutting down.
                let _ = news.try_send(LookNews::Ended(failed));
            }
        }
    }
}
