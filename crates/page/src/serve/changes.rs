//! Login, logout, and requests to the daemon.

use axum::{
    extract::{Path, Request, State},
    http::{StatusCode, header},
    response::IntoResponse,
    routing::{get, post},
};
use serde::Deserialize;

use super::{LOGIN_MAX_BYTES, PageRoute, PageShared, Shows};
use crate::{
    access::AccessRefusal,
    commands::{COMMAND_MAX_BYTES, PageQuestion, PageReply, UnansweredCommand},
};
use spotter_core::CameraId;

pub const ROUTES: &[PageRoute] = &[
    ("/login", Shows::Figures, || post(log_in)),
    ("/logout", Shows::Figures, || post(log_out)),
    ("/command", Shows::Change, || post(command)),
    ("/camera/{camera}/shapes.json", Shows::Pictures, || {
        get(show_shapes)
    }),
];

/// The body of a login.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

async fn log_in(
    State(state): PageShared,
    request: Request,
) -> Result<impl IntoResponse, AccessRefusal> {
    let change = state.change(request, LOGIN_MAX_BYTES).await?;
    let wrong = |_| AccessRefusal::WrongBody(LOGIN_MAX_BYTES);
    let login: Login = serde_json::from_value(change.body).map_err(wrong)?;
    let access = &state.access;
    let cookie = access.log_in(&login.token, &change.sender, &change.headers)?;
    tracing::info!(client = %change.sender.network, "login at the status page");
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]))
}

async fn log_out(
    State(state): PageShared,
    request: Request,
) -> Result<impl IntoResponse, AccessRefusal> {
    let change = state.change(request, LOGIN_MAX_BYTES).await?;
    let cookie = state.access.log_out(&change.sender, &change.headers);
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]))
}

/// Executes a command as over MQTT, and waits for its reply.
async fn command(
    State(state): PageShared,
    request: Request,
) -> Result<Result<PageReply, UnansweredCommand>, AccessRefusal> {
    let change = state.change(request, COMMAND_MAX_BYTES).await?;
    Ok(state.ask(PageQuestion::Command(change.body)).await)
}

async fn show_shapes(
    State(state): PageShared,
    Path(camera): Path<String>,
) -> Result<Result<PageReply, UnansweredCommand>, (StatusCode, &'static str)> {
    let camera = CameraId::new(&camera).map_err(|_| (StatusCode::NOT_FOUND, "no camera\n"))?;
    Ok(state.ask(PageQuestion::Shapes(camera)).await)
}
