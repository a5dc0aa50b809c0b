//! Where and by which rules a prompt of a camera counts: what its configuration means for its tracks.

use std::{collections::BTreeMap, time::Duration};

use super::hysteresis::HysteresisRules;
use crate::record::QuietRule;
use spotter_config::{CameraConfig, LineConfig, PromptConfig};
use spotter_core::{PromptRegion, ZoneId};

/// After this many of the longest expected pauses without a look, all states are unknown.
const STALE_PAUSES: u32 = 3;
/// The shortest time until then: short interruptions, such as one reconnect of a camera, change nothing.
const STALE_MIN: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq)]
pub struct PromptRules {
    pub hysteresis: HysteresisRules,
    /// All zones of the prompt, in the order of the configuration.
    pub zones: Vec<ZoneId>,
    /// The time for each zone after which an object dwells there.
    pub dwell: BTreeMap<ZoneId, Duration>,
    /// The lines that the prompt counts, in the order of the configuration.
    pub lines: Vec<LineConfig>,
    /// An object that does not move for this time is still.
    pub still_after: Duration,
    /// The verification question must be answered with yes before an event starts.
    pub verify: bool,
    /// A question about the object is asked when its event starts.
    pub describe: bool,
}

impl PromptRules {
    pub fn new(camera: &CameraConfig, prompt: &PromptConfig) -> Self {
        let events = prompt.events;
        Self {
            hysteresis: HysteresisRules {
                confirm: events.confirm,
                end_after: events.end_after,
                stale_after: stale_after(camera, prompt),
            },
            zones: camera.zones_counted(prompt),
            dwell: prompt.dwell.clone(),
            lines: camera.lines_counted(prompt).cloned().collect(),
            still_after: events.still_after,
            verify: prompt.verify.is_some(),
            describe: prompt.describe.is_some(),
        }
    }

    /// When no track can be left.
    pub fn quiet_rule(&self) -> QuietRule {
        let (_, looks) = self.hysteresis.confirm;
        QuietRule {
            looks,
            time: self.hysteresis.end_after,
        }
    }
}

/// Time without a look until all states are unknown: some of the pauses that the prompt's rate and the motion gate make,
/// so that a gate that is closed over a quiet scene keeps the states.
fn stale_after(camera: &CameraConfig, prompt: &PromptConfig) -> Duration {
    let period = prompt.rate.min(camera.rate).period();
    let gate = if camera.motion.on || prompt.region == PromptRegion::Motion {
        camera.motion.at_least_every
    } else {
        Duration::ZERO
    };
    ((period + gate) * STALE_PAUSES).max(STALE_MIN)
}
