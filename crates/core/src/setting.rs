//! The values of a camera that commands and modes may change.

use serde::{Deserialize, Serialize};

use super::{CameraShapes, LookRate, PromptId, PromptText, Share};

/// One value of a camera that may be changed while Spotter runs, with the wanted value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// The camera is watched; else its connection is closed too.
    Enabled(bool),
    /// Looks a second at most.
    #[serde(rename = "rate_hz")]
    Rate(LookRate),
    /// Frames without motion are not looked at.
    MotionGate(bool),
    /// The words of a prompt.
    Text(PromptId, PromptText),
    /// A prompt is asked.
    PromptEnabled(PromptId, bool),
    /// Found things with a lower score are not reported.
    MinScore(PromptId, Share),
    /// All that is drawn on the camera. It has no topic.
    Shapes(CameraShapes),
}

impl Setting {
    /// The prompt that it belongs to; `None`: it is the camera's own.
    pub fn prompt(&self) -> Option<&PromptId> {
        match self {
            Self::Enabled(_) | Self::Rate(_) | Self::MotionGate(_) | Self::Shapes(_) => None,
            Self::Text(prompt, _) | Self::PromptEnabled(prompt, _) | Self::MinScore(prompt, _) => {
                Some(prompt)
            }
        }
    }

    /// The last level of its topic, if it has one.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Enabled(_) | Self::PromptEnabled(..) => "enabled",
            Self::Rate(_) => "rate",
            Self::MotionGate(_) => "motion_gate",
            Self::Text(..) => "text",
            Self::MinScore(..) => "min_score",
            Self::Shapes(_) => "shapes",
        }
    }

    /// True for two values of one thing.
    pub fn is_same_key(&self, other: &Self) -> bool {
        self.prompt() == other.prompt() && self.field() == other.field()
    }
}
