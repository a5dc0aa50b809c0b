//! How many objects crossed each line in each direction since the last reset.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::crossing::{Crossing, CrossingDirection};
use spotter_config::LineConfig;
use spotter_core::{CameraId, DirectionId, LineCrossing, LineId, PromptId, PromptState, WallTime};

/// The counts of one prompt. A line that is not in it has counted nothing.
#[derive(Clone, Debug, Default)]
pub struct LineCounts(BTreeMap<LineId, LineCount>);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LineCount {
    /// By direction, so that a swap of the names in the file swaps no counts.
    counts: BTreeMap<DirectionId, u64>,
    /// The last reset.
    since: WallTime,
}

/// What survives a restart of one line of one prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LineCountRecord {
    pub camera: CameraId,
    pub prompt: PromptId,
    pub line: LineId,
    #[serde(flatten)]
    pub count: LineCount,
}

impl LineCount {
    pub fn new(counts: BTreeMap<DirectionId, u64>, since: WallTime) -> Self {
        Self { counts, since }
    }
}

impl LineCounts {
    /// Counts a crossing. `None`: the prompt does not count there any more.
    pub fn add(&mut self, crossing: Crossing, lines: &[LineConfig]) -> Option<LineCrossing> {
        let Crossing {
            line,
            direction,
            at,
            speed,
        } = crossing;
        let config = lines.iter().find(|config| config.id == line)?;
        let [to_right, to_left] = &config.directions;
        let direction = match direction {
            CrossingDirection::ToRight => to_right.clone(),
            CrossingDirection::ToLeft => to_left.clone(),
        };
        let own = self.0.entry(line.clone()).or_default();
        let count = own.counts.entry(direction.clone()).or_default();
        *count = count.saturating_add(1);
        Some(LineCrossing {
            count: *count,
            line,
            direction,
            at,
            speed,
        })
    }

    /// All counts of the line are 0 from then on.
    pub fn reset(&mut self, line: &LineId, wall: WallTime) {
        let count = LineCount::new(BTreeMap::new(), wall);
        self.0.insert(line.clone(), count);
    }

    /// Resets the lines whose time came since their last reset, also while the daemon did not run.
    pub fn reset_due(&mut self, wall: WallTime, lines: &[LineConfig]) {
        for line in lines {
            let last = line.reset.as_ref().and_then(|time| time.last_until(wall));
            let since = self
                .0
                .get(&line.id)
                .map_or_else(WallTime::default, |own| own.since);
            if let Some(due) = last.filter(|due| *due > since) {
                self.reset(&line.id, due);
            }
        }
    }

    pub fn states(&self, lines: &[LineConfig]) -> impl Iterator<Item = PromptState> {
        lines.iter().flat_map(|line| {
            let own = self.0.get(&line.id);
            let count = move |direction| own.and_then(|own| own.counts.get(direction));
            line.directions
                .iter()
                .map(move |direction| PromptState::LineCount {
                    line: line.id.clone(),
                    direction: direction.clone(),
                    count: count(direction).copied().unwrap_or_default(),
                })
        })
    }

    pub fn all(&self) -> impl Iterator<Item = (&LineId, &LineCount)> {
        self.0.iter()
    }

    /// Continues with the counts of an earlier run.
    pub fn restore(&mut self, line: &LineId, count: &LineCount) {
        self.0.insert(line.clone(), count.clone());
    }

    /// Forgets the lines that are not counted any more.
    pub fn retain(&mut self, lines: &[LineConfig]) {
        self.0
            .retain(|own, _| lines.iter().any(|line| line.id == *own));
    }
}
