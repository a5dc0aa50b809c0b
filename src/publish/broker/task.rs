//! The task that keeps the connection: connects, pumps the outbox, settles acknowledgements, stops cleanly.

use std::{
    hash::{BuildHasher, RandomState},
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, broadcast, watch},
    task::JoinSet,
    time::sleep,
};

use super::{
    link::{self, Happened, Outcome, QUEUE, Sender, Settings, Way},
    policy::{BrokerState, End, LateWill, Policy},
};
use crate::{
    domain::{Clock, Mono},
    publish::{
        message::{Body, Message},
        outbox::{Outbox, Outgoing, Ticket},
        publisher::Sent,
    },
};

/// A larger detection is not sent (contract section 4).
const DETECTION_MAX_BYTES: usize = 64 * 1024;
/// The task turns at least so often, so that its progress shows that it lives.
const TURN: Duration = Duration::from_secs(2);
/// A clean stop waits so long until what the rates hold back has gone; the rest is dropped.
const STREAMS_WITHIN: Duration = Duration::from_secs(1);
/// A clean stop waits so long for the broker to acknowledge.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// What the task shares with the stages that publish. The lock is held for a map operation, never across a wait; a
/// channel in its place would be a second queue with a loss rule of its own.
#[derive(Debug)]
pub(in crate::publish) struct Shared {
    outbox: Mutex<Outbox>,
    changed: Notify,
    turns: AtomicU64,
}

impl Shared {
    pub(in crate::publish) fn new(outbox: Outbox) -> Self {
        Self {
            outbox: Mutex::new(outbox),
            changed: Notify::new(),
            turns: AtomicU64::new(0),
        }
    }

    /// The outbox, for a moment.
    pub(in crate::publish) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the task to look again.
    pub(in crate::publish) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Rises while the task lives.
    pub(in crate::publish) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    fn turn(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }
}

/// Everything the task owns.
pub(in crate::publish) struct Task {
    pub(in crate::publish) settings: Settings,
    pub(in crate::publish) shared: Arc<Shared>,
    pub(in crate::publish) clock: Arc<dyn Clock>,
    pub(in crate::publish) state: watch::Sender<BrokerState>,
    pub(in crate::publish) sent: broadcast::Sender<Sent>,
    /// Turns true once, or its sender is dropped: both mean stop.
    pub(in crate::publish) stop: watch::Receiver<bool>,
    /// Published when the stop begins.
    pub(in crate::publish) farewell: Message,
}

/// One open connection.
struct Open {
    sender: Sender,
    /// Requests in the library's queue.
    queued: usize,
    acks: JoinSet<(Ticket, Outcome)>,
    late_will: LateWill,
    online: bool,
    /// Since when we are stopping, and whether good-bye was said.
    stopping: Option<(Mono, bool)>,
}

impl Task {
    /// Runs until stopped, whatever the broker does.
    pub(in crate::publish) async fn run(self) {
        let mut policy = Policy::new();
        let random = RandomState::new();
        let mut tries = 0u64;
        while let Some(end) = self.connection(&mut policy).await {
            self.shared.outbox().disconnected();
            tries += 1;
            let chance = (random.hash_one(tries) >> 11) as f64 / (1u64 << 53) as f64;
            let state = policy.ended(end, self.clock.now(), chance);
            let retry_at = match &state {
                BrokerState::Backoff { retry_at, .. }
                | BrokerState::Refused { retry_at, .. }
                | BrokerState::TakenOver { retry_at } => Some(*retry_at),
                _ => None,
            };
            self.show(state);
            let mut stop = self.stop.clone();
            tokio::select! {
                () = self.rest(retry_at) => {}
                () = asked_to_stop(&mut stop) => break,
            }
        }
        self.shared.outbox().disconnected();
        self.show(BrokerState::Stopped);
    }

    /// Waits for the next try; for ever when there is none.
    async fn rest(&self, retry_at: Option<Mono>) {
        loop {
            self.shared.turn();
            let left = retry_at.map_or(TURN, |at| at.since(self.clock.now()).min(TURN));
            if left.is_zero() {
                return;
            }
            sleep(left).await;
        }
    }

    /// One connection from CONNECT to its end; `None` when we ended it.
    async fn connection(&self, policy: &mut Policy) -> Option<End> {
        let protocol = policy.protocol();
        let mut stop = self.stop.clone();
        let (sender, mut events) = link::open(&self.settings, protocol);
        let mut open = Open {
            sender,
            queued: 0,
            acks: JoinSet::new(),
            late_will: LateWill::default(),
            online: false,
            stopping: None,
        };
        loop {
            let mut next = pin!(events.next(&self.settings.status_topic));
            let happened = loop {
                self.shared.turn();
                let wake = self.pump(&mut open);
                if self.is_over(&mut open) {
                    return None;
                }
                let stopping = open.stopping.is_some();
                tokio::select! {
                    happened = &mut next => break happened,
                    Some(acked) = open.acks.join_next() => self.settle(acked),
                    () = self.shared.changed.notified() => {}
                    () = sleep(wake) => {}
                    () = asked_to_stop(&mut stop), if !stopping => self.begin_stop(&mut open),
                }
            };
            match happened {
                Ok(Happened::Connected) => {
                    policy.connected(self.clock.now());
                    self.greet(&mut open, protocol.name());
                }
                Ok(Happened::Sent) => open.queued = open.queued.saturating_sub(1),
                Ok(Happened::Offline) if open.stopping.is_none() => {
                    open.late_will.seen(self.clock.now())
                }
                Ok(Happened::Disconnected) => return None,
                Ok(Happened::Offline | Happened::Other) => {}
                Err(_) if open.stopping.is_some() => return None,
                // Once it had answered CONNECT, silence is a lost connection.
                Err(End::NoAnswer(reason)) if open.online => return Some(End::Lost(reason)),
                Err(end) => return Some(end),
            }
        }
    }

    /// The broker accepted: everything true is published, `status` last.
    fn greet(&self, open: &mut Open, protocol: &'static str) {
        open.online = true;
        self.shared.outbox().connected();
        match open.sender.subscribe(&self.settings.status_topic) {
            Ok(()) => open.queued += 1,
            Err(_) => tracing::warn!(
                "cannot watch the own status topic; a late will may leave it offline"
            ),
        }
        self.show(BrokerState::Online { protocol });
    }

    fn begin_stop(&self, open: &mut Open) {
        let now = self.clock.now();
        open.stopping = Some((now, false));
        let at_latest = now.after(STREAMS_WITHIN);
        self.shared
            .outbox()
            .end_with(self.farewell.clone(), at_latest);
    }

    /// True when a stop has nothing left to wait for.
    fn is_over(&self, open: &mut Open) -> bool {
        let Some((since, said_goodbye)) = open.stopping else {
            return false;
        };
        if !open.online || self.clock.now().since(since) >= STOP_WITHIN {
            return true;
        }
        if !said_goodbye && self.shared.outbox().is_settled() && open.sender.disconnect().is_ok() {
            open.stopping = Some((since, true));
        }
        false
    }

    /// Hands over what is due while the library has room. Returns for how long nothing needs to be done.
    fn pump(&self, open: &mut Open) -> Duration {
        let now = self.clock.now();
        if open.late_will.take(now) {
            self.shared.outbox().repeat(&self.settings.status_topic);
        }
        while open.queued < QUEUE {
            let taken = self.shared.outbox().take(self.clock.now());
            let Some(outgoing) = taken else { break };
            self.hand_over(open, outgoing);
        }
        let next = self.shared.outbox().next_at(now);
        let waits = [next, open.late_will.next_at()];
        let wake = waits.into_iter().flatten().map(|at| at.since(now));
        // When the library is full, the next thing that happens wakes us; a spin would not make it faster.
        let shortest = if open.queued < QUEUE {
            Duration::from_millis(1)
        } else {
            TURN
        };
        wake.min().unwrap_or(TURN).clamp(shortest, TURN)
    }

    fn hand_over(&self, open: &mut Open, outgoing: Outgoing) {
        let is_detection = matches!(outgoing.body, Body::Detection(_));
        let ticket = outgoing.promise.ticket();
        // The last moment before the bytes leave us: `publish_ms` and the stage `out` are read here.
        let now = self.clock.now();
        let payload = match (&outgoing.body, &outgoing.label) {
            (Body::Bytes(bytes), _) => bytes.to_vec(),
            (Body::Detection(detection), Some(label)) => detection.to_json(label, now),
            (Body::Detection(_), None) => {
                return self
                    .shared
                    .outbox()
                    .refused(&outgoing.topic, &outgoing.body);
            }
        };
        if is_detection && payload.len() > DETECTION_MAX_BYTES {
            tracing::warn!(
                topic = outgoing.topic,
                bytes = payload.len(),
                "detection too large, dropped"
            );
            return self
                .shared
                .outbox()
                .refused(&outgoing.topic, &outgoing.body);
        }
        let json = payload.first() == Some(&b'{');
        let way = Way {
            acknowledged: ticket.is_some(),
            retained: outgoing.promise.is_retained(),
            json,
            expiry: outgoing.promise.expiry(),
            correlation: outgoing.promise.correlation(),
        };
        match (open.sender.publish(&outgoing.topic, payload, way), ticket) {
            (Ok(notice), ticket) => {
                open.queued += 1;
                if let (Some(notice), Some(ticket)) = (notice, ticket) {
                    open.acks
                        .spawn(async move { (ticket, notice.outcome().await) });
                }
                if let Body::Detection(detection) = outgoing.body {
                    let latency = detection.latency(now);
                    let topic = outgoing.topic.into();
                    // Nobody has to listen.
                    _ = self.sent.send(Sent {
                        topic,
                        detection: detection.into(),
                        latency,
                    });
                }
            }
            (Err(_), Some(ticket)) => {
                // The library has less room than we counted; its next event brings us back.
                open.queued = QUEUE;
                self.shared.outbox().failed(ticket);
            }
            (Err(_), None) => {
                open.queued = QUEUE;
                self.shared
                    .outbox()
                    .refused(&outgoing.topic, &outgoing.body);
            }
        }
    }

    fn settle(&self, answer: Result<(Ticket, Outcome), tokio::task::JoinError>) {
        let now = self.clock.now();
        match answer {
            Ok((ticket, Outcome::Acked)) => self.shared.outbox().acked(ticket, now),
            // Refused by the broker (no right to this topic): sending it again would only be refused again, and the
            // next connect tries anyway.
            Ok((ticket, Outcome::Refused)) => {
                tracing::warn!(
                    "the broker did not accept a message; check its rules for this client"
                );
                self.shared.outbox().declined(ticket, now);
            }
            // An answer that will never come ends the connection, and the outbox begins anew on the next.
            Ok((_, Outcome::Lost)) | Err(_) => {}
        }
    }

    /// Shows a state and logs it when it is news.
    fn show(&self, state: BrokerState) {
        let news = self.state.send_if_modified(|shown| {
            let news = !is_same(shown, &state);
            shown.clone_from(&state);
            news
        });
        if !news {
            return;
        }
        let (host, port) = (self.settings.host.as_str(), self.settings.port);
        match &state {
            BrokerState::Connecting | BrokerState::Stopped => {
                tracing::debug!(host, port, ?state, "broker")
            }
            BrokerState::Online { protocol } => {
                tracing::info!(host, port, protocol, "broker online")
            }
            BrokerState::Backoff { reason, .. } => {
                tracing::warn!(host, port, reason, "broker away, trying again for ever");
            }
            BrokerState::Refused { reason, .. } => {
                tracing::error!(host, port, reason, "broker refused us, trying again seldom");
            }
            BrokerState::TakenOver { .. } => {
                let id = self.settings.client_id.as_str();
                tracing::error!(
                    host,
                    port,
                    id,
                    "another client has our id, trying once a minute; give each box its own node.name"
                );
            }
            BrokerState::Untrusted { reason } => {
                tracing::error!(host, port, reason, "broker not trusted, not trying again");
            }
        }
    }
}

/// Resolves when a stop was asked for, or nobody is left to ask.
async fn asked_to_stop(stop: &mut watch::Receiver<bool>) {
    _ = stop.wait_for(|stop| *stop).await;
}

/// Same trouble as before: only the time of the next try moved. A try in between is no news, so the
/// state stays what it was until the try has ended.
fn is_same(shown: &BrokerState, new: &BrokerState) -> bool {
    use BrokerState::{Backoff, Refused, TakenOver};
    match (shown, new) {
        (Backoff { reason: a, .. }, Backoff { reason: b, .. })
        | (Refused { reason: a, .. }, Refused { reason: b, .. }) => a == b,
        (TakenOver { .. }, TakenOver { .. }) => true,
        _ => shown == new,
    }
}
