//! The webhooks on the page: whether their receivers accept events, and what became of them.

use maud::{Markup, html};
use serde::Serialize;

use super::{
    parts::{facts, pill, reason},
    status::Mood,
    words::number,
};

/// A webhook.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WebhookLine {
    pub name: String,
    /// Host and port, without the rest of the URL.
    pub address: String,
    pub mood: Mood,
    pub state: &'static str,
    /// What is wrong.
    pub reason: Option<String>,
    /// Seconds until the next try.
    pub next_retry_s: Option<f64>,
    /// Events that the receiver has not accepted.
    pub waiting: u64,
    /// Accepted by the receiver since the start.
    pub posted: u64,
    /// Repeated requests since the start.
    pub retried: u64,
    /// Events that the receiver refused since the start.
    pub refused: u64,
    /// Events lost since the start: beyond the bounds, or unreadable.
    pub dropped: u64,
}

pub fn panel(webhooks: &[WebhookLine]) -> Markup {
    html! {
        section.panel aria-labelledby="h-webhooks" {
            h2 #h-webhooks { "Webhooks" }
            @for webhook in webhooks { (self::webhook(webhook)) }
        }
    }
}

fn webhook(webhook: &WebhookLine) -> Markup {
    let lines = [
        ("Receiver", webhook.address.clone()),
        ("Posted", number(webhook.posted)),
        ("Waiting", number(webhook.waiting)),
        ("Repeated requests", number(webhook.retried)),
        ("Refused", number(webhook.refused)),
        ("Dropped", number(webhook.dropped)),
    ];
    html! {
        div.engine {
            div.title { h3 { (webhook.name) } (pill(webhook.mood, webhook.state)) }
            @if let Some(text) = &webhook.reason {
                (reason(webhook.mood, text, webhook.next_retry_s))
            }
            (facts(&lines))
        }
    }
}
