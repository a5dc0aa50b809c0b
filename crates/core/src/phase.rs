use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// The state of a camera (`state` in docs/mqtt.md section 2).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, IntoStaticStr, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
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
    /// A file that was to be played once is over. It is no longer watched and has no word of its own: `disabled`, with a reason.
    #[serde(rename(serialize = "disabled"), skip_deserializing)]
    #[strum(serialize = "disabled")]
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

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether a camera in this phase is switched on and has not ended.
    pub fn is_meant_to_stream(self) -> bool {
        !matches!(self, Self::Disabled | Self::Ended)
    }
}
