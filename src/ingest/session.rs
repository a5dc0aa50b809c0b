//! The life of one camera as a pure state machine: what happened and `now` go in, actions and a deadline come out.
//!
//! ```text
//!              Enable            FirstPacket            FirstFrame
//!   Disabled ─────────▶ Connecting ────────▶ WaitingKeyframe ────────▶ Streaming
//!       ▲                  ▲    │  Failed, too late │                    │ Failed, no frame for `stall`
//!       │ Disable          │    ▼                   ▼                    ▼
//!       └──── any ──────   └──────────────────── Waiting { until } ◀─────┘
//! ```
//!
//! Invariants (property-tested): at most one pipeline at any time, also while one is being torn down; an enabled
//! camera always has a next step; the first connection is tried as every later one; there is no limit of attempts.

use std::{collections::VecDeque, time::Duration};

use super::health::{Failure, Fault, Phase};
use crate::domain::Mono;

/// No two starts are closer than this, whatever happens.
pub const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest pause after an ordinary failure.
pub const RETRY_MAX: Duration = Duration::from_secs(60);
/// Streaming for so long forgets the failed attempts before it.
pub const GOOD_AFTER: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

/// What the configuration says about one camera's life.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Limit from the start of a connection to the first frame.
    pub first_frame: Duration,
    /// Limit between frames.
    pub stall: Duration,
    /// At its end the source is played from the start again.
    pub looped: bool,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The camera is to be watched.
    Enable,
    /// The camera is not to be watched; also the connection ends.
    Disable,
    /// An operator asks for a new connection now.
    Reconnect,
    /// The pipeline got data for the first time.
    FirstPacket,
    /// The pipeline gave its first good frame.
    FirstFrame,
    /// The pipeline cannot go on.
    Failed(Failure),
    /// The source has come to its end.
    Ended,
    /// The pipeline is gone (or was left behind because it did not end).
    Stopped,
    /// Time passed; when the last good frame came, as far as known.
    Tick(Option<Mono>),
}

/// What the shell has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Build a pipeline and play it. `attempt` counts failures since the last good time, from 0.
    Start {
        /// Lets a source alternate between transports.
        attempt: u32,
    },
    /// Tear the pipeline down, then report [`Input::Stopped`], within a deadline.
    Stop,
    /// Play from the start again in the same pipeline.
    Rewind,
}

/// Where the camera is.
#[derive(Clone, Debug, PartialEq)]
enum State {
    Disabled,
    Connecting { since: Mono },
    WaitingKeyframe { since: Mono },
    Streaming { since: Mono, last_frame: Mono },
    Waiting { until: Mono },
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pipeline {
    None,
    Running,
    Stopping,
}

/// One camera's life.
#[derive(Debug)]
pub struct Session {
    policy: Policy,
    state: State,
    pipeline: Pipeline,
    /// Kept until frames come again.
    failure: Option<Failure>,
    attempts: u32,
    last_start: Option<Mono>,
    streamed_before: bool,
    losses: u64,
    reconnects: VecDeque<Mono>,
    stalls: VecDeque<Mono>,
}

impl Session {
    /// A camera that waits for [`Input::Enable`].
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            state: State::Disabled,
            pipeline: Pipeline::None,
            failure: None,
            attempts: 0,
            last_start: None,
            streamed_before: false,
            losses: 0,
            reconnects: VecDeque::new(),
            stalls: VecDeque::new(),
        }
    }

    /// Takes what happened and says what to do. `random` is uniform in 0..1 and spreads the pauses.
    #[must_use]
    pub fn on(&mut self, input: Input, now: Mono, random: f64) -> Vec<Action> {
        let mut actions = Vec::new();
        let streamed = self.phase() == Phase::Streaming;
        match input {
            Input::Enable => {
                if matches!(self.state, State::Disabled | State::Ended) {
                    self.state = State::Waiting { until: now };
                }
            }
            Input::Disable => {
                self.stop(&mut actions);
                self.state = State::Disabled;
                (self.failure, self.attempts) = (None, 0);
            }
            Input::Reconnect => {
                if !matches!(self.state, State::Disabled | State::Ended) {
                    self.stop(&mut actions);
                    self.attempts = 0;
                    self.state = State::Waiting { until: now };
                }
            }
            Input::Stopped => self.pipeline = Pipeline::None,
            Input::Tick(last_frame) => self.watch(last_frame, now, random, &mut actions),
            // What is left comes from a pipeline: one that is being torn down has nothing to say any more.
            _ if self.pipeline != Pipeline::Running => {}
            Input::FirstPacket => {
                if let State::Connecting { since } = self.state {
                    self.state = State::WaitingKeyframe { since };
                }
            }
            Input::FirstFrame => self.first_frame(now),
            Input::Failed(failure) => self.fail(failure, now, random, &mut actions),
            Input::Ended => self.ended(now, random, &mut actions),
        }
        self.losses += u64::from(streamed && self.phase() != Phase::Streaming);
        self.start_when_due(now, &mut actions);
        actions
    }

    /// When [`Input::Tick`] is needed next; `None` when only another input can change anything.
    pub fn next_deadline(&self) -> Option<Mono> {
        match self.state {
            State::Disabled | State::Ended => None,
            State::Connecting { since } | State::WaitingKeyframe { since } => {
                Some(since.after(self.policy.first_frame))
            }
            State::Streaming { last_frame, .. } => Some(last_frame.after(self.policy.stall)),
            State::Waiting { until } => {
                (self.pipeline == Pipeline::None).then(|| self.not_too_soon(until))
            }
        }
    }

    /// The phase to report.
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Disabled => Phase::Disabled,
            State::Connecting { .. } => Phase::Connecting,
            State::WaitingKeyframe { .. } => Phase::WaitingKeyframe,
            State::Streaming { .. } => Phase::Streaming,
            State::Ended => Phase::Ended,
            State::Waiting { .. } => match self.failure.as_ref().map(|failure| failure.fault) {
                Some(Fault::Stalled) => Phase::Stalled,
                Some(Fault::AuthFailed) => Phase::AuthFailed,
                Some(Fault::Unsupported | Fault::NotVideo) => Phase::Unsupported,
                _ => Phase::Connecting,
            },
        }
    }

    /// The last failure, until frames come again.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Failed tries since the last good time.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Times it ceased to stream.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// When the next try is planned.
    pub fn next_retry(&self) -> Option<Mono> {
        match self.state {
            State::Waiting { until } => Some(self.not_too_soon(until)),
            _ => None,
        }
    }

    /// Times it came back and times it stalled in the hour before `now`.
    pub fn last_hour(&mut self, now: Mono) -> (u32, u32) {
        let count = |times: &mut VecDeque<Mono>| {
            while times.front().is_some_and(|time| now.since(*time) > HOUR) {
                times.pop_front();
            }
            times.len() as u32
        };
        (count(&mut self.reconnects), count(&mut self.stalls))
    }

    /// Raises the limit between frames, for a stream whose wanted frames are known to be rarer than configured.
    pub fn expect_frames_every(&mut self, interval: Duration) {
        self.policy.stall = self.policy.stall.max(interval.saturating_mul(2));
    }

    fn watch(&mut self, seen: Option<Mono>, now: Mono, random: f64, actions: &mut Vec<Action>) {
        match &mut self.state {
            State::Connecting { since } | State::WaitingKeyframe { since } => {
                if now >= since.after(self.policy.first_frame) {
                    let limit_s = self.policy.first_frame.as_secs_f64();
                    let text = format!(
                        "no picture within {limit_s:.0}s of connecting; check the stream and `first_frame`"
                    );
                    self.fail(Failure::new(Fault::NoFrame, text), now, random, actions);
                }
            }
            State::Streaming { since, last_frame } => {
                *last_frame = seen.map_or(*last_frame, |seen| seen.max(*last_frame));
                let (good, late) = (
                    last_frame.since(*since) >= GOOD_AFTER,
                    now >= last_frame.after(self.policy.stall),
                );
                if good {
                    self.attempts = 0;
                }
                if late {
                    self.stalls.push_back(now);
                    let limit_s = self.policy.stall.as_secs_f64();
                    let text = format!(
                        "no picture for {limit_s:.1}s; reconnecting. Check power and network of the camera"
                    );
                    self.fail(Failure::new(Fault::Stalled, text), now, random, actions);
                }
            }
            State::Disabled | State::Waiting { .. } | State::Ended => {}
        }
    }

    fn first_frame(&mut self, now: Mono) {
        if self.streamed_before {
            self.reconnects.push_back(now);
        }
        (self.streamed_before, self.failure) = (true, None);
        self.state = State::Streaming {
            since: now,
            last_frame: now,
        };
    }

    fn ended(&mut self, now: Mono, random: f64, actions: &mut Vec<Action>) {
        match &mut self.state {
            State::Streaming { last_frame, .. } if self.policy.looped => {
                *last_frame = now;
                actions.push(Action::Rewind);
            }
            State::Streaming { .. } => {
                self.stop(actions);
                self.state = State::Ended;
            }
            _ => {
                let text = "it ended before the first picture; is it a video that can be decoded?";
                self.fail(Failure::new(Fault::NotVideo, text), now, random, actions);
            }
        }
    }

    fn fail(&mut self, failure: Failure, now: Mono, random: f64, actions: &mut Vec<Action>) {
        self.attempts = self.attempts.saturating_add(1);
        self.state = State::Waiting {
            until: now.after(retry_after(failure.fault, self.attempts, random)),
        };
        self.failure = Some(failure);
        self.stop(actions);
    }

    fn stop(&mut self, actions: &mut Vec<Action>) {
        if self.pipeline == Pipeline::Running {
            self.pipeline = Pipeline::Stopping;
            actions.push(Action::Stop);
        }
    }

    fn not_too_soon(&self, until: Mono) -> Mono {
        self.last_start
            .map_or(until, |start| until.max(start.after(RETRY_MIN)))
    }

    fn start_when_due(&mut self, now: Mono, actions: &mut Vec<Action>) {
        if let State::Waiting { until } = self.state
            && self.pipeline == Pipeline::None
            && now >= self.not_too_soon(until)
        {
            self.state = State::Connecting { since: now };
            self.pipeline = Pipeline::Running;
            self.last_start = Some(now);
            actions.push(Action::Start {
                attempt: self.attempts,
            });
        }
    }
}

/// The pause after the `attempts`-th failure in a row (from 1): doubling from a first pause to a longest one, both by
/// the kind of fault, spread by up to ±20 % so that cameras behind one switch do not come back in step.
pub fn retry_after(fault: Fault, attempts: u32, random: f64) -> Duration {
    let (first_s, longest_s) = match fault {
        // Cameras lock accounts after repeated refusals.
        Fault::AuthFailed => (30.0, 300.0),
        // Sessions of a dead client live on in a camera for about a minute.
        Fault::TooManySessions => (10.0, 120.0),
        // Somebody has to change something first.
        Fault::Unsupported | Fault::NotVideo => (30.0, 60.0),
        _ => (RETRY_MIN.as_secs_f64(), RETRY_MAX.as_secs_f64()),
    };
    let doubled_s = first_s * f64::from(attempts.clamp(1, 16) - 1).exp2();
    let middle_s = doubled_s.min(longest_s);
    // At both ends half of the spread is cut off, and the rest is still spread evenly: clamping the pause itself would
    // give half of the cameras the very same one.
    let least_s = (0.8 * middle_s).max(first_s);
    let most_s = (1.2 * middle_s).min(longest_s);
    Duration::from_secs_f64(least_s + (most_s - least_s) * random.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
