//! What is reported about a camera: its phase, why it is not streaming, and what its stream is like (docs/mqtt.md section 2).

use std::time::Duration;

use super::clock::ClockHealth;
use spotter_core::{Phase, StreamCounters, StreamFault, WallTime};

/// Of a stream that worked.
pub(super) const INTERRUPTED: &str = "the stream was interrupted by bytes that are no packet of it; reconnecting. Where this repeats, \
     update the camera's firmware or the proxy in between";

/// A fault with a text that an operator can act on. Never contains a login.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    pub fault: StreamFault,
    /// What was tried, on what, what is wrong, what to do.
    pub text: String,
    /// The camera refuses a transport that was tried because the other one gave no frames or was refused.
    pub(super) is_second_refusal: bool,
}

impl Failure {
    pub fn new(fault: StreamFault, text: impl Into<String>) -> Self {
        Self {
            fault,
            text: text.into(),
            is_second_refusal: false,
        }
    }

    /// With the usual text of the fault.
    pub(super) fn of(fault: StreamFault) -> Self {
        let text = match fault {
            StreamFault::Unsupported => {
                "no video stream that can be decoded here; H.264, H.265 and JPEG are supported"
            }
            StreamFault::Unreachable => "no connection; check address, port and network",
            StreamFault::NotFound => "not found; check the path of the URL",
            StreamFault::AuthFailed => "the camera rejected the login; check user and password",
            StreamFault::TooManySessions => {
                "the camera has no free session; close other viewers or use another stream"
            }
            StreamFault::Disconnected => {
                "the camera closed the connection; check its power and the network"
            }
            StreamFault::NoFrame => "connected, but the camera does not answer; is it overloaded?",
            StreamFault::NotVideo => "not a video that can be decoded here",
            StreamFault::Tls => "the camera's certificate was rejected; see `tls` of the camera",
            StreamFault::Device => {
                "the device does not work; check that no other program uses it and that it is readable"
            }
            StreamFault::Protocol | StreamFault::Stalled => {
                "the camera's answers are not valid RTSP; is this an RTSP camera?"
            }
        };
        Self::new(fault, text)
    }

    /// The camera closed the connection of a stream.
    pub(super) fn ended() -> Self {
        Self::new(StreamFault::Disconnected, "the camera ended the stream")
    }

    /// With the name of its source in front, which has no login.
    #[must_use]
    pub(super) fn at(self, source: &str) -> Self {
        Self {
            text: format!("{source}: {}", self.text),
            ..self
        }
    }

    /// As it is reported after an earlier failure of the camera: a refused transport hides no reason why the other one failed before.
    #[must_use]
    pub(super) fn after(mut self, earlier: Option<&Self>) -> Self {
        let before = earlier.filter(|earlier| self.is_second_refusal && !earlier.is_second_refusal);
        if let Some(Self { fault, text, .. }) = before {
            (self.text, self.fault) = (format!("{text}; {}", self.text), *fault);
        }
        self
    }
}

/// What is known of the stream itself; fields appear as they become known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamInfo {
    /// `h264`, `h265`, `jpeg` or `raw`.
    pub codec: Option<&'static str>,
    /// Pixels the camera sends, before scaling.
    pub size: Option<(u32, u32)>,
    /// Frames a second the camera claims; `None` when it claims none (0/1).
    pub fps_declared: Option<f64>,
    /// Frames a second that came, over the last seconds.
    pub fps_measured: Option<f64>,
    /// Seconds between the last two key frames.
    pub gop_s: Option<f64>,
    /// `tcp` or `udp`; `None` for sources without a network.
    pub transport: Option<&'static str>,
    /// The decoder element in use.
    pub decoder: Option<String>,
    /// Over half a minute it sent more than twice the frames that it declares.
    pub is_faster_than_declared: bool,
}

/// A rate that is too high for so long is reported.
pub(super) const FAST_FOR: Duration = Duration::from_secs(30);
/// Streams whose fields are counted as frames, or the other way round, come at exactly twice the declared rate: that is none of
/// the operator's concern, and jitter must not make it one.
const TOO_FAST: f64 = 2.1;

impl StreamInfo {
    /// More frames come than it declares. A camera that is slower than it declares is usual.
    pub(super) fn seems_fast(&self) -> bool {
        let rates = self.fps_measured.zip(self.fps_declared);
        rates.is_some_and(|(measured, declared)| measured > declared * TOO_FAST)
    }

    /// The note for an operator.
    pub fn note_text(&self) -> Option<String> {
        let declared = self.fps_declared.filter(|_| self.seems_fast())?;
        Some(format!(
            "it sends more than twice the {declared:.1} frames/s that it declares; check the frame rate of this stream in the camera"
        ))
    }
}

/// A snapshot of a camera's health.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    pub phase: Phase,
    /// The last failure, until it streams again.
    pub failure: Option<Failure>,
    /// Since when it is in this phase, UTC.
    pub since: WallTime,
    /// Failed tries in a row.
    pub attempts: u32,
    /// Time until the next try, when one is planned.
    pub next_retry: Option<Duration>,
    pub stream: StreamInfo,
    /// Good frames handed over since the process started.
    pub frames: u64,
    /// Losses since the process started.
    pub counters: StreamCounters,
    /// Times it ceased to stream, for any reason, since the process started. It shows an outage between two reports.
    pub losses: u64,
    /// Times it reconnected since the process started.
    pub reconnects: u64,
    /// Times it stalled since the process started.
    pub stalls: u64,
    /// Times it reconnected in the last hour.
    pub reconnects_1h: u32,
    /// Times it stalled in the last hour.
    pub stalls_1h: u32,
    /// Pipelines that did not end in time and were left behind, since the process started.
    pub abandoned: u32,
    pub clock: ClockHealth,
}
