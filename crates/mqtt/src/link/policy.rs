//! Decides after the end of a connection when and how to connect again. Pure: takes `now` and a random number.

use std::time::Duration;

use super::timing::ConnectionTiming;
use spotter_config::MqttVersion;
use spotter_core::Mono;

/// This number of quick closes in a row means that another client uses our id.
const QUICK_CLOSES: u32 = 3;
/// A broker that is known to support MQTT 5 and closes a connection before it answers CONNECT may have been killed in that
/// moment. MQTT 3.1.1 is tried only after this number of closes, because it is then used until the connection ends.
const HANG_UPS: u32 = 2;
/// Shortest time between two corrections of a late will.
const LATE_WILL_EVERY: Duration = Duration::from_secs(10);

pub(super) const ANOTHER_CLIENT: &str =
    "another client has our id; give each box its own node.name";
pub(super) const UNSUPPORTED_V5: &str = "broker does not support MQTT 5; trying MQTT 3.1.1";

/// State of the connection to the broker, for health and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerState {
    /// The first attempt is not finished.
    Connecting,
    Online {
        /// MQTT version: `5` or `3.1.1`.
        protocol: &'static str,
    },
    Away {
        cause: AwayCause,
        /// What is wrong, and what the operator can do; never contains the login.
        reason: String,
        retry_at: Mono,
    },
    /// We closed the connection and will not open it again.
    Stopped,
}

impl BrokerState {
    pub fn is_online(&self) -> bool {
        matches!(self, Self::Online { .. })
    }

    pub fn trouble(&self) -> Option<&str> {
        match self {
            Self::Away { reason, .. } => Some(reason),
            Self::Connecting | Self::Online { .. } | Self::Stopped => None,
        }
    }

    /// The time of the next attempt.
    pub fn retry_at(&self) -> Option<Mono> {
        match self {
            Self::Away { retry_at, .. } => Some(*retry_at),
            Self::Connecting | Self::Online { .. } | Self::Stopped => None,
        }
    }
}

/// Why an attempt failed or a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwayCause {
    /// The broker does not speak this protocol.
    Unsupported,
    /// The broker rejects clients whose will is retained.
    KeepsNothing,
    /// The broker rejected the connection (login, rights, a limit), or its certificate is outside its dates. Attempts are rare.
    Refused,
    /// The broker's certificate is not trusted. Attempts are rare, read the TLS files again, and never go without TLS or
    /// without the check.
    Untrusted,
    /// Another client with our id took the session; one attempt a minute.
    TakenOver,
    /// The broker closed the connection without a reason.
    Closed,
    /// The broker did not answer CONNECT, or answered with less than an answer: some do that to a version that they do not support.
    Unanswered,
    /// The broker sent data that is not MQTT, or too much at once.
    Unreadable,
    /// No route, no answer, a broken connection, or another failure that may end soon.
    Lost,
}

impl AwayCause {
    pub(super) fn because(self, reason: impl Into<String>) -> ConnectionEnd {
        let reason = reason.into();
        ConnectionEnd {
            cause: self,
            reason,
        }
    }

    /// The broker may speak the other protocol alone.
    pub(super) fn may_be_the_protocol(self) -> bool {
        use AwayCause::{Closed, Unanswered, Unreadable, Unsupported};
        matches!(self, Unsupported | Unreadable | Unanswered | Closed)
    }

    /// For the log: what happened, and what follows.
    pub(super) fn effect(self) -> &'static str {
        match self {
            Self::Refused => "broker rejected the connection; next attempt in at most 5 min",
            Self::TakenOver => {
                "another client uses this client id; next attempt in 1 min; give each box its own node.name"
            }
            Self::Untrusted => "broker certificate is not trusted; next attempt in 5 min",
            _ => "broker unavailable; connecting again until it succeeds",
        }
    }
}

/// The end of a connection or of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConnectionEnd {
    pub(super) cause: AwayCause,
    pub(super) reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    V5,
    V311,
}

impl Protocol {
    /// Of the first attempt.
    pub(super) fn first(version: MqttVersion) -> Self {
        match version {
            MqttVersion::Auto | MqttVersion::V5 => Self::V5,
            MqttVersion::V311 => Self::V311,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V5 => "5",
            Self::V311 => "3.1.1",
        }
    }
}

/// The state that decides about the next attempt.
#[derive(Clone, Debug)]
pub(super) struct ReconnectPolicy {
    timing: ConnectionTiming,
    version: MqttVersion,
    /// For the next attempt: MQTT 5 unless the broker just rejected it or another version is configured.
    pub(super) protocol: Protocol,
    /// The will of the next attempt is retained. Brokers without retained messages reject such a connection.
    pub(super) retains: bool,
    failures: u32,
    quick_closes: u32,
    /// Closes before an answer to CONNECT, in a row and with the same protocol.
    hang_ups: u32,
    /// The broker accepted MQTT 5 before.
    knows_v5: bool,
    online_since: Option<Mono>,
}

impl ReconnectPolicy {
    pub(super) fn new(timing: ConnectionTiming, version: MqttVersion) -> Self {
        Self {
            timing,
            version,
            protocol: Protocol::first(version),
            failures: 0,
            quick_closes: 0,
            hang_ups: 0,
            knows_v5: false,
            online_since: None,
            retains: true,
        }
    }

    /// The broker accepted the connection. `keeps`: it supports retained messages.
    pub(super) fn connected(&mut self, now: Mono, keeps: bool) {
        self.online_since = Some(now);
        self.retains |= keeps;
        self.knows_v5 |= self.protocol == Protocol::V5;
    }

    /// The new state, with the time of the next attempt. `chance` is 0..1 and varies the pause by a fifth either way, so
    /// that many nodes do not connect at the same time.
    pub(super) fn ended(&mut self, end: ConnectionEnd, now: Mono, chance: f64) -> BrokerState {
        let ConnectionEnd {
            mut cause,
            mut reason,
        } = end;
        let online_for = self.online_since.take().map(|since| now.since(since));
        let was_online = online_for.is_some();
        let is_quick = online_for.is_some_and(|time| time < self.timing.quick_close);
        self.quick_closes = match (cause, was_online) {
            (AwayCause::Closed, true) if is_quick => self.quick_closes + 1,
            // A broker that was unavailable in between has restarted. Any other end has a known reason.
            (AwayCause::Lost, _) | (_, true) => 0,
            (_, false) => self.quick_closes,
        };
        let was_v5 = self.protocol == Protocol::V5;
        self.choose_protocol(cause, was_online);
        if was_online && !is_quick {
            self.failures = 0;
        } else if is_quick && matches!(cause, AwayCause::Closed | AwayCause::Lost) {
            // The broker accepts us, so a line with short losses does not lead to long pauses.
            self.failures = self.failures.min(1);
        }
        let doublings = self.failures.min(10);
        self.failures = self.failures.saturating_add(1);
        if was_online && self.quick_closes >= QUICK_CLOSES {
            cause = AwayCause::TakenOver;
        }
        let timing = &self.timing;
        let (first, max) = match cause {
            AwayCause::TakenOver => {
                reason = ANOTHER_CLIENT.to_owned();
                // The same for both clients.
                return BrokerState::Away {
                    cause,
                    reason,
                    retry_at: now.after(timing.taken_over),
                };
            }
            AwayCause::KeepsNothing if self.retains => {
                self.retains = false;
                reason = "the broker does not support retained messages; new subscribers see a state only when it changes".to_owned();
                (Duration::ZERO, Duration::ZERO)
            }
            AwayCause::Unsupported if self.version != MqttVersion::Auto => {
                (cause, reason) = (AwayCause::Refused, unsupported(self.protocol));
                (timing.refused_first, timing.refused_max)
            }
            AwayCause::Unsupported if was_v5 => {
                reason = UNSUPPORTED_V5.to_owned();
                (Duration::ZERO, Duration::ZERO)
            }
            AwayCause::Refused | AwayCause::KeepsNothing | AwayCause::Unsupported => {
                cause = AwayCause::Refused;
                (timing.refused_first, timing.refused_max)
            }
            AwayCause::Untrusted => (timing.untrusted, timing.untrusted),
            AwayCause::Closed | AwayCause::Unanswered | AwayCause::Unreadable | AwayCause::Lost => {
                (timing.backoff_first, timing.backoff_max)
            }
        };
        let plain = first.saturating_mul(1 << doublings).min(max);
        BrokerState::Away {
            cause,
            reason,
            retry_at: now.after(plain.mul_f64(0.8 + 0.4 * chance)),
        }
    }

    fn choose_protocol(&mut self, cause: AwayCause, was_online: bool) {
        if self.version != MqttVersion::Auto {
            return;
        }
        let hung_up = !was_online && cause == AwayCause::Closed;
        self.hang_ups = if hung_up { self.hang_ups + 1 } else { 0 };
        // A broker that supports only the other protocol answers in its format or not at all; one that is known to support MQTT 5 and does
        // not answer is overloaded.
        let is_other = match cause {
            AwayCause::Unsupported | AwayCause::Unreadable => true,
            AwayCause::Unanswered => !self.knows_v5,
            _ => false,
        };
        if was_online {
            // The broker may have been upgraded; an attempt with MQTT 5 costs one rejection.
            if self.quick_closes == 0 {
                self.protocol = Protocol::V5;
            }
        } else if is_other || self.hang_ups >= if self.knows_v5 { HANG_UPS } else { 1 } {
            self.hang_ups = 0;
            self.protocol = match self.protocol {
                Protocol::V5 => Protocol::V311,
                Protocol::V311 => Protocol::V5,
            };
        }
    }
}

fn unsupported(protocol: Protocol) -> String {
    format!(
        "the broker does not support MQTT {}; set mqtt.version = \"auto\"",
        protocol.name()
    )
}

/// Corrects the retained status when a late will sets it to `offline` while the node is online.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LateWill {
    /// When [`take`](Self::take) returns true.
    pub(super) due: Option<Mono>,
    earliest: Mono,
}

impl LateWill {
    /// An `offline` arrived on the node's status topic.
    pub(super) fn seen(&mut self, now: Mono) {
        self.due.get_or_insert(self.earliest.max(now));
    }

    /// True once when the status must be published again now.
    pub(super) fn take(&mut self, now: Mono) -> bool {
        let is_due = self.due.take_if(|at| *at <= now).is_some();
        if is_due {
            self.earliest = now.after(LATE_WILL_EVERY);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::default().after(Duration::from_secs(seconds))
    }

    fn new_policy() -> ReconnectPolicy {
        ReconnectPolicy::new(ConnectionTiming::default(), MqttVersion::Auto)
    }

    fn lost() -> ConnectionEnd {
        AwayCause::Lost.because("gone")
    }

    fn closed() -> ConnectionEnd {
        AwayCause::Closed.because("closed")
    }

    /// The time of the next attempt after a back-off.
    fn backoff(state: &BrokerState) -> Mono {
        match state {
            BrokerState::Away { cause, .. } if *cause == AwayCause::TakenOver => {
                panic!("{state:?}")
            }
            state => state.retry_at().unwrap(),
        }
    }

    #[test]
    fn backoff_doubles_to_a_minute_and_starts_again_after_success() {
        let mut policy = new_policy();
        let mut waits = Vec::new();
        for _ in 0..8 {
            let retry_at = backoff(&policy.ended(lost(), at(0), 0.5));
            waits.push(retry_at.since(at(0)).as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        policy.connected(at(100), true);
        assert_eq!(backoff(&policy.ended(lost(), at(200), 0.5)), at(201));
    }

    // Faults: B17.
    #[test]
    fn next_version_follows_from_what_the_broker_did() {
        use AwayCause::{Closed, Lost, Unanswered, Unreadable, Unsupported};
        const V5: Protocol = Protocol::V5;
        const V311: Protocol = Protocol::V311;
        let unknown: [&[(AwayCause, Protocol)]; 4] = [
            &[(Unanswered, V311), (Unanswered, V5), (Lost, V5)],
            &[(Closed, V311), (Closed, V5), (Closed, V311)],
            &[(Unsupported, V311), (Lost, V311)],
            &[(Unreadable, V311), (Unreadable, V5)],
        ];
        // One that is known to support 5 may have been killed while it answered.
        let known: [&[(AwayCause, Protocol)]; 2] = [
            &[(Closed, V5), (Closed, V311), (Closed, V311), (Closed, V5)],
            &[(Unanswered, V5), (Unsupported, V311)],
        ];
        let cases = unknown.map(|case| (false, case)).into_iter();
        for (is_known, case) in cases.chain(known.map(|case| (true, case))) {
            let mut policy = new_policy();
            if is_known {
                policy.connected(at(0), true);
                policy.ended(lost(), at(100), 0.5);
            }
            for (cause, expected) in case {
                policy.ended(cause.because("why"), at(101), 0.5);
                assert_eq!(policy.protocol, *expected, "{is_known} {case:?}");
            }
            // After a connection, 5 is tried again.
            policy.connected(at(200), true);
            policy.ended(lost(), at(500), 0.5);
            assert_eq!(policy.protocol, V5);
        }
    }

    // Faults: B17.
    #[test]
    fn configured_version_is_the_only_one() {
        for (version, protocol) in [
            (MqttVersion::V5, Protocol::V5),
            (MqttVersion::V311, Protocol::V311),
        ] {
            let mut policy = ReconnectPolicy::new(ConnectionTiming::default(), version);
            for end in [
                AwayCause::Unanswered.because("silent"),
                closed(),
                AwayCause::Unreadable.because("?"),
            ] {
                policy.ended(end, at(0), 0.5);
                assert_eq!(policy.protocol, protocol);
            }
            let state = policy.ended(AwayCause::Unsupported.because(""), at(0), 0.5);
            let advice = "set mqtt.version = \"auto\"";
            assert!(state.trouble().is_some_and(|why| why.contains(advice)));
            policy.connected(at(5), true);
            policy.ended(lost(), at(500), 0.5);
            assert_eq!(policy.protocol, protocol);
        }
    }

    #[test]
    fn flapping_connection_is_retried_within_a_minute() {
        let mut policy = new_policy();
        for round in 0..20 {
            policy.connected(at(round * 10), true);
            let now = at(round * 10 + 3);
            let retry_at = backoff(&policy.ended(lost(), now, 0.5));
            assert!(retry_at.since(now) <= Duration::from_secs(2), "{round}");
        }
    }

    #[test]
    fn closes_between_losses_are_no_client_id_conflict() {
        let mut policy = new_policy();
        for round in 0..5 {
            policy.connected(at(round * 10), true);
            for (end, seconds) in [(closed(), 2), (lost(), 3)] {
                backoff(&policy.ended(end, at(round * 10 + seconds), 0.5));
            }
        }
    }

    // Faults: B24.
    #[test]
    fn refusals_are_slow_and_so_is_mistrust_each_time() {
        let mut policy = new_policy();
        let state = policy.ended(AwayCause::Refused.because("login"), at(0), 0.5);
        assert_eq!(state.retry_at(), Some(at(30)));
        for now in [at(30), at(330), at(630)] {
            let state = policy.ended(AwayCause::Untrusted.because("ca"), now, 0.5);
            assert_eq!(state.trouble(), Some("ca"));
            assert_eq!(state.retry_at(), Some(now.after(Duration::from_secs(300))));
        }
    }

    #[test]
    fn late_will_is_corrected_at_most_every_ten_seconds() {
        let mut guard = LateWill::default();
        guard.seen(at(0));
        assert!(guard.take(at(0)));
        guard.seen(at(1));
        guard.seen(at(2));
        assert!(!guard.take(at(9)));
        assert_eq!(guard.due, Some(at(10)));
        assert!(guard.take(at(10)) && !guard.take(at(10)));
    }
}
