//! From an update to a message: its topic, how it is delivered, and what it says.

use std::{sync::Arc, time::Duration};

use crate::domain::{CameraId, PromptId, ZoneId};

use super::{
    Detection, Topics,
    report::{self, CameraHealth, ConfigReport, Info, Stats},
};

/// Whether a prompt's things are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// They are.
    On,
    /// They are not.
    Off,
    /// Nobody is looking.
    Unknown,
}

impl Presence {
    fn text(self) -> &'static str {
        match self {
            Self::On => "ON",
            Self::Off => "OFF",
            Self::Unknown => UNKNOWN,
        }
    }
}

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
    /// Presence after hysteresis.
    Present {
        /// Which.
        camera: CameraId,
        /// Of which prompt.
        prompt: PromptId,
        /// Now.
        presence: Presence,
    },
    /// How many, after hysteresis.
    Count {
        /// Which.
        camera: CameraId,
        /// Of which prompt.
        prompt: PromptId,
        /// Now; `None` = nobody is looking.
        count: Option<u64>,
    },
    /// How many are in a zone, after hysteresis.
    Zone {
        /// Which.
        camera: CameraId,
        /// Where.
        zone: ZoneId,
        /// Of which prompt.
        prompt: PromptId,
        /// Now; `None` = nobody is looking.
        count: Option<u64>,
    },
    /// The believed answer to a question.
    Answer {
        /// Which.
        camera: CameraId,
        /// Which question.
        prompt: PromptId,
        /// Now; `None` = nobody is looking.
        text: Option<String>,
    },
}

/// When a state is sent in relation to other states: after a connect the first rank goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// `info`.
    Birth,
    /// All others.
    Usual,
    /// `status`: who sees `online` finds every other state true.
    Last,
}

/// How a message is delivered.
#[derive(Clone, Debug)]
pub(super) enum Delivery {
    /// Retained, QoS 1: what is true now. An equal payload is not sent again before `refresh` (`None` = never).
    State {
        rank: Rank,
        refresh: Option<Duration>,
    },
    /// QoS 0: worth something only now. `camera` names whose rate it uses.
    Stream { camera: Option<CameraId> },
}

/// What a message says.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// Ready.
    Bytes(Arc<[u8]>),
    /// Becomes bytes when the client library takes it.
    Detection(Box<Detection>),
}

/// Topic, delivery and body.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) topic: String,
    pub(super) delivery: Delivery,
    pub(super) body: Body,
}

/// An unchanged health record is repeated so often.
const HEALTH_REFRESH: Duration = Duration::from_secs(60);

impl Message {
    /// Decides by the contract's table (section 2).
    pub(super) fn from_update(topics: &Topics, update: Update) -> Self {
        match update {
            Update::Info(info) => {
                Self::state(topics.info(), report::to_json(&info)).ranked(Rank::Birth)
            }
            Update::Config(result) => Self::state(topics.config(), report::to_json(&result)),
            Update::Stats(stats) => Self {
                topic: topics.stats(),
                delivery: Delivery::Stream { camera: None },
                body: Body::Bytes(report::to_json(&stats).into()),
            },
            Update::CameraStatus { camera, online } => Self::state(
                topics.camera_status(&camera),
                status_text(online).as_bytes().to_vec(),
            ),
            Update::Health { camera, health } => {
                let mut message =
                    Self::state(topics.camera_health(&camera), report::to_json(&*health));
                message.delivery = Delivery::State {
                    rank: Rank::Usual,
                    refresh: Some(HEALTH_REFRESH),
                };
                message
            }
            Update::Detection(detection) => Self {
                topic: topics.detections(detection.camera(), &detection.answer().prompt.id),
                delivery: Delivery::Stream {
                    camera: Some(detection.camera().clone()),
                },
                body: Body::Detection(detection),
            },
            Update::Present {
                camera,
                prompt,
                presence,
            } => Self::state(
                topics.present(&camera, &prompt),
                presence.text().as_bytes().to_vec(),
            ),
            Update::Count {
                camera,
                prompt,
                count,
            } => Self::state(
                topics.count(&camera, &prompt),
                count_text(count).into_bytes(),
            ),
            Update::Zone {
                camera,
                zone,
                prompt,
                count,
            } => Self::state(
                topics.zone(&camera, &zone, &prompt),
                count_text(count).into_bytes(),
            ),
            Update::Answer {
                camera,
                prompt,
                text,
            } => Self::state(
                topics.answer(&camera, &prompt),
                text.unwrap_or_else(|| UNKNOWN.to_owned()).into_bytes(),
            ),
        }
    }

    /// The node's own status.
    pub(super) fn node_status(topics: &Topics, online: bool) -> Self {
        Self::state(topics.status(), status_text(online).as_bytes().to_vec()).ranked(Rank::Last)
    }

    fn state(topic: String, payload: Vec<u8>) -> Self {
        Self {
            topic,
            delivery: Delivery::State {
                rank: Rank::Usual,
                refresh: None,
            },
            body: Body::Bytes(payload.into()),
        }
    }

    fn ranked(mut self, rank: Rank) -> Self {
        self.delivery = Delivery::State {
            rank,
            refresh: None,
        };
        self
    }
}

/// What a state says that nobody knows: Home Assistant reads it as unknown.
const UNKNOWN: &str = "None";

fn count_text(count: Option<u64>) -> String {
    count.map_or_else(|| UNKNOWN.to_owned(), |count| count.to_string())
}

/// `online` or `offline`, for nodes, cameras and the will.
pub(super) fn status_text(online: bool) -> &'static str {
    if online { "online" } else { "offline" }
}
