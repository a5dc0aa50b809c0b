//! The counts at lines in the state database: stored at most once a second, and at the end.
//!
//! They are no overrides: they replace no value of the configuration file, a change of that file discards none of them, and they
//! survive a restart also with `mqtt.overrides = "forget"`.

use serde::{Deserialize, Serialize, de::Error as _};
use spotter_events::track::LineCountRecord;
use spotter_state::{Document, StateStore};

/// Rises with each change that an older program could not read.
const VERSION: u32 = 1;

/// The counts of all lines, as text.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct StoredLineCounts {
    v: u32,
    lines: Vec<LineCountRecord>,
}

impl StoredLineCounts {
    /// An error: the text is of another program or of a newer version.
    fn of_json(text: &str) -> serde_json::Result<Self> {
        let stored: Self = serde_json::from_str(text)?;
        let newer = || serde_json::Error::custom("written by a newer version");
        (stored.v <= VERSION).then_some(stored).ok_or_else(newer)
    }
}

/// Those of an earlier run.
pub fn read(state: &StateStore) -> Vec<LineCountRecord> {
    let text = state.get(Document::LineCounts);
    let stored = text
        .map(|text| StoredLineCounts::of_json(&text))
        .transpose();
    let stored = stored.unwrap_or_else(|error| {
        tracing::error!(%error, "the stored counts at lines cannot be read; all lines count from 0");
        None
    });
    stored.map(|stored| stored.lines).unwrap_or_default()
}

/// Stores the counts when they are others. Once a second.
pub fn store(state: &StateStore, lines: Vec<LineCountRecord>) {
    let stored = StoredLineCounts { v: VERSION, lines };
    // Numbers and names always serialise.
    if let Ok(text) = serde_json::to_string(&stored) {
        state.put(Document::LineCounts, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_counts_are_read_and_a_newer_text_is_rejected() {
        let text = r#"{"v":1,"lines":[{"camera":"gate","prompt":"person","line":"door","counts":{"in":12},"since":SINCE}]}"#;
        let text = text.replace(
            "SINCE",
            &serde_json::to_string(&spotter_core::WallTime::default()).unwrap(),
        );
        let stored = StoredLineCounts::of_json(&text).unwrap();
        assert_eq!(stored.lines[0].line.as_str(), "door");
        assert_eq!(serde_json::to_string(&stored).unwrap(), text);
        let newer = StoredLineCounts::of_json("{\"v\":2,\"lines\":[]}").unwrap_err();
        assert!(newer.to_string().contains("newer version"), "{newer}");
    }
}
