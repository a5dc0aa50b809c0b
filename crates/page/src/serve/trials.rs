//! Pictures of cameras in full size, and words that are tried on them.

use axum::{
    Extension,
    extract::{Path, Request, State},
    http::{StatusCode, header},
    response::IntoResponse,
    routing::{get, post},
};

use super::{PageRoute, PageShared, PageState, Shows};
use crate::{
    access::AccessRefusal,
    trial::{ShownAreas, TRIAL_MAX_BYTES, TrialRefusal},
};
use spotter_http::{RequestSender, json_answer};

pub const ROUTES: &[PageRoute] = &[
    ("/camera/{camera}/now.jpg", Shows::Pictures, || {
        get(show_now)
    }),
    ("/camera/{camera}/prompts.json", Shows::Pictures, || {
        get(show_prompts)
    }),
    ("/camera/{camera}/unmasked.jpg", Shows::Change, || {
        get(show_unmasked)
    }),
    ("/try", Shows::Pictures, || post(try_words)),
];

/// The next frame of a camera.
async fn show_now(
    State(state): PageShared,
    Path(camera): Path<String>,
) -> Result<impl IntoResponse, TrialRefusal> {
    next_frame(&state, &camera, ShownAreas::Masked).await
}

/// The same without the camera's masks, for those who may change them.
async fn show_unmasked(
    State(state): PageShared,
    Path(camera): Path<String>,
) -> Result<impl IntoResponse, TrialRefusal> {
    next_frame(&state, &camera, ShownAreas::Whole).await
}

async fn next_frame(
    state: &PageState,
    camera: &str,
    areas: ShownAreas,
) -> Result<impl IntoResponse + use<>, TrialRefusal> {
    let jpeg = state.trials.now(camera, areas).await?;
    Ok(([(header::CONTENT_TYPE, "image/jpeg")], jpeg))
}

async fn show_prompts(
    State(state): PageShared,
    Path(camera): Path<String>,
) -> Result<impl IntoResponse, TrialRefusal> {
    let prompts = state.trials.prompts(&camera)?;
    Ok(json_answer(StatusCode::OK, prompts.to_string()))
}

/// Asks the model, for those who see pictures. It changes nothing, and takes a part of the engine: no foreign web page may send it.
async fn try_words(
    State(state): PageShared,
    Extension(sender): Extension<RequestSender>,
    request: Request,
) -> Result<Result<impl IntoResponse, TrialRefusal>, AccessRefusal> {
    state.check_json(&sender, request.headers(), TRIAL_MAX_BYTES)?;
    let answered = async {
        let body = state.trials.read(request.into_body()).await?;
        let answers = state.trials.answer(body, state.events.get()).await?;
        Ok(json_answer(StatusCode::OK, answers.to_string()))
    };
    Ok(answered.await)
}
