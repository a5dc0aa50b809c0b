//! From an update to a message: its topic, how it is delivered, and what it says.

use std::{sync::Arc, time::Duration};

use super::{
    ReplyTo, Topics,
    discovery::{self, DiscoveryRecord},
    report::{self, CameraHealth, ConfigReport, Info, Stats},
};
use spotter_core::{CameraId, Detection, Event, Presence, PromptId, PromptState, Setting};

/// Everything that the stages tell the world.
#[derive(Clone, Debug)]
pub enum Update {
    /// The birth message, also after an accepted reload.
    Info(Info),
    /// After each load attempt.
    Config(ConfigReport),
    /// Every 10 s.
    Stats(Stats),
    /// A camera came or went.
    CameraStatus {
        /// Which.
        camera: CameraId,
        /// Frames arrive.
        online: bool,
    },
    /// On change and now and then; an unchanged one is published at most once a minute.
    Health {
        /// Which.
        camera: CameraId,
        /// How it is.
        health: Box<CameraHealth>,
    },
    /// An answer.
    Detection(Box<Detection>),
    /// Something came, changed or went. Kept until the broker has it, over outages and restarts.
    Event(Box<Event>),
    /// A picture of an event's thing: with `new` and with each `better`, so the last is the best; or one that somebody asked
    /// for. At most one a second of a topic, and not larger than 256 KiB.
    Snapshot {
        /// Which.
        camera: CameraId,
        /// Of which prompt.
        prompt: PromptId,
        /// The picture.
        jpeg: Arc<[u8]>,
        /// The broker keeps it for who comes later.
        retain: bool,
    },
    /// The answer to a request. Dropped when the broker goes away before it has it: who asked is gone too.
    Reply {
        /// Where it is wanted; `None` = the usual topic.
        to: Option<ReplyTo>,
        /// JSON.
        payload: Vec<u8>,
    },
    /// A state of a prompt has a new value.
    State {
        camera: CameraId,
        prompt: PromptId,
        state: PromptState,
    },
    /// A value that may be changed at run time.
    Setting {
        /// Of which camera.
        camera: CameraId,
        /// The value in force.
        setting: Setting,
        /// It is told also when it is what it was: somebody wanted another, and what shows it is to snap back.
        again: bool,
    },
    /// What Home Assistant is told.
    Discovery(DiscoveryRecord),
    /// The entities of this record are told of at another topic from now on.
    Moved(String),
    /// The broker is to forget what it keeps at this topic: it is not published any more.
    Clear(String),
}

/// When a state is sent in relation to other states: after a connect the first rank goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Topics that are cleared or given up: Home Assistant has to let go of an entity before another record takes it over.
    Clear,
    /// What Home Assistant is told of the topics to come.
    Discovery,
    /// `info`.
    Birth,
    /// All others.
    Usual,
    /// `status`: who sees `online` finds every other state true.
    Last,
}

/// What a message says, and by that how it is delivered.
#[derive(Clone, Debug)]
pub(super) enum MessageContent {
    /// What is true now: retained, QoS 1. An equal payload is not sent again before `refresh` (`None` = never).
    State {
        rank: Rank,
        refresh: Option<Duration>,
        payload: Arc<[u8]>,
    },
    /// Worth something only now: QoS 0.
    Stream(StreamMessage),
    /// Happened once: QoS 1, kept until the broker has it.
    Event(Box<Event>),
    /// QoS 1, while we are connected.
    Reply {
        correlation: Option<Vec<u8>>,
        payload: Arc<[u8]>,
    },
}

/// What is worth something only now.
#[derive(Clone, Debug)]
pub(super) enum StreamMessage {
    /// An answer of a camera.
    Answer(Box<Detection>),
    /// A JPEG of a camera.
    Picture {
        camera: CameraId,
        jpeg: Arc<[u8]>,
        retain: bool,
    },
    /// Figures of the node.
    Figures(Arc<[u8]>),
}

impl StreamMessage {
    /// Whose rate it uses.
    pub(super) fn camera(&self) -> Option<&CameraId> {
        match self {
            Self::Answer(detection) => Some(detection.camera()),
            Self::Picture { camera, .. } => Some(camera),
            Self::Figures(_) => None,
        }
    }
}

/// What goes to the client library.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// Ready.
    Bytes(Arc<[u8]>),
    /// Becomes bytes when the client library takes it.
    Detection(Box<Detection>),
}

/// Topic and content.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) topic: String,
    pub(super) content: MessageContent,
}

/// An unchanged health record is repeated so often.
const HEALTH_REFRESH: Duration = Duration::from_secs(60);

impl Message {
    /// Decides by the tables of docs/mqtt.md sections 1 and 2.
    pub(super) fn from_update(topics: &Topics, update: Update) -> Self {
        match update {
            Update::Info(info) => {
                Self::state(topics.info(), report::birth_json(info)).ranked(Rank::Birth)
            }
            Update::Config(result) => Self::state(topics.config(), report::to_json(&result)),
            Update::Stats(stats) => Self {
                topic: topics.stats(),
                content: MessageContent::Stream(StreamMessage::Figures(
                    report::to_json(&stats).into(),
                )),
            },
            Update::CameraStatus { camera, online } => Self::state(
                topics.camera_status(&camera),
                status_text(online).as_bytes().to_vec(),
            ),
            Update::Health { camera, health } => Self {
                topic: topics.camera_health(&camera),
                content: MessageContent::State {
                    rank: Rank::Usual,
                    refresh: Some(HEALTH_REFRESH),
                    payload: report::to_json(&*health).into(),
                },
            },
            Update::Detection(detection) => Self {
                topic: topics.detections(detection.camera(), &detection.prompt.id),
                content: MessageContent::Stream(StreamMessage::Answer(detection)),
            },
            Update::Event(event) => Self {
                topic: topics.event(&event.camera, &event.prompt),
                content: MessageContent::Event(event),
            },
            Update::Snapshot {
                camera,
                prompt,
                jpeg,
                retain,
            } => Self {
                topic: topics.snapshot(&camera, &prompt),
                content: MessageContent::Stream(StreamMessage::Picture {
                    camera,
                    jpeg,
                    retain,
                }),
            },
            Update::Reply { to, payload } => Self::reply(topics, to, payload),
            Update::State {
                camera,
                prompt,
                state,
            } => Self::prompt_state(topics, &camera, &prompt, state),
            Update::Setting {
                camera,
                setting,
                again,
            } => {
                let topic = topics.setting(&camera, &setting);
                let state = Self::state(topic, setting_text(&setting).into_bytes());
                match again {
                    true => state.refreshed_after(Duration::ZERO),
                    false => state,
                }
            }
            Update::Discovery(record) => {
                Self::state(record.topic.clone(), record.payload()).ranked(Rank::Discovery)
            }
            Update::Moved(topic) => {
                Self::state(topic, discovery::MOVED.to_vec()).ranked(Rank::Clear)
            }
            Update::Clear(topic) => Self::state(topic, Vec::new()).ranked(Rank::Clear),
        }
    }

    /// The node's own status.
    pub(super) fn node_status(topics: &Topics, online: bool) -> Self {
        Self::state(topics.status(), status_text(online).as_bytes().to_vec()).ranked(Rank::Last)
    }

    fn prompt_state(
        topics: &Topics,
        camera: &CameraId,
        prompt: &PromptId,
        state: PromptState,
    ) -> Self {
        let (topic, text) = match state {
            PromptState::Presence(presence) => (
                topics.present(camera, prompt),
                presence_text(presence).to_owned(),
            ),
            PromptState::Count(count) => (topics.count(camera, prompt), count_text(count)),
            PromptState::ZoneCount { zone, count } => {
                (topics.zone(camera, &zone, prompt), count_text(count))
            }
            PromptState::Answer(answer) => (
                topics.answer(camera, prompt),
                // An empty answer is unknown; an empty payload would clear the topic.
                answer
                    .filter(|answer| !answer.is_empty())
                    .unwrap_or_else(|| UNKNOWN.to_owned()),
            ),
        };
        Self::state(topic, text.into_bytes())
    }

    fn state(topic: String, payload: Vec<u8>) -> Self {
        Self {
            topic,
            content: MessageContent::State {
                rank: Rank::Usual,
                refresh: None,
                payload: payload.into(),
            },
        }
    }

    /// An unchanged state goes out again when the last one is so old.
    fn refreshed_after(mut self, age: Duration) -> Self {
        if let MessageContent::State { refresh, .. } = &mut self.content {
            *refresh = Some(age);
        }
        self
    }

    fn ranked(mut self, new: Rank) -> Self {
        if let MessageContent::State { rank, .. } = &mut self.content {
            *rank = new;
        }
        self
    }

    /// A stranger names the topic: one that cannot be published to is not worth a try.
    fn reply(topics: &Topics, to: Option<ReplyTo>, payload: Vec<u8>) -> Self {
        let to = to.filter(|to| can_be_published_to(&to.topic));
        let (topic, correlation) = match to {
            Some(to) => (to.topic, to.correlation),
            None => (topics.reply(), None),
        };
        Self {
            topic,
            content: MessageContent::Reply {
                correlation,
                payload: payload.into(),
            },
        }
    }
}

/// A longer response topic is not taken.
const RESPONSE_TOPIC_MAX_BYTES: usize = 1024;

fn can_be_published_to(topic: &str) -> bool {
    !topic.is_empty()
        && topic.len() <= RESPONSE_TOPIC_MAX_BYTES
        && !topic.contains(['+', '#', '\0'])
}

/// What a state says that nobody knows: Home Assistant reads it as unknown.
const UNKNOWN: &str = "None";

/// As it is set: `ON` and `OFF`, a number, words.
fn setting_text(setting: &Setting) -> String {
    match setting {
        Setting::Enabled(on) | Setting::MotionGate(on) | Setting::PromptEnabled(_, on) => {
            if *on { "ON" } else { "OFF" }.to_owned()
        }
        Setting::RateHz(number) | Setting::MinScore(_, number) => number.to_string(),
        Setting::Text(_, text) => text.clone(),
    }
}

fn presence_text(presence: Presence) -> &'static str {
    match presence {
        Presence::On => "ON",
        Presence::Off => "OFF",
        Presence::Unknown => UNKNOWN,
    }
}

fn count_text(count: Option<u32>) -> String {
    count.map_or_else(|| UNKNOWN.to_owned(), |count| count.to_string())
}

/// `online` or `offline`, for nodes, cameras and the will.
pub(super) fn status_text(online: bool) -> &'static str {
    if online { "online" } else { "offline" }
}
