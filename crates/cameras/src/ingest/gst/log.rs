//! GStreamer's and GLib's own log lines go through ours, so that they are masked and written where all lines are.
//!
//! They know no camera and repeat themselves, so the bus and the watchdogs inform the operator. These lines are
//! shown on request: warnings and errors with `-v`, and with `GST_DEBUG` what it names. Only the lines that
//! `GST_DEBUG` names are not limited: a loop in a library could fill the disk with one line.

use std::sync::{Arc, Mutex, Once};

use gstreamer::{self as gst, DebugLevel, glib};
use tracing::{debug, enabled, info, warn};

use crate::lock;
use spotter_core::{Clock, LogThrottle, SystemClock};

/// Texts that are logged in a minute, each once.
const TEXTS_MAX: usize = 32;

/// Lines that differ in numbers and addresses alone are the same line.
fn kind(text: &str) -> String {
    let is_hex = |word: &str| word.starts_with("0x") || word.chars().any(|c| c.is_ascii_digit());
    let words = text.split_whitespace().take(16);
    let words = words.map(|word| if is_hex(word) { "#" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// `Some` for a line that is to be logged, with the number of suppressed ones before it.
fn throttle() -> impl Fn(&str) -> Option<Option<u64>> + Send + Sync {
    let texts = Mutex::new(LogThrottle::with_max_kinds(TEXTS_MAX));
    let clock = SystemClock::new();
    move |text| {
        let suppressed = lock(&texts).admit(kind(text), clock.now())?;
        Some((suppressed > 0).then_some(suppressed))
    }
}

/// Takes over, once; before `gst::init`, which would write to stderr itself otherwise.
pub fn forward() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let asked = std::env::var_os("GST_DEBUG").is_some();
        gst::log::remove_default_log_function();
        if !asked && enabled!(tracing::Level::DEBUG) {
            gst::log::set_default_threshold(DebugLevel::Warning);
        }
        let admit = Arc::new(throttle());
        let admit_glib = Arc::clone(&admit);
        gst::log::add_log_function(move |category, level, _, _, _, object, message| {
            let object = object.map(ToString::to_string).unwrap_or_default();
            let text = message.get();
            // An SDP has many lines; each would need a time and a level of its own.
            let text = text.as_deref().map_or("", |text| text.as_str());
            let text = text.trim_end().replace(['\r', '\n'], " | ");
            let category = category.name();
            if asked {
                info!(category, ?level, object, "GStreamer: {text}");
            } else if let Some(suppressed) = admit(&text) {
                debug!(category, ?level, object, suppressed, "GStreamer: {text}");
            }
        });
        glib::log_set_default_handler(move |domain, level, text| {
            let (domain, suppressed) = (domain.unwrap_or_default(), admit_glib(text));
            match (suppressed, level) {
                (None, _) => {}
                (
                    Some(suppressed),
                    glib::LogLevel::Error | glib::LogLevel::Critical | glib::LogLevel::Warning,
                ) => {
                    warn!(domain, suppressed, "GLib: {text}");
                }
                (Some(suppressed), _) => debug!(domain, suppressed, "GLib: {text}"),
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    // Faults: C52.
    #[test]
    fn flood_of_a_library_is_a_few_lines_a_minute() {
        let admit = throttle();
        let logged = |text: &dyn Fn(u64) -> String| {
            (0..10_000).filter(|n| admit(&text(*n)).is_some()).count()
        };
        assert_eq!(logged(&|_| "poll failed".to_owned()), 1);
        assert_eq!(
            logged(&|n| format!("assertion failed in {n:#x} of thread-{n}")),
            1
        );
        let other = logged(&|n| format!("line {}", "x".repeat(n as usize % 100)));
        assert_eq!(other, TEXTS_MAX - 2);
    }
}
