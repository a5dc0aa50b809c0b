//! The shell around discovery and the list of retained topics: keeps both in step with the configuration that runs.

use std::{collections::BTreeSet, path::Path};

use super::{
    Identity, Publisher, Update,
    discovery::{self, Rebirth},
    retained::{self, ObsoleteTopic, RetainedList},
};
use spotter_core::{
    Mono,
    config::{CameraConfig, Config},
};

/// Tells Home Assistant of us, and has the broker forget what is not published any more. Made once, at the start.
#[derive(Debug)]
pub struct Announcer {
    retained: RetainedList,
    /// Records that are cleared when Home Assistant knows their entities from others.
    moved: BTreeSet<String>,
    rebirth: Rebirth,
}

impl Announcer {
    /// Knows from `state_dir` what earlier runs left with the broker. Blocks to read it.
    pub fn open(state_dir: &Path, identity: &Identity) -> Self {
        Self {
            retained: RetainedList::open(state_dir, identity.machine()),
            moved: BTreeSet::new(),
            rebirth: Rebirth::default(),
        }
    }

    /// From now on Home Assistant is told of this configuration, and states of the cameras `in_force` are published: those
    /// of the configuration, with what is there for a while. `gpu` says that figures of a GPU are published. Call it at the
    /// start and after each accepted change, before the new states and after the last of the old ones. Blocks to write the
    /// list.
    pub fn announce(
        &mut self,
        publisher: &Publisher,
        config: &Config,
        in_force: &[CameraConfig],
        gpu: bool,
    ) {
        let records = discovery::records(config, gpu);
        let topics = retained::topics(config, in_force, &records);
        self.moved.clear();
        for leaving in self.retained.want(topics) {
            publisher.publish(match leaving {
                ObsoleteTopic::Gone(topic) => Update::Clear(topic),
                ObsoleteTopic::Moved(topic) => {
                    self.moved.insert(topic.clone());
                    Update::Moved(topic)
                }
            });
        }
        for record in records {
            let record = self.retained.complete(record);
            publisher.publish(Update::Discovery(record));
        }
    }

    /// Home Assistant says that it has started: it is told everything again, soon.
    pub fn home_assistant_started(&mut self, now: Mono) {
        self.rebirth.started(now, fastrand::f64());
    }

    /// Call it once a second. Blocks to write the list when the broker has cleared something.
    pub fn tick(&mut self, publisher: &Publisher, now: Mono) {
        if self.rebirth.take(now) {
            publisher.repeat_discovery();
        }
        if self.retained.is_clean() {
            return;
        }
        if publisher.discovery_is_told() {
            for topic in std::mem::take(&mut self.moved) {
                publisher.publish(Update::Clear(topic));
            }
        }
        let clearing = publisher.clearing();
        self.retained.still_there(&(&clearing | &self.moved));
    }
}
