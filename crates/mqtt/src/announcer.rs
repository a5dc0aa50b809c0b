//! Keeps the discovery records and the list of retained topics in step with the active configuration.

use std::time::Duration;

use super::{
    Identity, Publisher, Update,
    contract::discovery,
    retained::{self, RetainedList},
};
use spotter_config::{CameraConfig, Config};
use spotter_core::{CameraId, Mono};

/// All nodes receive the start of Home Assistant at the same moment; a random pause up to this spreads their records.
const REPUBLISH_WITHIN: Duration = Duration::from_secs(5);

/// Publishes discovery records, and clears topics that are no longer published. Created once, at the start.
#[derive(Debug)]
pub struct Announcer {
    retained: RetainedList,
    /// Home Assistant has started: when all records are published again.
    republish_at: Option<Mono>,
}

impl Announcer {
    /// `stored`: the list of topics that earlier runs left on the broker, as [`take_unstored`](Self::take_unstored) gave it.
    pub fn new(stored: Option<&str>, identity: &Identity) -> Self {
        Self {
            retained: RetainedList::new(stored, identity.machine()),
            republish_at: None,
        }
    }

    /// Publishes the discovery records of `config` and clears the topics of earlier ones. `effective_cameras`: the effective cameras,
    /// with temporary prompts. `gpu`: figures of a GPU are published. Called at the start and after each accepted change,
    /// between the last old state and the first new one.
    ///
    /// In a fleet, the cameras are those that this node owns. A camera that is missing was removed from the fleet's list, and its topics are
    /// cleared, unless [`cameras_moved`](Self::cameras_moved) was called before. It must still be owned: the owner alone may clear them.
    pub fn announce(
        &mut self,
        publisher: &Publisher,
        config: &Config,
        effective_cameras: &[CameraConfig],
        gpu: bool,
    ) {
        let topics = publisher.topics();
        let records = discovery::records(config, &topics, gpu);
        let topics = retained::topics(config, &topics, effective_cameras, &records);
        for cleared in self.retained.want(topics) {
            publisher.publish(Update::Clear(cleared));
        }
        for record in records {
            let record = self.retained.complete(record);
            publisher.publish(Update::Discovery(record));
        }
    }

    /// Other nodes of the fleet own these cameras now, or no node does: their topics are forgotten, not cleared. Called before
    /// [`announce`](Self::announce) without them.
    pub fn cameras_moved(&mut self, cameras: &[CameraId]) {
        self.retained.forget(cameras);
    }

    /// Home Assistant has started: all records are published again after a short pause.
    pub fn home_assistant_started(&mut self, now: Mono) {
        let pause = REPUBLISH_WITHIN.mul_f64(fastrand::f64());
        self.republish_at.get_or_insert(now.after(pause));
    }

    /// The list, when it has to be stored. Called after each call of [`announce`](Self::announce) and [`tick`](Self::tick).
    pub fn take_unstored(&mut self) -> Option<String> {
        self.retained.take_unstored()
    }

    /// Called once a second.
    pub fn tick(&mut self, publisher: &Publisher, now: Mono) {
        if self.republish_at.take_if(|at| *at <= now).is_some() {
            publisher.repeat_discovery();
        }
        if !self.retained.is_clean() {
            self.retained.still_there(&publisher.clearing());
        }
    }
}

#[cfg(test)]
mod tests {
    use spotter_core::NodeId;

    use super::*;

    #[test]
    fn home_assistant_starts_republish_once_within_five_seconds() {
        let identity = Identity::of_this_machine(NodeId::new("edge1").unwrap());
        let mut announcer = Announcer::new(None, &identity);
        let at = |seconds| Mono::default().after(Duration::from_secs(seconds));
        for _ in 0..100 {
            announcer.home_assistant_started(at(10));
            let due = announcer.republish_at;
            assert!(due.is_some_and(|due| due >= at(10) && due <= at(15)));
            // Two of them are one.
            announcer.home_assistant_started(at(11));
            assert_eq!(announcer.republish_at.take(), due);
        }
    }
}
