//! One connection from CONNECT to its end: sends what is due, handles answers, and ends when there are none.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use tokio::{
    sync::{mpsc::error::TrySendError, watch},
    task::{JoinError, JoinSet},
    time::sleep,
};

use super::{
    client::{
        self, ConnectionEvent, Events, JSON, QUEUE, RequestOutcome, Sender, SubscriptionPurpose,
        content_type,
    },
    limits::{BrokerLimits, publish_bytes, subscribe_bytes},
    liveness::ConnectionLiveness,
    policy::{BrokerState, ConnectionEnd, LateWill, Protocol, ReconnectPolicy},
    target::ConnectionTarget,
    task::{BrokerTask, TURN, WantedFilters, asked_to_stop},
    tls::Trust,
};
use crate::{
    Inbound, JsonLine,
    contract::{
        command::parse_owner,
        detection,
        message::{Body, Message, status_text},
    },
    delivery::{Outgoing, SentDetection, Ticket},
};
use spotter_core::{Latency, LogThrottle, Mono};

/// A larger detection is not sent (docs/mqtt.md section 1).
const DETECTION_MAX_BYTES: usize = 64 * 1024;
/// The log message when the broker rejects the topic of a trigger.
const REJECTED_TRIGGER: &str = "subscription rejected; the triggers of this topic start no looks; allow this client to read the topic on the broker";
/// A clean stop sends waiting stream messages for this time at most; the others are dropped.
const STREAMS_WITHIN: Duration = Duration::from_secs(1);
/// A clean stop waits for acknowledgements for this time at most.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// Failures that do not end a connection; each kind is logged once a minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConnectionWarning {
    /// A message exceeds the broker's limit.
    TooLarge,
    Refused,
    /// The broker rejected this filter, or it cannot be sent.
    SubscriptionRejected(String),
    /// Messages arrive faster than they are processed.
    InboxFull,
    /// The TLS files cannot be read.
    Files,
}

/// State that is kept from one connection to the next.
pub(super) struct ReconnectState {
    throttle: LogThrottle<ConnectionWarning>,
    /// `None` = plain TCP.
    trust: Option<Trust>,
}

impl ReconnectState {
    pub(super) fn new(target: &ConnectionTarget) -> Self {
        Self {
            throttle: LogThrottle::default(),
            trust: target.trust.clone(),
        }
    }

    /// Reads the TLS files again, for the next connection.
    pub(super) async fn renew_trust(&mut self, now: Mono) {
        let Some(trust) = &mut self.trust else {
            return;
        };
        if let Err(error) = trust.renew().await
            && let Some(suppressed) = self.throttle.admit(ConnectionWarning::Files, now)
        {
            tracing::warn!(%error, suppressed, "cannot read the TLS files; the certificates read before stay in use");
        }
    }
}

/// A request that the broker answers.
enum BrokerRequest {
    Message { topic: String, ticket: Ticket },
    Filter(String),
}

pub(super) struct BrokerConnection<'a> {
    task: &'a BrokerTask,
    target: &'a ConnectionTarget,
    memory: &'a mut ReconnectState,
    protocol: Protocol,
    filters: watch::Receiver<WantedFilters>,
    sender: Sender,
    /// Requests in the client library's queue.
    queued: usize,
    /// Requests that the broker has not answered.
    answers: JoinSet<(BrokerRequest, RequestOutcome)>,
    wanted_filters: Vec<String>,
    subscribed_filters: Vec<String>,
    /// As in [`WantedFilters::triggers`], of this connection.
    subscribed_since: BTreeMap<String, u64>,
    liveness: ConnectionLiveness,
    limits: BrokerLimits,
    late_will: LateWill,
    online_since: Option<Mono>,
    /// Start of a clean stop, and whether DISCONNECT was sent.
    stopping: Option<(Mono, bool)>,
}

impl<'a> BrokerConnection<'a> {
    /// Prepares a connection; [`run`](Self::run) opens it.
    pub(super) fn new(
        task: &'a BrokerTask,
        policy: &ReconnectPolicy,
        memory: &'a mut ReconnectState,
    ) -> (Self, Events) {
        let (target, protocol) = (&*task.target, policy.protocol);
        let (sender, events) = {
            let client = target.client(memory.trust.as_ref(), policy.retains);
            client::open(&client, protocol)
        };
        let connection = Self {
            task,
            target,
            memory,
            protocol,
            filters: task.filters.clone(),
            sender,
            queued: 0,
            answers: JoinSet::new(),
            wanted_filters: Vec::new(),
            subscribed_filters: Vec::new(),
            subscribed_since: BTreeMap::new(),
            liveness: ConnectionLiveness::new(target.timing.clone(), task.clock.now()),
            limits: BrokerLimits::default(),
            late_will: LateWill::default(),
            online_since: None,
            stopping: None,
        };
        (connection, events)
    }

    /// Runs the connection until it ends; `None` after a clean stop.
    pub(super) async fn run(
        mut self,
        mut events: Events,
        policy: &mut ReconnectPolicy,
    ) -> Option<ConnectionEnd> {
        let mut stop = self.task.stop.clone();
        loop {
            let mut next = pin!(events.next());
            let happened = loop {
                self.task.shared.turn();
                let wake = self.pump();
                if self.finish_stop() {
                    return None;
                }
                if let Some(reason) = self.lost() {
                    return Some(ConnectionEnd::Lost(reason));
                }
                let (online, stopping) = (self.online_since.is_some(), self.stopping.is_some());
                tokio::select! {
                    happened = &mut next => break happened,
                    Some(answer) = self.answers.join_next() => self.settle(answer),
                    () = self.task.shared.changed() => {}
                    Ok(()) = self.filters.changed(), if online && !stopping => self.listen(),
                    () = sleep(wake) => {}
                    () = asked_to_stop(&mut stop), if !stopping => self.begin_stop(),
                }
            };
            match happened {
                Ok(ConnectionEvent::Connected(limits)) => {
                    policy.connected(self.task.clock.now(), limits.retains);
                    self.on_connected(limits);
                }
                Ok(ConnectionEvent::Sent) => self.queued = self.queued.saturating_sub(1),
                Ok(ConnectionEvent::Message(inbound)) => self.take_in(inbound),
                Ok(ConnectionEvent::Heard) => self.liveness.heard(self.task.clock.now()),
                Ok(ConnectionEvent::Disconnected) => return None,
                Ok(ConnectionEvent::Other) => {}
                Err(_) if self.stopping.is_some() => return None,
                Err(end) => return Some(end),
            }
        }
    }

    /// The broker accepted the connection: subscribes, then publishes all states, `status` last.
    fn on_connected(&mut self, limits: BrokerLimits) {
        let now = self.task.clock.now();
        self.online_since = Some(now);
        self.limits = limits;
        self.liveness.heard(now);
        self.task.shared.rejected_filters().clear();
        self.task.shared.outbox().connected();
        self.listen();
        let protocol = self.protocol.name();
        self.task.show(BrokerState::Online { protocol });
    }

    /// Determines the subscriptions. The node's own status comes first: it shows a late will. In a fleet the owners of its cameras follow.
    fn listen(&mut self) {
        self.wanted_filters = vec![self.target.status_topic.clone()];
        self.wanted_filters.extend(self.target.owner_filter.clone());
        let others = self.filters.borrow_and_update();
        // A repeated subscription makes the broker send the retained message again.
        let (before, triggers) = (&self.subscribed_since, &others.triggers);
        let is_same = |filter: &String| before.get(filter) == triggers.get(filter);
        self.subscribed_filters
            .retain(|filter| !triggers.contains_key(filter) || is_same(filter));
        self.subscribed_since.clone_from(triggers);
        let others = others.commands.iter().chain(others.triggers.keys());
        for filter in others {
            if !self.wanted_filters.contains(filter) {
                self.wanted_filters.push(filter.clone());
            }
        }
    }

    fn begin_stop(&mut self) {
        let now = self.task.clock.now();
        self.stopping = Some((now, false));
        let at_latest = now.after(STREAMS_WITHIN);
        let final_status = Message::node_status(&self.target.topics, false);
        self.task.shared.outbox().end_with(final_status, at_latest);
    }

    /// Sends DISCONNECT when a clean stop has nothing left to send. True when its time is over.
    fn finish_stop(&mut self) -> bool {
        let Some((since, sent_disconnect)) = self.stopping else {
            return false;
        };
        if self.online_since.is_none() || self.task.clock.now().since(since) >= STOP_WITHIN {
            return true;
        }
        let is_settled = self.task.shared.outbox().is_settled(self.task.clock.now());
        if !sent_disconnect && is_settled && self.sender.disconnect().is_ok() {
            self.stopping = Some((since, true));
        }
        false
    }

    /// Why the connection must be closed although the socket is open: the broker does not answer a request.
    fn lost(&mut self) -> Option<String> {
        // The client library limits the time of CONNECT.
        self.online_since?;
        let now = self.task.clock.now();
        if self.liveness.must_ask(now) {
            // A repeated subscription changes nothing, and the broker must answer it.
            self.subscribe(self.target.status_topic.clone());
        }
        let oldest = self.task.shared.outbox().oldest_in_flight();
        self.liveness.lost(now, oldest)
    }

    /// Hands over what is due while the client library has room. Returns the time until the next call.
    fn pump(&mut self) -> Duration {
        let (task, now) = (self.task, self.task.clock.now());
        if self.late_will.take(now) {
            task.shared
                .outbox()
                .states
                .repeat(&self.target.status_topic);
        }
        while self.queued < QUEUE && self.change_subscription() {}
        while self.has_room() {
            let taken = task.shared.outbox().take(task.clock.now());
            let Some(outgoing) = taken else { break };
            self.hand_over(outgoing);
        }
        let next = task.shared.outbox().next_at(now);
        let waits = [next, self.late_will.next_at()];
        let wake = waits.into_iter().flatten().map(|at| at.since(now));
        // When the client library is full, its next event wakes the task.
        let shortest = match self.has_room() {
            true => Duration::from_millis(1),
            false => TURN,
        };
        wake.min().unwrap_or(TURN).clamp(shortest, TURN)
    }

    fn has_room(&self) -> bool {
        self.queued < QUEUE && self.answers.len() < self.limits.in_flight_max
    }

    /// Requests one change of the subscriptions; false when they are as wanted.
    fn change_subscription(&mut self) -> bool {
        let (wanted, subscribed) = (&self.wanted_filters, &mut self.subscribed_filters);
        let new = wanted.iter().find(|filter| !subscribed.contains(filter));
        if let Some(filter) = new.cloned() {
            subscribed.push(filter.clone());
            self.subscribe(filter);
            return true;
        }
        let old = subscribed
            .iter()
            .position(|filter| !wanted.contains(filter));
        if let Some(index) = old {
            let filter = subscribed.swap_remove(index);
            self.task.shared.rejected_filters().remove(&filter);
            self.queued += usize::from(self.sender.unsubscribe(&filter).is_ok());
        }
        old.is_some()
    }

    fn purpose_of(&self, filter: &str) -> SubscriptionPurpose {
        if self.target.owner_filter.as_deref() == Some(filter) {
            SubscriptionPurpose::States
        } else if self.is_of_trigger(filter) {
            SubscriptionPurpose::Triggers
        } else {
            SubscriptionPurpose::Commands
        }
    }

    fn is_of_trigger(&self, filter: &str) -> bool {
        let wanted = self.filters.borrow();
        wanted.triggers.contains_key(filter)
    }

    fn subscribe(&mut self, filter: String) {
        if !self.limits.allows(subscribe_bytes(self.protocol, &filter)) {
            return self.warn_rejected(filter, "the filter exceeds the broker's packet size");
        }
        match self.sender.subscribe(&filter, self.purpose_of(&filter)) {
            Ok(notice) => {
                self.queued += 1;
                self.answers
                    .spawn(async move { (BrokerRequest::Filter(filter), notice.outcome().await) });
            }
            // There was room, so the filter is invalid.
            Err(_) if self.queued < QUEUE => self.warn_rejected(filter, "the filter is invalid"),
            // The queue is full. A silent broker is noticed without this request.
            Err(_) => {}
        }
    }

    fn hand_over(&mut self, outgoing: Outgoing) {
        // `publish_ms` and the stage `out` are read here, immediately before the hand-over.
        let now = self.task.clock.now();
        let (payload, bytes_max) = match &outgoing.body {
            Body::Bytes(bytes) => (bytes.to_vec(), usize::MAX),
            Body::Detection(detection, label) => (
                detection::to_json(detection, label, now),
                DETECTION_MAX_BYTES,
            ),
        };
        let mut delivery = outgoing.delivery.clone();
        delivery.retained &= self.limits.retains;
        let bytes = publish_bytes(self.protocol, &outgoing.topic, &payload, &delivery);
        if payload.len() > bytes_max || !self.limits.allows(bytes) {
            return self.decline(&outgoing, bytes);
        }
        let line = self.line(&outgoing.topic, &payload);
        let Ok(notice) = self.sender.publish(&outgoing.topic, payload, &delivery) else {
            // The client library has less room than was counted; its next event wakes the task.
            self.queued = QUEUE;
            let mut outbox = self.task.shared.outbox();
            match delivery.ticket {
                Some(ticket) => outbox.failed(ticket),
                None => outbox.streams.refused(&outgoing.topic, &outgoing.body),
            }
            return;
        };
        self.queued += 1;
        // There may be no receiver of lines and detections.
        if let Some(line) = line {
            _ = self.task.lines.send(line);
        }
        if let (Some(notice), Some(ticket)) = (notice, delivery.ticket) {
            let request = BrokerRequest::Message {
                topic: outgoing.topic.clone(),
                ticket,
            };
            self.answers
                .spawn(async move { (request, notice.outcome().await) });
        }
        if let Body::Detection(detection, _) = outgoing.body {
            let latency = Latency::of(&detection, now);
            _ = self.task.sent.send(SentDetection {
                topic: outgoing.topic.into(),
                detection: detection.into(),
                latency,
            });
        }
    }

    /// The line for standard output, if there is a receiver: JSON of this node, without discovery records.
    fn line(&self, topic: &str, payload: &[u8]) -> Option<JsonLine> {
        let is_heard = self.task.lines.receiver_count() > 0;
        let is_ours = || self.target.topics.levels_of(topic).is_some();
        let is_printed = is_heard && content_type(payload) == Some(JSON) && is_ours();
        is_printed.then(|| JsonLine::new(topic, payload))
    }

    /// Does not send a message that would make the broker close the connection.
    fn decline(&mut self, outgoing: &Outgoing, bytes: usize) {
        if let Some(suppressed) = self.admit(ConnectionWarning::TooLarge) {
            let (topic, max) = (outgoing.topic.as_str(), self.limits.packet_max_bytes);
            tracing::warn!(
                topic,
                bytes,
                broker_max = max,
                suppressed,
                "message exceeds the packet size of the broker; not sent"
            );
        }
        let mut outbox = self.task.shared.outbox();
        match outgoing.delivery.ticket {
            Some(ticket) => outbox.declined(ticket, self.task.clock.now()),
            None => outbox.streams.refused(&outgoing.topic, &outgoing.body),
        }
    }

    /// `Some` when the warning must be logged, with the number of suppressed ones.
    fn admit(&mut self, warning: ConnectionWarning) -> Option<u64> {
        let now = self.task.clock.now();
        self.memory.throttle.admit(warning, now)
    }

    fn settle(&mut self, answer: Result<(BrokerRequest, RequestOutcome), JoinError>) {
        let now = self.task.clock.now();
        match answer {
            Ok((BrokerRequest::Message { ticket, .. }, RequestOutcome::Acked)) => {
                self.task.shared.outbox().acked(ticket, now);
            }
            // The broker would reject it again now; the outbox retries it later.
            Ok((BrokerRequest::Message { topic, ticket }, RequestOutcome::Refused(code))) => {
                self.task.shared.outbox().declined(ticket, now);
                if let Some(suppressed) = self.admit(ConnectionWarning::Refused) {
                    tracing::warn!(
                        topic,
                        code,
                        suppressed,
                        "broker rejected a message; check the broker's limits and access rules for this client"
                    );
                }
            }
            Ok((BrokerRequest::Filter(filter), RequestOutcome::Refused(code))) => {
                self.warn_rejected(filter, &code);
            }
            Ok((BrokerRequest::Filter(filter), RequestOutcome::Acked)) => self.answered(&filter),
            // A missing answer ends the connection, and the outbox sends the message on the next one.
            Ok((_, RequestOutcome::Lost)) | Err(_) => {}
        }
    }

    fn answered(&self, filter: &str) {
        if self.target.owner_filter.as_deref() == Some(filter) {
            let now = self.task.clock.now();
            self.task.shared.outbox().gate.owners_answered(now);
        }
    }

    fn warn_rejected(&mut self, filter: String, why: &str) {
        // Then the store alone says who the owner is.
        self.answered(&filter);
        let warning = ConnectionWarning::SubscriptionRejected(filter.clone());
        if let Some(suppressed) = self.admit(warning) {
            let effect = match self.is_of_trigger(&filter) {
                true => REJECTED_TRIGGER,
                false => self.target.effect_of_rejected(&filter),
            };
            tracing::warn!(filter, why, suppressed, "{effect}");
        }
        self.task.shared.rejected_filters().insert(filter);
    }

    /// Handles a message on a subscribed topic.
    fn take_in(&mut self, inbound: Inbound) {
        let now = self.task.clock.now();
        self.liveness.heard(now);
        if inbound.topic == self.target.status_topic {
            // A retained copy is older than this connection, and `online` follows it.
            let is_current = !inbound.retained && inbound.payload == status_text(false).as_bytes();
            if is_current && self.stopping.is_none() {
                self.late_will.seen(now);
            }
            return;
        }
        if self.target.topics.camera_of_owner(&inbound.topic).is_some() {
            if let Some((camera, owner)) = parse_owner(&self.target.topics, &inbound) {
                let mut outbox = self.task.shared.outbox();
                outbox.gate.owner_arrived(&camera, owner.epoch, now);
            }
            return;
        }
        if let Err(TrySendError::Full(dropped)) = self.task.inbox.try_send(inbound) {
            self.task.shared.outbox().counters.inbound_dropped += 1;
            if let Some(suppressed) = self.admit(ConnectionWarning::InboxFull) {
                let topic = dropped.topic;
                tracing::warn!(
                    topic,
                    suppressed,
                    "messages arrive faster than they are processed; message dropped"
                );
            }
        }
    }
}
