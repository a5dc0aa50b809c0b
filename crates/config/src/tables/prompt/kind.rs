//! What a kind of prompts is, and what all kinds depend on.

use super::events::EventConfig;
use crate::{
    read::prelude::*,
    tables::area::{LineConfig, ZoneConfig},
};
use spotter_core::{AdapterId, LookRate, Task};

/// What of a camera its prompts depend on: the values of those that have none of their own, and what they may name.
#[derive(Clone, Copy)]
pub(crate) struct PromptScope<'a> {
    pub(crate) rate: LookRate,
    pub(crate) crops_max: Option<u8>,
    pub(crate) events: EventConfig,
    pub(crate) zones: &'a [ZoneConfig],
    pub(crate) lines: &'a [LineConfig],
    /// `None`: not known here.
    pub(crate) adapters: Option<&'a [AdapterId]>,
}

/// Keys that need objects at places in the picture.
pub(super) const OBJECT_KEYS: &[&str] = &["zones", "lines", "dwell", "verify", "describe"];
/// Keys that need boxes.
pub(super) const BOX_KEYS: &[&str] = &["min_area"];

/// What a prompt asks of the model, as its kind reads it.
pub(super) struct TaskConfig {
    pub(super) task: Task,
    /// Of the objects found, so many at most get an outline afterwards.
    pub(super) outlines_max: u8,
}

impl From<Task> for TaskConfig {
    fn from(task: Task) -> Self {
        Self {
            task,
            outlines_max: 0,
        }
    }
}

/// One kind of prompts.
pub(super) struct PromptKind {
    /// The key that makes a prompt one of this kind.
    pub(super) key: &'static str,
    /// Of the keys that not every prompt has, those that have an effect on this kind.
    pub(super) keys: &'static [&'static [&'static str]],
    /// Reads `key` and the keys that only this kind has; `None` without `key`, or after noting what is wrong with it.
    pub(super) read: fn(&mut Reader<'_>, PromptScope<'_>) -> Option<TaskConfig>,
}

impl PromptKind {
    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|keys| keys.contains(&key))
    }
}
