//! Stream messages: answers, pictures and statistics, sent within the rates or dropped and counted.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{MessageIds, Outgoing, Promise, rates::RateLimit};
use crate::{
    MessageCounters,
    detection::Label,
    message::{Body, StreamMessage},
};
use spotter_core::{CameraId, Detection, Mono, SkippedSinceLast};

/// A stream message that is older is not sent; also its expiry at the broker.
pub(crate) const STREAM_MAX_AGE: Duration = Duration::from_secs(5);
/// Time between two empty detections of a topic, unless one with objects was sent between them.
const EMPTY_EVERY: Duration = Duration::from_secs(10);
/// Time between two pictures of a topic; a newer one replaces one that waits.
const PICTURE_EVERY: Duration = Duration::from_secs(1);
/// A larger picture is not sent (docs/mqtt.md section 1).
const PICTURE_MAX_BYTES: usize = 256 * 1024;

#[derive(Clone, Debug)]
pub(super) struct QueuedStream {
    topic: String,
    stream: StreamMessage,
    /// `None` unless the message is an answer.
    label: Option<Label>,
    since: Mono,
}

/// A stream message as it is pushed.
#[derive(Clone, Debug)]
pub(super) struct NewStream {
    pub(super) topic: String,
    pub(super) stream: StreamMessage,
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

#[derive(Clone, Copy, Debug)]
pub(super) struct StreamLimits {
    pub(super) camera_per_s: usize,
    pub(super) node_per_s: usize,
    /// Messages waiting, all topics together; beyond it the oldest is dropped.
    pub(super) waiting: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct StreamQueue {
    limits: StreamLimits,
    boot: Arc<str>,
    connected: bool,
    waiting: VecDeque<QueuedStream>,
    history: HashMap<String, TopicHistory>,
    node_rate: RateLimit,
    camera_rates: HashMap<CameraId, RateLimit>,
}

impl StreamQueue {
    pub(super) fn new(limits: StreamLimits, boot: Arc<str>) -> Self {
        Self {
            limits,
            boot,
            connected: false,
            waiting: VecDeque::new(),
            history: HashMap::new(),
            node_rate: RateLimit::new(limits.node_per_s),
            camera_rates: HashMap::new(),
        }
    }

    pub(super) fn connected(&mut self) {
        self.connected = true;
    }

    pub(super) fn disconnected(&mut self, counters: &mut MessageCounters) {
        self.connected = false;
        self.drop_all(counters);
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
    pub(super) fn next_at(&self, now: Mono) -> Option<Mono> {
        self.waiting
            .iter()
            .map(|item| self.ready_at(item, now))
            .min()
    }

    /// A stream message that was taken was too large, or the client library refused it.
    pub(super) fn refused(&mut self, topic: &str, body: &Body, counters: &mut MessageCounters) {
        counters.streams_sent = counters.streams_sent.saturating_sub(1);
        counters.dropped_refused += 1;
        if let Body::Detection(detection) = body {
            self.carry_of(topic, detection);
        }
    }

    pub(super) fn push(
        &mut self,
        message: NewStream,
        now: Mono,
        ids: &mut MessageIds,
        counters: &mut MessageCounters,
    ) {
        let NewStream { topic, stream } = message;
        let place = self.waiting.iter().rposition(|item| item.topic == topic);
        let label = match &stream {
            StreamMessage::Figures(_) => None,
            StreamMessage::Picture { jpeg, .. } if jpeg.len() > PICTURE_MAX_BYTES => {
                counters.dropped_refused += 1;
                return;
            }
            StreamMessage::Picture { .. } => None,
            StreamMessage::Answer(detection) => {
                let line = self.history.entry(topic.clone()).or_default();
                let recent = line
                    .empty_since
                    .is_some_and(|at| now.since(at) < EMPTY_EVERY);
                let follows_empty = place.map_or(recent, |place| self.waiting[place].is_empty());
                if detection.is_empty() && follows_empty {
                    line.carried.add(detection.since_last);
                    counters.empties_skipped += 1;
                    return;
                }
                line.seq += 1;
                let seq = line.seq;
                let id = ids.next(detection.unix_ms(now));
                Some(Label {
                    id,
                    boot: Arc::clone(&self.boot),
                    seq,
                })
            }
        };
        let item = QueuedStream {
            topic,
            stream,
            label,
            since: now,
        };
        if !self.connected {
            counters.dropped_offline += 1;
            self.carry(&item);
        } else if let Some(place) = place.filter(|&place| {
            let waits = &self.waiting[place];
            // A newer picture always replaces one that waits; a newer answer only when the rates delay the waiting one.
            matches!(waits.stream, StreamMessage::Picture { .. }) || self.ready_at(waits, now) > now
        }) {
            // The new message has the place of the old one, so a busy topic does not fall behind.
            let replaced = std::mem::replace(&mut self.waiting[place], item);
            counters.dropped_replaced += 1;
            self.carry(&replaced);
        } else {
            self.waiting.push_back(item);
            if self.waiting.len() > self.limits.waiting {
                counters.dropped_full += 1;
                if let Some(lost) = self.waiting.pop_front() {
                    self.carry(&lost);
                }
            }
        }
    }

    /// The topic is cleared: a picture that is sent later would stay retained on the broker.
    pub(super) fn drop_pictures_of(&mut self, topic: &str, counters: &mut MessageCounters) {
        let before = self.waiting.len();
        self.waiting.retain(|item| item.topic != topic);
        counters.dropped_replaced += (before - self.waiting.len()) as u64;
    }

    pub(super) fn take(&mut self, now: Mono, counters: &mut MessageCounters) -> Option<Outgoing> {
        while let Some(index) = self.waiting.iter().position(|item| expired(item, now)) {
            counters.dropped_expired += 1;
            if let Some(lost) = self.waiting.remove(index) {
                self.carry(&lost);
            }
        }
        let index = self
            .waiting
            .iter()
            .position(|item| self.ready_at(item, now) <= now)?;
        let item = self.waiting.remove(index)?;
        self.node_rate.count(now);
        if let Some(camera) = item.stream.camera() {
            let per_s = self.limits.camera_per_s;
            let rate = self.camera_rates.entry(camera.clone());
            rate.or_insert_with(|| RateLimit::new(per_s)).count(now);
        }
        counters.streams_sent += 1;
        let (body, expiry, retain) = match item.stream {
            StreamMessage::Answer(mut detection) => {
                let line = self.history.entry(item.topic.clone()).or_default();
                detection.since_last.add(std::mem::take(&mut line.carried));
                line.empty_since = detection.is_empty().then_some(now);
                (Body::Detection(detection), Some(STREAM_MAX_AGE), false)
            }
            StreamMessage::Picture { jpeg, retain, .. } => {
                let line = self.history.entry(item.topic.clone()).or_default();
                line.picture_at = Some(now);
                let expiry = (!retain).then_some(STREAM_MAX_AGE);
                (Body::Bytes(jpeg), expiry, retain)
            }
            StreamMessage::Figures(bytes) => (Body::Bytes(bytes), None, false),
        };
        Some(Outgoing {
            topic: item.topic,
            promise: Promise::Stream { expiry, retain },
            body,
            label: item.label,
        })
    }

    fn ready_at(&self, item: &QueuedStream, now: Mono) -> Mono {
        let node = self.node_rate.ready_at(now);
        let rate = item.stream.camera().and_then(|c| self.camera_rates.get(c));
        let camera = rate.map_or(now, |rate| rate.ready_at(now));
        let picture = match &item.stream {
            StreamMessage::Picture { .. } => {
                self.history.get(&item.topic).and_then(|l| l.picture_at)
            }
            StreamMessage::Answer(_) | StreamMessage::Figures(_) => None,
        };
        let topic = picture.map_or(now, |at| at.after(PICTURE_EVERY));
        node.max(camera).max(topic)
    }

    /// Keeps the counts of a dropped message for the next one.
    fn carry(&mut self, lost: &QueuedStream) {
        if let StreamMessage::Answer(detection) = &lost.stream {
            self.carry_of(&lost.topic, detection);
        }
    }

    fn carry_of(&mut self, topic: &str, detection: &Detection) {
        let line = self.history.entry(topic.to_owned()).or_default();
        line.carried.add(detection.since_last);
    }

    pub(super) fn drop_all(&mut self, counters: &mut MessageCounters) {
        counters.dropped_offline += self.waiting.len() as u64;
        while let Some(lost) = self.waiting.pop_front() {
            self.carry(&lost);
        }
    }
}

impl QueuedStream {
    fn is_empty(&self) -> bool {
        matches!(&self.stream, StreamMessage::Answer(detection) if detection.is_empty())
    }
}

fn expired(item: &QueuedStream, now: Mono) -> bool {
    now.since(item.since) > STREAM_MAX_AGE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detection::tests::{detection, empty};

    fn ms(ms: u64) -> Mono {
        Mono::default().after(Duration::from_millis(ms))
    }

    /// A [`StreamQueue`] with what the mixer passes to it.
    struct CountedStreamQueue {
        queue: StreamQueue,
        ids: MessageIds,
        counters: MessageCounters,
    }

    impl CountedStreamQueue {
        fn offline() -> Self {
            let limits = StreamLimits {
                camera_per_s: 20,
                node_per_s: 200,
                waiting: 4,
            };
            Self {
                queue: StreamQueue::new(limits, "b7c1".into()),
                ids: MessageIds { seed: 7, serial: 0 },
                counters: MessageCounters::default(),
            }
        }

        fn online() -> Self {
            let mut counted = Self::offline();
            counted.queue.connected();
            counted
        }

        fn push(&mut self, topic: &str, stream: StreamMessage, now: Mono) {
            let message = NewStream {
                topic: topic.into(),
                stream,
            };
            let (ids, counters) = (&mut self.ids, &mut self.counters);
            self.queue.push(message, now, ids, counters);
        }

        fn push_answer(&mut self, detection: Detection, now: Mono) {
            let topic = format!("cam/{}/det/person", detection.camera());
            self.push(&topic, StreamMessage::Answer(Box::new(detection)), now);
        }

        fn push_picture(&mut self, bytes: usize, first: u8, now: Mono) {
            let mut jpeg = vec![0; bytes];
            jpeg[0] = first;
            let picture = StreamMessage::Picture {
                camera: CameraId::new("gate").unwrap(),
                jpeg: jpeg.into(),
                retain: false,
            };
            self.push("cam/gate/snapshot/person", picture, now);
        }

        fn take(&mut self, now: Mono) -> Option<Outgoing> {
            self.queue.take(now, &mut self.counters)
        }

        fn take_all(&mut self, now: Mono) -> Vec<Outgoing> {
            std::iter::from_fn(|| self.take(now)).collect()
        }
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

    fn gated(sent: &Outgoing) -> u64 {
        match &sent.body {
            Body::Detection(detection) => detection.since_last.gated,
            Body::Bytes(_) => panic!("not a detection"),
        }
    }

    fn seq(sent: &Outgoing) -> u64 {
        sent.label.as_ref().unwrap().seq
    }

    #[test]
    fn empty_answer_follows_objects_and_then_comes_every_ten_seconds() {
        let mut counted = CountedStreamQueue::online();
        let mut sent_at = Vec::new();
        for second in 0..=25 {
            let now = ms(second * 1000);
            let found = if second == 3 {
                detection("gate")
            } else {
                empty("gate")
            };
            counted.push_answer(with_gated(found, 1), now);
            if let Some(sent) = counted.take(now) {
                sent_at.push((second, seq(&sent), gated(&sent)));
            }
        }
        // No gap in `seq`: an empty answer that is left out is not lost, and `since_last` counts every frame.
        assert_eq!(
            sent_at,
            [(0, 1, 1), (3, 2, 3), (4, 3, 1), (14, 4, 10), (24, 5, 10)]
        );
        assert_eq!(counted.counters.dropped(), 0);
    }

    #[test]
    fn camera_above_its_rate_sends_its_newest_answer() {
        let mut counted = CountedStreamQueue::online();
        let mut sent = 0;
        for step in 0..1000 {
            counted.push_answer(detection("gate"), ms(step));
            sent += counted.take_all(ms(step)).len();
        }
        assert_eq!(sent, 20);
        assert_eq!(counted.queue.next_at(ms(999)), Some(ms(1000)));
        let last = counted.take(ms(1000)).unwrap();
        assert_eq!(seq(&last), 1000);
        assert_eq!(counted.counters.dropped_replaced, 979);
    }

    #[test]
    fn answers_pushed_at_once_are_all_sent_in_their_order() {
        let mut counted = CountedStreamQueue::online();
        // The engine may finish several looks of a camera in one step.
        for found in [
            empty("gate"),
            detection("gate"),
            detection("gate"),
            empty("gate"),
        ] {
            counted.push_answer(found, ms(0));
        }
        // A second empty answer in a row is left out.
        counted.push_answer(empty("gate"), ms(1));
        let sent = counted.take_all(ms(2));
        assert_eq!(sent.iter().map(seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
        let counters = counted.counters;
        assert_eq!((counters.empties_skipped, counters.dropped()), (1, 0));
    }

    #[test]
    fn answers_without_a_connection_or_older_than_five_seconds_are_dropped() {
        let mut counted = CountedStreamQueue::offline();
        counted.push_answer(detection("gate"), ms(0));
        counted.queue.connected();
        assert!(counted.take(ms(1)).is_none());
        counted.push_answer(detection("gate"), ms(2));
        assert!(counted.take(ms(5003)).is_none());
        let counters = counted.counters;
        assert_eq!((counters.dropped_offline, counters.dropped_expired), (1, 1));
    }

    #[test]
    fn oldest_message_is_dropped_when_too_many_wait() {
        let mut counted = CountedStreamQueue::online();
        for number in 0..6 {
            counted.push_answer(detection(&format!("cam{number}")), ms(0));
        }
        let sent = counted.take_all(ms(0));
        let topics: Vec<&str> = sent.iter().map(|sent| sent.topic.as_str()).collect();
        assert_eq!(topics.len(), 4);
        assert_eq!(topics[0], "cam/cam2/det/person");
        assert_eq!(counted.counters.dropped_full, 2);
    }

    #[test]
    fn next_answer_carries_the_counts_of_a_refused_one() {
        let mut counted = CountedStreamQueue::online();
        counted.push_answer(with_gated(detection("gate"), 3), ms(0));
        let refused = counted.take(ms(0)).unwrap();
        let counters = &mut counted.counters;
        counted
            .queue
            .refused(&refused.topic, &refused.body, counters);
        counted.push_answer(with_gated(detection("gate"), 4), ms(1));
        assert_eq!(gated(&counted.take(ms(1)).unwrap()), 7);
        let counters = counted.counters;
        assert_eq!((counters.streams_sent, counters.dropped_refused), (1, 1));
    }

    #[test]
    fn messages_of_other_queues_count_in_the_rate_of_the_node() {
        let mut counted = CountedStreamQueue::online();
        (0..200).for_each(|_| counted.queue.count_other(ms(0)));
        counted.push_answer(detection("gate"), ms(1));
        assert!(counted.take(ms(999)).is_none());
        assert!(counted.take(ms(1000)).is_some());
    }

    #[test]
    fn newest_picture_of_a_topic_is_sent_once_a_second() {
        let mut counted = CountedStreamQueue::online();
        let mut sent = Vec::new();
        for step in 0..25 {
            let now = ms(u64::from(step) * 100);
            counted.push_picture(1000, step, now);
            for outgoing in counted.take_all(now) {
                let Body::Bytes(jpeg) = outgoing.body else {
                    panic!("not bytes")
                };
                sent.push((step, jpeg[0]));
            }
        }
        assert_eq!(sent, [(0, 0), (10, 10), (20, 20)]);
        assert_eq!(counted.counters.dropped_replaced, 21);
        assert_eq!(counted.queue.next_at(ms(2500)), Some(ms(3000)));
    }

    #[test]
    fn too_large_picture_is_dropped() {
        let mut counted = CountedStreamQueue::online();
        counted.push_picture(PICTURE_MAX_BYTES + 1, 0, ms(0));
        assert!(counted.take(ms(0)).is_none());
        assert_eq!(counted.counters.dropped_refused, 1);
        counted.push_picture(PICTURE_MAX_BYTES, 0, ms(0));
        assert!(counted.take(ms(0)).is_some());
    }
}
