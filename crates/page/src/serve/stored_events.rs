//! The history of events.

use axum::{
    extract::{Path, Request, State},
    http::Uri,
    response::Response,
    routing::{get, post},
};

use super::{LOGIN_MAX_BYTES, PageRoute, PageShared, PageState, Shows};
use crate::{
    access::AccessRefusal,
    commands::COMMAND_MAX_BYTES,
    events::{self, EventAnswers, EventRefusal},
    trial::TrialRefusal,
};
use serde::Deserialize;
use spotter_core::CameraShapes;
use spotter_history::PictureLinks;

pub const ROUTES: &[PageRoute] = &[
    ("/events.json", Shows::Pictures, || get(list_events)),
    ("/events.zip", Shows::Pictures, || get(export_events)),
    ("/export.json", Shows::Pictures, || get(check_export)),
    ("/events/{event}", Shows::Pictures, || get(show_event)),
    ("/events/delete", Shows::Change, || post(delete_events)),
    ("/camera/{camera}/shapes-preview", Shows::Pictures, || {
        post(preview_shapes)
    }),
];

/// The body of a question about shapes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PreviewedShapes {
    shapes: CameraShapes,
}

fn events(state: &PageState) -> Result<&EventAnswers, EventRefusal> {
    state.events.get().ok_or(EventRefusal::Starting)
}

async fn list_events(State(state): PageShared, uri: Uri) -> Result<Response, EventRefusal> {
    events(&state)?.list(uri.query(), PictureLinks::Page).await
}

async fn export_events(State(state): PageShared, uri: Uri) -> Result<Response, EventRefusal> {
    events(&state)?.export(uri.query()).await
}

/// Refuses what [`export_events`] refuses, and begins no export.
async fn check_export(State(state): PageShared, uri: Uri) -> Result<(), EventRefusal> {
    events(&state)?.may_export(uri.query()).map(drop)
}

/// `ID.jpg` or `ID.json`.
async fn show_event(
    State(state): PageShared,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Response, EventRefusal> {
    let events = events(&state)?;
    match name.rsplit_once('.') {
        Some((id, "jpg")) => events.picture(id, uri.query()).await,
        Some((id, "json")) => events.event(id, PictureLinks::Page).await,
        _ => Err(EventRefusal::Unknown),
    }
}

async fn delete_events(
    State(state): PageShared,
    request: Request,
) -> Result<Result<Response, EventRefusal>, AccessRefusal> {
    let change = state.change(request, LOGIN_MAX_BYTES).await?;
    let deleted = async {
        events(&state)?
            .delete(events::selection(change.body)?)
            .await
    };
    Ok(deleted.await)
}

/// It changes nothing, and takes some seconds of a core: no foreign web page may ask.
async fn preview_shapes(
    State(state): PageShared,
    Path(camera): Path<String>,
    request: Request,
) -> Result<Result<Response, TrialRefusal>, AccessRefusal> {
    let asked = state.change(request, COMMAND_MAX_BYTES).await?;
    let previewed = async {
        let camera = state.trials.camera(&camera)?;
        let wrong = |error: serde_json::Error| TrialRefusal::Wrong(error.to_string());
        let PreviewedShapes { shapes } = serde_json::from_value(asked.body).map_err(wrong)?;
        Ok(events(&state)?.preview(camera, shapes).await?)
    };
    Ok(previewed.await)
}
