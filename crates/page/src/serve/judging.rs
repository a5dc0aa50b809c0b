//! Marks of events, alarms to judge, and how right the prompts are.

use axum::{
    extract::{Request, State},
    http::Uri,
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use serde_json::{Value, json};

use super::{LOGIN_MAX_BYTES, PageRoute, PageShared, PageState, Shows};
use crate::{
    access::AccessRefusal, commands::PageQuestion, events::EventRefusal, judging::JudgingAnswers,
};

pub const ROUTES: &[PageRoute] = &[
    ("/judge.json", Shows::Pictures, || get(list)),
    ("/judge/draw", Shows::Change, || post(draw)),
    ("/judge/use", Shows::Change, || post(take_proposal)),
    ("/events/mark", Shows::Change, || post(mark)),
];

/// Bytes of 50 places, with room.
const MARK_MAX_BYTES: usize = 2 * LOGIN_MAX_BYTES;

type ChangeAnswer = Result<Result<Response, EventRefusal>, AccessRefusal>;

fn judging(state: &PageState) -> Result<&JudgingAnswers, EventRefusal> {
    state.judging.get().ok_or(EventRefusal::Starting)
}

/// With `camera` and `prompt` in the query, that prompt.
async fn list(State(state): PageShared, uri: Uri) -> Result<Response, EventRefusal> {
    judging(&state)?.list(uri.query()).await
}

async fn draw(State(state): PageShared, request: Request) -> ChangeAnswer {
    let change = state.change(request, LOGIN_MAX_BYTES).await?;
    let drawn = async { judging(&state)?.draw(change.body).await };
    Ok(drawn.await)
}

/// The change of `min_score` is that of a command.
async fn take_proposal(State(state): PageShared, request: Request) -> ChangeAnswer {
    let change = state.change(request, LOGIN_MAX_BYTES).await?;
    let taken = async {
        let judging = judging(&state)?;
        let proposal = judging.proposal(change.body).await?;
        let asked = PageQuestion::Command(proposal.command.clone());
        Ok(match state.ask(asked).await {
            Ok(mut reply) => {
                if reply.status == 200
                    && let Err(error) = judging.promise(proposal).await
                {
                    let warning =
                        format!("min_score is set, but the promise is not stored: {error}");
                    let body = json!({"ok": true, "warning": warning});
                    reply.json = body.to_string().into_bytes();
                }
                reply.into_response()
            }
            Err(unanswered) => unanswered.into_response(),
        })
    };
    Ok(taken.await)
}

async fn mark(State(state): PageShared, request: Request) -> ChangeAnswer {
    let change = state.change(request, MARK_MAX_BYTES).await?;
    let marked = async {
        let events = state.events.get().ok_or(EventRefusal::Starting)?;
        let wrong = || EventRefusal::Wrong("needs id, and mark".to_owned());
        let mut keys = change.body;
        let id = keys.as_object_mut().and_then(|keys| keys.remove("id"));
        let id = id.as_ref().and_then(Value::as_str).ok_or_else(wrong)?;
        events.mark(id, keys).await
    };
    Ok(marked.await)
}
