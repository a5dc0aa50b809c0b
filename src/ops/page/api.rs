//! The local HTTP API on the page: where it listens, and what became of its requests.

use maud::{Markup, html};
use serde::Serialize;

use super::{
    parts::facts,
    words::{counted, number},
};

/// The API.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ApiLine {
    pub address: String,
    /// Tokens of which a request needs one; 0: none is needed.
    pub tokens: usize,
    /// Requests in progress.
    pub open: u64,
    /// Answered since the start.
    pub answered: u64,
    /// Refused since the start: wrong, without a token, too many, or without room beside the cameras.
    pub refused: u64,
    /// Not answered since the start because of this box.
    pub failed: u64,
}

pub fn panel(api: &ApiLine) -> Markup {
    let tokens = match api.tokens {
        0 => "no token needed".to_owned(),
        tokens => counted(tokens, "token"),
    };
    let lines = [
        ("Address", format!("{}, {tokens}", api.address)),
        ("Requests in progress", number(api.open)),
        ("Answered", number(api.answered)),
        ("Refused", number(api.refused)),
        ("Failed", number(api.failed)),
    ];
    html! {
        section.panel aria-labelledby="h-api" {
            h2 #h-api { "HTTP API" }
            (facts(&lines))
        }
    }
}
