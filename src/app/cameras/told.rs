//! What is told of a camera's health: when it is worth a message, and in which words.

use std::time::Duration;

use crate::{
    domain::Mono,
    ingest::{Health, Phase},
    ops::metrics::CameraCounts,
    publish::{CameraHealth, ClockHealth},
};

/// Health is told again after so long, changed or not.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// The part of a health whose change is worth a message; measured rates change all the time.
#[derive(PartialEq)]
pub struct Essence {
    engine_lost: bool,
    phase: Phase,
    failure: Option<&'static str>,
    attempts: u32,
    size: Option<(u32, u32)>,
    /// Counted, because a camera may go and come back between two looks at its health.
    losses: u64,
    trusted: bool,
    note: Option<&'static str>,
}

impl Essence {
    /// `engine_lost`: nobody will look at the camera any more.
    pub fn of(health: &Health, engine_lost: bool) -> Self {
        Self {
            engine_lost,
            phase: health.phase,
            failure: health.failure.as_ref().map(|failure| failure.fault.code()),
            attempts: health.attempts,
            size: health.stream.size,
            losses: health.losses,
            trusted: health.clock.trusted,
            note: health.clock.note.map(|note| note.as_str()),
        }
    }

    /// Is it worth a message, after what was told when?
    pub fn is_news(&self, told: Option<&(Self, Mono)>, now: Mono) -> bool {
        told.is_none_or(|(told, at)| told != self || now.since(*at) >= TELL_EVERY)
    }
}

/// Its counters.
pub fn counts(health: &Health) -> CameraCounts {
    CameraCounts {
        losses: health.losses,
        reconnects: health.reconnects,
        reconnects_1h: health.reconnects_1h,
        stalls: health.stalls,
        stalls_1h: health.stalls_1h,
        rtp_lost: health.rtp_lost,
        rtp_foreign: health.rtp_foreign,
        frames_corrupt: health.frames_corrupt,
        frames_late: health.frames_late,
        abandoned: health.abandoned,
    }
}

/// Is a camera in this phase meant to deliver?
pub fn is_on(phase: Phase) -> bool {
    !matches!(phase, Phase::Disabled | Phase::Ended)
}

/// A short code and a text, without any login.
pub fn reason(health: &Health) -> Option<String> {
    let failure = health.failure.as_ref()?;
    Some(format!("{}: {}", failure.fault.code(), failure.text))
}

/// The message.
pub fn message(health: &Health, reason: Option<String>) -> CameraHealth {
    let stream = &health.stream;
    CameraHealth {
        state: health.phase.as_str().into(),
        reason,
        since_ms: health.since.unix_millis(),
        attempts: health.attempts,
        next_retry_s: rounded(health.next_retry.map(|pause| pause.as_secs_f64())),
        codec: stream.codec.map(Into::into),
        w: stream.size.map(|(width, _)| width),
        h: stream.size.map(|(_, height)| height),
        fps_declared: rounded(stream.fps_declared),
        fps_measured: rounded(stream.fps_measured),
        gop_s: rounded(stream.gop_s),
        transport: stream.transport.map(Into::into),
        rtp_lost: health.rtp_lost,
        rtp_foreign: health.rtp_foreign,
        frames_corrupt: health.frames_corrupt,
        frames_late: health.frames_late,
        reconnects_1h: health.reconnects_1h,
        stalls_1h: health.stalls_1h,
        abandoned: health.abandoned,
        clock: ClockHealth {
            trusted: health.clock.trusted,
            offset_ms: rounded(health.clock.offset_ms),
            drift_ppm: rounded(health.clock.drift_ppm),
            sr_age_s: rounded(health.clock.report_age_s),
            note: health.clock.note.map(|note| note.as_str().into()),
        },
    }
}

/// To a hundredth: more digits are noise that makes every message another one.
fn rounded(value: Option<f64>) -> Option<f64> {
    value.map(|value| (value * 100.0).round() / 100.0)
}
