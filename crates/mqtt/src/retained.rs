//! The list of topics that are retained on the broker, so that topics that are no longer published can be cleared.
//!
//! A broker keeps a retained message for ever, also that of a camera that was removed while the daemon did not run. Therefore
//! the list is stored, at the start and at every change. A topic that is no longer published
//! stays on the list until the broker has cleared it, over any number of starts. For a discovery record the list contains
//! its entities, because a removed entity must be named once more.
//!
//! What is stored has the topics of the node alone: a camera of a fleet may have another owner at the next start, whose topics must not be
//! cleared. The topics of such a camera are on the list of the running process, until the camera moves.
//!
//! Belongs here: the list, in memory and as text. Does not belong here: payloads, delivery, the disk.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    ClearedTopic, Topics,
    contract::{
        discovery::{DiscoveryRecord, EntityPlatforms},
        message::can_be_published_to,
        prompt_states::states_of,
    },
};
use spotter_config::{CameraConfig, Config};
use spotter_core::CameraId;

/// The list as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct StoredTopics {
    /// The machine that wrote it. On a copy of the disk in another machine, the list belongs to a node that still runs.
    machine: String,
    topics: BTreeMap<String, EntityPlatforms>,
}

/// A topic on the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetainedTopic {
    /// Of a discovery record: all entities that it ever named.
    entities: EntityPlatforms,
    /// The camera of a fleet that it belongs to.
    camera: Option<CameraId>,
}

impl RetainedTopic {
    fn of(camera: Option<CameraId>) -> Self {
        let entities = EntityPlatforms::new();
        Self { entities, camera }
    }
}

/// The list by topic.
pub type RetainedTopics = BTreeMap<String, RetainedTopic>;

/// The most entities stored for one device; more than a device can have.
const ENTITIES_MAX: usize = 1000;

/// The list: published topics, and topics that must be cleared.
#[derive(Debug)]
pub struct RetainedList {
    machine: String,
    wanted: RetainedTopics,
    /// No longer published; the broker may still keep them.
    stale: RetainedTopics,
    /// It has to be stored.
    is_unstored: bool,
}

impl RetainedList {
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
        let ours = list.machine == machine;
        Self {
            machine: machine.to_owned(),
            wanted: RetainedTopics::new(),
            stale: if ours {
                let topics = list.topics.into_iter();
                let topics = topics.filter(|(topic, _)| can_be_published_to(topic));
                let of_node = |entities| RetainedTopic {
                    entities,
                    camera: None,
                };
                topics
                    .map(|(topic, entities)| (topic, of_node(entities)))
                    .collect()
            } else {
                RetainedTopics::new()
            },
            is_unstored: true,
        }
    }

    /// Sets the published topics. Returns the others, which must be cleared, also those that were returned before.
    pub fn want(&mut self, wanted: RetainedTopics) -> Vec<ClearedTopic> {
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

    /// Forgets the topics of cameras that other nodes of the fleet publish now. They are not cleared.
    pub fn forget(&mut self, cameras: &[CameraId]) {
        let stays = |retained: &RetainedTopic| {
            let camera = retained.camera.as_ref();
            camera.is_none_or(|camera| !cameras.contains(camera))
        };
        self.wanted.retain(|_, retained| stays(retained));
        self.stale.retain(|_, retained| stays(retained));
    }

    /// Adds the entities that the record named before, so that Home Assistant removes them.
    pub fn complete(&self, record: DiscoveryRecord) -> DiscoveryRecord {
        match self.wanted.get(&record.topic) {
            Some(known) => record.forgetting(&known.entities),
            None => record,
        }
    }

    /// Of the topics to clear, only these are left on the broker.
    pub fn still_there(&mut self, topics: &BTreeSet<String>) {
        let before = self.stale.len();
        self.stale.retain(|topic, _| topics.contains(topic));
        self.is_unstored |= self.stale.len() < before;
    }

    /// True when no topic must be cleared.
    pub fn is_clean(&self) -> bool {
        self.stale.is_empty()
    }

    /// The text to be stored, when it is another one than before.
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
pub fn topics(
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
    let of_node = of_node.map(|topic| (topic, RetainedTopic::of(None)));
    let in_fleet = |camera: &CameraId| topics.fleet().map(|_| camera.clone());
    let of_cameras = cameras.iter().flat_map(|camera| {
        let pictures = pictures(topics, camera).filter(|_| config.mqtt.retain_snapshots);
        let owner = topics.fleet().map(|_| topics.camera_owner(&camera.id));
        let all = of_camera(topics, camera).into_iter();
        let all = all.chain(pictures).chain(owner);
        all.map(|topic| (topic, RetainedTopic::of(in_fleet(&camera.id))))
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
