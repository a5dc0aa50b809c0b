//! What is told of a camera's health: when it is worth a message, and in which words.

use std::{fmt, time::Duration};

use crate::ops::metrics::CameraCounts;
use spotter_cameras::ingest::{Health, Phase};
use spotter_core::Mono;
use spotter_mqtt::{CameraHealth, ClockHealth, Off};

/// Health is told again after so long, changed or not.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// The part of a health whose change is worth a message; measured rates change all the time.
#[derive(PartialEq)]
pub struct Essence {
    phase: Phase,
    reason: Option<&'static str>,
    attempts: u32,
    size: Option<(u32, u32)>,
    decoder: Option<String>,
    /// Counted, because a camera may go and come back between two looks at its health.
    losses: u64,
    trusted: bool,
    note: Option<&'static str>,
}

impl Essence {
    /// Of a camera that does not stream for that `reason`.
    pub fn of(health: &Health, reason: Option<&Reason>) -> Self {
        Self {
            phase: health.phase,
            reason: reason.map(|reason| reason.code),
            attempts: health.attempts,
            size: health.stream.size,
            decoder: health.stream.decoder.clone(),
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
        counters: health.counters,
        abandoned: health.abandoned,
    }
}

/// Is a camera in this phase meant to deliver?
pub fn is_on(phase: Phase) -> bool {
    !matches!(phase, Phase::Disabled | Phase::Ended)
}

/// Why a camera does not stream: a short code and a text, without any login.
pub struct Reason {
    code: &'static str,
    text: String,
}

impl Reason {
    /// `engine_lost`: why nobody will look at it any more. `off`: why it is not wanted now.
    pub fn of(health: &Health, engine_lost: Option<&str>, off: Option<Off>) -> Option<Self> {
        if let Some(why) = engine_lost {
            return Some(Self::new("engine_lost", why));
        }
        let off = match health.phase {
            Phase::Disabled => off,
            Phase::Ended => Some(Off::Ended),
            _ => None,
        };
        if let Some(off) = off {
            return Some(Self::new(off.code(), off.text()));
        }
        let failure = health.failure.as_ref()?;
        Some(Self::new(failure.fault.code(), &failure.text))
    }

    fn new(code: &'static str, text: &str) -> Self {
        Self {
            code,
            text: text.to_owned(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.text)
    }
}

/// The message.
pub fn message(health: &Health, reason: Option<&Reason>) -> CameraHealth {
    let stream = &health.stream;
    CameraHealth {
        state: health.phase.as_str().into(),
        reason: reason.map(Reason::to_string),
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
        decoder: stream.decoder.clone(),
        counters: health.counters,
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
