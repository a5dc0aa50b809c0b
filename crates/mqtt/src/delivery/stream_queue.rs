//! Stream messages: answers, parts of texts and pictures, sent within the rates or dropped and counted.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    DeliveryOptions, MessageIds, Outgoing,
    gate::{Fate, GateAt},
    part_pacer::PartPacer,
    rates::RateLimit,
};
use crate::{
    MessageCounters,
    contract::{
        detection::Label,
        message::{Body, StreamMessage},
        part::{self, PartLabel},
    },
};
use spotter_core::{CameraId, Detection, Epoch, Mono, SkippedSinceLast, TextPart};

/// A stream message that is older is not sent; also its expiry at the broker.
pub(crate) const STREAM_MAX_AGE: Duration = Duration::from_secs(5);
/// Time between two empty detections of a topic, unless one with objects was sent between them.
const EMPTY_EVERY: Duration = Duration::from_secs(10);
/// Time between two pictures of a topic; a newer one replaces one that waits.
const PICTURE_EVERY: Duration = Duration::from_secs(1);
/// Stream messages a second of one camera.
const CAMERA_PER_S: usize = 20;
/// Messages a second of the node.
const NODE_PER_S: usize = 200;
/// Stream messages waiting, all topics together; beyond it the oldest is dropped.
const WAITING_MAX: usize = 256;
/// A larger picture is not sent (docs/mqtt.md section 1).
const PICTURE_MAX_BYTES: usize = 256 * 1024;

#[derive(Clone, Debug)]
pub(super) struct QueuedStream {
    topic: String,
    stream: StreamMessage,
    /// Of a fleet's camera.
    epoch: Option<Epoch>,
    /// Numbers the answers of a topic.
    seq: u64,
    since: Mono,
}

#[derive(Clone, Debug, Default)]
pub(super) struct TopicHistory {
    seq: u64,
    /// Counts of messages that were not sent, for the next one.
    carried: SkippedSinceLast,
    /// When an empty detection was sent, if it was the last.
    empty_since: Option<Mono>,
    /// When the last picture was sent.
    picture_at: Option<Mono>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct StreamQueue {
    boot: Arc<str>,
    ids: MessageIds,
    connected: bool,
    waiting: Vec<QueuedStream>,
    pub(super) waiting_max: usize,
    history: HashMap<String, TopicHistory>,
    node_rate: RateLimit,
    camera_rates: HashMap<CameraId, RateLimit>,
    parts: PartPacer,
    /// Those of stream messages.
    pub(super) counters: MessageCounters,
}

impl StreamQueue {
    pub(super) fn new(boot: Arc<str>, ids: MessageIds) -> Self {
        Self {
            boot,
            ids,
            connected: false,
            waiting: Vec::new(),
            waiting_max: WAITING_MAX,
            history: HashMap::new(),
            node_rate: RateLimit::new(NODE_PER_S),
            camera_rates: HashMap::new(),
            parts: PartPacer::default(),
            counters: MessageCounters::default(),
        }
    }

    pub(super) fn connected(&mut self) {
        self.connected = true;
    }

    pub(super) fn disconnected(&mut self) {
        self.connected = false;
        self.drop_all();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Counts a message of another queue in the rate of the node.
    pub(super) fn count_other(&mut self, now: Mono) {
        self.node_rate.count(now);
    }

    /// When [`take`](Self::take) may have a message, if nothing else happens before.
    pub(super) fn next_at(&self, gate: GateAt<'_>) -> Option<Mono> {
        let waiting = self.waiting.iter();
        let waiting = waiting.filter(|item| item.fate(gate) != Fate::Wait);
        waiting.map(|item| self.ready_at(item, gate.now)).min()
    }

    /// A stream message that was taken was too large, or the client library refused it.
    pub(crate) fn refused(&mut self, topic: &str, body: &Body) {
        self.counters.streams_sent = self.counters.streams_sent.saturating_sub(1);
        self.counters.dropped_refused += 1;
        if let Body::Detection(detection, _) = body {
            self.carry_of(topic, detection);
        }
    }

    pub(super) fn push(
        &mut self,
        topic: String,
        stream: StreamMessage,
        epoch: Option<Epoch>,
        now: Mono,
    ) {
        let place = self.waiting.iter().rposition(|item| item.topic == topic);
        let seq = match &stream {
            StreamMessage::Picture { jpeg, .. } if jpeg.len() > PICTURE_MAX_BYTES => {
                self.counters.dropped_refused += 1;
                return;
            }
            StreamMessage::Part(part) if self.is_joined(part, epoch, now) => return,
            StreamMessage::Part(_) | StreamMessage::Picture { .. } => 0,
            StreamMessage::Answer(detection) => {
                let line = self.history.entry(topic.clone()).or_default();
                let recent = line
                    .empty_since
                    .is_some_and(|at| now.since(at) < EMPTY_EVERY);
                let follows_empty = place.map_or(recent, |place| self.waiting[place].is_empty());
                if detection.is_empty() && follows_empty {
                    line.carried += detection.since_last;
                    self.counters.empties_skipped += 1;
                    return;
                }
                line.seq += 1;
                line.seq
            }
        };
        let item = QueuedStream {
            topic,
            stream,
            epoch,
            seq,
            since: now,
        };
        if !self.connected {
            self.counters.dropped_offline += 1;
            self.lose(&item);
        } else if let Some(place) = place.filter(|&place| self.is_replaced(place, now)) {
            // The new message has the place of the old one, so a busy topic does not fall behind.
            let replaced = std::mem::replace(&mut self.waiting[place], item);
            self.counters.dropped_replaced += 1;
            self.lose(&replaced);
        } else {
            self.waiting.push(item);
            if self.waiting.len() > self.waiting_max {
                self.counters.dropped_full += 1;
                let oldest = self.waiting.remove(0);
                self.lose(&oldest);
            }
        }
    }

    /// Adds a part to one of the same text that waits, so that its text is not lost. False: none waits.
    fn is_joined(&mut self, next: &TextPart, epoch: Option<Epoch>, now: Mono) -> bool {
        let joined = self
            .waiting
            .iter_mut()
            .find_map(|item| match &mut item.stream {
                StreamMessage::Part(part) if part.of == next.of && item.epoch == epoch => {
                    Some((part, &mut item.since))
                }
                _ => None,
            });
        let Some((part, since)) = joined else {
            return false;
        };
        part.text.push_str(&next.text);
        part.is_last |= next.is_last;
        *since = now;
        true
    }

    /// A newer picture always replaces one that waits; a newer answer only when the rates delay the waiting one.
    fn is_replaced(&self, place: usize, now: Mono) -> bool {
        let waits = &self.waiting[place];
        match waits.stream {
            StreamMessage::Picture { .. } => true,
            StreamMessage::Answer(_) => self.ready_at(waits, now) > now,
            StreamMessage::Part(_) => false,
        }
    }

    /// The topic is cleared: a picture that is sent later would stay retained on the broker.
    pub(super) fn drop_pictures_of(&mut self, topic: &str) {
        let before = self.waiting.len();
        self.waiting.retain(|item| item.topic != topic);
        self.counters.dropped_replaced += (before - self.waiting.len()) as u64;
    }

    /// The next message that may be sent; those of older epochs are dropped.
    pub(super) fn take(&mut self, gate: GateAt<'_>) -> Option<Outgoing> {
        let now = gate.now;
        let lost = self.waiting.extract_if(.., |item| {
            let is_expired = now.since(item.since) > STREAM_MAX_AGE;
            let is_of_older_epoch = !is_expired && item.fate(gate) == Fate::Drop;
            self.counters.dropped_expired += u64::from(is_expired);
            self.counters.not_owned += u64::from(is_of_older_epoch);
            is_expired || is_of_older_epoch
        });
        for lost in lost.collect::<Vec<_>>() {
            self.lose(&lost);
        }
        let index = self
            .waiting
            .iter()
            .position(|item| self.ready_at(item, now) <= now && item.fate(gate) == Fate::Send)?;
        let item = self.waiting.remove(index);
        self.node_rate.count(now);
        let rate = self.camera_rates.entry(item.stream.camera().clone());
        rate.or_insert_with(|| RateLimit::new(CAMERA_PER_S))
            .count(now);
        self.counters.streams_sent += 1;
        Some(self.outgoing(item, now))
    }

    fn outgoing(&mut self, item: QueuedStream, now: Mono) -> Outgoing {
        let mut delivery = DeliveryOptions {
            epoch: item.epoch,
            ..DeliveryOptions::default()
        };
        let body = match item.stream {
            StreamMessage::Answer(mut detection) => {
                let line = self.history.entry(item.topic.clone()).or_default();
                Arc::make_mut(&mut detection).since_last += std::mem::take(&mut line.carried);
                line.empty_since = detection.is_empty().then_some(now);
                delivery.expiry = Some(STREAM_MAX_AGE);
                let label = Label {
                    id: self.ids.next(detection.unix_ms(now)),
                    boot: Arc::clone(&self.boot),
                    seq: item.seq,
                    epoch: item.epoch,
                };
                Body::Detection(detection, label)
            }
            StreamMessage::Part(part) => {
                self.parts.count(&part.of.camera, now);
                delivery.expiry = Some(STREAM_MAX_AGE);
                let label = PartLabel {
                    boot: &self.boot,
                    number: self.parts.number(&part),
                    epoch: item.epoch,
                };
                Body::Bytes(part::to_json(&part, label).into())
            }
            StreamMessage::Picture { jpeg, retain, .. } => {
                let line = self.history.entry(item.topic.clone()).or_default();
                line.picture_at = Some(now);
                delivery.retained = retain;
                delivery.expiry = (!retain).then_some(STREAM_MAX_AGE);
                Body::Bytes(jpeg)
            }
        };
        Outgoing {
            topic: item.topic,
            delivery,
            body,
        }
    }

    fn ready_at(&self, item: &QueuedStream, now: Mono) -> Mono {
        let node = self.node_rate.ready_at(now);
        let rate = self.camera_rates.get(item.stream.camera());
        let camera = rate.map_or(now, |rate| rate.ready_at(now));
        let own = match &item.stream {
            StreamMessage::Picture { .. } => {
                let last = self.history.get(&item.topic).and_then(|l| l.picture_at);
                last.map_or(now, |at| at.after(PICTURE_EVERY))
            }
            StreamMessage::Part(part) => self.parts.ready_at(&part.of.camera, now),
            StreamMessage::Answer(_) => now,
        };
        node.max(camera).max(own)
    }

    /// The next message of the topic has what a consumer needs to know of a dropped one.
    fn lose(&mut self, lost: &QueuedStream) {
        match &lost.stream {
            StreamMessage::Answer(detection) => self.carry_of(&lost.topic, detection),
            StreamMessage::Part(part) => self.lose_part(part),
            StreamMessage::Picture { .. } => {}
        }
    }

    /// The number of a part that is not sent is missing.
    pub(super) fn lose_part(&mut self, part: &TextPart) {
        self.parts.number(part);
    }

    fn carry_of(&mut self, topic: &str, detection: &Detection) {
        let line = self.history.entry(topic.to_owned()).or_default();
        line.carried += detection.since_last;
    }

    pub(super) fn is_waiting_of(&self, camera: &CameraId) -> bool {
        let mut cameras = self.waiting.iter().map(|item| item.stream.camera());
        cameras.any(|waiting| waiting == camera)
    }

    pub(super) fn drop_all(&mut self) {
        self.counters.dropped_offline += self.waiting.len() as u64;
        for lost in std::mem::take(&mut self.waiting) {
            self.lose(&lost);
        }
    }
}

impl QueuedStream {
    fn fate(&self, gate: GateAt<'_>) -> Fate {
        gate.fate(self.stream.camera(), self.epoch)
    }

    fn is_empty(&self) -> bool {
        matches!(&self.stream, StreamMessage::Answer(detection) if detection.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        contract::detection::tests::{detection, empty},
        delivery::{gate::open, tests::ms},
    };

    fn offline() -> StreamQueue {
        let mut queue = StreamQueue::new("b7c1".into(), MessageIds::new(7));
        queue.waiting_max = 4;
        queue
    }

    fn online() -> StreamQueue {
        let mut queue = offline();
        queue.connected();
        queue
    }

    fn push_answer(queue: &mut StreamQueue, detection: Detection, now: Mono) {
        let topic = format!("cam/{}/det/person", detection.camera());
        queue.push(topic, StreamMessage::Answer(detection.into()), None, now);
    }

    fn push_picture(queue: &mut StreamQueue, bytes: usize, first: u8, now: Mono) {
        let mut jpeg = vec![0; bytes];
        jpeg[0] = first;
        let picture = StreamMessage::Picture {
            camera: CameraId::new("gate").unwrap(),
            jpeg: jpeg.into(),
            retain: false,
        };
        queue.push("cam/gate/snapshot/person".into(), picture, None, now);
    }

    fn take_all(queue: &mut StreamQueue, now: Mono) -> Vec<Outgoing> {
        std::iter::from_fn(|| queue.take(open(now))).collect()
    }

    fn with_gated(found: Detection, gated: u64) -> Detection {
        let since_last = SkippedSinceLast {
            gated,
            ..SkippedSinceLast::default()
        };
        Detection {
            since_last,
            ..found
        }
    }

    /// `seq` of a detection, and how many frames were gated since the last.
    fn seq_and_gated(sent: &Outgoing) -> (u64, u64) {
        match &sent.body {
            Body::Detection(detection, label) => (label.seq, detection.since_last.gated),
            Body::Bytes(_) => panic!("not a detection"),
        }
    }

    #[test]
    fn empty_answer_follows_objects_and_then_comes_every_ten_seconds() {
        let mut queue = online();
        let mut sent_at = Vec::new();
        for second in 0..=25 {
            let now = ms(second * 1000);
            let found = match second {
                3 => detection("gate"),
                _ => empty("gate"),
            };
            push_answer(&mut queue, with_gated(found, 1), now);
            if let Some(sent) = queue.take(open(now)) {
                sent_at.push((second, seq_and_gated(&sent)));
            }
        }
        // No gap in `seq`: an empty answer that is left out is not lost, and `since_last` counts every frame.
        let expected = [
            (0, (1, 1)),
            (3, (2, 3)),
            (4, (3, 1)),
            (14, (4, 10)),
            (24, (5, 10)),
        ];
        assert_eq!(sent_at, expected);
        assert_eq!(queue.counters.dropped(), 0);
    }

    #[test]
    fn camera_above_its_rate_sends_its_newest_answer() {
        let mut queue = online();
        let mut sent = 0;
        for step in 0..1000 {
            push_answer(&mut queue, detection("gate"), ms(step));
            sent += take_all(&mut queue, ms(step)).len();
        }
        assert_eq!(sent, 20);
        assert_eq!(queue.next_at(open(ms(999))), Some(ms(1000)));
        let last = queue.take(open(ms(1000))).unwrap();
        assert_eq!(seq_and_gated(&last).0, 1000);
        assert_eq!(queue.counters.dropped_replaced, 979);
    }

    #[test]
    fn answers_pushed_at_once_are_all_sent_in_their_order() {
        let mut queue = online();
        // The engine may finish several looks of a camera in one step.
        for found in [empty, detection, detection, empty] {
            push_answer(&mut queue, found("gate"), ms(0));
        }
        // A second empty answer in a row is left out.
        push_answer(&mut queue, empty("gate"), ms(1));
        let sent = take_all(&mut queue, ms(2));
        let seq: Vec<u64> = sent.iter().map(|sent| seq_and_gated(sent).0).collect();
        assert_eq!(seq, [1, 2, 3, 4]);
        let counters = queue.counters;
        assert_eq!((counters.empties_skipped, counters.dropped()), (1, 0));
    }

    #[test]
    fn stream_messages_offline_or_older_than_five_seconds_are_dropped() {
        let mut queue = offline();
        push_answer(&mut queue, detection("gate"), ms(0));
        queue.connected();
        assert!(queue.take(open(ms(1))).is_none());
        push_answer(&mut queue, detection("gate"), ms(2));
        assert!(queue.take(open(ms(5003))).is_none());
        let counters = queue.counters;
        assert_eq!((counters.dropped_offline, counters.dropped_expired), (1, 1));
    }

    #[test]
    fn oldest_message_is_dropped_when_too_many_wait() {
        let mut queue = online();
        for number in 0..6 {
            push_answer(&mut queue, detection(&format!("cam{number}")), ms(0));
        }
        let sent = take_all(&mut queue, ms(0));
        assert_eq!(sent.len(), 4);
        assert_eq!(sent[0].topic, "cam/cam2/det/person");
        assert_eq!(queue.counters.dropped_full, 2);
    }

    #[test]
    fn next_answer_carries_the_counts_of_a_refused_one() {
        let mut queue = online();
        push_answer(&mut queue, with_gated(detection("gate"), 3), ms(0));
        let refused = queue.take(open(ms(0))).unwrap();
        queue.refused(&refused.topic, &refused.body);
        push_answer(&mut queue, with_gated(detection("gate"), 4), ms(1));
        assert_eq!(seq_and_gated(&queue.take(open(ms(1))).unwrap()).1, 7);
        let counters = queue.counters;
        assert_eq!((counters.streams_sent, counters.dropped_refused), (1, 1));
    }

    #[test]
    fn messages_of_other_queues_count_in_the_node_rate() {
        let mut queue = online();
        (0..200).for_each(|_| queue.count_other(ms(0)));
        push_answer(&mut queue, detection("gate"), ms(1));
        assert!(queue.take(open(ms(999))).is_none());
        assert!(queue.take(open(ms(1000))).is_some());
    }

    #[test]
    fn newest_picture_of_a_topic_is_sent_once_a_second() {
        let mut queue = online();
        let mut sent = Vec::new();
        for step in 0..25 {
            let now = ms(u64::from(step) * 100);
            push_picture(&mut queue, 1000, step, now);
            for outgoing in take_all(&mut queue, now) {
                let Body::Bytes(jpeg) = outgoing.body else {
                    panic!("not bytes")
                };
                sent.push((step, jpeg[0]));
            }
        }
        assert_eq!(sent, [(0, 0), (10, 10), (20, 20)]);
        assert_eq!(queue.counters.dropped_replaced, 21);
        assert_eq!(queue.next_at(open(ms(2500))), Some(ms(3000)));
    }

    #[test]
    fn too_large_picture_is_dropped() {
        let mut queue = online();
        push_picture(&mut queue, PICTURE_MAX_BYTES + 1, 0, ms(0));
        assert!(queue.take(open(ms(0))).is_none());
        assert_eq!(queue.counters.dropped_refused, 1);
        push_picture(&mut queue, PICTURE_MAX_BYTES, 0, ms(0));
        assert!(queue.take(open(ms(0))).is_some());
    }
}
