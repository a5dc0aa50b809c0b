//! The engine's loop: looks from the inbox in, outcomes to their callers out.

use std::{
    collections::HashMap,
    sync::{atomic::Ordering, mpsc},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    engine::{Engine, EngineError, LookNews},
    handle::{EngineEndSender, EngineInbox, EngineStopped, LookSubmission, SharedPermit},
    look_limit::LookLimit,
};
use crate::scheduler::request::LookId;
use spotter_core::Outcome;

/// How often an idle engine shows that it is alive.
const IDLE_BEAT: Duration = Duration::from_secs(1);

/// Who waits for an answer, by look.
type WaitingReplies = HashMap<LookId, (oneshot::Sender<Outcome>, SharedPermit)>;

/// An engine with its inbox.
pub struct EngineLoop {
    engine: Engine,
    inbox: EngineInbox,
    limit: LookLimit,
    waiting: WaitingReplies,
    /// Dropped with the loop, which says that the thread is over.
    end: Option<EngineEndSender>,
}

impl EngineLoop {
    pub(super) fn new(engine: Engine, inbox: EngineInbox, limit: LookLimit) -> Self {
        Self {
            engine,
            inbox,
            limit,
            waiting: WaitingReplies::new(),
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

    /// Turns while a look is inside, and sleeps until the next one comes.
    fn serve(&mut self) -> Result<(), EngineStopped> {
        loop {
            if self.engine.is_idle() {
                match self.inbox.looks.recv_timeout(IDLE_BEAT) {
                    Ok(submission) => self.submit(submission),
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
                }
            }
            self.turn()?;
        }
    }

    /// Takes all looks that wait, so that they can share a step, and turns the engine once: waits for at most one step of the
    /// device. An error is fatal.
    pub fn turn(&mut self) -> Result<(), EngineStopped> {
        self.inbox.beats.fetch_add(1, Ordering::Relaxed);
        self.take_waiting();
        let stopped = |e: EngineError| EngineStopped(e.to_string());
        for (id, news) in self.engine.turn().map_err(stopped)? {
            if let (LookNews::Ended(outcome), Some((reply, place))) =
                (news, self.waiting.remove(&id))
            {
                self.learn(&outcome);
                drop(place);
                let _ = reply.send(outcome);
            }
        }
        // A client that went away waits for nothing.
        for (id, _) in self.waiting.extract_if(|_, (reply, _)| reply.is_closed()) {
            self.engine.cancel(id);
        }
        self.open_places();
        Ok(())
    }

    /// Takes all looks that wait.
    pub fn take_waiting(&mut self) {
        while let Ok(submission) = self.inbox.looks.try_recv() {
            self.submit(submission);
        }
    }

    /// Looks that may be in flight now.
    pub fn in_flight(&self) -> usize {
        self.limit.looks()
    }

    /// An answer shows what looks cost and how old they become.
    fn learn(&mut self, outcome: &Outcome) {
        let Outcome::Answered { frame, answers, .. } = outcome else {
            return;
        };
        // An answer without a step says nothing about the device.
        if answers.iter().all(|answer| answer.unchanged) {
            return;
        }
        let last = answers.iter().map(|answer| answer.marks.generated).max();
        let age = last.unwrap_or_default().since(frame.times.received);
        let worker = self.engine.worker();
        let images_max = worker.limits().images;
        self.limit.answered(age, worker.pace(), images_max);
        worker.hurry_after(self.limit.hurry_after());
    }

    /// Looks begin only while they can join the next step: behind a look in a hurry they would only grow older.
    fn open_places(&mut self) {
        let open = match self.engine.worker().is_in_a_hurry() {
            true => 0,
            false => self.limit.looks(),
        };
        self.inbox.places.set(open);
    }

    /// True when no look is inside; some may wait in the inbox.
    pub fn is_idle(&self) -> bool {
        self.engine.is_idle()
    }

    /// The engine.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    fn submit(&mut self, submission: LookSubmission) {
        let LookSubmission { look, reply, place } = submission;
        let asked = look.clone();
        match self.engine.submit(look, false) {
            Ok(id) => drop(self.waiting.insert(id, (reply, place))),
            Err(e) => {
                drop(place);
                // No caller waits when the daemon is shutting down.
                let _ = reply.send(Outcome::Failed(asked, e.to_string()));
            }
        }
    }
}
