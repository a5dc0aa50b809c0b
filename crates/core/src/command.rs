//! Commands to the running daemon, from any transport.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CameraId, LineId, LookRate, ModeId, PromptId, PromptText, Share, ValueError};

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
}

impl Setting {
    /// The prompt that it belongs to; `None`: it is the camera's own.
    pub fn prompt(&self) -> Option<&PromptId> {
        match self {
            Self::Enabled(_) | Self::Rate(_) | Self::MotionGate(_) => None,
            Self::Text(prompt, _) | Self::PromptEnabled(prompt, _) | Self::MinScore(prompt, _) => {
                Some(prompt)
            }
        }
    }

    /// The last level of its topic.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Enabled(_) | Self::PromptEnabled(..) => "enabled",
            Self::Rate(_) => "rate",
            Self::MotionGate(_) => "motion_gate",
            Self::Text(..) => "text",
            Self::MinScore(..) => "min_score",
        }
    }

    /// True for two values of one thing.
    pub fn is_same_key(&self, other: &Self) -> bool {
        self.prompt() == other.prompt() && self.field() == other.field()
    }
}

/// The keys of `[camera.NAME.prompt.NAME]` with their values, as a program wrote them; not checked yet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct PromptKeys(toml::Table);

impl PromptKeys {
    /// As a file has them.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(&self.0)
    }
}

/// A prompt that is asked until it is taken away or the daemon ends.
#[derive(Clone, Debug, PartialEq)]
pub struct NewPrompt {
    /// Its name on the camera.
    pub id: PromptId,
    pub keys: PromptKeys,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedInfo {
    Info,
    /// Every value that may be changed, as it is now.
    Settings,
    /// Those that differ from the file, with the file's value.
    Overrides,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// What keeps Spotter from its work.
    Error,
    /// What an operator should look at.
    Warn,
    Info,
    /// What a developer asks for.
    Debug,
    Trace,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Set {
        camera: CameraId,
        setting: Setting,
    },
    /// Make another mode the active one.
    SetMode {
        /// `None` = no mode.
        mode: Option<ModeId>,
    },
    /// Read the configuration again.
    Reload,
    /// Publish a picture of the next look.
    Snapshot {
        camera: CameraId,
    },
    /// Close the connection and open it again.
    Reconnect {
        camera: CameraId,
    },
    /// Look more often for a while, because something outside gave a reason to.
    Look {
        camera: CameraId,
        lasting: Duration,
        /// Looks a second; `None` = the camera's own rate, which the motion gate does not hold back meanwhile.
        rate: Option<LookRate>,
    },
    /// Answer a question once, about the next frame.
    Ask {
        camera: CameraId,
        question: PromptText,
    },
    /// Ask a further prompt until it is taken away.
    AddPrompt {
        camera: CameraId,
        prompt: NewPrompt,
    },
    /// Take a prompt away that was added.
    RemovePrompt {
        camera: CameraId,
        prompt: PromptId,
    },
    /// Take back what was changed at run time.
    ResetOverrides {
        /// Of which camera; `None` = of all.
        camera: Option<CameraId>,
    },
    /// Set the counts at a line to 0.
    ResetLine {
        camera: CameraId,
        line: LineId,
    },
    Get {
        what: RequestedInfo,
    },
    /// Log more or less for a while.
    LogLevel {
        level: LogLevel,
        lasting: Duration,
    },
}

impl Command {
    /// Its name on the wire (`op`).
    pub fn name(&self) -> &'static str {
        match self {
            Self::Set { setting, .. } if setting.prompt().is_some() => "prompt_set",
            Self::Set { .. } => "camera_set",
            Self::SetMode { .. } => "mode_set",
            Self::Reload => "reload",
            Self::Snapshot { .. } => "snapshot",
            Self::Reconnect { .. } => "reconnect",
            Self::Look { .. } => "look",
            Self::Ask { .. } => "ask",
            Self::AddPrompt { .. } => "prompt_add",
            Self::RemovePrompt { .. } => "prompt_del",
            Self::ResetOverrides { .. } => "reset_overrides",
            Self::ResetLine { .. } => "line_reset",
            Self::Get { .. } => "get",
            Self::LogLevel { .. } => "log_level",
        }
    }

    /// The camera that it is about.
    pub fn camera(&self) -> Option<&CameraId> {
        match self {
            Self::Set { camera, .. }
            | Self::Snapshot { camera }
            | Self::Reconnect { camera }
            | Self::Look { camera, .. }
            | Self::Ask { camera, .. }
            | Self::AddPrompt { camera, .. }
            | Self::RemovePrompt { camera, .. }
            | Self::ResetLine { camera, .. } => Some(camera),
            Self::ResetOverrides { camera } => camera.as_ref(),
            Self::SetMode { .. } | Self::Reload | Self::Get { .. } | Self::LogLevel { .. } => None,
        }
    }
}

/// The kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalCode {
    /// The words are no request.
    BadRequest,
    /// No such operation, or not in this version.
    UnknownOp,
    UnknownCamera,
    UnknownPrompt,
    UnknownLine,
    UnknownMode,
    /// The value is not of the right kind or out of its range.
    BadValue,
    /// The text is too long.
    TooLong,
    /// It is there already, or there are too many.
    Conflict,
    /// The camera or the model is not available now.
    Unavailable,
    /// It was tried and went wrong.
    Failed,
}

impl RefusalCode {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::UnknownOp => "unknown_op",
            Self::UnknownCamera => "unknown_camera",
            Self::UnknownPrompt => "unknown_prompt",
            Self::UnknownLine => "unknown_line",
            Self::UnknownMode => "unknown_mode",
            Self::BadValue => "bad_value",
            Self::TooLong => "too_long",
            Self::Conflict => "conflict",
            Self::Unavailable => "unavailable",
            Self::Failed => "failed",
        }
    }
}

/// Why something that was asked is not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    pub code: RefusalCode,
    /// For people: what is wrong and what is allowed.
    pub text: String,
}

impl Refusal {
    /// A refusal with its words.
    pub fn new(code: RefusalCode, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }

    /// The value of `name` is not allowed.
    pub fn of_value(name: &str, error: &ValueError) -> Self {
        let code = match error {
            ValueError::TooLong(_) => RefusalCode::TooLong,
            ValueError::OutOfRange { .. } | ValueError::BadText(_) => RefusalCode::BadValue,
        };
        Self::new(code, format!("{name}: {error}"))
    }

    /// There is no such camera.
    pub fn no_camera(camera: &CameraId) -> Self {
        Self::new(
            RefusalCode::UnknownCamera,
            format!("there is no camera {camera}"),
        )
    }
}
