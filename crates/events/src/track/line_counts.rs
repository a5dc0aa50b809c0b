//! How many objects crossed each line in each direction since the last reset.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::crossing::{CountedLine, Crossing, CrossingDirection};
use spotter_config::{CameraConfig, LineConfig, PromptConfig};
use spotter_core::{
    CameraId, DirectionId, LineCrossing, LineId, PromptId, PromptState, WallTime, WeeklyTime,
};

/// The counts of the lines that one prompt names, in the order of the configuration.
#[derive(Clone, Debug)]
pub struct LineCounts(Vec<LineCount>);

#[derive(Clone, Debug)]
struct LineCount {
    line: Arc<CountedLine>,
    directions: [DirectionId; 2],
    counts: [u64; 2],
    reset: Option<WeeklyTime>,
    /// The last reset.
    since: WallTime,
}

/// What survives a restart of one line of one prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LineCountRecord {
    pub camera: CameraId,
    pub prompt: PromptId,
    pub line: LineId,
    /// By direction, so that a swap of the names in the file swaps no counts.
    pub counts: BTreeMap<DirectionId, u64>,
    pub since: WallTime,
}

impl LineCount {
    fn new(line: &LineConfig) -> Self {
        Self {
            line: Arc::new(CountedLine::new(line)),
            directions: line.directions.clone(),
            counts: [0; 2],
            reset: line.reset.clone(),
            since: WallTime::default(),
        }
    }

    fn named(&self) -> impl Iterator<Item = (&DirectionId, u64)> {
        self.directions.iter().zip(self.counts)
    }
}

impl LineCounts {
    /// All counts are 0.
    pub fn new(camera: &CameraConfig, prompt: &PromptConfig) -> Self {
        Self(camera.lines_counted(prompt).map(LineCount::new).collect())
    }

    pub fn lines(&self) -> impl Iterator<Item = Arc<CountedLine>> {
        self.0.iter().map(|own| Arc::clone(&own.line))
    }

    /// Counts a crossing. `None`: the prompt does not count there any more.
    pub fn add(&mut self, crossing: Crossing) -> Option<LineCrossing> {
        let Crossing {
            line,
            direction,
            at,
            speed,
        } = crossing;
        let index = match direction {
            CrossingDirection::ToRight => 0,
            CrossingDirection::ToLeft => 1,
        };
        let own = self.0.iter_mut().find(|own| own.line.id == line)?;
        own.counts[index] = own.counts[index].saturating_add(1);
        Some(LineCrossing {
            line,
            direction: own.directions[index].clone(),
            at,
            speed,
            count: own.counts[index],
        })
    }

    /// A command resets a line.
    pub fn reset(&mut self, line: &LineId, wall: WallTime) {
        for own in self.0.iter_mut().filter(|own| own.line.id == *line) {
            (own.counts, own.since) = ([0; 2], wall);
        }
    }

    /// Resets the lines whose time came since their last reset, also while the daemon did not run.
    pub fn reset_due(&mut self, wall: WallTime) {
        for own in &mut self.0 {
            let last = own.reset.as_ref().and_then(|time| time.last_until(wall));
            if let Some(due) = last.filter(|due| *due > own.since) {
                (own.counts, own.since) = ([0; 2], due);
            }
        }
    }

    pub fn states(&self) -> impl Iterator<Item = PromptState> {
        self.0.iter().flat_map(|own| {
            own.named()
                .map(|(direction, count)| PromptState::LineCount {
                    line: own.line.id.clone(),
                    direction: direction.clone(),
                    count,
                })
        })
    }

    /// Replaces the lines. One of the same name keeps its counts.
    pub fn change(&mut self, camera: &CameraConfig, prompt: &PromptConfig) {
        let records: Vec<_> = self.records(&camera.id, &prompt.id).collect();
        *self = Self::new(camera, prompt);
        records.iter().for_each(|record| self.restore(record));
    }

    pub fn records<'a>(
        &'a self,
        camera: &'a CameraId,
        prompt: &'a PromptId,
    ) -> impl Iterator<Item = LineCountRecord> + 'a {
        self.0.iter().map(|own| LineCountRecord {
            camera: camera.clone(),
            prompt: prompt.clone(),
            line: own.line.id.clone(),
            counts: own
                .named()
                .map(|(name, count)| (name.clone(), count))
                .collect(),
            since: own.since,
        })
    }

    /// Continues with the counts of an earlier run.
    pub fn restore(&mut self, record: &LineCountRecord) {
        if let Some(own) = self.0.iter_mut().find(|own| own.line.id == record.line) {
            let count = |name| record.counts.get(name).copied().unwrap_or_default();
            own.counts = own.directions.each_ref().map(count);
            own.since = record.since;
        }
    }
}
