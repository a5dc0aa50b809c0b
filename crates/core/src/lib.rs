//! The nouns of Spotter, shared by every stage: ids, time, frame, prompt, look, answer, event, command, geometry.
//!
//! Belongs here: what two stages must both name. Does not belong here: decisions, I/O (but for
//! `model.toml` and the one way to replace a file), wire formats (what
//! goes over MQTT is known to `publish` alone; serde carries nouns between two processes of one version, `service::wire`) and anything of a library (a GStreamer buffer arrives as [`Picture`]). Imports nothing of ours.

mod anchor;
mod answer;
mod backoff;
mod camera_shapes;
mod clock;
mod detection;
mod epoch;
mod event;
mod event_mark;
mod file;
mod follow_up;
mod frame;
mod frame_counters;
mod geometry;
mod gpu_precision;
mod ids;
mod latency;
mod log_throttle;
mod look_token;
mod model_record;
mod nearest;
mod phase;
mod plain_line;
mod polygon;
mod polygon_rules;
mod prompt;
mod prompt_quality;
mod prompt_state;
mod region;
mod rings;
mod schedule;
mod score_map;
mod setting;
mod stream_counters;
mod stream_fault;
mod strip;
#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test helpers panic with what is wrong"
)]
pub mod testing;
mod text_part;
mod time;
mod trigger;
mod values;
mod view;
mod window;

pub use {
    answer::*, backoff::*, camera_shapes::*, clock::*, detection::*, epoch::*, event::*,
    event_mark::*, file::*, follow_up::*, frame::*, frame_counters::*, geometry::*,
    gpu_precision::*, ids::*, latency::*, log_throttle::*, look_token::*, model_record::*,
    nearest::*, phase::*, plain_line::*, polygon::*, polygon_rules::*, prompt::*,
    prompt_quality::*, prompt_state::*, region::*, rings::*, schedule::*, score_map::*, setting::*,
    stream_counters::*, stream_fault::*, strip::*, text_part::*, time::*, trigger::*, values::*,
    view::*, window::*,
};
