//! The configuration: the file as it was read last, its active mode, and the overrides that commands put over both.
//!
//! A value is the file's, unless the active mode has another one, unless a command set it since the mode became active.
//!
//! In a fleet, the cameras are those of the fleet's list, of which the node watches a part; what commands changed at a camera is in the fleet's
//! store, so that its next node knows it.

use std::collections::BTreeSet;

use crate::{
    command::Command,
    effective_cameras::{EffectiveCameras, find},
    modes::ModeSwitch,
    override_set::{DiscardedOverride, Override},
    refusal::Refusal,
    stored_overrides::StoredOverrides,
};
use spotter_config::{CameraConfig, Config, ConfigChange, OverridePersistence};
use spotter_core::{CameraId, ModeId, Mono, NO_MODE, PromptId, Setting, WallTime};

/// The file, the overrides over it and the cameras that result from both.
#[derive(Debug)]
pub struct ConfigStore {
    file: Config,
    modes: ModeSwitch,
    overridden: EffectiveCameras,
    /// `None`: the node watches all cameras of its file.
    own: Option<BTreeSet<CameraId>>,
    /// The effective cameras of this node.
    cameras: Vec<CameraConfig>,
    /// As the stages have them.
    applied: Vec<CameraConfig>,
    /// Cameras whose overrides the fleet's store does not have as they are now.
    unstored: BTreeSet<CameraId>,
}

impl ConfigStore {
    /// Continues with what an earlier run stored.
    pub fn new(file: Config, stored: StoredOverrides, now: Mono, wall: WallTime) -> Self {
        let mut modes =
            ModeSwitch::new(file.modes.clone(), stored.mode.clone().unwrap_or_default());
        let is_switched = modes.update(wall);
        let own = file.fleet.is_some().then(BTreeSet::new);
        let mut store = Self {
            overridden: EffectiveCameras::new(stored),
            file,
            modes,
            own,
            cameras: Vec::new(),
            applied: Vec::new(),
            unstored: BTreeSet::new(),
        };
        store.change_base(is_switched, now);
        store
    }

    /// The file's values, and in a fleet the list's, without overrides.
    pub fn file(&self) -> &Config {
        &self.file
    }

    /// The whole configuration with the overrides that are stored, in a fleet with all cameras of its list.
    pub fn effective(&self) -> Config {
        self.file.with_cameras(self.overridden.stored_cameras())
    }

    /// The effective cameras that this node watches and publishes.
    pub fn cameras(&self) -> &[CameraConfig] {
        &self.cameras
    }

    pub fn camera(&self, id: &CameraId) -> Result<&CameraConfig, Refusal> {
        find(&self.cameras, id)
    }

    /// The node's cameras with the overrides that are stored, and without those that end by themselves.
    pub fn stored_cameras(&self) -> Vec<CameraConfig> {
        let mut cameras = self.overridden.stored_cameras();
        cameras.retain(|camera| self.is_own(&camera.id));
        cameras
    }

    /// The active mode; `None` when there is none.
    pub fn mode(&self) -> Option<&ModeId> {
        self.modes.active()
    }

    /// What commands set at the node's cameras.
    pub fn overrides(&self) -> impl Iterator<Item = &Override> {
        let all = self.overridden.overrides().iter();
        all.filter(|change| self.is_own(&change.camera))
    }

    /// The values of each camera that a command may change. Prompts that end by themselves are not among them.
    pub fn settings(&self) -> Vec<(CameraId, Vec<Setting>)> {
        let settings = |camera: &CameraConfig| (camera.id.clone(), camera.changeable_settings());
        self.stored_cameras().iter().map(settings).collect()
    }

    /// What is different at the cameras of this node since the last call, for every stage.
    pub fn take_change(&mut self) -> ConfigChange {
        let change = ConfigChange::between(&self.applied, &self.cameras);
        self.applied.clone_from(&self.cameras);
        change
    }

    /// What survives a restart of a box with its own cameras; `None`: nothing does.
    pub fn stored(&self) -> Option<StoredOverrides> {
        let is_kept = self.own.is_none() && self.keeps_overrides();
        is_kept.then(|| {
            let mut stored = self.overridden.stored(None);
            stored.mode = Some(self.modes.stored().clone());
            stored
        })
    }

    /// The own cameras whose overrides the fleet's store does not have as they are now. Each is returned once.
    pub fn take_unstored(&mut self) -> Vec<(CameraId, StoredOverrides)> {
        let unstored = std::mem::take(&mut self.unstored).into_iter();
        let own = unstored.filter(|id| self.is_own(id));
        own.map(|id| {
            let stored = self.overridden.stored(Some(&id));
            (id, stored)
        })
        .collect()
    }

    /// Takes over a file that needs no restart. An override whose value the file changed too is discarded.
    ///
    /// The active mode stays if the file has it.
    pub fn replace_file(&mut self, file: Config, now: Mono, wall: WallTime) {
        self.file = file;
        let modes = self.file.modes.clone();
        let is_switched = self.modes.replace_modes(modes, wall);
        self.change_base(is_switched, now);
    }

    /// Replaces the fleet's list of cameras. An override whose value the list changed too is discarded.
    pub fn replace_list(&mut self, cameras: Vec<CameraConfig>, now: Mono) {
        self.file.cameras = cameras;
        self.change_base(false, now);
    }

    /// Sets which cameras of the fleet's list are this node's. True when they are others now.
    pub fn set_own(&mut self, own: BTreeSet<CameraId>, now: Mono) -> bool {
        let is_news = self.own.as_ref() != Some(&own);
        if is_news {
            self.own = Some(own);
            self.update(now);
        }
        is_news
    }

    /// What commands changed at a camera, as the fleet's store has it. True when the effective cameras may be others now.
    pub fn set_stored_of(&mut self, camera: &CameraId, stored: StoredOverrides, now: Mono) -> bool {
        let is_news = self.keeps_overrides() && self.overridden.stored(Some(camera)) != stored;
        if is_news {
            self.overridden.set_stored_of(camera, stored);
            self.update(now);
        }
        is_news
    }

    /// Executes a command that changes cameras. Returns the revision of a prompt whose text it set.
    pub fn execute(
        &mut self,
        command: &Command,
        now: Mono,
        wall: WallTime,
    ) -> Result<Option<u32>, Refusal> {
        if let Some(camera) = command.camera() {
            self.camera(camera)?;
        }
        match command {
            Command::SetMode { mode } => {
                if self.modes.choose(mode.as_ref(), wall)? {
                    self.change_base(true, now);
                }
            }
            Command::ResetOverrides { camera } => {
                let cameras = self.cameras.iter().map(|own| own.id.clone());
                let reset = cameras.filter(|id| camera.as_ref().is_none_or(|only| id == only));
                let reset: BTreeSet<CameraId> = reset.collect();
                self.overridden.reset(|id| reset.contains(id));
                self.unstored.extend(reset);
            }
            Command::Set { camera, .. } => {
                self.overridden.execute(command, now)?;
                self.unstored.insert(camera.clone());
            }
            _ => self.overridden.execute(command, now)?,
        }
        self.update(now);
        Ok(self.revision(command))
    }

    fn revision(&self, command: &Command) -> Option<u32> {
        let Command::Set {
            camera,
            setting: Setting::Text(id, _),
        } = command
        else {
            return None;
        };
        let mut prompts = self.camera(camera).ok()?.prompts.iter();
        Some(prompts.find(|prompt| prompt.id == *id)?.revision)
    }

    /// True when an override has ended, or a schedule has switched the mode or ended a choice.
    pub fn tick(&mut self, now: Mono, wall: WallTime) -> bool {
        let before = self.modes.stored().clone();
        if self.modes.update(wall) {
            self.change_base(true, now);
        }
        let is_due = self.overridden.next_at().is_some_and(|at| at <= now);
        if is_due {
            self.update(now);
        }
        is_due || *self.modes.stored() != before
    }

    fn is_own(&self, id: &CameraId) -> bool {
        self.own.as_ref().is_none_or(|own| own.contains(id))
    }

    fn keeps_overrides(&self) -> bool {
        self.file.mqtt.overrides == OverridePersistence::Keep
    }

    fn update(&mut self, now: Mono) {
        let mut cameras = self.overridden.cameras(now);
        cameras.retain(|camera| self.is_own(&camera.id));
        self.cameras = cameras;
    }

    /// The values below the overrides are others: those of the file, or the mode is another one, which is newer than all overrides.
    fn change_base(&mut self, is_switched: bool, now: Mono) {
        let mut discarded = Vec::new();
        if is_switched {
            let mode = self.mode().map_or(NO_MODE, ModeId::as_str);
            tracing::info!(mode, "mode switched");
            discarded = self.overridden.discard_named(self.modes.settings());
        }
        let base = self.modes.cameras(&self.file.cameras);
        discarded.extend(self.overridden.replace_file(base));
        for DiscardedOverride { was, file } in discarded {
            let (camera, field) = (&was.camera, was.now.field());
            let prompt = was.now.prompt().map(PromptId::as_str);
            let (discarded, file) = (&was.now, file.as_ref().map(tracing::field::debug));
            match is_switched {
                true => {
                    tracing::info!(%camera, prompt, field, ?discarded, "mode switched; run-time override discarded");
                }
                false => {
                    tracing::warn!(%camera, prompt, field, ?discarded, file, "configuration changed; run-time override discarded");
                }
            }
        }
        self.update(now);
    }
}
