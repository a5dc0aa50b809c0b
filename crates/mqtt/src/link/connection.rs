//! One connection from CONNECT to its end: sends what is due, handles answers, and ends when there are none.

use std::{collections::BTreeMap, time::Duration};

use tokio::{
    sync::{mpsc::error::TrySendError, watch},
    task::{JoinError, JoinSet},
    time::sleep,
};

use super::{
    client::{
        BrokerLimits, ConnectionEvent, Events, FilterPurpose, JSON, QUEUE, RequestOutcome, Sender,
        content_type, qos,
    },
    liveness::ConnectionLiveness,
    open,
    policy::{AwayCause, BrokerState, ConnectionEnd, LateWill, Protocol, ReconnectPolicy},
    shared::{Shared, TURN, WantedFilters, asked_to_stop},
    target::ConnectionTarget,
    tls::Trust,
};
use crate::{
    Inbound, JsonLine,
    contract::{
        command::parse_owner,
        detection,
        message::{Body, Message},
        node_topic::status_text,
    },
    delivery::{Outgoing, SentDetection, Ticket},
};
use spotter_core::{Latency, LogThrottle, Mono};

/// A larger detection is not sent (docs/mqtt.md section 1).
const DETECTION_MAX_BYTES: usize = 64 * 1024;
/// Of a packet around its topic or filter, its payload and its correlation data, at most.
const OVERHEAD_BYTES: usize = 80;
/// A clean stop sends waiting stream messages for this time at most; the others are dropped.
const STREAMS_WITHIN: Duration = Duration::from_secs(1);
/// A clean stop waits for acknowledgements for this time at most.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// State that is kept from one connection to the next.
pub(super) struct ReconnectState {
    /// Failures that do not end a connection, and filters that the broker rejects.
    throttle: LogThrottle<String>,
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
            && let Some(suppressed) = self.throttle.admit("TLS files".to_owned(), now)
        {
            tracing::warn!(%error, suppressed, "cannot read the TLS files; the certificates read before stay in use");
        }
    }
}

/// A request that the broker answers.
enum BrokerRequest {
    Message { topic: String, ticket: Ticket },
    Filter(String, FilterPurpose),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FilterSubscription {
    purpose: FilterPurpose,
    /// As in [`WantedFilters::triggers`].
    number: u64,
}

pub(super) struct BrokerConnection<'a> {
    shared: &'a Shared,
    target: &'a ConnectionTarget,
    memory: &'a mut ReconnectState,
    protocol: Protocol,
    filters: watch::Receiver<WantedFilters>,
    sender: Box<dyn Sender>,
    /// Requests in the client library's queue.
    queued: usize,
    /// Requests that the broker has not answered.
    answers: JoinSet<(BrokerRequest, RequestOutcome)>,
    wanted: BTreeMap<String, FilterSubscription>,
    subscribed: BTreeMap<String, FilterSubscription>,
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
        shared: &'a Shared,
        policy: &ReconnectPolicy,
        memory: &'a mut ReconnectState,
    ) -> (Self, Box<dyn Events>) {
        let (target, protocol) = (&shared.target, policy.protocol);
        let (sender, events) = {
            let client = target.client(memory.trust.as_ref(), policy.retains);
            open::open(&client, protocol)
        };
        let connection = Self {
            shared,
            target,
            memory,
            protocol,
            filters: shared.filters.subscribe(),
            sender,
            queued: 0,
            answers: JoinSet::new(),
            wanted: BTreeMap::new(),
            subscribed: BTreeMap::new(),
            liveness: ConnectionLiveness::new(target.timing.clone(), shared.now()),
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
        mut events: Box<dyn Events>,
        policy: &mut ReconnectPolicy,
        stop: &mut watch::Receiver<bool>,
    ) -> Option<ConnectionEnd> {
        loop {
            let mut next = events.next();
            let happened = loop {
                self.shared.turn();
                let wake = self.pump();
                if self.finish_stop() {
                    return None;
                }
                if let Some(reason) = self.lost() {
                    return Some(AwayCause::Lost.because(reason));
                }
                let (online, stopping) = (self.online_since.is_some(), self.stopping.is_some());
                tokio::select! {
                    happened = &mut next => break happened,
                    Some(answer) = self.answers.join_next() => self.settle(answer),
                    () = self.shared.changed() => {}
                    Ok(()) = self.filters.changed(), if online && !stopping => self.listen(),
                    () = sleep(wake) => {}
                    () = asked_to_stop(stop), if !stopping => self.begin_stop(),
                }
            };
            match happened {
                Ok(ConnectionEvent::Connected(limits)) => {
                    policy.connected(self.shared.now(), limits.retains);
                    self.on_connected(limits);
                }
                Ok(ConnectionEvent::Sent) => self.queued = self.queued.saturating_sub(1),
                Ok(ConnectionEvent::Message(inbound)) => self.take_in(inbound),
                Ok(ConnectionEvent::Heard) => self.liveness.heard(self.shared.now()),
                Ok(ConnectionEvent::Disconnected) => return None,
                Ok(ConnectionEvent::Other) => {}
                Err(_) if self.stopping.is_some() => return None,
                Err(end) => return Some(end),
            }
        }
    }

    /// The broker accepted the connection: subscribes, then publishes all states, `status` last.
    fn on_connected(&mut self, limits: BrokerLimits) {
        let now = self.shared.now();
        self.online_since = Some(now);
        self.limits = limits;
        self.liveness.heard(now);
        self.shared.rejected_filters().clear();
        self.shared.outbox().connected();
        self.listen();
        let protocol = self.protocol.name();
        self.shared.show(BrokerState::Online { protocol });
    }

    /// Determines the subscriptions.
    fn listen(&mut self) {
        let (topics, others) = (&self.target.topics, self.filters.borrow_and_update());
        self.wanted.clear();
        let mut want = |filter, purpose, number| {
            let how = FilterSubscription { purpose, number };
            self.wanted.insert(filter, how);
        };
        for filter in &others.commands {
            want(filter.clone(), FilterPurpose::Commands, 0);
        }
        for (topic, number) in &others.triggers {
            want(topic.clone(), FilterPurpose::Triggers, *number);
        }
        if let Some(owners) = topics.any_owner() {
            want(owners, FilterPurpose::States, 0);
        }
        want(topics.status(), FilterPurpose::OwnStatus, 0);
    }

    fn begin_stop(&mut self) {
        let now = self.shared.now();
        self.stopping = Some((now, false));
        let at_latest = now.after(STREAMS_WITHIN);
        let final_status = Message::node_status(&self.target.topics, false);
        self.shared.outbox().end_with(final_status, at_latest);
    }

    /// Sends DISCONNECT when a clean stop has nothing left to send. True when its time is over.
    fn finish_stop(&mut self) -> bool {
        let Some((since, sent_disconnect)) = self.stopping else {
            return false;
        };
        if self.online_since.is_none() || self.shared.now().since(since) >= STOP_WITHIN {
            return true;
        }
        let is_settled = self.shared.outbox().is_settled(self.shared.now());
        if !sent_disconnect && is_settled && self.sender.disconnect() {
            self.stopping = Some((since, true));
        }
        false
    }

    /// Why the connection must be closed although the socket is open: the broker does not answer a request.
    fn lost(&mut self) -> Option<String> {
        // The client library limits the time of CONNECT.
        self.online_since?;
        let now = self.shared.now();
        if self.liveness.must_ask(now) {
            // A repeated subscription changes nothing, and the broker must answer it.
            self.subscribe(self.target.topics.status(), FilterPurpose::OwnStatus);
        }
        let oldest = self.shared.outbox().oldest_in_flight();
        self.liveness.lost(now, oldest)
    }

    /// Hands over what is due while the client library has room. Returns the time until the next call.
    fn pump(&mut self) -> Duration {
        let (shared, now) = (self.shared, self.shared.now());
        if self.late_will.take(now) {
            let status = self.target.topics.status();
            shared.outbox().states.repeat(&status);
        }
        while self.queued < QUEUE && self.change_subscription() {}
        while self.has_room() {
            let taken = shared.outbox().take(shared.now());
            let Some(outgoing) = taken else { break };
            self.hand_over(outgoing);
        }
        let next = shared.outbox().next_at(now);
        let waits = [next, self.late_will.due];
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
        let wanted = self.wanted.iter();
        let new = wanted.filter(|(filter, how)| self.subscribed.get(*filter) != Some(how));
        let first = new.min_by_key(|(_, how)| how.purpose);
        if let Some((filter, how)) = first.map(|(filter, how)| (filter.clone(), *how)) {
            self.subscribed.insert(filter.clone(), how);
            self.subscribe(filter, how.purpose);
            return true;
        }
        let mut subscribed = self.subscribed.keys();
        let old = subscribed.find(|filter| !self.wanted.contains_key(*filter));
        let Some(filter) = old.cloned() else {
            return false;
        };
        self.subscribed.remove(&filter);
        self.shared.rejected_filters().remove(&filter);
        self.queued += usize::from(self.sender.unsubscribe(&filter));
        true
    }

    fn subscribe(&mut self, filter: String, purpose: FilterPurpose) {
        if filter.len() + OVERHEAD_BYTES > self.limits.packet_max_bytes {
            return self.warn_rejected(
                filter,
                purpose,
                "the filter exceeds the broker's packet size",
            );
        }
        match self.sender.subscribe(&filter, purpose) {
            Some(answer) => {
                self.queued += 1;
                let request = BrokerRequest::Filter(filter, purpose);
                self.answers.spawn(async move { (request, answer.await) });
            }
            // There was room, so the filter is invalid.
            None if self.queued < QUEUE => {
                self.warn_rejected(filter, purpose, "the filter is invalid");
            }
            // The queue is full. A silent broker is noticed without this request.
            None => {}
        }
    }

    fn hand_over(&mut self, outgoing: Outgoing) {
        // `publish_ms` and the stage `out` are read here, immediately before the hand-over.
        let now = self.shared.now();
        let (payload, bytes_max) = match &outgoing.body {
            Body::Bytes(bytes) => (bytes.to_vec(), usize::MAX),
            Body::Detection(detection, label) => (
                detection::to_json(detection, label, now),
                DETECTION_MAX_BYTES,
            ),
        };
        let mut delivery = outgoing.delivery.clone();
        delivery.retained &= self.limits.retains;
        let correlation = delivery.correlation.as_ref().map_or(0, |data| data.len());
        let bytes = outgoing.topic.len() + payload.len() + correlation + OVERHEAD_BYTES;
        if payload.len() > bytes_max || bytes > self.limits.packet_max_bytes {
            return self.decline(&outgoing, bytes);
        }
        let line = self.line(&outgoing.topic, &payload);
        let qos = qos(delivery.ticket.is_some() && self.target.mqtt.broker.max_qos > 0);
        let Some(answer) = self
            .sender
            .publish(&outgoing.topic, payload, qos, &delivery)
        else {
            // The client library has less room than was counted; its next event wakes the task.
            self.queued = QUEUE;
            let mut outbox = self.shared.outbox();
            match delivery.ticket {
                Some(ticket) => outbox.failed(ticket),
                None => outbox.streams.refused(&outgoing.topic, &outgoing.body),
            }
            return;
        };
        self.queued += 1;
        // There may be no receiver of lines and detections.
        if let Some(line) = line {
            _ = self.shared.lines.send(line);
        }
        if let Some(ticket) = delivery.ticket {
            let request = BrokerRequest::Message {
                topic: outgoing.topic.clone(),
                ticket,
            };
            self.answers.spawn(async move { (request, answer.await) });
        }
        if let Body::Detection(detection, _) = outgoing.body {
            let latency = Latency::of(&detection, now);
            _ = self.shared.sent.send(SentDetection {
                topic: outgoing.topic.into(),
                detection,
                latency,
            });
        }
    }

    /// The line for standard output, if there is a receiver: JSON of this node, without discovery records.
    fn line(&self, topic: &str, payload: &[u8]) -> Option<JsonLine> {
        let is_heard = self.shared.lines.receiver_count() > 0;
        let is_ours = || self.target.topics.scope_of(topic).is_some();
        let is_printed = is_heard && content_type(payload) == Some(JSON) && is_ours();
        is_printed.then(|| JsonLine::new(topic, payload))
    }

    /// Does not send a message that would make the broker close the connection.
    fn decline(&mut self, outgoing: &Outgoing, bytes: usize) {
        if let Some(suppressed) = self.admit("too large") {
            let (topic, max) = (outgoing.topic.as_str(), self.limits.packet_max_bytes);
            tracing::warn!(
                topic,
                bytes,
                broker_max = max,
                suppressed,
                "message exceeds the packet size of the broker; not sent"
            );
        }
        let mut outbox = self.shared.outbox();
        match outgoing.delivery.ticket {
            Some(ticket) => outbox.declined(ticket, self.shared.now()),
            None => outbox.streams.refused(&outgoing.topic, &outgoing.body),
        }
    }

    /// `Some` when the warning must be logged, with the number of suppressed ones.
    fn admit(&mut self, warning: &str) -> Option<u64> {
        let now = self.shared.now();
        self.memory.throttle.admit(warning.to_owned(), now)
    }

    fn settle(&mut self, answer: Result<(BrokerRequest, RequestOutcome), JoinError>) {
        let now = self.shared.now();
        match answer {
            Ok((BrokerRequest::Message { ticket, .. }, RequestOutcome::Acked)) => {
                self.shared.outbox().acked(ticket, now);
            }
            // The broker would reject it again now; the outbox retries it later.
            Ok((BrokerRequest::Message { topic, ticket }, RequestOutcome::Refused(code))) => {
                self.shared.outbox().declined(ticket, now);
                if let Some(suppressed) = self.admit("refused") {
                    tracing::warn!(
                        topic,
                        code,
                        suppressed,
                        "broker rejected a message; check the broker's limits and access rules for this client"
                    );
                }
            }
            Ok((BrokerRequest::Filter(filter, purpose), RequestOutcome::Refused(code))) => {
                self.warn_rejected(filter, purpose, &code);
            }
            Ok((BrokerRequest::Filter(_, purpose), RequestOutcome::Acked)) => {
                self.answered(purpose);
            }
            // A missing answer ends the connection, and the outbox sends the message on the next one.
            Ok((_, RequestOutcome::Lost)) | Err(_) => {}
        }
    }

    fn answered(&self, purpose: FilterPurpose) {
        if purpose == FilterPurpose::States {
            let now = self.shared.now();
            self.shared.outbox().gate.owners_answered(now);
        }
    }

    fn warn_rejected(&mut self, filter: String, purpose: FilterPurpose, why: &str) {
        // Then the store alone says who the owner is.
        self.answered(purpose);
        if let Some(suppressed) = self.admit(&filter) {
            let effect = self.effect_of_rejected(&filter, purpose);
            tracing::warn!(filter, why, suppressed, "{effect}");
        }
        self.shared.rejected_filters().insert(filter);
    }

    /// What does not work without the subscription.
    fn effect_of_rejected(&self, filter: &str, purpose: FilterPurpose) -> &'static str {
        match purpose {
            FilterPurpose::OwnStatus => {
                "subscription to the node's own status rejected; a late offline will is not corrected"
            }
            FilterPurpose::States => {
                "subscription to the owners of the fleet's cameras rejected; while the fleet's store does not answer, this node does not see that another one has its cameras"
            }
            FilterPurpose::Triggers => {
                "subscription rejected; the triggers of this topic start no looks; allow this client to read the topic on the broker"
            }
            FilterPurpose::Commands if self.target.topics.scope_of(filter).is_some() => {
                "subscription rejected; commands on this topic are ignored"
            }
            FilterPurpose::Commands => {
                "subscription to Home Assistant's status rejected; discovery is not published again when it restarts"
            }
        }
    }

    /// Handles a message on a subscribed topic.
    fn take_in(&mut self, inbound: Inbound) {
        let now = self.shared.now();
        self.liveness.heard(now);
        if inbound.topic == self.target.topics.status() {
            // A retained copy is older than this connection, and `online` follows it.
            let is_current = !inbound.retained && inbound.payload == status_text(false).as_bytes();
            if is_current && self.stopping.is_none() {
                self.late_will.seen(now);
            }
            return;
        }
        if self.target.topics.camera_of_owner(&inbound.topic).is_some() {
            if let Some((camera, owner)) = parse_owner(&self.target.topics, &inbound) {
                let mut outbox = self.shared.outbox();
                outbox.gate.owner_arrived(&camera, owner.epoch, now);
            }
            return;
        }
        if let Err(TrySendError::Full(dropped)) = self.shared.inbox.try_send(inbound) {
            self.shared.outbox().counters.inbound_dropped += 1;
            if let Some(suppressed) = self.admit("inbox full") {
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
