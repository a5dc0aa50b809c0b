//! GStreamer's and GLib's own log lines go through ours, so that they are masked and written where all lines are.
//!
//! They know no camera and repeat themselves, so the bus and the watchdogs inform the operator. These lines are
//! shown on request: warnings and errors with `-v`, and with `GST_DEBUG` what it names.

use std::sync::Once;

use gstreamer::{self as gst, DebugLevel, glib};
use tracing::{debug, enabled, info, trace, warn};

/// Takes over, once; before `gst::init`, which would write to stderr itself otherwise.
pub fn forward() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let asked = std::env::var_os("GST_DEBUG").is_some();
        gst::log::remove_default_log_function();
        if !asked && enabled!(tracing::Level::DEBUG) {
            gst::log::set_default_threshold(DebugLevel::Warning);
        }
        gst::log::add_log_function(move |category, level, _, _, _, object, message| {
            let object = object.map(ToString::to_string).unwrap_or_default();
            let text = message.get();
            // An SDP has many lines; each would need a time and a level of its own.
            let text = text.as_deref().map_or("", |text| text.as_str());
            let text = text.trim_end().replace(['\r', '\n'], " | ");
            let category = category.name();
            match asked {
                true => info!(category, ?level, object, "GStreamer: {text}"),
                false => debug!(category, ?level, object, "GStreamer: {text}"),
            }
        });
        glib::log_set_default_handler(|domain, level, text| {
            let domain = domain.unwrap_or_default();
            match level {
                glib::LogLevel::Error | glib::LogLevel::Critical | glib::LogLevel::Warning => {
                    warn!(domain, "GLib: {text}");
                }
                glib::LogLevel::Message => debug!(domain, "GLib: {text}"),
                _ => trace!(domain, "GLib: {text}"),
            }
        });
    });
}
