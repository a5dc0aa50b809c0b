//! A camera's published health: when it is published, and its message.

use std::{fmt, time::Duration};

use spotter_cameras::ingest::Health;
use spotter_core::{Mono, Phase};
use spotter_mqtt::{CameraClockHealth, CameraHealth, Off};

/// Unchanged health is published again after this time.
const REPEAT_AFTER: Duration = Duration::from_secs(60);

/// The part of a health whose change is published at once; measured rates change all the time.
#[derive(PartialEq)]
pub struct HealthDigest {
    phase: Phase,
    reason: Option<&'static str>,
    attempts: u32,
    size: Option<(u32, u32)>,
    decoder: Option<String>,
    /// A counter, because a camera may be lost and stream again between two ticks.
    losses: u64,
    trusted: bool,
    clock_note: Option<&'static str>,
    is_faster_than_declared: bool,
}

impl HealthDigest {
    /// `reason`: why the camera does not stream, or what its frames do not suffice for.
    pub fn of(health: &Health, reason: Option<&HealthReason>) -> Self {
        Self {
            phase: health.phase,
            reason: reason.map(|reason| reason.code),
            attempts: health.attempts,
            size: health.stream.size,
            decoder: health.stream.decoder.clone(),
            losses: health.losses,
            trusted: health.clock.trusted,
            clock_note: health.clock.note.map(|note| note.as_str()),
            is_faster_than_declared: health.stream.is_faster_than_declared,
        }
    }

    /// Whether it is to be published. `published`: the last published digest and its time.
    pub fn is_due(&self, published: Option<&(Self, Mono)>, now: Mono) -> bool {
        published.is_none_or(|(digest, at)| digest != self || now.since(*at) >= REPEAT_AFTER)
    }
}

/// Why a camera does not stream, or what its frames do not suffice for: a short code and a text, without any login.
pub struct HealthReason {
    code: &'static str,
    text: String,
}

impl HealthReason {
    /// `off`: why the configuration has it off.
    pub fn of(health: &Health, off: Option<Off>) -> Option<Self> {
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

    /// It streams, and no strips can be made of its frames.
    pub fn no_strips(text: &str) -> Self {
        Self::new("no_strips", text)
    }

    fn new(code: &'static str, text: &str) -> Self {
        Self {
            code,
            text: text.to_owned(),
        }
    }
}

impl fmt::Display for HealthReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.text)
    }
}

pub fn health_message(health: &Health, reason: Option<&HealthReason>) -> CameraHealth {
    let stream = &health.stream;
    CameraHealth {
        state: health.phase,
        reason: reason.map(HealthReason::to_string),
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
        note: (stream.is_faster_than_declared).then(|| "faster_than_declared".into()),
        counters: health.counters,
        reconnects_1h: health.reconnects_1h,
        stalls_1h: health.stalls_1h,
        abandoned: health.abandoned,
        clock: CameraClockHealth {
            trusted: health.clock.trusted,
            offset_ms: rounded(health.clock.offset_ms),
            drift_ppm: rounded(health.clock.drift_ppm),
            sr_age_s: rounded(health.clock.report_age_s),
            note: health.clock.note.map(|note| note.as_str().into()),
        },
    }
}

/// To a hundredth: more digits are noise.
fn rounded(value: Option<f64>) -> Option<f64> {
    value.map(|value| (value * 100.0).round() / 100.0)
}
