//! Names of configured things. Each kind is a type of its own, so that a camera id is never taken for a prompt id.
//! The alphabet is the one that MQTT topics and Home Assistant share (docs/mqtt.md section 1).

use std::sync::Arc;

use derive_more::Display;
use serde::{Deserialize, Serialize};

/// The longest id, in characters.
pub const ID_MAX_CHARS: usize = 32;

/// Why a text cannot be an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("an id needs at least one character")]
    Empty,
    /// The id has more than [`ID_MAX_CHARS`] characters.
    #[error("{0} characters, limit {ID_MAX_CHARS}")]
    TooLong(usize),
    /// A character outside of the alphabet.
    #[error("ids use a-z 0-9 _ -")]
    Character,
}

fn check(text: &str) -> Result<(), IdError> {
    let n = text.chars().count();
    if n == 0 {
        return Err(IdError::Empty);
    }
    if !text
        .bytes()
        .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
    {
        return Err(IdError::Character);
    }
    if n > ID_MAX_CHARS {
        return Err(IdError::TooLong(n));
    }
    Ok(())
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Debug, Display, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
        )]
        #[serde(try_from = "Arc<str>")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `text` (1 to 32 of a-z 0-9 _ -).
            pub fn new(text: &str) -> Result<Self, IdError> {
                check(text).map(|()| Self(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<Arc<str>> for $name {
            type Error = IdError;

            fn try_from(text: Arc<str>) -> Result<Self, IdError> {
                check(&text).map(|()| Self(text))
            }
        }
    )+};
}

ids! {
    /// One camera of this node.
    CameraId;
    /// One prompt of a camera.
    PromptId;
    /// One zone of a camera.
    ZoneId;
    /// One line of a camera.
    LineId;
    /// One of the two directions in which objects cross a line.
    DirectionId;
    /// This box among others on the same broker.
    NodeId;
    /// One receiver of events over HTTP.
    WebhookId;
    /// One trigger of a camera.
    TriggerId;
    /// One adapter of the model.
    AdapterId;
    /// One mode of this node.
    ModeId;
}

impl CameraId {
    /// In place of a camera, for a picture that is from none. No camera has it: it is outside of the alphabet.
    pub fn of_still() -> Self {
        Self("(still)".into())
    }

    /// The picture is from no camera: nothing is remembered of it.
    pub fn is_of_still(&self) -> bool {
        *self == Self::of_still()
    }
}

impl PromptId {
    /// A short word and a number, for a prompt that no configuration has.
    pub fn numbered(word: &'static str, number: u64) -> Self {
        Self(format!("{word}-{number}").into())
    }
}

impl DirectionId {
    /// The usual names of a line's directions.
    pub fn in_and_out() -> [Self; 2] {
        ["in", "out"].map(|name| Self(name.into()))
    }
}

/// The word for no mode, so no mode has this id.
pub const NO_MODE: &str = "none";

impl NodeId {
    /// Makes an id out of a host name: lower case, foreign characters become `-`, cut to the limit; `node` when
    /// nothing is left.
    pub fn from_host_name(host: &str) -> Self {
        let cleaned: String = host
            .chars()
            .map(|c| match c.to_ascii_lowercase() {
                c @ ('a'..='z' | '0'..='9' | '_' | '-') => c,
                _ => '-',
            })
            .take(ID_MAX_CHARS)
            .collect();
        Self::new(cleaned.trim_matches('-')).unwrap_or_else(|_| Self("node".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_and_length() {
        assert!(CameraId::new("gate_2-b").is_ok());
        assert_eq!(CameraId::new("Front Door"), Err(IdError::Character));
        assert_eq!(CameraId::new(""), Err(IdError::Empty));
        assert_eq!(CameraId::new(&"a".repeat(33)), Err(IdError::TooLong(33)));
    }

    #[test]
    fn host_names_become_ids() {
        assert_eq!(NodeId::from_host_name("Edge.Box 1").as_str(), "edge-box-1");
        assert_eq!(NodeId::from_host_name("...").as_str(), "node");
    }
}
