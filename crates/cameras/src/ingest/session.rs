//! The session of one camera as a pure state machine: what happened and `now` go in, actions and a deadline come out.
//!
//! ```text
//!              Enable            FirstPacket            FirstFrame
//!   Disabled ─────────▶ Connecting ────────▶ WaitingKeyframe ────────▶ Streaming
//!       ▲                  ▲    │  Failed, too late │                    │ Failed, silent or blind too long
//!       │ Disable          │    ▼                   ▼                    ▼
//!       └──── any ──────   └──────────────────── Waiting { until } ◀─────┘
//! ```
//!
//! A camera that sends nothing is given up sooner than one that sends what cannot be shown: with 10 s between its key frames,
//! a lost packet costs up to 10 s of pictures, and a new connection would cost no less.
//!
//! Invariants (property-tested): at most one pipeline at any time, also while one is being torn down; an enabled
//! camera always has a next step; the first connection is tried as every later one; there is no limit of attempts.

use std::{cmp::min_by_key, mem, time::Duration};

use super::{gate::patience, health::Failure, source::SourceEvent};
use spotter_core::{Backoff, Mono, Phase, StreamFault};

/// No two starts are closer than this.
pub const RETRY_MIN: Duration = Duration::from_secs(1);
/// Streaming for so long forgets the failed attempts before it: with [`RETRY_MIN`], a camera that is lost again and again gets at
/// most ten connections a minute.
pub const GOOD_AFTER: Duration = Duration::from_secs(5);
/// After a camera was silent for `stall` soon after its first picture for the second time in a row.
const SILENT_AGAIN: Backoff = Backoff::of_seconds(18, 60);
const HOUR: Duration = Duration::from_secs(3600);
/// The longest wait for a picture while packets come, however far apart the key frames seem to be.
const BLIND_MAX: Duration = Duration::from_secs(240);

/// What the configuration says about one camera's session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionPolicy {
    /// Limit from the start of a connection to the first frame; with packets and no picture, longer with each try.
    pub first_frame: Duration,
    /// Limit without packets, or without frames from sources that have no packets.
    pub stall: Duration,
    /// At its end the source is played from the start again.
    pub looped: bool,
    /// Factor of the pauses between attempts: 1, and less in tests. Two starts are [`RETRY_MIN`] apart all the same.
    pub pause_scale: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SessionInput {
    /// The camera is to be watched.
    Enable,
    /// The camera is not to be watched; also the connection ends.
    Disable,
    /// An operator requests a new connection now.
    Reconnect,
    /// The camera is another one, or is to be decoded in another way.
    Change(SessionPolicy),
    /// The pipeline reports something.
    Source(SourceEvent),
    /// The pipeline is gone (or was left behind because it did not end).
    Stopped,
    /// Time passed; what the source has done so far.
    Tick(SourceActivity),
}

/// What a source has done so far, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SourceActivity {
    /// The last good frame came.
    pub frame: Option<Mono>,
    /// The last packet came.
    pub packet: Option<Mono>,
    /// Time between the last two key frames.
    pub gop: Option<Duration>,
}

/// What the shell has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Build a pipeline and play it.
    Start,
    /// Tear the pipeline down, then report [`SessionInput::Stopped`], within a deadline.
    Stop,
    /// Play from the start again in the same pipeline.
    Rewind,
}

#[derive(Clone, Debug, PartialEq)]
enum SessionState {
    Disabled,
    Connecting { since: Mono },
    WaitingKeyframe { since: Mono },
    Streaming { since: Mono },
    Waiting { until: Mono },
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PipelineState {
    None,
    Running,
    Stopping,
}

/// The state of one camera.
#[derive(Debug)]
pub struct Session {
    policy: SessionPolicy,
    state: SessionState,
    pipeline: PipelineState,
    /// The last failure, until frames come again.
    pub failure: Option<Failure>,
    /// Failed tries since the last good time.
    pub attempts: u32,
    /// Connections given up without pictures, although packets came, since the camera last streamed for [`GOOD_AFTER`].
    blind: u32,
    /// Connections that were silent for `stall` soon after their first picture, since the camera last streamed for
    /// [`GOOD_AFTER`]: from the second on its pictures are taken to be rarer than `stall`, and each try has the same end.
    silent: u32,
    /// Of this connection; the distance of key frames stays known.
    seen: SourceActivity,
    last_start: Option<Mono>,
    streamed_before: bool,
    pub counts: SessionCounts,
    reconnects: Vec<Mono>,
    stalls: Vec<Mono>,
    /// Of the input that is taken.
    actions: Vec<Action>,
}

/// What happened to a camera since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Times it ceased to stream, for any reason.
    pub losses: u64,
    /// Times it streamed again.
    pub reconnects: u64,
    pub stalls: u64,
}

impl Session {
    /// A camera that waits for [`SessionInput::Enable`].
    pub fn new(policy: SessionPolicy) -> Self {
        Self {
            policy,
            state: SessionState::Disabled,
            pipeline: PipelineState::None,
            failure: None,
            attempts: 0,
            blind: 0,
            silent: 0,
            seen: SourceActivity::default(),
            last_start: None,
            streamed_before: false,
            counts: SessionCounts::default(),
            reconnects: Vec::new(),
            stalls: Vec::new(),
            actions: Vec::new(),
        }
    }

    /// Takes an input and returns the actions. `random` is uniform in 0..1 and spreads the pauses.
    #[must_use]
    pub fn on(&mut self, input: SessionInput, now: Mono, random: f64) -> Vec<Action> {
        let streamed = self.phase() == Phase::Streaming;
        match input {
            SessionInput::Enable => {
                if matches!(self.state, SessionState::Disabled | SessionState::Ended) {
                    self.state = SessionState::Waiting { until: now };
                }
            }
            SessionInput::Disable => {
                self.stop();
                self.state = SessionState::Disabled;
                self.forget_failures();
            }
            SessionInput::Reconnect => {
                if !matches!(self.state, SessionState::Disabled | SessionState::Ended) {
                    self.again(now);
                }
            }
            SessionInput::Change(policy) => {
                self.policy = policy;
                if self.state != SessionState::Disabled {
                    self.again(now);
                }
            }
            SessionInput::Stopped => self.pipeline = PipelineState::None,
            SessionInput::Tick(seen) => self.watch(seen, now, random),
            // One that is being torn down is ignored.
            SessionInput::Source(_) if self.pipeline != PipelineState::Running => {}
            SessionInput::Source(SourceEvent::FirstPacket) => {
                if let SessionState::Connecting { since } = self.state {
                    self.state = SessionState::WaitingKeyframe { since };
                }
            }
            SessionInput::Source(SourceEvent::FirstFrame) => self.first_frame(now),
            SessionInput::Source(SourceEvent::Failed(failure)) => {
                self.fail(failure, now, random);
            }
            SessionInput::Source(SourceEvent::Ended) => self.ended(now, random),
        }
        self.counts.losses += u64::from(streamed && self.phase() != Phase::Streaming);
        self.start_when_due(now);
        mem::take(&mut self.actions)
    }

    /// When [`SessionInput::Tick`] is needed next; `None` when only another input can change anything.
    pub fn next_deadline(&self) -> Option<Mono> {
        match self.state {
            SessionState::Waiting { until } => {
                (self.pipeline == PipelineState::None).then(|| self.not_too_soon(until))
            }
            _ => self.limit().map(|limit| limit.end()),
        }
    }

    pub fn phase(&self) -> Phase {
        match self.state {
            SessionState::Disabled => Phase::Disabled,
            SessionState::Connecting { .. } => Phase::Connecting,
            SessionState::WaitingKeyframe { .. } => Phase::WaitingKeyframe,
            SessionState::Streaming { .. } => Phase::Streaming,
            SessionState::Ended => Phase::Ended,
            SessionState::Waiting { .. } => {
                match self.failure.as_ref().map(|failure| failure.fault) {
                    Some(StreamFault::Stalled) => Phase::Stalled,
                    Some(StreamFault::AuthFailed) => Phase::AuthFailed,
                    Some(StreamFault::Unsupported | StreamFault::NotVideo) => Phase::Unsupported,
                    _ => Phase::Connecting,
                }
            }
        }
    }

    /// When the next try is planned.
    pub fn next_retry(&self) -> Option<Mono> {
        match self.state {
            SessionState::Waiting { until } => Some(self.not_too_soon(until)),
            _ => None,
        }
    }

    /// Times it came back and times it stalled in the hour before `now`.
    pub fn last_hour(&mut self, now: Mono) -> (u32, u32) {
        let count = |times: &mut Vec<Mono>| {
            times.retain(|time| now.since(*time) <= HOUR);
            times.len() as u32
        };
        (count(&mut self.reconnects), count(&mut self.stalls))
    }

    /// When the connection is given up if nothing more comes, and why.
    fn limit(&self) -> Option<ConnectionLimit> {
        let SessionPolicy {
            first_frame, stall, ..
        } = self.policy;
        let (since, why, after) = match self.state {
            SessionState::Connecting { since } | SessionState::WaitingKeyframe { since } => {
                (since, LimitReason::NoFrame, first_frame)
            }
            SessionState::Streaming { since } => (since, LimitReason::Silent, stall),
            SessionState::Disabled | SessionState::Waiting { .. } | SessionState::Ended => {
                return None;
            }
        };
        let last_frame = self.seen.frame.unwrap_or_default().max(since);
        let last_sign = self.seen.packet.unwrap_or_default().max(last_frame);
        let silent = ConnectionLimit {
            why,
            from: last_sign,
            after,
        };
        let blind = ConnectionLimit {
            why: LimitReason::Blind,
            from: last_frame,
            after: after.max(self.blind_limit()),
        };
        Some(min_by_key(silent, blind, ConnectionLimit::end))
    }

    /// How long packets may come without a picture. How far apart key frames are is known after two of them; until a
    /// connection was good, each waits twice as long as the one before it.
    fn blind_limit(&self) -> Duration {
        let first = match self.seen.gop {
            Some(gop) => patience(Some(gop)),
            None => patience(None).max(self.policy.first_frame),
        };
        first.saturating_mul(1 << self.blind.min(8)).min(BLIND_MAX)
    }

    fn watch(&mut self, seen: SourceActivity, now: Mono, random: f64) {
        if self.pipeline != PipelineState::Running {
            return;
        }
        self.seen = SourceActivity {
            frame: seen.frame.max(self.seen.frame),
            packet: seen.packet.max(self.seen.packet),
            gop: seen.gop.or(self.seen.gop),
        };
        let streaming = match self.state {
            SessionState::Streaming { since } => Some(since),
            _ => None,
        };
        if let (Some(since), Some(frame)) = (streaming, self.seen.frame)
            && frame.since(since) >= GOOD_AFTER
        {
            (self.attempts, self.blind, self.silent) = (0, 0, 0);
        }
        let Some(limit) = self.limit().filter(|limit| now >= limit.end()) else {
            return;
        };
        self.blind += u32::from(limit.why == LimitReason::Blind);
        if streaming.is_some() {
            self.silent += u32::from(limit.why == LimitReason::Silent);
            self.counts.stalls += 1;
            self.stalls.push(now);
        }
        let failure = limit.failure(streaming.is_some());
        self.fail(failure, now, random);
    }

    fn first_frame(&mut self, now: Mono) {
        if self.streamed_before {
            self.counts.reconnects += 1;
            self.reconnects.push(now);
        }
        (self.streamed_before, self.failure) = (true, None);
        self.state = SessionState::Streaming { since: now };
    }

    fn ended(&mut self, now: Mono, random: f64) {
        match self.state {
            SessionState::Streaming { .. } if self.policy.looped => {
                self.seen.frame = Some(now);
                self.actions.push(Action::Rewind);
            }
            SessionState::Streaming { .. } => {
                self.stop();
                self.state = SessionState::Ended;
            }
            _ => {
                let text = "it ended before the first picture; is it a video that can be decoded?";
                self.fail(Failure::new(StreamFault::NotVideo, text), now, random);
            }
        }
    }

    fn fail(&mut self, failure: Failure, now: Mono, random: f64) {
        self.attempts = self.attempts.saturating_add(1);
        let failure = failure.after(self.failure.as_ref());
        let mut pause = pauses(failure.fault).pause(self.attempts, random);
        if failure.fault == StreamFault::Stalled && self.silent > 1 {
            pause = pause.max(SILENT_AGAIN.pause(self.silent - 1, random));
        }
        self.state = SessionState::Waiting {
            until: now.after(pause.mul_f64(self.policy.pause_scale)),
        };
        self.failure = Some(failure);
        self.stop();
    }

    /// A new connection as soon as the old one is gone.
    fn again(&mut self, now: Mono) {
        self.stop();
        self.forget_failures();
        self.state = SessionState::Waiting { until: now };
    }

    /// An operator asks for another attempt: earlier failures do not delay it.
    fn forget_failures(&mut self) {
        self.failure = None;
        (self.attempts, self.blind, self.silent) = (0, 0, 0);
    }

    fn stop(&mut self) {
        if self.pipeline == PipelineState::Running {
            self.pipeline = PipelineState::Stopping;
            self.actions.push(Action::Stop);
        }
    }

    fn not_too_soon(&self, until: Mono) -> Mono {
        self.last_start
            .map_or(until, |start| until.max(start.after(RETRY_MIN)))
    }

    fn start_when_due(&mut self, now: Mono) {
        if let SessionState::Waiting { until } = self.state
            && self.pipeline == PipelineState::None
            && now >= self.not_too_soon(until)
        {
            self.state = SessionState::Connecting { since: now };
            self.pipeline = PipelineState::Running;
            self.seen = SourceActivity {
                gop: self.seen.gop,
                ..SourceActivity::default()
            };
            self.last_start = Some(now);
            self.actions.push(Action::Start);
        }
    }
}

/// A connection is given up at a time.
#[derive(Clone, Copy, Debug)]
struct ConnectionLimit {
    why: LimitReason,
    from: Mono,
    after: Duration,
}

/// Why a connection is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitReason {
    /// Nothing came before the first picture.
    NoFrame,
    /// Nothing comes any more.
    Silent,
    /// Packets come that make no picture.
    Blind,
}

impl ConnectionLimit {
    fn end(&self) -> Mono {
        self.from.after(self.after)
    }

    fn failure(&self, streaming: bool) -> Failure {
        let limit_s = self.after.as_secs_f64();
        let text = match self.why {
            LimitReason::NoFrame => format!(
                "no picture within {limit_s:.0}s of connecting; check the stream and `first_frame`"
            ),
            LimitReason::Silent => format!(
                "nothing came for {limit_s:.1}s; reconnecting. Check power and network of the camera, or set a longer `stall` for a \
                 camera that sends frames so rarely"
            ),
            LimitReason::Blind => format!(
                "packets came, and no picture that can be shown, for {limit_s:.0}s; reconnecting. Check the network for losses \
                 and how far apart the camera's key frames are"
            ),
        };
        let fault = if streaming {
            StreamFault::Stalled
        } else {
            StreamFault::NoFrame
        };
        Failure::new(fault, text)
    }
}

/// How soon a camera is tried again after failures in a row.
pub fn pauses(fault: StreamFault) -> Backoff {
    match fault {
        // Cameras lock accounts after repeated refusals.
        StreamFault::AuthFailed => Backoff::of_seconds(30, 300),
        // A camera keeps the session of a client that is gone for about a minute.
        StreamFault::TooManySessions => Backoff::of_seconds(10, 120),
        // The operator has to change something first.
        StreamFault::Unsupported | StreamFault::NotVideo => Backoff::of_seconds(30, 60),
        _ => Backoff::of_seconds(1, 60),
    }
}

#[cfg(test)]
mod tests;
