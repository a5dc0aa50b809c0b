//! What is worth something only now: answers, snapshots, figures.

use std::{sync::Arc, time::Duration};

use super::{Outbox, Outgoing, Promise, rates::RateLimit};
use crate::{
    domain::{CameraId, Mono, SinceLast},
    publish::{detection::Label, message::Body},
};

/// A stream message that is older is not sent; also its expiry at the broker.
pub(in crate::publish) const STREAM_MAX_AGE: Duration = Duration::from_secs(5);
/// After an empty detection the next empty one is sent so much later, unless objects came between.
const EMPTY_EVERY: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(super) struct Waiting {
    topic: String,
    camera: Option<CameraId>,
    body: Body,
    label: Option<Label>,
    since: Mono,
}

/// What is remembered about a topic of detections.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    seq: u64,
    /// Counts of messages that were not sent; the next one carries them.
    carried: SinceLast,
    /// When an empty detection was the last thing sent.
    empty_since: Option<Mono>,
}

impl Outbox {
    /// A stream message that was taken was too large, or the client library refused it.
    pub(in crate::publish) fn refused(&mut self, topic: &str, body: &Body) {
        self.tally.streams_sent = self.tally.streams_sent.saturating_sub(1);
        self.tally.dropped_refused += 1;
        self.carry(topic, body);
    }

    pub(super) fn push_stream(
        &mut self,
        topic: String,
        camera: Option<CameraId>,
        body: Body,
        now: Mono,
    ) {
        let place = self.waiting.iter().rposition(|item| item.topic == topic);
        let label = match &body {
            Body::Bytes(_) => None,
            Body::Detection(detection) => {
                let line = self.lines.entry(topic.clone()).or_default();
                let recent = line
                    .empty_since
                    .is_some_and(|at| now.since(at) < EMPTY_EVERY);
                let follows_empty = place.map_or(recent, |place| self.waiting[place].is_empty());
                if detection.is_empty() && follows_empty {
                    line.carried.add(detection.since_last);
                    self.tally.empties_skipped += 1;
                    return;
                }
                line.seq += 1;
                let seq = line.seq;
                self.serial += 1;
                let random = u128::from(self.id_seed & 0xff_ffff_ffff) << 40
                    | u128::from(self.serial & 0xff_ffff_ffff);
                let id = ulid::Ulid::from_parts(detection.unix_ms(now), random).to_string();
                Some(Label {
                    id,
                    boot: Arc::clone(&self.boot),
                    seq,
                })
            }
        };
        let item = Waiting {
            topic,
            camera,
            body,
            label,
            since: now,
        };
        if !self.connected {
            self.tally.dropped_offline += 1;
            self.carry(&item.topic, &item.body);
        } else if let Some(place) =
            place.filter(|&place| self.ready_at(&self.waiting[place], now) > now)
        {
            // It keeps the place in the queue, so a busy topic does not fall behind for ever.
            let replaced = std::mem::replace(&mut self.waiting[place], item);
            self.tally.dropped_replaced += 1;
            self.carry(&replaced.topic, &replaced.body);
        } else {
            self.waiting.push_back(item);
            if self.waiting.len() > self.limits.waiting {
                self.tally.dropped_full += 1;
                if let Some(lost) = self.waiting.pop_front() {
                    self.carry(&lost.topic, &lost.body);
                }
            }
        }
    }

    pub(super) fn take_stream(&mut self, now: Mono) -> Option<Outgoing> {
        while let Some(index) = self.waiting.iter().position(|item| expired(item, now)) {
            self.tally.dropped_expired += 1;
            if let Some(lost) = self.waiting.remove(index) {
                self.carry(&lost.topic, &lost.body);
            }
        }
        let index = self
            .waiting
            .iter()
            .position(|item| self.ready_at(item, now) <= now)?;
        let mut item = self.waiting.remove(index)?;
        self.node_rate.count(now);
        if let Some(camera) = item.camera {
            let per_s = self.limits.camera_per_s;
            let rate = self.camera_rates.entry(camera);
            rate.or_insert_with(|| RateLimit::new(per_s)).count(now);
        }
        if let Body::Detection(detection) = &mut item.body {
            let line = self.lines.entry(item.topic.clone()).or_default();
            detection.since_last.add(std::mem::take(&mut line.carried));
            line.empty_since = detection.is_empty().then_some(now);
        }
        self.tally.streams_sent += 1;
        let expires = matches!(item.body, Body::Detection(_));
        Some(Outgoing {
            topic: item.topic,
            promise: Promise::Stream { expires },
            body: item.body,
            label: item.label,
        })
    }

    pub(super) fn ready_at(&self, item: &Waiting, now: Mono) -> Mono {
        let node = self.node_rate.ready_at(now);
        match item
            .camera
            .as_ref()
            .and_then(|camera| self.camera_rates.get(camera))
        {
            Some(rate) => rate.ready_at(now).max(node),
            None => node,
        }
    }

    /// Keeps the counts of a message that will not be sent for its successor.
    fn carry(&mut self, topic: &str, body: &Body) {
        if let Body::Detection(detection) = body {
            let line = self.lines.entry(topic.to_owned()).or_default();
            line.carried.add(detection.since_last);
        }
    }

    /// Stream messages that wait are dropped: there is no broker for them, or no time.
    pub(super) fn drop_streams(&mut self) {
        self.tally.dropped_offline += self.waiting.len() as u64;
        while let Some(lost) = self.waiting.pop_front() {
            self.carry(&lost.topic, &lost.body);
        }
    }
}

impl Waiting {
    fn is_empty(&self) -> bool {
        matches!(&self.body, Body::Detection(detection) if detection.is_empty())
    }
}

fn expired(item: &Waiting, now: Mono) -> bool {
    now.since(item.since) > STREAM_MAX_AGE
}
