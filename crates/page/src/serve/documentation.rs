//! The documentation of this version, for boxes without an internet connection.

use axum::{
    extract::Path,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};

use super::{PageAnswer, PageRoute, Shows};

pub const ROUTES: &[PageRoute] = &[("/docs/{page}", Shows::Figures, || get(show_documentation))];

/// Pages of the documentation, which `help.js` shows.
const DOCS: &[(&str, &str)] = &[
    ("api.md", include_str!("../../../../docs/api.md")),
    (
        "configuration.md",
        include_str!("../../../../docs/configuration.md"),
    ),
    ("faults.md", include_str!("../../../../docs/faults.md")),
    ("fleet.md", include_str!("../../../../docs/fleet.md")),
    ("glossary.md", include_str!("../../../../docs/glossary.md")),
    ("gpu.md", include_str!("../../../../docs/gpu.md")),
    ("install.md", include_str!("../../../../docs/install.md")),
    ("models.md", include_str!("../../../../docs/models.md")),
    ("mqtt.md", include_str!("../../../../docs/mqtt.md")),
    ("onvif.md", include_str!("../../../../docs/onvif.md")),
    (
        "operations.md",
        include_str!("../../../../docs/operations.md"),
    ),
    ("page.md", include_str!("../../../../docs/page.md")),
    ("recipes.md", include_str!("../../../../docs/recipes.md")),
    ("scores.md", include_str!("../../../../docs/scores.md")),
    ("state.md", include_str!("../../../../docs/state.md")),
    ("webhooks.md", include_str!("../../../../docs/webhooks.md")),
];

async fn show_documentation(Path(page): Path<String>) -> PageAnswer<impl IntoResponse> {
    let found = DOCS.iter().find(|(name, _)| *name == page);
    let (_, text) = found.ok_or((
        StatusCode::NOT_FOUND,
        "the program does not contain this page of the documentation\n",
    ))?;
    let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    Ok((kind, *text))
}
