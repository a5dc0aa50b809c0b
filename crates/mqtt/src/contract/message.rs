//! From an update to a message: its topic, delivery and payload.

use std::{sync::Arc, time::Duration};

use super::{
    ReplyTo, Topics,
    detection::Label,
    discovery::DiscoveryRecord,
    node_topic::status_text,
    report::{self, CameraHealth, CameraOwner, CameraQuality, ConfigReport, Info, Stats},
};
use spotter_core::{
    CameraId, Detection, Epoch, Event, ModeId, NO_MODE, NodeId, Presence, PromptId, PromptState,
    Setting, TextPart, TriggerId,
};

/// Everything that the stages publish.
#[derive(Clone, Debug)]
pub enum Update {
    /// The birth message, also after an accepted reload.
    Info(Info),
    /// After each load attempt.
    Config(ConfigReport),
    /// Published every 10 s.
    Stats(Stats),
    /// In a fleet: which node watches the camera from now on, before everything else of it.
    Owner {
        camera: CameraId,
        /// `None`: no node does.
        node: Option<NodeId>,
    },
    /// A camera went online or offline.
    CameraStatus {
        camera: CameraId,
        /// True while frames arrive.
        online: bool,
    },
    /// At any time; an unchanged record is published at most once a minute.
    Health {
        camera: CameraId,
        health: Box<CameraHealth>,
    },
    /// With a history, once a day and after marks.
    Quality {
        camera: CameraId,
        quality: CameraQuality,
    },
    Detection(Arc<Detection>),
    /// What a text goes on with. Those of a text come in their order, the last one once.
    Part(TextPart),
    /// Kept until the broker has acknowledged it, over outages and restarts.
    Event(Box<Event>),
    /// A picture of an event: with `new` and with each `better`, so the last is the best; or one that a command requested. At
    /// most one a second per topic, and not larger than 256 KiB.
    Snapshot {
        camera: CameraId,
        prompt: PromptId,
        jpeg: Arc<[u8]>,
        /// The broker keeps it for later subscribers.
        retain: bool,
    },
    /// The reply to a request. Dropped when the connection ends before the broker has acknowledged it.
    Reply {
        /// Where its receiver expects it; `None` = the node's topic `reply`.
        to: Option<ReplyTo>,
        /// One JSON object in UTF-8.
        payload: Vec<u8>,
    },
    /// A state of a prompt has a new value.
    State {
        camera: CameraId,
        prompt: PromptId,
        state: PromptState,
    },
    /// A trigger of a camera became active, or is so no more.
    Trigger {
        camera: CameraId,
        trigger: TriggerId,
        is_active: bool,
    },
    /// A value that a command may change.
    Setting {
        camera: CameraId,
        setting: Setting,
        /// Publishes an unchanged value too, so that a client that set an invalid one shows the effective one again.
        again: bool,
    },
    /// The active mode of a node that has modes.
    Mode {
        /// `None` = no mode.
        mode: Option<ModeId>,
        /// Publishes an unchanged mode too, so that a client that set an unknown one shows the active one again.
        again: bool,
    },
    Discovery(DiscoveryRecord),
    /// Clears a topic that is no longer published.
    Clear(ClearedTopic),
}

/// A topic that is no longer published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClearedTopic {
    pub topic: String,
    /// In a fleet, the camera that it belongs to: its owner alone may clear it.
    pub camera: Option<CameraId>,
}

impl Update {
    /// The camera that it is about; `None` for the node itself.
    pub(crate) fn camera(&self) -> Option<&CameraId> {
        match self {
            Self::Owner { camera, .. }
            | Self::CameraStatus { camera, .. }
            | Self::Health { camera, .. }
            | Self::Quality { camera, .. }
            | Self::Snapshot { camera, .. }
            | Self::State { camera, .. }
            | Self::Trigger { camera, .. }
            | Self::Setting { camera, .. } => Some(camera),
            Self::Detection(detection) => Some(detection.camera()),
            Self::Part(part) => Some(&part.of.camera),
            Self::Event(event) => Some(&event.camera),
            Self::Discovery(record) => record.camera.as_ref(),
            Self::Clear(cleared) => cleared.camera.as_ref(),
            Self::Info(_)
            | Self::Config(_)
            | Self::Stats(_)
            | Self::Mode { .. }
            | Self::Reply { .. } => None,
        }
    }

    /// By docs/mqtt.md section 2.
    fn topic(&self, topics: &Topics) -> String {
        match self {
            Self::Info(_) => topics.info(),
            Self::Config(_) => topics.config(),
            Self::Stats(_) => topics.stats(),
            Self::Owner { camera, .. } => topics.camera_owner(camera),
            Self::CameraStatus { camera, .. } => topics.camera_status(camera),
            Self::Health { camera, .. } => topics.camera_health(camera),
            Self::Quality { camera, .. } => topics.camera_quality(camera),
            Self::Detection(detection) => {
                topics.detections(detection.camera(), &detection.prompt.id)
            }
            Self::Part(part) => topics.text_parts(&part.of.camera, &part.of.prompt),
            Self::Event(event) => {
                let crossed = event.crossing.as_ref().map(|crossing| &crossing.line);
                topics.of_event(&event.camera, crossed, &event.prompt)
            }
            Self::Snapshot { camera, prompt, .. } => topics.snapshot(camera, prompt),
            Self::Reply { to: Some(to), .. } => to.topic.clone(),
            Self::Reply { to: None, .. } => topics.reply(),
            Self::State {
                camera,
                prompt,
                state,
            } => topics.state(camera, prompt, state),
            Self::Trigger {
                camera, trigger, ..
            } => topics.trigger(camera, trigger),
            Self::Setting {
                camera, setting, ..
            } => topics.setting(camera, setting),
            Self::Mode { .. } => topics.mode(),
            Self::Discovery(record) => record.topic.clone(),
            Self::Clear(cleared) => cleared.topic.clone(),
        }
    }

    /// By docs/mqtt.md section 1. `epoch` is that of a fleet's camera.
    fn content(self, epoch: Option<Epoch>) -> MessageContent {
        let state = match self {
            Self::Info(info) => StateMessage::new(Rank::Birth, report::birth_json(info)),
            Self::Config(result) => StateMessage::usual(report::to_json(&result)),
            Self::Stats(stats) => StateMessage::usual(report::to_json(&stats)),
            Self::Owner { node, .. } => {
                let is_once = node.is_none();
                let epoch = epoch.unwrap_or_default();
                let payload = report::to_json(&CameraOwner { node, epoch });
                let owner = StateMessage::new(Rank::Owner, payload);
                // Someone else may have replaced it at the broker.
                StateMessage { is_once, ..owner }.repeated(true)
            }
            Self::CameraStatus { online, .. } => StateMessage::usual(status_text(online)),
            Self::Health { health, .. } => StateMessage {
                refresh: Some(HEALTH_REFRESH),
                ..StateMessage::usual(report::to_json_of(&*health, epoch))
            },
            Self::Quality { quality, .. } => {
                StateMessage::usual(report::to_json_of(&quality, epoch))
            }
            Self::State { state, .. } => StateMessage::usual(state_text(state)),
            Self::Trigger { is_active, .. } => StateMessage::usual(switch(is_active)),
            Self::Setting { setting, again, .. } => {
                StateMessage::usual(setting_text(&setting)).repeated(again)
            }
            Self::Mode { mode, again } => {
                let mode = mode.as_ref().map_or(NO_MODE, ModeId::as_str);
                StateMessage::usual(mode).repeated(again)
            }
            Self::Discovery(record) => StateMessage::new(Rank::Discovery, record.payload()),
            Self::Clear(_) => StateMessage::new(Rank::Clear, Vec::new()),
            Self::Detection(detection) => {
                return MessageContent::Stream(StreamMessage::Answer(detection));
            }
            Self::Part(part) => return MessageContent::Stream(StreamMessage::Part(part)),
            Self::Event(event) => return MessageContent::Event(event),
            Self::Snapshot {
                camera,
                jpeg,
                retain,
                ..
            } => {
                return MessageContent::Stream(StreamMessage::Picture {
                    camera,
                    jpeg,
                    retain,
                });
            }
            Self::Reply { to, payload } => {
                return MessageContent::Reply {
                    correlation: to.and_then(|to| to.correlation).map(Arc::from),
                    payload: payload.into(),
                };
            }
        };
        MessageContent::State(state)
    }
}

/// Whose message it is, in a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CameraStamp {
    pub(crate) camera: CameraId,
    pub(crate) epoch: Epoch,
}

/// The order of states after a connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Which node of the fleet watches a camera, before everything else of the camera.
    Owner,
    /// Cleared topics: Home Assistant must release an entity before another record has it.
    Clear,
    Discovery,
    /// The birth message on `info`.
    Birth,
    Usual,
    /// `status`: a client that sees `online` finds all other states up to date.
    Last,
}

/// The payload; its kind decides about the delivery.
#[derive(Clone, Debug)]
pub(crate) enum MessageContent {
    State(StateMessage),
    /// QoS 0; dropped when it cannot be sent soon.
    Stream(StreamMessage),
    /// QoS 1, kept until the broker has acknowledged it.
    Event(Box<Event>),
    /// QoS 1, dropped at the end of the connection.
    Reply {
        correlation: Option<Arc<[u8]>>,
        payload: Arc<[u8]>,
    },
}

/// Retained, QoS 1.
#[derive(Clone, Debug)]
pub(crate) struct StateMessage {
    pub(crate) rank: Rank,
    /// An unchanged payload is sent again after this time; `None` = never.
    pub(crate) refresh: Option<Duration>,
    /// It is forgotten when the broker has acknowledged it; so is one without a payload.
    pub(crate) is_once: bool,
    pub(crate) payload: Arc<[u8]>,
}

/// A message that is useful only for a few seconds.
#[derive(Clone, Debug)]
pub(crate) enum StreamMessage {
    Answer(Arc<Detection>),
    Part(TextPart),
    Picture {
        camera: CameraId,
        jpeg: Arc<[u8]>,
        retain: bool,
    },
}

impl StreamMessage {
    /// The camera whose rate limit applies.
    pub(crate) fn camera(&self) -> &CameraId {
        match self {
            Self::Answer(detection) => detection.camera(),
            Self::Part(part) => &part.of.camera,
            Self::Picture { camera, .. } => camera,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Bytes(Arc<[u8]>),
    /// Becomes JSON when the client library accepts it.
    Detection(Arc<Detection>, Label),
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) topic: String,
    /// `None` for messages of the node, and without a fleet.
    pub(crate) stamp: Option<CameraStamp>,
    pub(crate) content: MessageContent,
}

/// An unchanged health record is published again after this time.
const HEALTH_REFRESH: Duration = Duration::from_secs(60);

impl Message {
    /// `epoch` is that of a fleet's camera.
    pub(crate) fn from_update(topics: &Topics, update: Update, epoch: Option<Epoch>) -> Self {
        let stamp = epoch.and_then(|epoch| {
            let camera = update.camera()?.clone();
            Some(CameraStamp { camera, epoch })
        });
        Self {
            topic: update.topic(topics),
            stamp,
            content: update.content(epoch),
        }
    }

    /// The node's own status.
    pub(crate) fn node_status(topics: &Topics, online: bool) -> Self {
        Self {
            topic: topics.status(),
            stamp: None,
            content: MessageContent::State(StateMessage::new(Rank::Last, status_text(online))),
        }
    }
}

impl StateMessage {
    fn new(rank: Rank, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            rank,
            refresh: None,
            is_once: false,
            payload: payload.into().into(),
        }
    }

    fn usual(payload: impl Into<Vec<u8>>) -> Self {
        Self::new(Rank::Usual, payload)
    }

    /// With `again`, it is published also when it is unchanged.
    fn repeated(self, again: bool) -> Self {
        let refresh = again.then_some(Duration::ZERO);
        Self { refresh, ..self }
    }
}

/// The payload of an unknown state; Home Assistant reads it as unknown.
const UNKNOWN: &str = "None";

fn switch(is_on: bool) -> &'static str {
    if is_on { "ON" } else { "OFF" }
}

/// The same text as on the `/set` topic: `ON` and `OFF`, a number, a text.
fn setting_text(setting: &Setting) -> String {
    match setting {
        Setting::Enabled(on) | Setting::MotionGate(on) | Setting::PromptEnabled(_, on) => {
            switch(*on).to_owned()
        }
        Setting::Rate(rate) => rate.to_string(),
        Setting::MinScore(_, score) => score.to_string(),
        Setting::Text(_, text) => text.as_str().to_owned(),
        Setting::Shapes(shapes) => serde_json::json!(shapes).to_string(),
    }
}

fn state_text(state: PromptState) -> String {
    let text = match state {
        PromptState::Presence(presence) | PromptState::Dwell { presence, .. } => match presence {
            Presence::Unknown => None,
            known => Some(switch(known == Presence::On).to_owned()),
        },
        PromptState::Count(count) | PromptState::ZoneCount { count, .. } => {
            count.map(|count| count.to_string())
        }
        PromptState::LineCount { count, .. } => Some(count.to_string()),
        // An empty answer is unknown; an empty payload would clear the topic.
        PromptState::Answer(answer) => answer.filter(|answer| !answer.is_empty()),
    };
    text.unwrap_or_else(|| UNKNOWN.to_owned())
}
