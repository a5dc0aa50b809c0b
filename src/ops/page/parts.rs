//! Pieces that several parts of the page use.

use maud::{Markup, html};

use super::{status::Mood, words};

/// A state: shape, colour and words.
pub fn pill(mood: Mood, words: &str) -> Markup {
    let (class, shape) = match mood {
        Mood::Good => ("good", "M3 8.5 6.5 12 13 4.5"),
        Mood::Busy => (
            "busy",
            "M8 3v5l3 3M8 1.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 1 1 0-13",
        ),
        Mood::Bad => ("bad", "M8 3v6M8 12v1"),
        Mood::Off => ("off", "M3 8h10"),
    };
    html! {
        span class=(format!("pill {class}")) {
            svg viewBox="0 0 16 16" aria-hidden="true" focusable="false" { path d=(shape) {} }
            (words)
        }
    }
}

/// Names and values, one below the other.
pub fn facts(facts: &[(&str, String)]) -> Markup {
    html! {
        dl.facts {
            @for (name, value) in facts {
                div { dt { (name) } dd { (value) } }
            }
        }
    }
}

/// How long ago a moment was.
pub fn since(unix_ms: i64, now_ms: i64) -> Markup {
    let seconds = u64::try_from((now_ms - unix_ms) / 1000).unwrap_or_default();
    html! {
        time datetime=(words::machine_time(unix_ms)) title=(format!("since {} UTC", words::clock_time(unix_ms))) {
            "for " (words::duration(seconds))
        }
    }
}

/// Why a state is not good, and when the next try is. Off on purpose is no alarm.
pub fn reason(mood: Mood, text: &str, next_retry_s: Option<f64>) -> Markup {
    html! {
        p.reason.calm[mood == Mood::Off] {
            (text) "."
            @if let Some(seconds) = next_retry_s { " Next try in " (words::duration(seconds as u64)) "." }
        }
    }
}

/// The colour of a stage, for legends.
pub fn chip(stage: usize) -> Markup {
    html! {
        svg.chip viewBox="0 0 10 10" aria-hidden="true" focusable="false" {
            rect class=(format!("s{stage}")) width="10" height="10" rx="2" {}
        }
    }
}

/// A value that may be unknown.
pub fn known<T>(value: Option<T>, shown: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "unknown".to_owned(), shown)
}
