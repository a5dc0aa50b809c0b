//! The counts at lines in the state database: stored at most once a second, and at the end.

use spotter_events::{StoredLineCounts, track::LineCountRecord};
use spotter_state::{Document, StateStore};

/// Where a node keeps its counts. In a fleet they do not survive a restart: another node may have counted meanwhile.
pub struct LineCountStore(Option<StateStore>);

impl LineCountStore {
    pub fn new(state: Option<StateStore>) -> Self {
        Self(state)
    }

    /// Those of an earlier run.
    pub fn records(&self) -> Vec<LineCountRecord> {
        let text = self
            .0
            .as_ref()
            .and_then(|state| state.get(Document::LineCounts));
        let stored = text
            .map(|text| StoredLineCounts::of_json(&text))
            .transpose();
        stored.map_or_else(
            |error| {
                tracing::error!(%error, "the stored counts at lines cannot be read; all lines count from 0");
                Vec::new()
            },
            |stored| stored.map_or_else(Vec::new, |stored| stored.lines),
        )
    }

    /// Stores the counts when they are others. Once a second.
    pub fn tick(&self, counts: Vec<LineCountRecord>) {
        let Some(state) = &self.0 else {
            return;
        };
        // Numbers and names always serialise.
        if let Ok(text) = StoredLineCounts::new(counts).to_json() {
            state.put(Document::LineCounts, text);
        }
    }
}
