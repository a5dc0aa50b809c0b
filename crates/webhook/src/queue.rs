//! What a webhook does next: post, wait or drop. Pure: takes `now`.
//!
//! The oldest event is posted until the receiver accepts or refuses it; then the next one. So events arrive in order, and a receiver
//! that fails gets one request at a time, with growing pauses.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    client::PostOutcome, status::WebhookCounters, status::WebhookState, timing::WebhookTiming,
};
use spotter_config::SpoolConfig;
use spotter_core::{Mono, TrackId};

/// Pauses vary by up to a fifth, so that webhooks that failed together do not all try at the same moments.
const VARIATION: f64 = 0.2;

/// An event on the disk that the receiver has not accepted.
#[derive(Clone, Debug)]
pub(crate) struct QueuedPost {
    pub(crate) bytes: u64,
    /// `None`: of an earlier run.
    pub(crate) since: Option<Mono>,
    pub(crate) expires: Mono,
    pub(crate) picture: Option<AwaitedPicture>,
}

/// The event is not posted before its picture is there.
#[derive(Clone, Debug)]
pub(crate) struct AwaitedPicture {
    pub(crate) track: TrackId,
    /// From then on it is posted without.
    pub(crate) until: Mono,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextPost {
    Post {
        number: u64,
        /// It was not posted when it happened.
        is_delayed: bool,
    },
    At(Mono),
    /// Something has to happen first: another event, or the answer to a request.
    Nothing,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct PostQueue {
    bounds: SpoolConfig,
    timing: WebhookTiming,
    posts: BTreeMap<u64, QueuedPost>,
    bytes: u64,
    next_number: u64,
    in_flight: Option<u64>,
    failures: u32,
    retry_at: Mono,
    pub(crate) state: WebhookState,
    pub(crate) counters: WebhookCounters,
}

impl PostQueue {
    pub(crate) fn new(bounds: SpoolConfig, timing: WebhookTiming) -> Self {
        Self {
            bounds,
            timing,
            posts: BTreeMap::new(),
            bytes: 0,
            next_number: 1,
            in_flight: None,
            failures: 0,
            retry_at: Mono::default(),
            state: WebhookState::default(),
            counters: WebhookCounters::default(),
        }
    }

    pub(crate) fn set_bounds(&mut self, bounds: SpoolConfig) {
        self.bounds = bounds;
    }

    pub(crate) fn len(&self) -> usize {
        self.posts.len()
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.next_number
    }

    pub(crate) fn is_posting(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Adds an event behind all others.
    pub(crate) fn push(&mut self, number: u64, post: QueuedPost) {
        self.next_number = self.next_number.max(number + 1);
        self.bytes += post.bytes;
        self.posts.insert(number, post);
    }

    /// The event that waits for a picture of this track.
    pub(crate) fn awaiting(&self, track: &TrackId) -> Option<u64> {
        let awaits = |post: &QueuedPost| {
            let picture = post.picture.as_ref();
            picture.is_some_and(|picture| picture.track == *track)
        };
        let mut posts = self.posts.iter();
        let (number, _) =
            posts.find(|(number, post)| awaits(post) && self.in_flight != Some(**number))?;
        Some(*number)
    }

    /// The picture of an event is on the disk.
    pub(crate) fn has_picture(&mut self, number: u64, bytes: u64) {
        if let Some(post) = self.posts.get_mut(&number) {
            self.bytes = self.bytes - post.bytes + bytes;
            (post.bytes, post.picture) = (bytes, None);
        }
    }

    /// The oldest events beyond the bounds, which are counted and not in the queue any more. The event in flight stays.
    pub(crate) fn drop_excess(&mut self, now: Mono) -> Vec<u64> {
        let is_over = |queue: &Self| {
            let max_bytes = queue.bounds.max_mb * 1_000_000;
            queue.posts.len() > queue.bounds.events || queue.bytes > max_bytes
        };
        let mut dropped = Vec::new();
        let old = self.posts.iter();
        let old =
            old.filter(|(number, post)| post.expires <= now && self.in_flight != Some(**number));
        for number in old.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.remove(number);
            self.counters.too_old += 1;
            dropped.push(number);
        }
        while is_over(self) {
            let mut oldest = self.posts.keys();
            let Some(&number) = oldest.find(|number| self.in_flight != Some(**number)) else {
                break;
            };
            self.remove(number);
            self.counters.over_bound += 1;
            dropped.push(number);
        }
        dropped
    }

    /// An event is lost, because the disk fails: it was the oldest of too many in memory, or its file cannot be read.
    pub(crate) fn lose(&mut self, number: u64, is_unreadable: bool) {
        if self.remove(number) {
            match is_unreadable {
                true => self.counters.unreadable += 1,
                false => self.counters.over_bound += 1,
            }
        }
    }

    fn remove(&mut self, number: u64) -> bool {
        let removed = self.posts.remove(&number);
        if let Some(post) = &removed {
            self.bytes -= post.bytes;
        }
        if self.in_flight == Some(number) {
            self.in_flight = None;
        }
        removed.is_some()
    }

    pub(crate) fn next(&self, now: Mono) -> NextPost {
        let Some((&number, post)) = self.posts.first_key_value() else {
            return NextPost::Nothing;
        };
        if self.in_flight.is_some() {
            return NextPost::Nothing;
        }
        if self.failures > 0 && self.retry_at > now {
            return NextPost::At(self.retry_at);
        }
        match &post.picture {
            Some(picture) if picture.until > now => NextPost::At(picture.until),
            _ => NextPost::Post {
                number,
                is_delayed: post
                    .since
                    .is_none_or(|since| now.since(since) > self.timing.delayed_after),
            },
        }
    }

    /// The event is being posted.
    pub(crate) fn begin(&mut self, number: u64) {
        self.in_flight = Some(number);
        self.counters.retried += u64::from(self.failures > 0);
    }

    /// The request is over. `random` is in 0..1. Returns the event whose file is not needed any more.
    pub(crate) fn finish(&mut self, outcome: PostOutcome, now: Mono, random: f64) -> Option<u64> {
        let number = self.in_flight.take()?;
        match outcome {
            PostOutcome::Accepted => {
                self.counters.posted += 1;
                self.state = WebhookState::Accepting;
            }
            PostOutcome::Refused { reason } => {
                self.counters.refused += 1;
                self.state = WebhookState::Refusing { reason };
            }
            PostOutcome::Failed { reason, after } => {
                let pause = self.pause(after, random);
                self.retry_at = now.after(pause);
                self.failures += 1;
                let retry_at = self.retry_at;
                self.state = WebhookState::Failing { reason, retry_at };
                return None;
            }
        }
        self.failures = 0;
        self.remove(number);
        Some(number)
    }

    /// Ends a pause.
    pub(crate) fn try_again(&mut self) {
        self.retry_at = Mono::default();
    }

    /// `after`: what the receiver asks for.
    fn pause(&self, after: Option<Duration>, random: f64) -> Duration {
        let WebhookTiming {
            first_pause,
            longest_pause,
            ..
        } = self.timing;
        let doubled = first_pause.saturating_mul(1 << self.failures.min(16));
        let varied = doubled
            .min(longest_pause)
            .mul_f64(1.0 + VARIATION * (2.0 * random - 1.0));
        varied.max(after.unwrap_or_default()).min(longest_pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bounds, failed, ms, track};
    use spotter_core::duration_from_secs;

    const REFUSED: fn() -> PostOutcome = || PostOutcome::Refused {
        reason: "HTTP 400".into(),
    };

    fn queue() -> PostQueue {
        PostQueue::new(bounds(100), WebhookTiming::default())
    }

    fn post(at: Mono) -> QueuedPost {
        QueuedPost {
            bytes: 1000,
            since: Some(at),
            expires: at.after(Duration::from_secs(3600)),
            picture: None,
        }
    }

    fn push(queue: &mut PostQueue, at: Mono) -> u64 {
        let number = queue.next_number();
        queue.push(number, post(at));
        number
    }

    fn next(queue: &PostQueue, now: Mono) -> u64 {
        match queue.next(now) {
            NextPost::Post { number, .. } => number,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_event_at_a_time_is_posted_in_order() {
        let mut queue = queue();
        for _ in 0..3 {
            push(&mut queue, ms(0));
        }
        for number in 1..=3 {
            assert_eq!(next(&queue, ms(1)), number);
            queue.begin(number);
            assert_eq!(queue.next(ms(1)), NextPost::Nothing);
            let outcome = match number {
                2 => REFUSED(),
                _ => PostOutcome::Accepted,
            };
            assert_eq!(queue.finish(outcome, ms(2), 0.5), Some(number));
        }
        assert_eq!(queue.next(ms(9)), NextPost::Nothing);
        let counters = queue.counters;
        assert_eq!(
            (counters.posted, counters.refused, counters.retried),
            (2, 1, 0)
        );
    }

    #[test]
    fn failed_event_is_retried_first_with_growing_pauses() {
        let mut queue = queue();
        push(&mut queue, ms(0));
        push(&mut queue, ms(0));
        let (mut now, mut pauses) = (ms(0), Vec::new());
        for _ in 0..9 {
            queue.begin(next(&queue, now));
            assert_eq!(queue.finish(failed(None), now, 0.5), None);
            let NextPost::At(at) = queue.next(now) else {
                panic!("{:?}", queue.next(now));
            };
            pauses.push(at.since(now).as_secs());
            now = at;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(next(&queue, now), 1);
        queue.begin(1);
        queue.finish(PostOutcome::Accepted, now, 0.5);
        assert_eq!(next(&queue, now), 2, "no pause after a success");
        assert_eq!(queue.counters.retried, 9);
    }

    #[test]
    fn receiver_may_ask_for_a_pause_within_the_longest() {
        for (after, expected) in [(7, 7.0), (3600, 60.0), (0, 0.8)] {
            let mut queue = queue();
            let number = push(&mut queue, ms(0));
            queue.begin(number);
            let after = Duration::from_secs(after);
            queue.finish(failed(Some(after)), ms(0), 0.0);
            let at = ms(0).after(duration_from_secs(expected));
            assert_eq!(queue.next(ms(0)), NextPost::At(at));
            queue.try_again();
            assert_eq!(next(&queue, ms(0)), number);
        }
    }

    #[test]
    fn event_waits_for_its_picture_and_not_for_ever() {
        let mut queue = queue();
        for number in 1..=2 {
            let picture = AwaitedPicture {
                track: track(number),
                until: ms(3000),
            };
            let picture = Some(picture);
            queue.push(
                number,
                QueuedPost {
                    picture,
                    ..post(ms(0))
                },
            );
        }
        assert_eq!(queue.next(ms(10)), NextPost::At(ms(3000)));
        assert_eq!(queue.awaiting(&track(1)), Some(1));
        queue.has_picture(1, 5000);
        assert_eq!((queue.awaiting(&track(1)), queue.bytes), (None, 6000));
        assert_eq!(next(&queue, ms(10)), 1);
        queue.begin(1);
        queue.finish(PostOutcome::Accepted, ms(11), 0.5);
        assert_eq!(queue.next(ms(11)), NextPost::At(ms(3000)));
        assert_eq!(next(&queue, ms(3000)), 2);
    }

    #[test]
    fn oldest_beyond_the_bounds_are_dropped_except_in_flight() {
        let mut queue = PostQueue::new(bounds(3), WebhookTiming::default());
        for number in 1..=5 {
            push(&mut queue, ms(number));
        }
        queue.begin(1);
        assert_eq!(queue.drop_excess(ms(6)), [2, 3]);
        queue.set_bounds(SpoolConfig {
            max_mb: 0,
            ..bounds(3)
        });
        assert_eq!(queue.drop_excess(ms(6)), [4, 5]);
        assert_eq!((queue.len(), queue.counters.over_bound), (1, 4));
        let hour = ms(3_600_001);
        assert_eq!(queue.drop_excess(hour), [0; 0], "it is in flight");
        queue.finish(failed(None), hour, 0.5);
        assert_eq!(queue.drop_excess(hour), [1]);
        assert_eq!(
            (queue.len(), queue.bytes, queue.counters.too_old),
            (0, 0, 1)
        );
    }

    #[test]
    fn late_event_and_one_of_an_earlier_run_are_delayed() {
        for (since, now, expected) in [
            (Some(ms(0)), ms(5000), false),
            (Some(ms(0)), ms(5001), true),
            (None, ms(0), true),
        ] {
            let mut queue = queue();
            queue.push(
                7,
                QueuedPost {
                    since,
                    ..post(ms(0))
                },
            );
            let NextPost::Post { is_delayed, .. } = queue.next(now) else {
                panic!("{:?}", queue.next(now));
            };
            assert_eq!(is_delayed, expected);
        }
    }
}
