//! The simulated devices, from `devices.toml`.

use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use spotter_core::duration_from_secs;
use spotter_engine::{open, sim::SimCosts};

/// What a step costs on a device, milliseconds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceProfile {
    pub name: String,
    /// Pixels across and down of the frames.
    pub frame: (usize, usize),
    /// A step's images, for 1, 2, … of them.
    images: Vec<f64>,
    /// Rows of a step, and what it costs.
    decode: Vec<(usize, f64)>,
    /// Every position of a row after its first, microseconds.
    position_us: f64,
    /// Images that a step has room for.
    pub images_a_step: usize,
    pub source: String,
}

#[derive(Deserialize)]
struct ProfileFile {
    device: Vec<DeviceProfile>,
}

impl DeviceProfile {
    /// All of them.
    pub fn all() -> anyhow::Result<Vec<Self>> {
        let file: ProfileFile =
            toml::from_str(include_str!("devices.toml")).context("devices.toml")?;
        Ok(file.device)
    }

    /// Looks that may be inside its engine, as on a GPU with this room for images.
    pub fn permits(&self) -> usize {
        open::gpu_permits(self.images_a_step)
    }

    /// Milliseconds that `count` images add to a step.
    fn images_ms(&self, count: usize) -> f64 {
        let known = self.images.len();
        let Some(last) = self.images.last() else {
            return 0.0;
        };
        match count {
            0 => 0.0,
            _ if count <= known => self.images[count - 1],
            _ => {
                let before = if known > 1 {
                    self.images[known - 2]
                } else {
                    0.0
                };
                last + (count - known) as f64 * (last - before)
            }
        }
    }

    /// Milliseconds of the rows of a step, with one position each.
    pub fn decode_ms(&self, rows: usize) -> f64 {
        let after = self.decode.partition_point(|(known, _)| *known < rows);
        let Some(&(high_rows, high_ms)) = self.decode.get(after) else {
            return self.decode.last().map_or(0.0, |(_, ms)| *ms);
        };
        let Some(&(low_rows, low_ms)) = after.checked_sub(1).and_then(|i| self.decode.get(i))
        else {
            return high_ms;
        };
        let share = (rows - low_rows) as f64 / (high_rows - low_rows) as f64;
        low_ms + share * (high_ms - low_ms)
    }

    fn rows_ms(&self, rows: usize, positions: usize) -> f64 {
        self.decode_ms(rows) + positions.saturating_sub(rows) as f64 * self.position_us * 1e-3
    }

    /// The costs of the simulated device; the host's work costs nothing.
    pub fn costs(&self) -> SimCosts {
        let (rows, images) = (self.clone(), self.clone());
        SimCosts {
            step: std::sync::Arc::new(move |count, positions| {
                (ms(rows.rows_ms(count, positions)), Duration::ZERO)
            }),
            crops: std::sync::Arc::new(move |count| ms(images.images_ms(count))),
            bookkeeping: Duration::ZERO,
        }
    }
}

fn ms(ms: f64) -> Duration {
    duration_from_secs(ms * 1e-3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_complete_and_their_costs_grow() {
        let all = DeviceProfile::all().expect("a file that can be read");
        assert_eq!(all.len(), 6);
        for device in &all {
            assert!(!device.source.is_empty());
            let costs: Vec<f64> = (0..10).map(|count| device.images_ms(count)).collect();
            assert!(
                costs.is_sorted_by(|a, b| a < b),
                "{}: {costs:?}",
                device.name
            );
            let rows: Vec<f64> = (1..33).map(|rows| device.decode_ms(rows)).collect();
            assert!(rows.is_sorted_by(|a, b| a < b), "{}: {rows:?}", device.name);
        }
    }
}
