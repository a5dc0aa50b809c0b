//! Which mode is active, and what it makes of the file's cameras.
//!
//! A command chooses a mode until the schedules change next; without a choice the schedules decide, and without one of those there is
//! no mode. The choice of a mode that the file does not have any more ends.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{refusal::*, settings::put};
use spotter_config::{CameraConfig, ModeConfig, ModeSetting};
use spotter_core::{ModeId, WallTime};

/// A week, in which each schedule is due.
const LOOK_BACK: Duration = Duration::from_hours(8 * 24);

/// A mode, or none, that a command chose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeChoice {
    pub mode: Option<ModeId>,
    pub at: WallTime,
}

/// What survives a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredMode {
    /// The active one when it was stored: another one at the next start is a switch.
    pub active: Option<ModeId>,
    pub choice: Option<ModeChoice>,
}

/// The first mode in the file whose schedule has `now`.
fn scheduled_mode(modes: &[ModeConfig], now: WallTime) -> Option<&ModeConfig> {
    let is_due = |mode: &&ModeConfig| mode.schedule.as_ref().is_some_and(|s| s.covers(now));
    modes.iter().find(is_due)
}

fn find<'a>(modes: &'a [ModeConfig], id: &ModeId) -> Option<&'a ModeConfig> {
    modes.iter().find(|mode| mode.id == *id)
}

/// The modes of the file, with the active one.
#[derive(Clone, Debug)]
pub struct ModeSwitch {
    modes: Vec<ModeConfig>,
    now: StoredMode,
    /// Until then, the schedules have not ended the choice.
    checked: WallTime,
}

impl ModeSwitch {
    /// As stored, until the first [`update`](Self::update).
    pub fn new(modes: Vec<ModeConfig>, stored: StoredMode) -> Self {
        Self {
            modes,
            now: stored,
            checked: WallTime::default(),
        }
    }

    /// Decides which mode is active at `now`. True when it is another one than before.
    pub fn update(&mut self, now: WallTime) -> bool {
        // It must not become valid again with another file.
        let is_valid = |choice: &ModeChoice| self.is_valid(choice, now);
        if !self.now.choice.as_ref().is_some_and(is_valid) {
            self.now.choice = None;
        }
        self.checked = now;
        let active = match &self.now.choice {
            Some(choice) => choice.mode.clone(),
            None => scheduled_mode(&self.modes, now).map(|mode| mode.id.clone()),
        };
        let before = std::mem::replace(&mut self.now.active, active);
        before != self.now.active
    }

    /// The mode is in the file, and the schedules, which have no shorter times than minutes, have not chosen another one since. A box that was
    /// off looks back for some days.
    fn is_valid(&self, choice: &ModeChoice, now: WallTime) -> bool {
        let scheduled = |at| scheduled_mode(&self.modes, at).map(|mode| &mode.id);
        let since = self.checked.max(choice.at).max(now.before(LOOK_BACK));
        let minutes = (now.seconds_since(since) / 60.0) as u32;
        let past = (0..=minutes).map(|minute| since.plus_seconds(f64::from(minute) * 60.0));
        let is_known = |id| find(&self.modes, id).is_some();
        let before = scheduled(choice.at);
        // After the clock was set back, nothing is known yet.
        let is_unchanged = now < since || past.chain([now]).all(|at| scheduled(at) == before);
        choice.mode.as_ref().is_none_or(is_known) && is_unchanged
    }

    /// Makes a mode, or none, the active one until the schedules change next. True when another one was active.
    pub fn choose(&mut self, mode: Option<&ModeId>, now: WallTime) -> Result<bool, Refusal> {
        if let Some(id) = mode.filter(|id| find(&self.modes, id).is_none()) {
            let known: Vec<&str> = self.modes.iter().map(|mode| mode.id.as_str()).collect();
            let known = match known[..] {
                [] => "the file has no modes".to_owned(),
                _ => format!("there are {}", known.join(", ")),
            };
            let text = format!("there is no mode {id}; {known}");
            return Err(Refusal::new(RefusalCode::UnknownMode, text));
        }
        self.now.choice = Some(ModeChoice {
            mode: mode.cloned(),
            at: now,
        });
        Ok(self.update(now))
    }

    /// Takes over the modes of another file. A chosen mode stays if the file has it. True when another mode is active.
    pub fn replace_modes(&mut self, modes: Vec<ModeConfig>, now: WallTime) -> bool {
        let before = self.now.active.clone();
        self.update(now);
        self.modes = modes;
        if let Some(choice) = &mut self.now.choice {
            // New schedules end it at their next change, not by one in the past.
            choice.at = now;
        }
        self.update(now);
        self.now.active != before
    }

    pub fn active(&self) -> Option<&ModeId> {
        self.now.active.as_ref()
    }

    /// The values of the active mode.
    pub fn settings(&self) -> &[ModeSetting] {
        let mode = self.active().and_then(|id| find(&self.modes, id));
        mode.map_or(&[], |mode| &mode.settings)
    }

    /// The file's cameras with the values of the active mode.
    pub fn cameras(&self, file: &[CameraConfig]) -> Vec<CameraConfig> {
        let mut cameras = file.to_vec();
        for ModeSetting { camera, setting } in self.settings() {
            let of = cameras.iter_mut().find(|known| known.id == *camera);
            if let Some(of) = of {
                put(of, setting);
            }
        }
        cameras
    }

    pub fn stored(&self) -> &StoredMode {
        &self.now
    }
}

#[cfg(test)]
mod tests;
