//! What a webhook does next: post, wait or drop. Pure: takes `now`.
//!
//! The oldest event is posted until the receiver accepts or refuses it; then the next one. So events arrive in order, and a receiver
//! that fails gets one request at a time, with growing pauses.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{
    client::PostOutcome,
    status::{WebhookCounters, WebhookState, WebhookStatus},
    timing::WebhookTiming,
};
use spotter_config::WebhookConfig;
use spotter_core::{Mono, TrackId};
use spotter_state::LoggedEvent;

/// Pauses vary by up to a fifth, so that webhooks that failed together do not all try at the same moments.
const VARIATION: f64 = 0.2;
/// While more pictures wait, all are stored.
const PICTURES_IN_MEMORY: usize = 16;

/// The picture that is posted with an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PostPicture {
    None,
    /// The event is not posted before it is there, or this time.
    Awaited(Mono),
    /// A receiver that accepts the event at once needs no write of the disk.
    InMemory(Arc<[u8]>),
    Stored {
        bytes: u64,
    },
}

/// An event that the receiver has not accepted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QueuedPost {
    pub(crate) logged: Arc<LoggedEvent>,
    /// `None`: of an earlier run.
    pub(crate) since: Option<Mono>,
    pub(crate) expires: Mono,
    pub(crate) picture: PostPicture,
}

impl QueuedPost {
    fn bytes(&self) -> u64 {
        let of_picture = match &self.picture {
            PostPicture::InMemory(jpeg) => jpeg.len() as u64,
            PostPicture::Stored { bytes } => *bytes,
            PostPicture::None | PostPicture::Awaited(_) => 0,
        };
        self.logged.bytes() + of_picture
    }
}

#[derive(Debug, PartialEq)]
pub(crate) enum NextPost {
    /// It is in flight from now on.
    Post {
        config: Arc<WebhookConfig>,
        post: QueuedPost,
        /// It was not posted when it happened.
        is_delayed: bool,
    },
    At(Mono),
    /// No event waits.
    Nothing,
}

/// What is to be written to the event log.
#[derive(Debug, Default)]
pub(crate) struct PostChanges {
    /// Accepted, refused or dropped.
    pub(crate) done: Vec<u64>,
    pub(crate) pictures: Vec<(u64, Arc<[u8]>)>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct PostQueue {
    pub(crate) config: Arc<WebhookConfig>,
    timing: WebhookTiming,
    posts: BTreeMap<u64, QueuedPost>,
    bytes: u64,
    in_flight: Option<u64>,
    failures: u32,
    retry_at: Mono,
    /// The daemon stops: until then, the last events are posted if the receiver answers.
    pub(crate) stop_at: Option<Mono>,
    done: Vec<u64>,
    pub(crate) state: WebhookState,
    pub(crate) counters: WebhookCounters,
}

impl PostQueue {
    pub(crate) fn new(config: Arc<WebhookConfig>, timing: WebhookTiming) -> Self {
        Self {
            config,
            timing,
            posts: BTreeMap::new(),
            bytes: 0,
            in_flight: None,
            failures: 0,
            retry_at: Mono::default(),
            stop_at: None,
            done: Vec::new(),
            state: WebhookState::default(),
            counters: WebhookCounters::default(),
        }
    }

    pub(crate) fn status(&self) -> WebhookStatus {
        WebhookStatus {
            id: self.config.id.clone(),
            address: self.config.address.clone(),
            state: self.state.clone(),
            counters: self.counters,
            waiting: self.posts.len() as u64,
        }
    }

    /// Adds a new event, if the receiver wants it.
    pub(crate) fn offer(&mut self, logged: &Arc<LoggedEvent>, now: Mono) -> bool {
        let filter = &self.config.filter;
        if !filter.accepts(&logged.camera, &logged.prompt, logged.kind) {
            return false;
        }
        self.push(QueuedPost {
            logged: Arc::clone(logged),
            since: Some(now),
            expires: now.after(self.config.spool.max_age),
            picture: match logged.has_picture && self.config.snapshot {
                true => PostPicture::Awaited(now.after(self.timing.picture_within)),
                false => PostPicture::None,
            },
        });
        self.drop_excess(now);
        true
    }

    /// Adds an event behind all others.
    pub(crate) fn push(&mut self, post: QueuedPost) {
        self.bytes += post.bytes();
        self.posts.insert(post.logged.number, post);
    }

    /// The picture of an event that was offered before, unless it comes too late.
    pub(crate) fn add_picture(&mut self, track: &TrackId, jpeg: &Arc<[u8]>, now: Mono) {
        let mut posts = self.posts.iter_mut();
        let awaiting = posts.find(|(number, post)| {
            let is_of_track = post.logged.track == *track;
            let is_awaited = matches!(post.picture, PostPicture::Awaited(_));
            is_of_track && is_awaited && self.in_flight != Some(**number)
        });
        if let Some((_, post)) = awaiting {
            post.picture = PostPicture::InMemory(Arc::clone(jpeg));
            self.bytes += jpeg.len() as u64;
            self.drop_excess(now);
        }
    }

    /// Drops and counts the oldest events beyond the bounds, except the one in flight.
    fn drop_excess(&mut self, now: Mono) {
        let in_flight = self.in_flight;
        let old = self.posts.iter();
        let old = old.filter(|(number, post)| post.expires <= now && in_flight != Some(**number));
        for number in old.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.remove(number);
            self.counters.too_old += 1;
        }
        let bounds = self.config.spool;
        while self.posts.len() > bounds.events || self.bytes > bounds.max_mb * 1_000_000 {
            let mut oldest = self.posts.keys().copied();
            let Some(number) = oldest.find(|number| in_flight != Some(*number)) else {
                break;
            };
            self.remove(number);
            self.counters.over_bound += 1;
        }
    }

    fn remove(&mut self, number: u64) {
        if let Some(post) = self.posts.remove(&number) {
            self.bytes -= post.bytes();
            self.done.push(number);
        }
    }

    /// Begins the next request if it is time for one. The request before is over.
    pub(crate) fn next(&mut self, now: Mono) -> NextPost {
        self.drop_excess(now);
        let Some((&number, post)) = self.posts.first_key_value() else {
            return NextPost::Nothing;
        };
        if self.failures > 0 && self.retry_at > now {
            return NextPost::At(self.retry_at);
        }
        if let PostPicture::Awaited(until) = post.picture
            && until > now
        {
            return NextPost::At(until);
        }
        self.in_flight = Some(number);
        self.counters.retried += u64::from(self.failures > 0);
        let is_late = |since| now.since(since) > self.timing.delayed_after;
        NextPost::Post {
            config: Arc::clone(&self.config),
            is_delayed: post.since.is_none_or(is_late),
            post: post.clone(),
        }
    }

    /// The request is over. `random` is in 0..1.
    pub(crate) fn finish(&mut self, outcome: PostOutcome, now: Mono, random: f64) {
        let Some(number) = self.in_flight.take() else {
            return;
        };
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
                return;
            }
        }
        self.failures = 0;
        self.remove(number);
    }

    /// Ends a pause.
    pub(crate) fn try_again(&mut self) {
        self.retry_at = Mono::default();
    }

    pub(crate) fn stop(&mut self, now: Mono) {
        self.stop_at = Some(now.after(self.timing.stop_within));
    }

    /// What is to be written since the last call. Pictures are stored when their events have to wait.
    pub(crate) fn take_changes(&mut self) -> PostChanges {
        let waits = matches!(self.state, WebhookState::Failing { .. }) || self.stop_at.is_some();
        let mut pictures = Vec::new();
        for (number, post) in &self.posts {
            if let PostPicture::InMemory(jpeg) = &post.picture {
                pictures.push((*number, Arc::clone(jpeg)));
            }
        }
        if !waits && pictures.len() <= PICTURES_IN_MEMORY {
            pictures.clear();
        }
        for (number, jpeg) in &pictures {
            if let Some(post) = self.posts.get_mut(number) {
                let bytes = jpeg.len() as u64;
                post.picture = PostPicture::Stored { bytes };
            }
        }
        PostChanges {
            done: std::mem::take(&mut self.done),
            pictures,
        }
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
    use crate::testing::{bounds, config, failed, logged, ms, track};
    use spotter_config::SpoolConfig;
    use spotter_core::{EventStep, duration_from_secs};

    const REFUSED: fn() -> PostOutcome = || PostOutcome::Refused {
        reason: "HTTP 400".into(),
    };

    fn queue_within(spool: SpoolConfig) -> PostQueue {
        let config = WebhookConfig {
            spool,
            ..config("door", "http://receiver")
        };
        PostQueue::new(Arc::new(config), WebhookTiming::default())
    }

    fn queue() -> PostQueue {
        queue_within(bounds(100))
    }

    fn push(queue: &mut PostQueue, number: u64, at: Mono) {
        assert!(queue.offer(&Arc::new(logged(number, EventStep::New)), at));
    }

    /// Its picture follows.
    fn push_pictured(queue: &mut PostQueue, number: u64, at: Mono) {
        let mut logged = logged(number, EventStep::New);
        logged.has_picture = true;
        assert!(queue.offer(&Arc::new(logged), at));
    }

    /// Begins the next post.
    fn next(queue: &mut PostQueue, now: Mono) -> u64 {
        match queue.next(now) {
            NextPost::Post { post, .. } => post.logged.number,
            other => panic!("{other:?}"),
        }
    }

    fn jpeg() -> Arc<[u8]> {
        vec![7; 5000].into()
    }

    #[test]
    fn one_event_at_a_time_is_posted_in_order() {
        let mut queue = queue();
        for number in 1..=3 {
            push(&mut queue, number, ms(0));
        }
        for number in 1..=3 {
            assert_eq!(next(&mut queue, ms(1)), number);
            let outcome = match number {
                2 => REFUSED(),
                _ => PostOutcome::Accepted,
            };
            queue.finish(outcome, ms(2), 0.5);
            assert_eq!(queue.take_changes().done, [number]);
        }
        assert_eq!(queue.next(ms(9)), NextPost::Nothing);
        let counters = queue.counters;
        assert_eq!(
            (counters.posted, counters.refused, counters.retried),
            (2, 1, 0)
        );
    }

    // Faults: W1.
    #[test]
    fn failed_event_is_retried_first_with_growing_pauses() {
        let mut queue = queue();
        push(&mut queue, 1, ms(0));
        push(&mut queue, 2, ms(0));
        let (mut now, mut pauses) = (ms(0), Vec::new());
        for _ in 0..9 {
            assert_eq!(next(&mut queue, now), 1);
            queue.finish(failed(None), now, 0.5);
            assert!(queue.take_changes().done.is_empty());
            let NextPost::At(at) = queue.next(now) else {
                panic!("no pause");
            };
            pauses.push(at.since(now).as_secs());
            now = at;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(next(&mut queue, now), 1);
        queue.finish(PostOutcome::Accepted, now, 0.5);
        assert_eq!(next(&mut queue, now), 2, "no pause after a success");
        assert_eq!(queue.counters.retried, 9);
    }

    #[test]
    fn receiver_may_ask_for_a_pause_within_the_longest() {
        for (after, expected) in [(7, 7.0), (3600, 60.0), (0, 0.8)] {
            let mut queue = queue();
            push(&mut queue, 1, ms(0));
            next(&mut queue, ms(0));
            let after = Duration::from_secs(after);
            queue.finish(failed(Some(after)), ms(0), 0.0);
            let at = ms(0).after(duration_from_secs(expected));
            assert_eq!(queue.next(ms(0)), NextPost::At(at));
            queue.try_again();
            assert_eq!(next(&mut queue, ms(0)), 1);
        }
    }

    #[test]
    fn event_waits_for_its_picture_and_not_for_ever() {
        let mut queue = queue();
        for number in 1..=2 {
            push_pictured(&mut queue, number, ms(0));
        }
        assert_eq!(queue.next(ms(10)), NextPost::At(ms(3000)));
        let bytes = queue.bytes + 5000;
        for _ in 0..2 {
            // The second one comes too late.
            queue.add_picture(&track(1), &jpeg(), ms(10));
            assert_eq!(queue.bytes, bytes);
        }
        assert_eq!(next(&mut queue, ms(10)), 1);
        queue.finish(PostOutcome::Accepted, ms(11), 0.5);
        assert_eq!(queue.next(ms(11)), NextPost::At(ms(3000)));
        assert_eq!(next(&mut queue, ms(3000)), 2);
    }

    #[test]
    fn picture_is_stored_only_when_its_event_has_to_wait() {
        let stored = |queue: &mut PostQueue| {
            let pictures = queue.take_changes().pictures.into_iter();
            pictures.map(|(number, _)| number).collect::<Vec<_>>()
        };
        for why in ["failure", "stop", "many"] {
            let mut queue = queue();
            let last = if why == "many" { 17 } else { 2 };
            for number in 1..=last {
                push_pictured(&mut queue, number, ms(0));
                assert_eq!(stored(&mut queue), [0; 0]);
                queue.add_picture(&track(number), &jpeg(), ms(1));
            }
            let bytes = queue.bytes;
            match why {
                "failure" => {
                    next(&mut queue, ms(1));
                    queue.finish(failed(None), ms(2), 0.5);
                }
                "stop" => queue.stop(ms(2)),
                _ => {}
            }
            assert_eq!(stored(&mut queue), Vec::from_iter(1..=last), "{why}");
            assert_eq!(stored(&mut queue), [0; 0], "{why}: once");
            assert_eq!(queue.bytes, bytes);
        }
    }

    // Faults: W9.
    #[test]
    fn oldest_beyond_the_bounds_are_dropped_except_in_flight() {
        let mut queue = queue_within(SpoolConfig {
            max_age: Duration::from_secs(3600),
            ..bounds(3)
        });
        for number in 1..=3 {
            push(&mut queue, number, ms(number));
        }
        next(&mut queue, ms(3));
        for number in 4..=5 {
            push(&mut queue, number, ms(number));
        }
        assert_eq!(queue.take_changes().done, [2, 3]);
        let mut config = (*queue.config).clone();
        config.spool.max_mb = 0;
        queue.config = Arc::new(config);
        queue.drop_excess(ms(6));
        assert_eq!(queue.take_changes().done, [4, 5]);
        assert_eq!((queue.posts.len(), queue.counters.over_bound), (1, 4));
        let hour = ms(3_600_001);
        queue.drop_excess(hour);
        assert!(queue.take_changes().done.is_empty(), "it is in flight");
        queue.finish(failed(None), hour, 0.5);
        queue.drop_excess(hour);
        assert_eq!(queue.take_changes().done, [1]);
        assert_eq!(
            (queue.posts.len(), queue.bytes, queue.counters.too_old),
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
            queue.push(QueuedPost {
                logged: Arc::new(logged(7, EventStep::New)),
                since,
                expires: ms(9999),
                picture: PostPicture::None,
            });
            let posted = queue.next(now);
            assert!(matches!(posted, NextPost::Post { is_delayed, .. } if is_delayed == expected));
        }
    }
}
