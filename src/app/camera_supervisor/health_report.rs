//! A camera's published health: when it is published, and its message.

use std::{fmt, time::Duration};

use spotter_cameras::ingest::Health;
use spotter_core::{Mono, Phase, rounded};
use spotter_mqtt::{CameraClockHealth, CameraHealth, Off};
use spotter_page::TroubleKind;

/// Unchanged health is published again after this time.
const REPEAT_AFTER: Duration = Duration::from_secs(60);

/// A health as it was published.
pub struct HealthDigest {
    health: Health,
    reason: Option<&'static str>,
    at: Mono,
}

impl HealthDigest {
    /// `reason`: why the camera does not stream, or why prompts are not asked.
    pub fn new(health: &Health, reason: Option<&HealthReason>, at: Mono) -> Self {
        Self {
            health: health.clone(),
            reason: reason.map(|reason| reason.code),
            at,
        }
    }

    /// Whether it is to be published, too. Measured rates change all the time.
    pub fn is_due_after(&self, last: Option<&Self>) -> bool {
        last.is_none_or(|last| last.key() != self.key() || self.at.since(last.at) >= REPEAT_AFTER)
    }

    /// What is published at once when it changes. A counter of losses, because a camera may be lost and stream again between two ticks.
    fn key(&self) -> impl PartialEq {
        let Health {
            phase,
            attempts,
            losses,
            stream,
            clock,
            ..
        } = &self.health;
        let of_stream = (
            stream.size,
            stream.decoder.clone(),
            stream.is_faster_than_declared,
        );
        let of_clock = (clock.trusted, clock.note.map(|note| note.as_str()));
        (*phase, self.reason, *attempts, *losses, of_stream, of_clock)
    }
}

/// Why a camera does not stream, or why prompts of it are not asked: a short code and a text, without any login.
pub struct HealthReason {
    code: &'static str,
    pub kind: TroubleKind,
    text: String,
}

impl HealthReason {
    /// `off`: why the configuration has it off. `unasked`: of a camera that streams, why prompts are not asked.
    pub fn of(
        health: &Health,
        off: Option<Off>,
        unasked: Option<(TroubleKind, &str)>,
    ) -> Option<Self> {
        let off = match health.phase {
            Phase::Disabled => off,
            Phase::Ended => Some(Off::Ended),
            _ => None,
        };
        let (code, kind, text) = match (off, &health.failure) {
            (Some(off), _) => (off.code(), TroubleKind::Starting, off.text()),
            _ if health.phase == Phase::Streaming => {
                let (kind, text) = unasked?;
                (kind.into(), kind, text)
            }
            (None, failure) => {
                let failure = failure.as_ref()?;
                let fault = failure.fault;
                (fault.code(), TroubleKind::Camera(fault), &*failure.text)
            }
        };
        let text = text.to_owned();
        Some(Self { code, kind, text })
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
        next_retry_s: hundredths(health.next_retry.map(|pause| pause.as_secs_f64())),
        codec: stream.codec.map(Into::into),
        w: stream.size.map(|(width, _)| width),
        h: stream.size.map(|(_, height)| height),
        fps_declared: hundredths(stream.fps_declared),
        fps_measured: hundredths(stream.fps_measured),
        gop_s: hundredths(stream.gop_s),
        transport: stream.transport.map(Into::into),
        decoder: stream.decoder.clone(),
        note: (stream.is_faster_than_declared).then(|| "faster_than_declared".into()),
        counters: health.counters,
        reconnects_1h: health.reconnects_1h,
        stalls_1h: health.stalls_1h,
        abandoned: health.abandoned,
        clock: CameraClockHealth {
            trusted: health.clock.trusted,
            offset_ms: hundredths(health.clock.offset_ms),
            drift_ppm: hundredths(health.clock.drift_ppm),
            sr_age_s: hundredths(health.clock.report_age_s),
            note: health.clock.note.map(|note| note.as_str().into()),
        },
    }
}

/// More digits are noise.
fn hundredths(value: Option<f64>) -> Option<f64> {
    value.map(|value| rounded(value, 2))
}
