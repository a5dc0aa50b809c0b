//! Requests of API and page inside an engine. They begin when no camera has a look due; a request that has begun is not interrupted.

use std::{future::pending, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use spotter_core::{Answer, AnswerBody, FoundObject, LookNews, NormBox, Outcome, Prompt, PromptId};
use spotter_engine::service::handle::Permit;
use spotter_events::track::outline_question;
use spotter_requests::{BegunRequest, RequestNews, RequestQueue, UnansweredRequest};

/// Requests inside an engine, of which all but one are free texts that are being written. The engine writes texts beside the looks of
/// cameras, the oldest first: more of them would delay the cameras' own texts.
const INSIDE_MAX: u32 = 4;

/// The requests of one engine: one has a permit at a time, the others write their free texts.
#[derive(Clone)]
pub struct EngineRequests {
    queue: Arc<RequestQueue>,
    inside: Arc<Semaphore>,
    /// Of the one request that has a permit of the engine, or waits to have one.
    short: Arc<Semaphore>,
}

/// A request whose turn it is; another one may begin when it is dropped, or has given its permit back.
pub struct BegunTurn {
    request: BegunRequest,
    _inside: OwnedSemaphorePermit,
    /// `None` when at most its free text is left.
    short: Option<OwnedSemaphorePermit>,
}

impl EngineRequests {
    pub fn new(queue: &Arc<RequestQueue>) -> Self {
        Self {
            queue: Arc::clone(queue),
            inside: Arc::new(Semaphore::new(INSIDE_MAX as usize)),
            short: Arc::new(Semaphore::new(1)),
        }
    }

    /// Waits until a request may begin, and for one. Dropping the future loses nothing.
    pub async fn next(&self) -> BegunTurn {
        let inside = Arc::clone(&self.inside).acquire_owned().await;
        let short = Arc::clone(&self.short).acquire_owned().await;
        let (Ok(inside), Ok(short)) = (inside, short) else {
            // The semaphores are never closed.
            return pending().await;
        };
        BegunTurn {
            request: self.queue.next().await,
            _inside: inside,
            short: Some(short),
        }
    }

    /// Waits until no request is inside.
    pub async fn all_answered(&self) {
        let _all = self.inside.acquire_many(INSIDE_MAX).await;
    }
}

impl BegunTurn {
    /// Answers the request, unless its client disconnects before. Does not wait for the client.
    pub async fn answer(mut self, permit: Permit) {
        let BegunRequest { look, reply } = self.request;
        let mut look = permit.look(look);
        let mut found: Option<Answer> = None;
        loop {
            let news = tokio::select! {
                news = look.next() => news,
                // Dropping the look cancels it.
                () = reply.closed() => return,
            };
            for news in news {
                match news {
                    LookNews::Answer { answer, .. } if found.is_some() => {
                        let _ = reply.try_send(Ok(RequestNews::Outline(Box::new(answer))));
                    }
                    LookNews::Answer {
                        answer, follow_up, ..
                    } => {
                        if let Some(follow_up) = follow_up {
                            follow_up.ask(outline_questions(&answer));
                        }
                        found = Some(answer);
                    }
                    LookNews::Piece { piece, .. } => {
                        let _ = reply.try_send(Ok(RequestNews::Piece(piece)));
                    }
                    LookNews::ShortAnswered(_) => self.short = None,
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
}

/// The questions for the outlines of the objects with the highest scores.
fn outline_questions(answer: &Answer) -> Vec<Arc<Prompt>> {
    let AnswerBody::Boxes(found) = &answer.body else {
        return Vec::new();
    };
    let mut found: Vec<_> = found.iter().collect();
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    let wanted = (0..).zip(found.iter().take(answer.prompt.outlines_max.into()));
    let question = |(number, object): (u64, &&FoundObject<NormBox>)| {
        let id = PromptId::numbered("outline", number);
        outline_question(id, &answer.prompt, object.place)
    };
    wanted.map(question).collect()
}
