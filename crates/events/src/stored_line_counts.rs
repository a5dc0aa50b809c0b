//! The counts at lines as text, in the state database.
//!
//! They are no overrides: they replace no value of the configuration file, a change of that file discards none of them, and they
//! survive a restart also with `mqtt.overrides = "forget"`.

use serde::{Deserialize, Serialize};

use crate::track::LineCountRecord;

/// Rises with each change that an older program could not read.
const VERSION: u32 = 1;

/// The counts of all lines.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredLineCounts {
    v: u32,
    pub lines: Vec<LineCountRecord>,
}

impl StoredLineCounts {
    pub fn new(lines: Vec<LineCountRecord>) -> Self {
        Self { v: VERSION, lines }
    }

    /// An error: the text is of another program or of a newer version.
    pub fn of_json(text: &str) -> Result<Self, serde_json::Error> {
        let stored: Self = serde_json::from_str(text)?;
        let newer = || serde::de::Error::custom("written by a newer version");
        (stored.v <= VERSION).then_some(stored).ok_or_else(newer)
    }

    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::{CameraId, DirectionId, LineId, PromptId, WallTime};

    #[test]
    fn stored_counts_are_read_and_a_newer_text_is_rejected() {
        let [way, _] = DirectionId::in_and_out();
        let stored = StoredLineCounts::new(vec![LineCountRecord {
            camera: CameraId::new("gate").unwrap(),
            prompt: PromptId::new("person").unwrap(),
            line: LineId::new("door").unwrap(),
            counts: [(way, 12)].into(),
            since: WallTime::from_unix_millis(1_787_393_730_023),
        }]);
        let text = stored.to_json().unwrap();
        assert_eq!(StoredLineCounts::of_json(&text).unwrap(), stored);
        let newer = StoredLineCounts::of_json("{\"v\":2,\"lines\":[]}").unwrap_err();
        assert!(newer.to_string().contains("newer version"), "{newer}");
    }
}
