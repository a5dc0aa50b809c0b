use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The state of a camera (`state` in docs/mqtt.md section 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Trying, or pausing before the next try.
    #[default]
    Connecting,
    /// Packets come, no picture yet.
    WaitingKeyframe,
    Streaming,
    /// Pictures stopped; being rebuilt.
    Stalled,
    /// The login was refused; tried again rarely.
    AuthFailed,
    /// Nothing decodable; tried again rarely.
    Unsupported,
    Disabled,
    /// A file that was to be played once is over.
    Ended,
}

impl Phase {
    /// Those with a word of their own.
    pub const PUBLISHED: [Self; 7] = [
        Self::Connecting,
        Self::WaitingKeyframe,
        Self::Streaming,
        Self::Stalled,
        Self::AuthFailed,
        Self::Unsupported,
        Self::Disabled,
    ];

    /// Its word. A file that is over is no longer watched and has none of its own: `disabled`, with a reason.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::WaitingKeyframe => "waiting_keyframe",
            Self::Streaming => "streaming",
            Self::Stalled => "stalled",
            Self::AuthFailed => "auth_failed",
            Self::Unsupported => "unsupported",
            Self::Disabled | Self::Ended => "disabled",
        }
    }

    /// Whether a camera in this phase is switched on and has not ended.
    pub fn is_meant_to_stream(self) -> bool {
        !matches!(self, Self::Disabled | Self::Ended)
    }
}

impl Serialize for Phase {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Phase {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let phase = Self::PUBLISHED
            .into_iter()
            .find(|phase| phase.as_str() == word);
        phase.ok_or_else(|| D::Error::custom(format!("{word:?} is no state of a camera")))
    }
}
