//! What is asked of a camera next, to receive its events. Pure: takes `now`.
//!
//! ```text
//!   Unknown ──Find──▶ Found ──Subscribe──▶ Fresh ──Synchronize──▶ Subscribed ──Pull, Renew──▶ …
//!                       ▲                                             │
//!                       └──── forgotten, expired, Release ────────────┘
//! ```
//!
//! A failure leaves the phase as it is, except that a camera which refuses a request has forgotten the subscription. The first failure
//! after a success is repeated at once: cameras close connections and forget subscriptions without another fault. From the second one
//! on there are pauses, and the connection counts as lost until messages can be pulled again.

use std::time::Duration;

use crate::{
    answer::SubscriptionAnswer,
    error::{OnvifError, OnvifProblem},
    message::OnvifMessage,
    timing::OnvifTiming,
};
use spotter_core::Mono;

/// Share by which a pause is varied at random, so that many cameras do not get their requests at the same time.
const VARIATION: f64 = 0.2;
/// A subscription that is granted for longer than this more than it had left was extended.
const EXTENSION: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionCall {
    /// Where is the event service?
    Find,
    Subscribe,
    Synchronize,
    Pull {
        timeout: Duration,
    },
    Renew,
    /// Of a subscription that cannot be renewed, before a new one.
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionStep {
    Call(SessionCall),
    WaitUntil(Mono),
}

/// What a camera's events are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnvifUpdate {
    /// Events arrive. What the states are, messages say: as [`PropertyOperation::Initialized`](crate::PropertyOperation), if the camera
    /// knows them.
    Connected,
    Message(OnvifMessage),
    /// No events arrive until the next `Connected`; states are unknown. Again when the reason is another one.
    Lost {
        reason: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionPhase {
    Unknown,
    Found,
    Fresh,
    Subscribed,
    /// The subscription has to be ended before the next one.
    Leaving,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Connection {
    Connecting,
    Connected,
    Lost(String),
}

/// A call and its result.
#[derive(Debug)]
pub(crate) struct FinishedCall {
    pub(crate) call: SessionCall,
    pub(crate) began: Mono,
    pub(crate) result: Result<SubscriptionAnswer, OnvifError>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct EventSession {
    timing: OnvifTiming,
    phase: SessionPhase,
    connection: Connection,
    /// Since the last messages or the last empty answer.
    failures: u32,
    retry_at: Mono,
    next_pull: Mono,
    /// Of the subscription.
    ends_at: Mono,
    renew_at: Mono,
    can_renew: bool,
}

impl EventSession {
    pub(crate) fn new(timing: OnvifTiming) -> Self {
        Self {
            timing,
            phase: SessionPhase::Unknown,
            connection: Connection::Connecting,
            failures: 0,
            retry_at: Mono::default(),
            next_pull: Mono::default(),
            ends_at: Mono::default(),
            renew_at: Mono::default(),
            can_renew: true,
        }
    }

    pub(crate) fn next(&self, now: Mono) -> SessionStep {
        if self.retry_at > now {
            return SessionStep::WaitUntil(self.retry_at);
        }
        let call = match self.phase {
            SessionPhase::Unknown => SessionCall::Find,
            SessionPhase::Found => SessionCall::Subscribe,
            SessionPhase::Fresh => SessionCall::Synchronize,
            SessionPhase::Leaving => SessionCall::Release,
            SessionPhase::Subscribed if self.ends_at <= now => SessionCall::Subscribe,
            SessionPhase::Subscribed if self.renew_at <= now && self.can_renew => {
                SessionCall::Renew
            }
            SessionPhase::Subscribed if self.renew_at <= now => SessionCall::Release,
            SessionPhase::Subscribed if self.next_pull > now => {
                return SessionStep::WaitUntil(self.next_pull.min(self.renew_at));
            }
            SessionPhase::Subscribed => SessionCall::Pull {
                timeout: self.pull_timeout(now),
            },
        };
        SessionStep::Call(call)
    }

    /// The camera has a subscription of this session, as far as is known.
    pub(crate) fn has_subscription(&self, now: Mono) -> bool {
        match self.phase {
            SessionPhase::Unknown | SessionPhase::Found => false,
            SessionPhase::Fresh | SessionPhase::Leaving => true,
            SessionPhase::Subscribed => self.ends_at > now,
        }
    }

    /// A request for messages is over before the subscription has to be renewed.
    fn pull_timeout(&self, now: Mono) -> Duration {
        let most = match self.connection {
            Connection::Connected => self.timing.pull,
            Connection::Connecting | Connection::Lost(_) => self.timing.first_pull,
        };
        let least = Duration::from_secs(1).min(most);
        self.renew_at.since(now).clamp(least, most)
    }

    /// `random` is in 0..1.
    pub(crate) fn finish(
        &mut self,
        finished: &FinishedCall,
        now: Mono,
        random: f64,
    ) -> Option<OnvifUpdate> {
        let began = finished.began;
        let answer = match &finished.result {
            Ok(answer) => answer,
            Err(error) => return self.on_failed(finished.call, error, now, random),
        };
        let lasts = answer.lasts.unwrap_or(self.timing.subscription);
        match finished.call {
            SessionCall::Find | SessionCall::Release => self.phase = SessionPhase::Found,
            SessionCall::Subscribe => {
                (self.phase, self.can_renew) = (SessionPhase::Fresh, true);
                self.next_pull = Mono::default();
                self.set_end(began, lasts);
            }
            SessionCall::Synchronize => self.phase = SessionPhase::Subscribed,
            SessionCall::Renew => self.set_end(began, lasts),
            SessionCall::Pull { .. } => return self.on_pulled(began, answer),
        }
        None
    }

    fn set_end(&mut self, began: Mono, lasts: Duration) {
        self.ends_at = began.after(lasts);
        self.renew_at = began.after(lasts / 2);
    }

    fn on_pulled(&mut self, began: Mono, answer: &SubscriptionAnswer) -> Option<OnvifUpdate> {
        let gap = match answer.messages.is_empty() {
            true => self.timing.empty_gap,
            false => self.timing.full_gap,
        };
        self.next_pull = began.after(gap);
        if let Some(lasts) = answer.lasts
            && began.after(lasts) > self.ends_at.after(EXTENSION)
        {
            self.set_end(began, lasts);
        }
        self.failures = 0;
        let before = std::mem::replace(&mut self.connection, Connection::Connected);
        (before != Connection::Connected).then_some(OnvifUpdate::Connected)
    }

    fn on_failed(
        &mut self,
        call: SessionCall,
        error: &OnvifError,
        now: Mono,
        random: f64,
    ) -> Option<OnvifUpdate> {
        match call {
            // The subscription expires by itself.
            SessionCall::Release => {
                self.phase = SessionPhase::Found;
                return None;
            }
            // Cameras that cannot do it send the states at the start of a subscription.
            SessionCall::Synchronize
                if error.problem.is_refusal() && !error.problem.is_about_subscription() =>
            {
                self.phase = SessionPhase::Subscribed;
                return None;
            }
            SessionCall::Renew
                if error.problem.is_refusal() && !error.problem.is_about_subscription() =>
            {
                self.can_renew = false;
                self.phase = SessionPhase::Leaving;
                return None;
            }
            SessionCall::Synchronize | SessionCall::Pull { .. } | SessionCall::Renew
                if error.problem.is_refusal() =>
            {
                self.phase = SessionPhase::Found;
            }
            // The service may be at another address after an update of the camera.
            SessionCall::Subscribe if error.problem.is_refusal() => {
                self.phase = SessionPhase::Unknown
            }
            _ => {}
        }
        let is_first = self.failures == 0 && self.connection == Connection::Connected;
        self.failures += 1;
        if is_first && !error.problem.is_about_login() {
            return None;
        }
        self.retry_at = now.after(self.pause(error, random));
        let reason = error.to_string();
        let lost = Connection::Lost(reason.clone());
        let before = std::mem::replace(&mut self.connection, lost);
        (before != self.connection).then_some(OnvifUpdate::Lost { reason })
    }

    fn pause(&self, error: &OnvifError, random: f64) -> Duration {
        let timing = &self.timing;
        let (first, longest) = match &error.problem {
            problem if problem.is_about_login() => {
                (timing.first_login_pause, timing.longest_login_pause)
            }
            problem if problem.is_about_number() => (timing.full_pause, timing.longest_pause),
            OnvifProblem::NoService(_) => (timing.longest_login_pause, timing.longest_login_pause),
            _ => (timing.first_pause, timing.longest_pause),
        };
        let doubled = first.saturating_mul(1 << self.failures.saturating_sub(1).min(16));
        doubled
            .min(longest)
            .mul_f64(1.0 + VARIATION * (2.0 * random - 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OnvifTopic, PropertyOperation, soap::SoapFault};
    use SessionCall::{Find, Release, Renew, Subscribe, Synchronize};

    /// A camera with a virtual clock: each call takes a second.
    struct Bench {
        session: EventSession,
        now: Mono,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                session: EventSession::new(OnvifTiming::default()),
                now: Mono::from_nanos(1_000_000_000),
            }
        }

        fn wait(&mut self, seconds: u64) {
            self.now = self.now.after(Duration::from_secs(seconds));
        }

        fn next(&self) -> SessionCall {
            match self.session.next(self.now) {
                SessionStep::Call(call) => call,
                other @ SessionStep::WaitUntil(_) => panic!("{other:?}"),
            }
        }

        /// Waits as the session wants; the seconds of it.
        fn pass_pause(&mut self) -> u64 {
            match self.session.next(self.now) {
                SessionStep::Call(_) => 0,
                SessionStep::WaitUntil(at) => {
                    let pause = at.since(self.now);
                    self.now = at;
                    pause.as_secs()
                }
            }
        }

        fn finish(
            &mut self,
            result: Result<SubscriptionAnswer, OnvifError>,
        ) -> Option<OnvifUpdate> {
            let (call, began) = (self.next(), self.now);
            self.wait(1);
            let finished = FinishedCall {
                call,
                began,
                result,
            };
            self.session.finish(&finished, self.now, 0.5)
        }

        fn fail(&mut self, error: &OnvifError) -> Option<OnvifUpdate> {
            self.finish(Err(error.clone()))
        }

        fn subscribed(lasts_s: u64) -> Self {
            let mut bench = Self::new();
            assert_eq!(bench.next(), Find);
            bench.finish(answer(0, None));
            bench.subscribe(lasts_s);
            assert_eq!(bench.pull(1), Some(OnvifUpdate::Connected));
            bench
        }

        fn subscribe(&mut self, lasts_s: u64) {
            assert_eq!(self.next(), Subscribe);
            self.finish(answer(0, Some(lasts_s)));
            assert_eq!(self.next(), Synchronize);
            self.finish(answer(0, None));
        }

        fn pull(&mut self, messages: usize) -> Option<OnvifUpdate> {
            assert!(matches!(self.next(), SessionCall::Pull { .. }));
            self.finish(answer(messages, None))
        }
    }

    /// With this number of messages.
    fn answer(messages: usize, lasts_s: Option<u64>) -> Result<SubscriptionAnswer, OnvifError> {
        let message = OnvifMessage {
            topic: OnvifTopic::new("a/b").unwrap(),
            is_active: None,
            operation: PropertyOperation::None,
            source: Vec::new(),
            data: Vec::new(),
        };
        Ok(SubscriptionAnswer {
            messages: vec![message; messages],
            lasts: lasts_s.map(Duration::from_secs),
            ..SubscriptionAnswer::default()
        })
    }

    fn failed(problem: OnvifProblem) -> OnvifError {
        let address = "cam".into();
        OnvifError { address, problem }
    }

    fn closed() -> OnvifError {
        failed(OnvifProblem::Unreachable("closed".into()))
    }

    fn fault(code: &str) -> OnvifError {
        failed(OnvifProblem::Fault {
            request: "x",
            fault: SoapFault {
                codes: vec![code.into()],
                reason: None,
            },
        })
    }

    #[test]
    fn subscription_is_renewed_after_half_of_its_time() {
        let mut bench = Bench::subscribed(60);
        let timeout = |bench: &Bench| match bench.next() {
            SessionCall::Pull { timeout } => timeout.as_secs(),
            other => panic!("{other:?}"),
        };
        assert_eq!(timeout(&bench), 20);
        bench.wait(15);
        assert!(timeout(&bench) < 20, "the pull is over before the renewal");
        bench.wait(15);
        assert_eq!(bench.next(), Renew);
        bench.finish(answer(0, Some(60)));
        assert_eq!(timeout(&bench), 20);
        bench.wait(29);
        assert_eq!(bench.next(), Renew);
    }

    // Faults: O8.
    #[test]
    fn camera_without_renew_gets_a_new_subscription() {
        let mut bench = Bench::subscribed(60);
        for _ in 0..2 {
            bench.wait(30);
            assert_eq!(bench.next(), Renew);
            assert_eq!(bench.fail(&fault("ActionNotSupported")), None);
            assert_eq!(bench.next(), Release);
            assert_eq!(bench.fail(&closed()), None);
            bench.subscribe(60);
            assert_eq!(bench.pull(0), None, "it was never lost");
            bench.pass_pause();
        }
    }

    #[test]
    fn each_answer_may_extend_the_subscription() {
        let mut bench = Bench::subscribed(60);
        for _ in 0..9 {
            bench.wait(20);
            bench.finish(answer(1, Some(60)));
        }
        // One that shrinks as time goes by is no extension.
        for left in [39, 28] {
            bench.wait(10);
            bench.finish(answer(1, Some(left)));
        }
        bench.wait(8);
        assert_eq!(bench.next(), Renew);
    }

    #[test]
    fn forgotten_subscription_is_made_again_at_once() {
        let mut bench = Bench::subscribed(60);
        assert_eq!(bench.fail(&fault("ResourceUnknownFault")), None);
        bench.subscribe(60);
        assert_eq!(bench.pull(1), None);
        bench.wait(30);
        assert_eq!(bench.fail(&fault("ResourceUnknownFault")), None, "at Renew");
        bench.subscribe(60);
        bench.pull(1);
        bench.wait(61);
        assert_eq!(bench.next(), Subscribe, "it has expired meanwhile");
    }

    // Faults: O9.
    #[test]
    fn camera_that_forgets_each_subscription_gets_pauses() {
        let mut bench = Bench::subscribed(60);
        bench.fail(&fault("ResourceUnknownFault"));
        let mut pauses = Vec::new();
        for _ in 0..7 {
            bench.subscribe(60);
            bench.fail(&fault("ResourceUnknownFault"));
            pauses.push(bench.pass_pause());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn closed_connection_is_lost_at_the_second_failure() {
        let mut bench = Bench::subscribed(600);
        assert_eq!(bench.fail(&closed()), None);
        assert_eq!(bench.pull(0), None);
        bench.pass_pause();
        bench.fail(&closed());
        let reason = closed().to_string();
        assert_eq!(bench.fail(&closed()), Some(OnvifUpdate::Lost { reason }));
        bench.pass_pause();
        assert_eq!(bench.fail(&closed()), None, "the same reason");
        bench.pass_pause();
        // The subscription is still there.
        assert_eq!(
            bench.next(),
            SessionCall::Pull {
                timeout: Duration::from_secs(1)
            }
        );
        assert_eq!(bench.pull(0), Some(OnvifUpdate::Connected));
    }

    // Faults: O11.
    #[test]
    fn empty_answers_are_asked_for_once_a_second() {
        let mut session = EventSession::new(OnvifTiming::default());
        session.phase = SessionPhase::Subscribed;
        session.set_end(Mono::default(), Duration::from_secs(60));
        let now = Mono::from_nanos(5_000_000_000);
        for (messages, gap_ms) in [(0, 1000), (3, 100)] {
            let finished = FinishedCall {
                call: SessionCall::Pull {
                    timeout: Duration::ZERO,
                },
                began: now,
                result: answer(messages, None),
            };
            session.finish(&finished, now, 0.5);
            let at = now.after(Duration::from_millis(gap_ms));
            assert_eq!(session.next(now), SessionStep::WaitUntil(at));
        }
    }

    // Faults: O7.
    #[test]
    fn rejected_login_is_repeated_after_long_pauses() {
        let mut bench = Bench::subscribed(600);
        let rejected = failed(OnvifProblem::LoginRejected);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            bench.fail(&rejected);
            pauses.push(bench.pass_pause());
        }
        assert_eq!(pauses, [30, 60, 120, 240, 300, 300]);
    }

    // Faults: O12.
    #[test]
    fn camera_with_too_many_subscriptions_gets_time() {
        let mut bench = Bench::new();
        bench.finish(answer(0, None));
        let change = bench.fail(&fault("MaximumNumberOfSubscriptions"));
        assert!(matches!(change, Some(OnvifUpdate::Lost { .. })));
        assert_eq!(bench.pass_pause(), 15);
        assert_eq!(bench.next(), Find, "the service may be elsewhere");
    }
}
