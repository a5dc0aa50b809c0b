//! The looks in flight, each on the newest frame at the time of its permit: those with a permit, and those of which only free texts
//! are left.
//!
//! ```text
//!   engine ─▶ news of a look ─▶ order of each topic ─┬─▶ answer
//!                                                    ├─▶ short answers are there    after these answers
//!                                                    └─▶ end                        after all its answers
//! ```

use std::{
    collections::BTreeMap,
    future::{Future, pending},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
    time::{Instant, sleep, timeout},
};

use super::{
    in_order::{AnswerTicket, InOrder},
    request_turns::{EngineRequests, OwedTime, RequestInside},
};
use crate::api::{BegunRequest, RequestNews, RequestQueue, UnansweredRequest};
use spotter_cameras::sampler::CameraShare;
use spotter_core::{Frame, Look, LookFailure, LookNews, Outcome, Prompt};
use spotter_engine::service::handle::{EngineHandle, EngineStopped, Permit, SubmittedLook};

/// A permit, and then a frame or a request for it.
type NextPermitAndLook = Pin<Box<dyn Future<Output = PermitUse> + Send>>;
/// A look by its number, with its last news.
type NumberedNews = (u64, SubmittedLook, Vec<LookNews>);

/// Requests looks from one engine and returns their news, the answers in the order of each topic.
pub struct LooksInFlight {
    engine: EngineHandle,
    share: Arc<CameraShare>,
    /// One at a time, so that the order of the looks is known.
    next: NextPermitAndLook,
    /// Each waits for the next news of its look.
    begun: JoinSet<NumberedNews>,
    order: OrderedLooks,
    /// `None`: there is no API.
    requests: Option<EngineRequests>,
    owed: OwedTime,
    /// Each answers a request.
    answering: JoinSet<()>,
}

/// What a permit is used for.
struct PermitUse {
    permit: Permit,
    work: PermittedWork,
    /// A camera's look waited for the permit while a request had one.
    camera_waited: Duration,
    /// The permit was free, and no camera had a look for it.
    idled: Duration,
}

enum PermittedWork {
    OfCamera(Look),
    OfRequest(BegunRequest, RequestInside),
}

impl LooksInFlight {
    /// Begins no look before [`LooksInFlight::news`] is awaited.
    pub fn new(engine: EngineHandle, share: Arc<CameraShare>) -> Self {
        Self {
            next: next_look(&engine, &share, None, OwedTime::default()),
            engine,
            share,
            begun: JoinSet::new(),
            order: OrderedLooks::default(),
            requests: None,
            owed: OwedTime::default(),
            answering: JoinSet::new(),
        }
    }

    /// From now on also answers requests of the API, when no camera has a look due.
    pub fn answer_requests(&mut self, queue: &Arc<RequestQueue>) {
        self.requests = Some(EngineRequests::new(queue));
        self.await_next();
    }

    fn await_next(&mut self) {
        let requests = self.requests.clone();
        self.next = next_look(&self.engine, &self.share, requests, self.owed);
    }

    /// Begins looks as permits and frames arrive, until there is news. Dropping the future loses nothing. An error is a panic of
    /// this program, after which looks may be missing.
    pub async fn news(&mut self) -> Result<Vec<LookNews>, EngineStopped> {
        loop {
            tokio::select! {
                // The same order each time, so that a run in virtual time can be repeated.
                biased;
                permitted = &mut self.next => {
                    self.begin(permitted);
                    self.await_next();
                }
                Some(_) = self.answering.join_next() => {}
                Some(joined) = self.begun.join_next() => {
                    let news = in_turn(&mut self.begun, &mut self.order, joined)?;
                    if !news.is_empty() {
                        return Ok(news);
                    }
                }
            }
        }
    }

    /// Begins no more looks, waits at most `limit` for those in flight, and returns all remaining news, also those that wait for
    /// an earlier look of their topic.
    pub async fn finish(&mut self, limit: Duration) -> Vec<LookNews> {
        self.next = Box::pin(pending());
        let requests = async { while self.answering.join_next().await.is_some() {} };
        let looks = last_of(&mut self.begun, &mut self.order, limit);
        tokio::join!(looks, timeout(limit, requests)).0
    }

    /// As [`finish`](Self::finish) for a failed engine: drops the last handles of it, so its looks end as failed; so do those that
    /// do not end by themselves.
    pub async fn abandon(self, limit: Duration) -> Vec<LookNews> {
        let Self {
            engine,
            next,
            mut begun,
            mut order,
            answering,
            ..
        } = self;
        drop((engine, next, answering));
        let mut last = last_of(&mut begun, &mut order, limit).await;
        let stuck = LookFailure::Engine("the engine does not answer".into());
        last.extend(order.fail(&stuck));
        last
    }

    fn begin(&mut self, permitted: PermitUse) {
        self.owed.camera_waited(permitted.camera_waited);
        self.owed.engine_idled(permitted.idled);
        match permitted.work {
            PermittedWork::OfCamera(look) => {
                let number = self.order.take(look.clone());
                wait(&mut self.begun, number, permitted.permit.look(look));
            }
            PermittedWork::OfRequest(request, inside) => {
                inside.took_permit();
                let answering = answer(permitted.permit, request, inside);
                self.answering.spawn(answering);
            }
        }
    }
}

/// Answers a request, unless its client disconnects before. Does not wait for the client.
async fn answer(permit: Permit, request: BegunRequest, mut inside: RequestInside) {
    let BegunRequest { look, reply } = request;
    let mut look = permit.look(look);
    let mut found = None;
    loop {
        let news = tokio::select! {
            news = look.next() => news,
            // Dropping the look cancels it.
            () = reply.closed() => return,
        };
        for news in news {
            match news {
                LookNews::Answer { answer, .. } => found = Some(answer),
                LookNews::Piece { piece, .. } => {
                    let _ = reply.try_send(Ok(RequestNews::Piece(piece)));
                }
                LookNews::ShortAnswered(_) => inside.gave_permit_back(),
                LookNews::Ended(outcome) => {
                    let answer = match outcome {
                        Outcome::Answered(_) => found
                            .map(|answer| RequestNews::Answer(Box::new(answer)))
                            .ok_or(UnansweredRequest::EngineLost),
                        Outcome::Late(_) => Err(UnansweredRequest::NoRoom),
                        Outcome::Failed(_, why) => Err(why.into()),
                    };
                    // The client may have disconnected.
                    let _ = reply.try_send(answer);
                    return;
                }
            }
        }
    }
}

fn wait(begun: &mut JoinSet<NumberedNews>, number: u64, mut look: SubmittedLook) {
    begun.spawn(async move {
        let news = look.next().await;
        (number, look, news)
    });
}

/// What is to be handed on when a look has more news; waits for the next.
fn in_turn(
    begun: &mut JoinSet<NumberedNews>,
    order: &mut OrderedLooks,
    joined: Result<NumberedNews, JoinError>,
) -> Result<Vec<LookNews>, EngineStopped> {
    let abnormal = |e: JoinError| EngineStopped(format!("the task of a look panicked: {e}"));
    let (number, look, news) = joined.map_err(abnormal)?;
    if !matches!(news.last(), Some(LookNews::Ended(_))) {
        wait(begun, number, look);
    }
    let heard = news.into_iter().map(|news| order.hear(number, news));
    Ok(heard.flatten().collect())
}

async fn last_of(
    begun: &mut JoinSet<NumberedNews>,
    order: &mut OrderedLooks,
    limit: Duration,
) -> Vec<LookNews> {
    let mut last = Vec::new();
    let all_ended = async {
        while let Some(joined) = begun.join_next().await {
            last.extend(in_turn(begun, order, joined).unwrap_or_default());
        }
    };
    let _ = timeout(limit, all_ended).await;
    last.extend(order.give_up());
    last
}

/// The looks that are not over, with the order in which their answers are handed on. Pure.
#[derive(Default)]
struct OrderedLooks {
    answers: InOrder<AnswerTurn>,
    looks: BTreeMap<u64, OrderedLook>,
    taken: u64,
}

struct OrderedLook {
    /// With the prompts that the engine has not answered.
    look: Look,
    /// Of each of these prompts.
    tickets: Vec<AnswerTicket>,
    /// Answers that are not handed on: short ones, and free texts.
    short: usize,
    texts: usize,
    short_answered: Option<Frame>,
    outcome: Option<Outcome>,
}

/// A prompt's turn: its answer, unless there is none.
struct AnswerTurn {
    look: u64,
    is_text: bool,
    news: Option<LookNews>,
}

impl OrderedLooks {
    /// A look is begun. Returns its number.
    fn take(&mut self, look: Look) -> u64 {
        self.taken += 1;
        let take = |prompt: &Arc<Prompt>| self.answers.take(&look.frame.camera, &prompt.id);
        let tickets: Vec<_> = look.prompts.iter().map(take).collect();
        let texts = look
            .prompts
            .iter()
            .filter(|p| p.task.is_free_text())
            .count();
        let begun = OrderedLook {
            short: tickets.len() - texts,
            texts,
            tickets,
            look,
            short_answered: None,
            outcome: None,
        };
        self.looks.insert(self.taken, begun);
        self.taken
    }

    /// A look has news. Returns what is to be handed on now.
    fn hear(&mut self, number: u64, news: LookNews) -> Vec<LookNews> {
        let Some(look) = self.looks.get_mut(&number) else {
            return Vec::new();
        };
        let mut turns = Vec::new();
        match news {
            LookNews::Answer { ref answer, .. } => {
                let mut prompts = look.look.prompts.iter();
                let index = prompts.position(|prompt| Arc::ptr_eq(prompt, &answer.prompt));
                turns.extend(index.map(|index| look.turn(number, index, Some(news))));
            }
            // Looks of cameras are not in pieces.
            LookNews::Piece { .. } => {}
            LookNews::ShortAnswered(frame) => look.short_answered = Some(frame),
            LookNews::Ended(outcome) => {
                look.outcome = Some(outcome);
                while !look.tickets.is_empty() {
                    turns.push(look.turn(number, 0, None));
                }
            }
        }
        let mut ready = Vec::new();
        for (ticket, answer) in turns {
            ready.extend(self.answers.end(ticket, answer));
        }
        let mut news = self.hand_on(ready);
        news.extend(self.over(number));
        news
    }

    /// Hands on what waits for looks that do not end.
    fn give_up(&mut self) -> Vec<LookNews> {
        let waiting = self.answers.give_up();
        self.hand_on(waiting)
    }

    /// The looks that are not over fail.
    fn fail(&mut self, why: &LookFailure) -> Vec<LookNews> {
        let open = std::mem::take(&mut self.looks);
        let failed = |look: OrderedLook| {
            let failed = || Outcome::Failed(look.look, why.clone());
            LookNews::Ended(look.outcome.unwrap_or_else(failed))
        };
        open.into_values().map(failed).collect()
    }

    fn hand_on(&mut self, ready: Vec<AnswerTurn>) -> Vec<LookNews> {
        let mut news = Vec::new();
        for answer in ready {
            news.extend(answer.news);
            if let Some(look) = self.looks.get_mut(&answer.look) {
                match answer.is_text {
                    true => look.texts -= 1,
                    false => look.short -= 1,
                }
            }
            news.extend(self.over(answer.look));
        }
        news
    }

    /// What a look has to say of itself, once the answers before are handed on.
    fn over(&mut self, number: u64) -> Vec<LookNews> {
        let Some(look) = self.looks.get_mut(&number).filter(|look| look.short == 0) else {
            return Vec::new();
        };
        let short_answered = look.short_answered.take().map(LookNews::ShortAnswered);
        let outcome = look.outcome.take_if(|_| look.texts == 0);
        if outcome.is_some() {
            self.looks.remove(&number);
        }
        let ended = outcome.map(LookNews::Ended);
        short_answered.into_iter().chain(ended).collect()
    }
}

impl OrderedLook {
    /// The turn of an unanswered prompt, given by its index among them.
    fn turn(
        &mut self,
        look: u64,
        index: usize,
        news: Option<LookNews>,
    ) -> (AnswerTicket, AnswerTurn) {
        let is_text = self.look.prompts.remove(index).task.is_free_text();
        let answer = AnswerTurn {
            look,
            is_text,
            news,
        };
        (self.tickets.remove(index), answer)
    }
}

/// Permit first, then the newest frame: the engine never gets an old one. While the engine begins no looks, the permit waits
/// without a frame. A request gets the permit only while no camera has a look for it.
fn next_look(
    engine: &EngineHandle,
    share: &Arc<CameraShare>,
    requests: Option<EngineRequests>,
    owed: OwedTime,
) -> NextPermitAndLook {
    let (engine, share) = (engine.clone(), Arc::clone(share));
    Box::pin(async move {
        let asked = Instant::now();
        let is_behind_request = requests.as_ref().is_some_and(EngineRequests::has_permit);
        let permit = engine.permit().await;
        let mut places = engine.places();
        let is_open = *places.borrow() > 0;
        if let Some(look) = is_open.then(|| share.try_next()).flatten() {
            let camera_waited = match is_behind_request {
                true => asked.elapsed(),
                false => Duration::ZERO,
            };
            return PermitUse {
                permit,
                work: PermittedWork::OfCamera(look),
                camera_waited,
                idled: Duration::ZERO,
            };
        }
        loop {
            let free = Instant::now();
            let work = tokio::select! {
                biased;
                () = until_open(&mut places, false) => {
                    until_open(&mut places, true).await;
                    continue;
                }
                look = share.next() => PermittedWork::OfCamera(look),
                (request, inside) = next_request(requests.as_ref(), owed) => {
                    PermittedWork::OfRequest(request, inside)
                }
            };
            return PermitUse {
                permit,
                work,
                camera_waited: Duration::ZERO,
                idled: free.elapsed(),
            };
        }
    })
}

/// Never ready without an API. Dropping the future loses nothing.
async fn next_request(
    requests: Option<&EngineRequests>,
    owed: OwedTime,
) -> (BegunRequest, RequestInside) {
    let Some(requests) = requests else {
        return pending().await;
    };
    sleep(owed.get()).await;
    match requests.enter().await {
        Some(inside) => (requests.queue.next().await, inside),
        None => pending().await,
    }
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
