//! Requests that wait for an engine. Any engine that has room takes the next one.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::timeout,
};

use spotter_core::{AdapterId, Answer, AnswerPiece, Look, LookFailure};

/// How an engine names the prompt of a request: the first one of [`Look::still`].
const ONLY_PROMPT: &str = "prompt ask-0: ";

/// News of a request, or why it has no answer, which is the last.
pub type RequestReply = Result<RequestNews, UnansweredRequest>;

/// What the client of a request gets.
#[derive(Clone, Debug)]
pub enum RequestNews {
    /// Before the answer, if the look is in pieces.
    Piece(AnswerPiece),
    /// The answer to the question for the outline of an object of the answer, before that, if its prompt has outlines.
    Outline(Box<Answer>),
    /// Nothing follows.
    Answer(Box<Answer>),
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnansweredRequest {
    #[error("the model is being opened; ask again in a minute")]
    Opening,
    #[error("Spotter is stopping or restarting; ask again in a minute")]
    Stopping,
    #[error("the cameras need the engine; ask again later, or lower their rates")]
    NoRoom,
    #[error("the engine stopped while it answered; ask again")]
    EngineLost,
    #[error("the engine failed at this request: {0}")]
    Failed(String),
    #[error("adapter {id}: {reason}")]
    Adapter { id: AdapterId, reason: String },
    /// The model cannot answer this.
    #[error("{0}")]
    Unfit(String),
}

impl From<LookFailure> for UnansweredRequest {
    fn from(failure: LookFailure) -> Self {
        match failure {
            // A client does not know that its question is a prompt of a look.
            LookFailure::Unfit(why) => {
                let why = why.strip_prefix(ONLY_PROMPT).unwrap_or(&why);
                Self::Unfit(why.to_owned())
            }
            LookFailure::Engine(why) => Self::Failed(why),
            LookFailure::Adapter { id, reason } => Self::Adapter { id, reason },
            LookFailure::EngineStopped => Self::EngineLost,
        }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct RequestQueue {
    state: Mutex<QueueState>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    is_closed: bool,
    waiting: VecDeque<WaitingRequest>,
}

#[derive(Debug)]
struct WaitingRequest {
    request: BegunRequest,
    /// Closed when the client waits no longer.
    begun: oneshot::Sender<()>,
}

/// A request that an engine has begun.
#[derive(Debug)]
pub struct BegunRequest {
    pub look: Look,
    /// Has room for the whole answer, so that nothing waits for a slow client. Closed when the client has disconnected.
    pub reply: mpsc::Sender<RequestReply>,
}

/// A request that an engine has begun, for its client. Dropping it cancels the request.
#[derive(Debug)]
pub struct AskedRequest {
    queue: Arc<RequestQueue>,
    replies: mpsc::Receiver<RequestReply>,
}

impl AskedRequest {
    /// Waits for more. Not to be called after the last.
    pub async fn next(&mut self) -> RequestReply {
        match self.replies.recv().await {
            Some(reply) => reply,
            None if self.queue.is_closed() => Err(UnansweredRequest::Stopping),
            None => Err(UnansweredRequest::EngineLost),
        }
    }

    /// Waits for the answer.
    pub async fn answer(mut self) -> Result<Answer, UnansweredRequest> {
        loop {
            if let RequestNews::Answer(answer) = self.next().await? {
                return Ok(*answer);
            }
        }
    }
}

impl RequestQueue {
    /// Refuses the requests that wait and all later ones. Those that are begun may end.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.waiting.clear();
    }

    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Waits at most `wait` until an engine begins the request, a look at a picture from no camera. Dropping the future cancels the request.
    pub async fn ask(
        self: &Arc<Self>,
        look: Look,
        wait: Duration,
    ) -> Result<AskedRequest, UnansweredRequest> {
        let (reply, replies) = mpsc::channel(AnswerPiece::MAX + 1);
        let (begun, is_begun) = oneshot::channel();
        let request = BegunRequest { look, reply };
        self.push(WaitingRequest { request, begun })?;
        match timeout(wait, is_begun).await {
            Ok(Ok(())) => Ok(AskedRequest {
                queue: Arc::clone(self),
                replies,
            }),
            Ok(Err(_)) => Err(UnansweredRequest::Stopping),
            Err(_) => Err(UnansweredRequest::NoRoom),
        }
    }

    /// Waits for the next request, which is begun now. Dropping the future loses nothing.
    pub async fn next(&self) -> BegunRequest {
        loop {
            // Queued before looking, so that each request that arrives after the look wakes a caller of its own.
            let mut arrived = pin!(self.arrived.notified());
            arrived.as_mut().enable();
            if let Some(request) = self.pop() {
                return request;
            }
            arrived.await;
        }
    }

    fn push(&self, request: WaitingRequest) -> Result<(), UnansweredRequest> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(UnansweredRequest::Stopping);
        }
        // Those whose clients wait no longer keep no pictures.
        state.waiting.retain(|waiting| !waiting.begun.is_closed());
        state.waiting.push_back(request);
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Requests that no engine has begun.
    #[cfg(feature = "testing")]
    pub fn waiting(&self) -> usize {
        let state = self.lock();
        let waiting = state.waiting.iter();
        waiting.filter(|waiting| !waiting.begun.is_closed()).count()
    }

    fn pop(&self) -> Option<BegunRequest> {
        loop {
            let WaitingRequest { request, begun } = self.lock().waiting.pop_front()?;
            // A client that has waited too long is not begun.
            if begun.send(()).is_ok() {
                return Some(request);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::{Picture, Task};

    #[test]
    fn reason_for_a_client_does_not_name_the_prompt() {
        let picture = Picture::from_rgb(1, 1, vec![0; 3]).unwrap();
        let object = "car".into();
        let look = Look::still(picture, [Task::Detect { object }]);
        let prompt = &look.prompts[0].id;
        let why = LookFailure::Unfit(format!("prompt {prompt}: the text has 300 tokens"));
        let expected = UnansweredRequest::Unfit("the text has 300 tokens".into());
        assert_eq!(UnansweredRequest::from(why), expected);
    }
}
