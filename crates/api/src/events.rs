//! Answers as server-sent events, while they are written.
//!
//! ```text
//!   engine ──▶ piece, piece, … answer ──▶ AskedRequest ──▶ ReplyShape ──▶ body of the response
//! ```
//!
//! What fails before the first event is a refusal with a status. Afterwards the status is sent: an event has the error, and the connection ends
//! without the end of the body, so that a client which does not know such events notices it too.

use std::{io, mem, sync::Arc};

use axum::{
    body::Body,
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use serde_json::Value;
use tokio::{sync::OwnedSemaphorePermit, task::yield_now};

use super::{counters::CountedRequest, error::ApiError};
use spotter_core::{Answer, AnswerPiece};
use spotter_requests::{AskedRequest, RequestNews, RequestReply};

/// The form of the answers of one API.
pub trait ReplyShape: Send + 'static {
    /// An answer that is not sent as events.
    fn whole(&self, answer: &Answer) -> Value;

    /// Before the first piece.
    fn begin(&self) -> String {
        String::new()
    }

    /// Of a piece; empty where it is not shown.
    fn piece(&self, piece: &AnswerPiece) -> String;

    /// Behind the last piece.
    fn end(&self, answer: &Answer) -> String;
}

/// A request that an engine answers, with what it holds in the API until its response is over.
pub struct AnsweredRequest {
    pub news: AskedRequest,
    pub _place: OwnedSemaphorePermit,
    pub _counted: Option<Arc<CountedRequest>>,
}

pub fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// Waits for the first news, and answers with them and all later ones. Dropping the response cancels the request.
pub async fn streamed(
    mut request: AnsweredRequest,
    shape: impl ReplyShape,
) -> Result<Response, ApiError> {
    let first = request.news.next().await?;
    let events = EventStream {
        request,
        shape,
        phase: StreamPhase::First(first),
    };
    let body = stream::unfold(events, |mut events| async {
        Some((events.next().await?, events))
    });
    Ok(with_type(Body::from_stream(body)))
}

/// Events that are known at once.
pub fn whole(events: String) -> Response {
    with_type(Body::from(events))
}

fn with_type(body: Body) -> Response {
    let head = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (head, body).into_response()
}

struct EventStream<S> {
    request: AnsweredRequest,
    shape: S,
    phase: StreamPhase,
}

enum StreamPhase {
    First(RequestNews),
    Open,
    Failed,
    Ended,
}

impl<S: ReplyShape> EventStream<S> {
    /// The next events; `None` at the end.
    async fn next(&mut self) -> Option<io::Result<String>> {
        loop {
            let (begin, news) = match mem::replace(&mut self.phase, StreamPhase::Open) {
                StreamPhase::First(news) => (self.shape.begin(), Ok(news)),
                StreamPhase::Open => (String::new(), self.request.news.next().await),
                StreamPhase::Failed => {
                    // The event before is sent first.
                    yield_now().await;
                    return Some(Err(io::Error::other("the answer is incomplete")));
                }
                StreamPhase::Ended => return None,
            };
            let events = begin + &self.events(news);
            // An empty part would be the end of the body.
            if !events.is_empty() {
                return Some(Ok(events));
            }
        }
    }

    fn events(&mut self, news: RequestReply) -> String {
        match news {
            Ok(RequestNews::Piece(piece)) => self.shape.piece(&piece),
            // No request of the API has such a prompt.
            Ok(RequestNews::Outline(_)) => String::new(),
            Ok(RequestNews::Answer(answer)) => {
                self.phase = StreamPhase::Ended;
                self.shape.end(&answer)
            }
            Err(why) => {
                self.phase = StreamPhase::Failed;
                event(&ApiError::from(why).json())
            }
        }
    }
}
