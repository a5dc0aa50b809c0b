//! Which states a prompt publishes.

use spotter_config::{CameraConfig, PromptConfig};
use spotter_core::{Presence, PromptState};

/// The states of a prompt, with no values.
pub(crate) fn states_of(camera: &CameraConfig, prompt: &PromptConfig) -> Vec<PromptState> {
    if !prompt.task.shape().has_objects() {
        return vec![PromptState::Answer(None)];
    }
    let zones = camera.zones_counted(prompt).into_iter();
    let zones = zones.map(|zone| PromptState::ZoneCount { zone, count: None });
    let dwell = prompt.dwell.keys().map(|zone| PromptState::Dwell {
        zone: zone.clone(),
        presence: Presence::Unknown,
    });
    let lines = camera.lines_counted(prompt);
    let counts = lines.flat_map(|line| line.directions.iter().map(move |way| (&line.id, way)));
    let counts = counts.map(|(line, direction)| PromptState::LineCount {
        line: line.clone(),
        direction: direction.clone(),
        count: 0,
    });
    [
        PromptState::Presence(Presence::Unknown),
        PromptState::Count(None),
    ]
    .into_iter()
    .chain(zones)
    .chain(dwell)
    .chain(counts)
    .collect()
}
