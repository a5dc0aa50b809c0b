//! What the end of a connection means and what to do next. Pure: `now` and chance go in, a decision comes out.

use std::time::Duration;

use crate::domain::Mono;

const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// A refused login is tried seldom: some brokers ban clients that insist.
const REFUSED_FIRST: Duration = Duration::from_secs(30);
const REFUSED_MAX: Duration = Duration::from_secs(300);
/// Two clients with one id throw each other out; the fight is slowed to one round a minute.
const TAKEN_OVER_RETRY: Duration = Duration::from_secs(60);
/// A connection that ends sooner may have been taken over. MQTT 3.1.1 cannot say so, and mosquitto 2.0 does not in 5.
const QUICK_CLOSE: Duration = Duration::from_secs(10);
const QUICK_CLOSES: u32 = 3;
/// `online` is repeated at most so often when a late will said `offline`.
const LATE_WILL_EVERY: Duration = Duration::from_secs(10);

/// Where the connection to the broker stands, for health and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerState {
    /// A try is under way.
    Connecting,
    /// The broker accepted us.
    Online {
        /// `5` or `3.1.1`.
        protocol: &'static str,
    },
    /// It is away; the next try comes at `retry_at`.
    Backoff {
        /// What is wrong.
        reason: String,
        /// When.
        retry_at: Mono,
    },
    /// It does not want us, or shows a certificate out of its dates: login, rights, a limit of the broker. Tried seldom.
    Refused {
        /// What is wrong and what to do.
        reason: String,
        /// When.
        retry_at: Mono,
    },
    /// Another client with our id took the session; tried once a minute.
    TakenOver {
        /// When.
        retry_at: Mono,
    },
    /// Its certificate is not trusted. Not tried again until the configuration changes; never without TLS.
    Untrusted {
        /// What is wrong and what to do.
        reason: String,
    },
    /// We closed the connection and will not open it again.
    Stopped,
}

impl BrokerState {
    /// True while messages reach the broker.
    pub fn is_online(&self) -> bool {
        matches!(self, Self::Online { .. })
    }

    /// What keeps messages from the broker and what to do, without any login; `None` when nothing is known to.
    pub fn trouble(&self) -> Option<&str> {
        match self {
            Self::Backoff { reason, .. }
            | Self::Refused { reason, .. }
            | Self::Untrusted { reason } => Some(reason),
            Self::TakenOver { .. } => {
                Some("another client has our id; give each box its own node.name")
            }
            Self::Connecting | Self::Online { .. } | Self::Stopped => None,
        }
    }
}

/// Which MQTT is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    V5,
    V311,
}

impl Protocol {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V5 => "5",
            Self::V311 => "3.1.1",
        }
    }
}

/// Why a try failed or a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The broker does not speak this protocol.
    Unsupported,
    /// It closed, or answered what we cannot read, before it accepted or refused.
    NoAnswer(String),
    /// It refused us.
    Refused(String),
    /// Its certificate is not trusted.
    Untrusted(String),
    /// Another client has our id.
    TakenOver,
    /// No route, broken connection, anything that may be over in a moment.
    Lost(String),
}

/// Remembers just enough to choose the next try.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    protocol: Protocol,
    failures: u32,
    quick_closes: u32,
    online_since: Option<Mono>,
}

impl Policy {
    pub(super) fn new() -> Self {
        Self {
            protocol: Protocol::V5,
            failures: 0,
            quick_closes: 0,
            online_since: None,
        }
    }

    /// For the next try: MQTT 5, unless the broker just showed that it does not know it.
    pub(super) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The broker accepted the connection.
    pub(super) fn connected(&mut self, now: Mono) {
        self.online_since = Some(now);
    }

    /// Chooses the state to show. In a state with `retry_at` the next try comes then; `Untrusted` is final.
    /// `chance` is 0..1 and spreads the tries of many nodes by a fifth either way.
    pub(super) fn ended(&mut self, end: End, now: Mono, chance: f64) -> BrokerState {
        let online_for = self.online_since.take().map(|since| now.since(since));
        match online_for {
            Some(time) if time < QUICK_CLOSE => self.quick_closes += 1,
            Some(_) => self.quick_closes = 0,
            // It was away in between: a broker that restarts, not a rival.
            None if matches!(end, End::Lost(_)) => self.quick_closes = 0,
            None => {}
        }
        let was_v311 = self.protocol == Protocol::V311;
        let taken_over =
            end == End::TakenOver || (online_for.is_some() && self.quick_closes >= QUICK_CLOSES);
        self.choose_protocol(&end, online_for.is_some());
        if online_for.is_some_and(|time| time >= QUICK_CLOSE) {
            self.failures = 0;
        }
        let retry_after = |first: Duration, max: Duration, failures: u32| {
            let plain = first.saturating_mul(1 << failures.min(10)).min(max);
            now.after(plain.mul_f64(0.8 + 0.4 * chance))
        };
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        if taken_over {
            return BrokerState::TakenOver {
                retry_at: now.after(TAKEN_OVER_RETRY),
            };
        }
        match end {
            End::Unsupported if !was_v311 => BrokerState::Backoff {
                reason: "the broker does not speak MQTT 5; trying 3.1.1".to_owned(),
                retry_at: now,
            },
            End::Unsupported => BrokerState::Refused {
                reason: "the broker speaks neither MQTT 5 nor 3.1.1; use another broker".to_owned(),
                retry_at: retry_after(REFUSED_FIRST, REFUSED_MAX, failures),
            },
            End::Refused(reason) => BrokerState::Refused {
                reason,
                retry_at: retry_after(REFUSED_FIRST, REFUSED_MAX, failures),
            },
            End::Untrusted(reason) => BrokerState::Untrusted { reason },
            End::NoAnswer(reason) | End::Lost(reason) => BrokerState::Backoff {
                reason,
                retry_at: retry_after(BACKOFF_FIRST, BACKOFF_MAX, failures),
            },
            End::TakenOver => BrokerState::TakenOver {
                retry_at: now.after(TAKEN_OVER_RETRY),
            },
        }
    }

    fn choose_protocol(&mut self, end: &End, was_online: bool) {
        self.protocol = match (self.protocol, end) {
            // Brokers get upgraded; asking costs one refusal.
            _ if was_online && self.quick_closes == 0 => Protocol::V5,
            (Protocol::V5, End::Unsupported | End::NoAnswer(_)) => Protocol::V311,
            (Protocol::V311, End::Unsupported | End::NoAnswer(_)) => Protocol::V5,
            (protocol, _) => protocol,
        };
    }
}

/// Corrects our retained status after a will that came late said `offline` while we are online.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LateWill {
    due: Option<Mono>,
    last: Option<Mono>,
}

impl LateWill {
    /// Somebody else's `offline` was seen on our status topic.
    pub(super) fn seen(&mut self, now: Mono) {
        let earliest = self
            .last
            .map_or(now, |last| last.after(LATE_WILL_EVERY).max(now));
        self.due.get_or_insert(earliest);
    }

    /// True once when the status must be repeated now.
    pub(super) fn take(&mut self, now: Mono) -> bool {
        let due = self.due.is_some_and(|at| at <= now);
        if due {
            self.due = None;
            self.last = Some(now);
        }
        due
    }

    /// When [`take`](Self::take) will say yes.
    pub(super) fn next_at(&self) -> Option<Mono> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::default().after(Duration::from_secs(seconds))
    }

    fn lost() -> End {
        End::Lost("gone".into())
    }

    #[test]
    fn backoff_doubles_to_a_minute_and_starts_again_after_success() {
        let mut policy = Policy::new();
        let mut waits = Vec::new();
        for _ in 0..8 {
            match policy.ended(lost(), at(0), 0.5) {
                BrokerState::Backoff { retry_at, .. } => {
                    waits.push(retry_at.since(at(0)).as_secs())
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        policy.connected(at(100));
        let state = policy.ended(lost(), at(200), 0.5);
        assert!(matches!(state, BrokerState::Backoff { retry_at, .. } if retry_at == at(201)));
    }

    #[test]
    fn an_old_broker_gets_3_1_1_at_once_and_5_is_asked_again_later() {
        let mut policy = Policy::new();
        let state = policy.ended(End::Unsupported, at(5), 0.5);
        assert!(matches!(state, BrokerState::Backoff { retry_at, .. } if retry_at == at(5)));
        assert_eq!(policy.protocol(), Protocol::V311);
        policy.connected(at(5));
        policy.ended(lost(), at(500), 0.5);
        assert_eq!(policy.protocol(), Protocol::V5);
    }

    #[test]
    fn a_broker_that_hangs_up_is_asked_in_both_tongues() {
        let mut policy = Policy::new();
        for expected in [Protocol::V311, Protocol::V5, Protocol::V311] {
            policy.ended(End::NoAnswer("closed".into()), at(0), 0.5);
            assert_eq!(policy.protocol(), expected);
        }
    }

    #[test]
    fn three_quick_closes_are_a_fight_over_the_id_and_a_restarting_broker_is_not() {
        let mut policy = Policy::new();
        let mut states = Vec::new();
        for round in 0..3 {
            policy.connected(at(round * 10));
            states.push(policy.ended(lost(), at(round * 10 + 2), 0.5));
        }
        assert!(matches!(states[1], BrokerState::Backoff { .. }));
        assert_eq!(states[2], BrokerState::TakenOver { retry_at: at(82) });

        let mut policy = Policy::new();
        for round in 0..5 {
            policy.connected(at(round * 10));
            for seconds in [2, 3] {
                let state = policy.ended(lost(), at(round * 10 + seconds), 0.5);
                assert!(matches!(state, BrokerState::Backoff { .. }));
            }
        }
    }

    #[test]
    fn refusals_are_slow_and_mistrust_is_final() {
        let mut policy = Policy::new();
        let state = policy.ended(End::Refused("login".into()), at(0), 0.5);
        assert!(matches!(state, BrokerState::Refused { retry_at, .. } if retry_at == at(30)));
        let state = policy.ended(End::Untrusted("ca".into()), at(0), 0.5);
        assert_eq!(
            state,
            BrokerState::Untrusted {
                reason: "ca".into()
            }
        );
    }

    #[test]
    fn a_late_will_is_answered_at_most_every_ten_seconds_but_always() {
        let mut guard = LateWill::default();
        guard.seen(at(0));
        assert!(guard.take(at(0)));
        guard.seen(at(1));
        guard.seen(at(2));
        assert!(!guard.take(at(9)));
        assert_eq!(guard.next_at(), Some(at(10)));
        assert!(guard.take(at(10)) && !guard.take(at(10)));
    }
}
