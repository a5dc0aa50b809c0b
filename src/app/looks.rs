//! The looks of all engines: begun when a permit is free, each on the newest frame at that time, and followed until their end.
//!
//! ```text
//!   sampler of an engine: permit ─▶ frame that is due ─▶ look ─┐
//!   sampler of an engine: permit ─▶ frame that is due ─▶ look ─┴─▶ LooksInFlight ─▶ order of each topic ─▶ news
//! ```
//!
//! A sampler is a task that works on the pixels of one look at a time, on a blocking thread: the daemon's loop gets looks that an engine
//! has already. It waits when the loop does not take them, so what is begun is bounded.

use std::{future::pending, panic::resume_unwind, sync::Arc};

use tokio::{
    sync::{mpsc, watch},
    task::{JoinError, JoinSet, spawn_blocking},
    time::{Instant, timeout_at},
};

use super::{
    answer_order::AnswerOrder,
    request_turns::{BegunTurn, EngineRequests},
};
use spotter_cameras::sampler::{CameraShare, DueFrame};
use spotter_core::LookNews;
use spotter_engine::service::handle::{EngineHandle, Permit, SubmittedLook};

/// Begun looks that the daemon's loop has not taken.
const BEGUN_MAX: usize = 16;

/// All looks that engines have, with their news in the order of each topic.
pub struct LooksInFlight {
    begun: mpsc::Receiver<SubmittedLook>,
    /// `None` after [`finish`](Self::finish): `begun` ends when no look is being begun.
    sender: Option<mpsc::Sender<SubmittedLook>>,
    /// Each waits for the next news of its look.
    inside: JoinSet<(u64, SubmittedLook, Vec<LookNews>)>,
    order: AnswerOrder,
}

impl Default for LooksInFlight {
    fn default() -> Self {
        let (sender, begun) = mpsc::channel(BEGUN_MAX);
        Self {
            begun,
            sender: Some(sender),
            inside: JoinSet::new(),
            order: AnswerOrder::default(),
        }
    }
}

impl LooksInFlight {
    /// Where an engine's sampler puts the looks that it begins; `None` after [`finish`](Self::finish).
    pub fn sender(&self) -> Option<mpsc::Sender<SubmittedLook>> {
        self.sender.clone()
    }

    /// Waits for news. Dropping the future loses nothing.
    pub async fn news(&mut self) -> Vec<LookNews> {
        loop {
            tokio::select! {
                // What engines say goes first, so that looks are not taken faster than they end.
                biased;
                Some(heard) = self.inside.join_next() => {
                    let news = self.hear(heard);
                    if !news.is_empty() {
                        return news;
                    }
                }
                Some(look) = self.begun.recv() => self.follow(look),
            }
        }
    }

    /// Waits for the end of all looks, those that are still being begun too, at most until `deadline`. Returns their news. No sampler may begin
    /// any more.
    pub async fn finish(&mut self, deadline: Instant) -> Vec<LookNews> {
        let mut last = Vec::new();
        self.sender = None;
        let all = async {
            loop {
                tokio::select! {
                    Some(heard) = self.inside.join_next() => last.extend(self.hear(heard)),
                    Some(look) = self.begun.recv() => self.follow(look),
                    else => return,
                }
            }
        };
        // What is not over then fails with its engine.
        _ = timeout_at(deadline, all).await;
        last
    }

    fn follow(&mut self, look: SubmittedLook) {
        if let Some(begun) = look.unanswered() {
            let number = self.order.take(begun);
            self.wait(number, look);
        }
    }

    fn wait(&mut self, number: u64, mut look: SubmittedLook) {
        self.inside.spawn(async move {
            let news = look.next().await;
            (number, look, news)
        });
    }

    fn hear(
        &mut self,
        heard: Result<(u64, SubmittedLook, Vec<LookNews>), JoinError>,
    ) -> Vec<LookNews> {
        // A look's task is not cancelled while this exists, so it panicked: a bug.
        let (number, look, news) = heard.unwrap_or_else(|e| resume_unwind(e.into_panic()));
        if look.unanswered().is_some() {
            self.wait(number, look);
        }
        let heard = news.into_iter().map(|news| self.order.hear(number, news));
        heard.flatten().collect()
    }
}

/// What one engine's sampler begins looks with.
pub struct LookSource {
    pub engine: EngineHandle,
    pub share: Arc<CameraShare>,
    pub requests: EngineRequests,
}

impl LookSource {
    /// Begins looks for ever: permit first, then the newest frame, so the engine never gets an old one. A request of API or page gets the
    /// permit only while no camera has a look for it.
    pub async fn begin_looks(mut self, begun: mpsc::Sender<SubmittedLook>) {
        loop {
            let permit = self.engine.permit().await;
            match self.work().await {
                PermittedWork::Frame(due) => {
                    if !begin_look(due, permit, &begun).await {
                        return;
                    }
                }
                PermittedWork::Request(turn) => drop(tokio::spawn(turn.answer(permit))),
            }
        }
    }

    /// Waits for something to do with a permit. While the engine begins no looks, the permit waits without a frame.
    async fn work(&mut self) -> PermittedWork {
        let mut places = self.engine.places();
        loop {
            tokio::select! {
                biased;
                () = until_open(&mut places, false) => until_open(&mut places, true).await,
                due = self.share.due() => return PermittedWork::Frame(due),
                turn = self.requests.next() => return PermittedWork::Request(Box::new(turn)),
            }
        }
    }
}

enum PermittedWork {
    Frame(DueFrame),
    Request(Box<BegunTurn>),
}

/// Copies, masks and draws what the look shows, hands it to the engine and sends it; nothing when the frame is not looked at. False when no receiver
/// follows looks any more. Runs to its end also when the future is dropped, so that the look of a lost engine fails like others.
async fn begin_look(due: DueFrame, permit: Permit, begun: &mpsc::Sender<SubmittedLook>) -> bool {
    if due.is_small() {
        return match due.take() {
            Some(look) => begun.send(permit.look(look)).await.is_ok(),
            None => true,
        };
    }
    let begun = begun.clone();
    let begin = spawn_blocking(move || match due.take() {
        Some(look) => begun.blocking_send(permit.look(look)).is_ok(),
        None => true,
    });
    begin
        .await
        .unwrap_or_else(|e| resume_unwind(e.into_panic()))
}

/// Waits until looks may begin, or until none may. An engine that has ended is open: its looks fail.
async fn until_open(places: &mut watch::Receiver<usize>, open: bool) {
    let has_ended = places.wait_for(|count| (*count > 0) == open).await.is_err();
    if has_ended && !open {
        pending().await
    }
}

#[cfg(test)]
mod tests;
