//! Whether a crop changed: differences of cell means against a noise floor that is learned for each cell. Pure.
//!
//! ```text
//!   difference of a cell   the largest of its channels, levels of 255
//!   threshold of a cell    MARGIN x floor, within THRESHOLDS
//!   changed                a cluster of touching cells above their thresholds, with
//!                          sum of (difference / threshold)² >= ENERGY
//!
//!     ▪ 2.0 alone, ▪▪ 1.5 each, ▪▪▪▪ 1.0 each: changed        ▪ 1.5   ▪ 1.8 apart: not changed
//! ```
//!
//! Codecs turn noise into small shifts of blocks: some cells of a standing scene move by two levels and more, most by a tenth. So
//! the floor follows about the 90th percentile of each cell's own differences; trees, screens and blocks that the codec moves get a
//! high one. It is bounded: four touching cells that move by five levels are seen in front of anything, and so is one that moves by
//! ten. A thing has 15 levels and more as a rule.

use std::ops::RangeInclusive;

use super::cells::CellMeans;

/// The floor of a cell that was never compared, levels.
const FIRST: f32 = 0.8;
/// Parts of a difference's distance to the floor by which the floor follows it, up and down.
const RISE: f32 = 0.25;
const FALL: f32 = 0.02;
/// The most that one look raises a floor, levels: a thing that passes is no noise.
const RISE_MAX: f32 = 0.3;
/// The floor is at least this many medians of the crop's differences, so that noise over all of it is known at once: in the first
/// looks, before the floors are learned, and later.
const FIRST_MEDIANS: f32 = 3.0;
const MEDIANS: f32 = 1.0;
const FIRST_LOOKS: u32 = 8;
/// The threshold is this many floors.
const MARGIN: f32 = 2.5;
/// Bounds of thresholds, levels.
const THRESHOLDS: RangeInclusive<f32> = 1.25..=5.0;
/// See above.
const ENERGY: f32 = 4.0;

/// The floors of a crop's cells, levels.
#[derive(Clone, Debug)]
pub(super) struct NoiseFloor {
    levels: Vec<f32>,
    /// Looks that it has learned from.
    looks: u32,
}

impl NoiseFloor {
    pub fn new(cells: usize) -> Self {
        Self {
            levels: vec![FIRST; cells],
            looks: 0,
        }
    }

    /// True when the crop changed from `before` to `now`; learns from the difference. Both have the same cells.
    pub fn has_changed(&mut self, before: &CellMeans, now: &CellMeans) -> bool {
        let pairs = before.means.iter().zip(&now.means);
        let differences = pairs.map(|(before, now)| difference(before, now));
        let differences: Vec<f32> = differences.collect();
        let excess = self.excess(&differences);
        self.learn(&differences);
        largest_cluster(excess, now.cols) >= ENERGY
    }

    /// Of each cell (difference / threshold)², 0 where it is not above 1.
    fn excess(&self, differences: &[f32]) -> Vec<f32> {
        let medians = match self.looks < FIRST_LOOKS {
            true => FIRST_MEDIANS,
            false => MEDIANS,
        };
        let common = medians * median(differences);
        let excess = |(difference, level): (&f32, &f32)| {
            let threshold = MARGIN * level.max(common);
            let threshold = threshold.clamp(*THRESHOLDS.start(), *THRESHOLDS.end());
            let ratio = difference / threshold;
            if ratio > 1.0 { ratio * ratio } else { 0.0 }
        };
        differences.iter().zip(&self.levels).map(excess).collect()
    }

    fn learn(&mut self, differences: &[f32]) {
        self.looks = self.looks.saturating_add(1);
        let highest = THRESHOLDS.end() / MARGIN;
        for (level, difference) in self.levels.iter_mut().zip(differences) {
            let above = difference - *level;
            *level += match above > 0.0 {
                true => (RISE * above).min(RISE_MAX),
                false => FALL * above,
            };
            *level = level.min(highest);
        }
    }
}

fn difference(a: &[f32; 3], b: &[f32; 3]) -> f32 {
    let channels = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    channels.fold(0.0, f32::max)
}

fn median(values: &[f32]) -> f32 {
    let mut values = values.to_vec();
    let middle = values.len() / 2;
    match values.is_empty() {
        true => 0.0,
        false => *values.select_nth_unstable_by(middle, f32::total_cmp).1,
    }
}

/// The largest sum of touching cells, corners included.
fn largest_cluster(mut excess: Vec<f32>, cols: usize) -> f32 {
    let mut largest = 0.0_f32;
    let mut next = Vec::new();
    for first in 0..excess.len() {
        if excess[first] == 0.0 {
            continue;
        }
        let mut sum = 0.0;
        next.push(first);
        while let Some(cell) = next.pop() {
            if excess[cell] == 0.0 {
                continue;
            }
            sum += std::mem::take(&mut excess[cell]);
            let (row, col) = (cell / cols, cell % cols);
            let rows = row.saturating_sub(1)..=row + 1;
            for place in rows.flat_map(|row| {
                (col.saturating_sub(1)..=(col + 1).min(cols - 1)).map(move |col| row * cols + col)
            }) {
                if excess.get(place).is_some_and(|excess| *excess > 0.0) {
                    next.push(place);
                }
            }
        }
        largest = largest.max(sum);
    }
    largest
}
