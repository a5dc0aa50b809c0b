//! Keeps the discovery records and the retained topics in step with the active configuration.
//!
//! A broker keeps a retained message for ever, also that of a camera that was removed while the daemon did not run. Therefore
//! the topics are listed, and the list is stored, at the start and at every change. A topic that is no longer published
//! stays on the list until the broker has cleared it, over any number of starts. For a discovery record the list contains
//! its entities, because a removed entity must be named once more.
//!
//! What is stored has the topics of the node alone: a camera of a fleet may have another owner at the next start, whose topics must not be
//! cleared. The topics of such a camera are on the list of the running process, until the camera moves.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    ClearedTopic, Publisher, Topics, Update,
    contract::{
        can_be_published_to,
        discovery::{self, DiscoveryRecord, EntityPlatforms},
        prompt_states::states_of,
    },
};
use spotter_config::{CameraConfig, Config};
use spotter_core::{CameraId, Mono};

/// All nodes receive the start of Home Assistant at the same moment; a random pause up to this spreads their records.
const REPUBLISH_WITHIN: Duration = Duration::from_secs(5);
/// The most entities stored for one device; more than a device can have.
const ENTITIES_MAX: usize = 1000;

/// The list as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct StoredTopics {
    /// The machine that wrote it. On a copy of the disk in another machine, the list belongs to a node that still runs.
    machine: String,
    topics: BTreeMap<String, EntityPlatforms>,
}

/// A topic on the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RetainedTopic {
    /// Of a discovery record: all entities that it ever named.
    entities: EntityPlatforms,
    /// The camera of a fleet that it belongs to.
    camera: Option<CameraId>,
}

/// The list by topic.
type RetainedTopics = BTreeMap<String, RetainedTopic>;

/// Announces entities, and clears topics that are no longer published. Created once, at the start.
#[derive(Debug)]
pub struct Announcer {
    machine: String,
    wanted: RetainedTopics,
    /// No longer published; the broker may still keep them.
    stale: RetainedTopics,
    /// The list has to be stored.
    is_unstored: bool,
    /// Home Assistant has started: when all records are published again.
    republish_at: Option<Mono>,
}

impl Announcer {
    /// Continues with the list of an earlier run on this `machine`. A missing or damaged text is an empty list: some topics may stay
    /// retained on the broker, and nothing else is lost.
    pub fn new(stored: Option<&str>, machine: &str) -> Self {
        let list = stored.map(serde_json::from_str).transpose();
        let list: StoredTopics = list.map_or_else(
            |error| {
                tracing::warn!(%error, "cannot read the list of retained topics; topics of earlier runs that are no longer published stay retained on the broker");
                StoredTopics::default()
            },
            Option::unwrap_or_default,
        );
        let is_own = list.machine == machine;
        let topics = list.topics.into_iter();
        let topics = topics.filter(|(topic, _)| is_own && can_be_published_to(topic));
        let of_node = |entities| RetainedTopic {
            entities,
            camera: None,
        };
        Self {
            machine: machine.to_owned(),
            wanted: RetainedTopics::new(),
            stale: topics
                .map(|(topic, entities)| (topic, of_node(entities)))
                .collect(),
            is_unstored: true,
            republish_at: None,
        }
    }

    /// What clears the topics of earlier configurations, and the discovery records of `config`. `effective_cameras`: the effective cameras,
    /// with temporary prompts. `gpu`: figures of a GPU are published. To be published at the start and after each accepted change,
    /// between the last old state and the first new one.
    ///
    /// In a fleet, the cameras are those that this node owns. A camera that is missing was removed from the fleet's list, and its topics are
    /// cleared, unless [`cameras_moved`](Self::cameras_moved) was called before. It must still be owned: the owner alone may clear them.
    pub fn announce(
        &mut self,
        topics: &Topics,
        config: &Config,
        effective_cameras: &[CameraConfig],
        gpu: bool,
    ) -> Vec<Update> {
        let records = discovery::records(config, topics, gpu);
        let wanted = retained_topics(config, topics, effective_cameras, &records);
        let cleared = self.want(wanted).into_iter().map(Update::Clear);
        let records = records.into_iter().map(|record| {
            // Home Assistant removes an entity that the record named before.
            let known = self.wanted.get(&record.topic);
            let known = known.map_or_else(EntityPlatforms::new, |known| known.entities.clone());
            Update::Discovery(record.forgetting(&known))
        });
        cleared.chain(records).collect()
    }

    /// Sets the published topics. Returns the others, which must be cleared, also those that were returned before.
    fn want(&mut self, wanted: RetainedTopics) -> Vec<ClearedTopic> {
        let listed = self.of_node();
        let before = std::mem::replace(&mut self.wanted, wanted);
        self.stale.extend(before);
        for (topic, retained) in &mut self.wanted {
            let known = self.stale.remove(topic).unwrap_or_default();
            let entities = &mut retained.entities;
            let room = ENTITIES_MAX.saturating_sub(entities.len());
            for (key, platform) in known.entities.into_iter().take(room) {
                entities.entry(key).or_insert(platform);
            }
        }
        self.is_unstored |= self.of_node() != listed;
        let leaving = |(topic, retained): (&String, &RetainedTopic)| ClearedTopic {
            topic: topic.clone(),
            camera: retained.camera.clone(),
        };
        self.stale.iter().map(leaving).collect()
    }

    /// Other nodes of the fleet own these cameras now, or no node does: their topics are forgotten, not cleared. Called before
    /// [`announce`](Self::announce) without them.
    pub fn cameras_moved(&mut self, cameras: &[CameraId]) {
        let stays = |retained: &RetainedTopic| {
            let camera = retained.camera.as_ref();
            camera.is_none_or(|camera| !cameras.contains(camera))
        };
        self.wanted.retain(|_, retained| stays(retained));
        self.stale.retain(|_, retained| stays(retained));
    }

    /// Home Assistant has started: all records are published again after a short pause.
    pub fn home_assistant_started(&mut self, now: Mono) {
        let pause = REPUBLISH_WITHIN.mul_f64(fastrand::f64());
        self.republish_at.get_or_insert(now.after(pause));
    }

    /// Called once a second.
    pub fn tick(&mut self, publisher: &Publisher, now: Mono) {
        if self.republish_at.take_if(|at| *at <= now).is_some() {
            publisher.repeat_discovery();
        }
        if !self.stale.is_empty() {
            self.still_there(&publisher.clearing());
        }
    }

    /// Of the topics to clear, only these are left on the broker.
    pub fn still_there(&mut self, topics: &BTreeSet<String>) {
        let before = self.stale.len();
        self.stale.retain(|topic, _| topics.contains(topic));
        self.is_unstored |= self.stale.len() < before;
    }

    /// The list, when it has to be stored. Called after each call of [`announce`](Self::announce) and [`tick`](Self::tick).
    pub fn take_unstored(&mut self) -> Option<String> {
        let list = std::mem::take(&mut self.is_unstored).then(|| StoredTopics {
            machine: self.machine.clone(),
            topics: self.of_node(),
        });
        // Texts in maps with text keys always serialise.
        list.and_then(|list| serde_json::to_string(&list).ok())
    }

    /// What is to be stored.
    fn of_node(&self) -> BTreeMap<String, EntityPlatforms> {
        let all = self.wanted.iter().chain(&self.stale);
        let of_node = all.filter(|(_, retained)| retained.camera.is_none());
        of_node
            .map(|(topic, retained)| (topic.clone(), retained.entities.clone()))
            .collect()
    }
}

/// Every retained topic of a node with this configuration, these cameras and these discovery records.
fn retained_topics(
    config: &Config,
    topics: &Topics,
    cameras: &[CameraConfig],
    records: &[DiscoveryRecord],
) -> RetainedTopics {
    let of_node = [
        topics.status(),
        topics.info(),
        topics.config(),
        topics.stats(),
    ];
    let mode = (!config.modes.is_empty()).then(|| topics.mode());
    let of_node = of_node.into_iter().chain(mode);
    let of_node = of_node.map(|topic| (topic, RetainedTopic::default()));
    let in_fleet = |camera: &CameraId| topics.fleet().map(|_| camera.clone());
    let of_cameras = cameras.iter().flat_map(|camera| {
        let pictures = pictures(topics, camera).filter(|_| config.mqtt.retain_snapshots);
        let owner = topics.fleet().map(|_| topics.camera_owner(&camera.id));
        let finds = camera
            .prompts
            .iter()
            .any(|prompt| prompt.task.finds_objects());
        let quality =
            (finds && config.history.is_some()).then(|| topics.camera_quality(&camera.id));
        let all = of_camera(topics, camera).into_iter();
        let all = all.chain(pictures).chain(owner).chain(quality);
        all.map(|topic| {
            let camera = in_fleet(&camera.id);
            let entities = EntityPlatforms::new();
            (topic, RetainedTopic { entities, camera })
        })
    });
    let records = records.iter().map(|record| {
        let retained = RetainedTopic {
            entities: record.entities(),
            camera: record.camera.as_ref().and_then(in_fleet),
        };
        (record.topic.clone(), retained)
    });
    of_node.chain(of_cameras).chain(records).collect()
}

fn of_camera(topics: &Topics, camera: &CameraConfig) -> Vec<String> {
    let id = &camera.id;
    let settings = camera.changeable_settings().into_iter();
    let mut all = vec![topics.camera_status(id), topics.camera_health(id)];
    all.extend(settings.map(|setting| topics.setting(id, &setting)));
    let triggers = camera.triggers.iter();
    all.extend(triggers.map(|trigger| topics.trigger(id, &trigger.id)));
    for prompt in &camera.prompts {
        let states = states_of(camera, prompt).into_iter();
        all.extend(states.map(|state| topics.state(id, &prompt.id, &state)));
    }
    all
}

/// Pictures of events, which are retained if so configured.
fn pictures(topics: &Topics, camera: &CameraConfig) -> impl Iterator<Item = String> {
    let pictured = camera.prompts.iter().filter(|prompt| prompt.snapshot);
    pictured.map(|prompt| topics.snapshot(&camera.id, &prompt.id))
}

#[cfg(test)]
mod tests;
