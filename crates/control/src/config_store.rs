//! The configuration: the file as it was read last, its active mode, and the overrides that commands put over both.
//!
//! A value is the file's, unless the active mode has another one, unless a command set it since the mode became active.
//!
//! In a fleet, the cameras are those of the fleet's list, of which the node watches a part; what commands changed at a camera is in the fleet's
//! store, so that its next node knows it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    command::Command,
    modes::ModeSwitch,
    override_set::{Override, OverrideSet},
    prompt_rule::PromptRule,
    refusal::*,
    revisions::Revisions,
    settings::current_setting,
    stored_overrides::StoredOverrides,
    temporary::{AddedPrompt, RateBoost},
};
use spotter_config::{
    CameraConfig, Config, ConfigChange, OverridePersistence, PromptConfig, shapes_of,
    shapes_version, with_shapes,
};
use spotter_core::{
    AdapterId, CameraId, CameraShapes, ModeId, Mono, NO_MODE, NodeId, PromptId, Setting, WallTime,
};

/// What an executed command has to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeResult {
    Done,
    /// That of the prompt whose text it set.
    Revision(u32),
    /// That of the shapes which it set.
    ShapesVersion(String),
}

/// Another node of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetOwner {
    pub node: NodeId,
    /// Of its page.
    pub url: Option<String>,
}

/// A camera with its shapes.
#[derive(Clone, Debug)]
pub struct ShapesReport {
    /// Another node watches it.
    pub owner: Option<FleetOwner>,
    /// With the file's shapes.
    pub file: CameraConfig,
    /// With those in force, and the other overrides that are stored.
    pub now: CameraConfig,
    /// Width and height of the picture on which those in force were drawn; `None`: unknown, or they are the file's.
    pub drawn_size: Option<[u32; 2]>,
}

impl ShapesReport {
    /// Of the shapes in force: a command names it.
    pub fn version(&self) -> String {
        shapes_version(&shapes_of(&self.now))
    }
}

/// The file, the overrides over it and the cameras that result from both.
#[derive(Debug)]
pub struct ConfigStore {
    file: Config,
    modes: ModeSwitch,
    /// The file's cameras with the values of the active mode.
    base: Vec<CameraConfig>,
    overrides: OverrideSet,
    revisions: Revisions,
    added: Vec<AddedPrompt>,
    boosts: Vec<RateBoost>,
    /// What the model can answer.
    rule: PromptRule,
    /// Adapters that cannot be used now, with the reason.
    adapter_faults: BTreeMap<AdapterId, Arc<str>>,
    /// `None`: the node watches all cameras of its file.
    own: Option<BTreeSet<CameraId>>,
    /// The effective cameras of this node.
    cameras: Vec<CameraConfig>,
    /// As the stages have them.
    applied: Vec<CameraConfig>,
    /// Who watches the cameras that are not this node's, as far as it is known.
    owners: BTreeMap<CameraId, FleetOwner>,
    /// Cameras whose overrides the fleet's store does not have as they are now.
    unstored: BTreeSet<CameraId>,
}

impl ConfigStore {
    /// Continues with what an earlier run stored.
    pub fn new(file: Config, stored: StoredOverrides, now: Mono, wall: WallTime) -> Self {
        let mut modes = ModeSwitch::new(file.modes.clone(), stored.mode.unwrap_or_default());
        let is_switched = modes.update(wall);
        let own = file.fleet.is_some().then(BTreeSet::new);
        let mut store = Self {
            file,
            modes,
            base: Vec::new(),
            overrides: stored.overrides,
            revisions: Revisions::from_records(stored.revisions),
            added: Vec::new(),
            boosts: Vec::new(),
            rule: PromptRule::default(),
            adapter_faults: BTreeMap::new(),
            own,
            cameras: Vec::new(),
            applied: Vec::new(),
            owners: BTreeMap::new(),
            unstored: BTreeSet::new(),
        };
        store.change_base(is_switched, now);
        store
    }

    /// From now on, commands that set or add prompts which the model cannot answer are refused. Such overrides are discarded.
    pub fn set_prompt_rule(&mut self, rule: PromptRule, now: Mono) {
        self.rule = rule;
        self.change_base(false, now);
    }

    pub fn prompt_rule(&self) -> &PromptRule {
        &self.rule
    }

    /// The file's values, and in a fleet the list's, without overrides.
    pub fn file(&self) -> &Config {
        &self.file
    }

    /// The whole configuration with the overrides that are stored, in a fleet with all cameras of its list.
    pub fn effective(&self) -> Config {
        self.file.with_cameras(self.overridden())
    }

    /// The effective cameras that this node watches and publishes.
    pub fn cameras(&self) -> &[CameraConfig] {
        &self.cameras
    }

    /// A camera that this node watches. The refusal names the node that does.
    pub fn camera(&self, id: &CameraId) -> Result<&CameraConfig, Refusal> {
        let other = |_| match (find(&self.base, id), self.owners.get(id)) {
            (Ok(_), Some(FleetOwner { node, url })) => {
                let at = url
                    .as_ref()
                    .map_or(String::new(), |url| format!(" ({url})"));
                let text = format!("camera {id} is watched by node {node}{at}; change it there");
                Refusal::new(RefusalCode::UnknownCamera, text)
            }
            (Ok(_), None) => {
                let text = format!("no node of the fleet watches camera {id} now; try again later");
                Refusal::new(RefusalCode::UnknownCamera, text)
            }
            (Err(refusal), _) => refusal,
        };
        find(&self.cameras, id).map_err(other)
    }

    /// Sets which other nodes of the fleet watch cameras.
    pub fn set_owners(&mut self, owners: BTreeMap<CameraId, FleetOwner>) {
        self.owners = owners;
    }

    /// The node's cameras with the overrides that are stored, and without those that end by themselves.
    pub fn stored_cameras(&self) -> Vec<CameraConfig> {
        let mut cameras = self.overridden();
        cameras.retain(|camera| self.is_own(&camera.id));
        cameras
    }

    fn overridden(&self) -> Vec<CameraConfig> {
        let mut cameras = self.base.clone();
        self.overrides.apply(&mut cameras);
        cameras
    }

    /// The active mode; `None` when there is none.
    pub fn mode(&self) -> Option<&ModeId> {
        self.modes.active()
    }

    /// What commands set at the node's cameras.
    pub fn overrides(&self) -> impl Iterator<Item = &Override> {
        let all = self.overrides.as_slice().iter();
        all.filter(|change| self.is_own(&change.camera))
    }

    /// What is drawn on a camera of the file or the list, also on one of another node.
    pub fn shapes(&self, camera: &CameraId) -> Result<ShapesReport, Refusal> {
        let file = find(&self.base, camera)?.clone();
        let all = self.overridden();
        let now = find(&all, camera)?;
        let mut overrides = self.overrides.as_slice().iter();
        let drawn = overrides
            .find(|change| change.camera == *camera && matches!(change.now, Setting::Shapes(_)));
        Ok(ShapesReport {
            owner: (!self.is_own(camera))
                .then(|| self.owners.get(camera).cloned())
                .flatten(),
            drawn_size: drawn.and_then(|change| change.drawn_size),
            now: now.clone(),
            file,
        })
    }

    /// Width and height of the pictures on which shapes were drawn that are not the file's, as far as they are known.
    pub fn drawn_sizes(&self) -> impl Iterator<Item = (&CameraId, [u32; 2])> {
        let overrides = self.overrides.as_slice().iter();
        overrides.filter_map(|change| Some((&change.camera, change.drawn_size?)))
    }

    /// The values of each camera that a command may change, also those without a topic.
    pub fn all_settings(&self) -> Vec<(CameraId, Vec<Setting>)> {
        let cameras = self.stored_cameras().into_iter();
        let of = |camera: CameraConfig| {
            let mut settings = camera.changeable_settings();
            settings.push(Setting::Shapes(shapes_of(&camera)));
            (camera.id, settings)
        };
        cameras.map(of).collect()
    }

    /// The values of each camera that a command may change and that have a topic. Prompts that end by themselves are not among them.
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
            let mut stored = self.stored_of(None);
            stored.mode = Some(self.modes.stored().clone());
            stored
        })
    }

    /// Of one camera; `None` = of all.
    fn stored_of(&self, camera: Option<&CameraId>) -> StoredOverrides {
        StoredOverrides::new(self.overrides.of(camera), self.revisions.records(camera))
    }

    /// The own cameras whose overrides the fleet's store does not have as they are now. Each is returned once.
    pub fn take_unstored(&mut self) -> Vec<(CameraId, StoredOverrides)> {
        let unstored = std::mem::take(&mut self.unstored).into_iter();
        let own = unstored.filter(|id| self.is_own(id));
        own.map(|id| {
            let stored = self.stored_of(Some(&id));
            (id, stored)
        })
        .collect()
    }

    /// Takes over a file that needs no restart. An override whose value the file changed too is discarded.
    ///
    /// The active mode stays if the file has it. In a fleet, the cameras stay those of the list: it may be another one than when the file was read.
    pub fn replace_file(&mut self, mut file: Config, now: Mono, wall: WallTime) {
        if file.fleet.is_some() {
            file.cameras = std::mem::take(&mut self.file.cameras);
        }
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

    /// Sets which adapters cannot be used, with the reason: prompts that name them are not asked. True when they are others now.
    pub fn set_adapter_faults(&mut self, faults: BTreeMap<AdapterId, Arc<str>>, now: Mono) -> bool {
        let is_news = self.adapter_faults != faults;
        if is_news {
            self.adapter_faults = faults;
            self.update(now);
        }
        is_news
    }

    /// What commands changed at a camera, which may be unknown yet, as the fleet's store has it. True when the effective cameras may be others
    /// now.
    pub fn set_stored_of(&mut self, camera: &CameraId, stored: StoredOverrides, now: Mono) -> bool {
        let is_news = self.keeps_overrides() && self.stored_of(Some(camera)) != stored;
        if is_news {
            self.overrides.replace_camera(camera, &stored.overrides);
            self.revisions.replace_camera(camera, stored.revisions);
            if find(&self.base, camera).is_ok() {
                // One that was set over another revision of the list.
                self.overrides.rebase(&self.base, &self.rule);
            }
            self.update(now);
        }
        is_news
    }

    /// Executes a command that changes cameras; a refusal changes nothing.
    pub fn execute(
        &mut self,
        command: &Command,
        now: Mono,
        wall: WallTime,
    ) -> Result<ChangeResult, Refusal> {
        match command {
            Command::SetMode { mode } => {
                let is_switched = self.modes.choose(mode.as_ref(), wall)?;
                if is_switched {
                    self.change_base(true, now);
                }
            }
            Command::Set { camera, setting } => self.set(camera, setting)?,
            Command::SetShapes {
                camera,
                seen,
                shapes,
                size,
            } => self.set_shapes(camera, seen, shapes, *size)?,
            Command::ResetOverrides { camera } => {
                camera.as_ref().map(|id| self.camera(id)).transpose()?;
                let cameras = self.cameras.iter().map(|own| own.id.clone());
                let reset = cameras.filter(|id| camera.as_ref().is_none_or(|only| id == only));
                let reset: BTreeSet<CameraId> = reset.collect();
                self.overrides.reset(|id| reset.contains(id));
                self.unstored.extend(reset);
            }
            Command::Look {
                camera,
                lasting,
                rate,
            } => {
                self.camera(camera)?;
                self.boosts.retain(|other| other.camera != *camera);
                self.boosts.push(RateBoost {
                    camera: camera.clone(),
                    until: now.after(*lasting),
                    rate: *rate,
                });
            }
            Command::AddPrompt { camera, prompt } => {
                let cameras = self.stored_cameras();
                let camera = find(&cameras, camera)?;
                let added = AddedPrompt::new(camera, prompt.clone(), &self.added)?;
                let read = added.read(camera, &self.adapter_ids());
                self.require_fit(camera, &read.map_err(Refusal::bad_value)?)?;
                self.added.push(added);
            }
            Command::RemovePrompt { camera, prompt } => {
                let in_file = has_prompt(self.camera(camera)?, prompt);
                let place = self.added.iter().position(|added| added.is(camera, prompt));
                let place = place.ok_or_else(|| match in_file {
                    true => Refusal::new(
                        RefusalCode::Conflict,
                        format!(
                            "prompt {prompt} is the file's; it can be disabled, not taken away"
                        ),
                    ),
                    false => Refusal::no_prompt(camera, prompt),
                })?;
                self.added.remove(place);
            }
            _ => {}
        }
        self.update(now);
        Ok(self.change_result(command))
    }

    fn set(&mut self, id: &CameraId, setting: &Setting) -> Result<(), Refusal> {
        self.camera(id)?;
        let camera = find(&self.base, id)?;
        if current_setting(camera, setting).is_some() {
            if let Some(reason) = self.rule.unfit_setting(camera, setting) {
                return Err(Refusal::bad_value(reason));
            }
            self.overrides.set(camera, setting.clone(), None);
            self.unstored.insert(id.clone());
            return Ok(());
        }
        // A camera has each value of its own.
        let Some(prompt) = setting.prompt() else {
            return Ok(());
        };
        if has_prompt(camera, prompt) {
            let text = format!("prompt {prompt} is a caption, which has no text");
            return Err(Refusal::bad_value(text));
        }
        if self.added.iter().any(|added| added.is(id, prompt)) {
            let text =
                format!("prompt {prompt} was added for a while; take it away and add another");
            return Err(Refusal::new(RefusalCode::UnknownPrompt, text));
        }
        Err(Refusal::no_prompt(id, prompt))
    }

    fn set_shapes(
        &mut self,
        id: &CameraId,
        seen: &str,
        shapes: &CameraShapes,
        size: Option<[u32; 2]>,
    ) -> Result<(), Refusal> {
        self.camera(id)?;
        let now = shapes_of(find(&self.overridden(), id)?);
        let version = shapes_version(&now);
        if seen != version {
            let text = format!("the shapes of camera {id} were changed meanwhile; look at both");
            let refusal = Refusal::new(RefusalCode::Conflict, text);
            return Err(refusal.with(RefusalDetails::Shapes { now, version }));
        }
        let camera = find(&self.base, id)?;
        let mistaken = |errors: Vec<String>| {
            let refusal = Refusal::bad_value(errors.join("; "));
            refusal.with(RefusalDetails::Mistakes { errors })
        };
        let drawn = shapes_of(&with_shapes(camera, shapes).map_err(mistaken)?);
        // Two points may be one in the digits that are stored.
        with_shapes(camera, &drawn).map_err(mistaken)?;
        self.overrides.set(camera, Setting::Shapes(drawn), size);
        self.unstored.insert(id.clone());
        self.drop_added();
        Ok(())
    }

    /// Refuses a prompt that the model cannot answer.
    fn require_fit(&self, camera: &CameraConfig, prompt: &PromptConfig) -> Result<(), Refusal> {
        match self.rule.unfit_keys(camera, prompt).into_iter().next() {
            Some((key, reason)) => Err(Refusal::bad_value(format!("prompt.{key}: {reason}"))),
            None => Ok(()),
        }
    }

    fn change_result(&self, command: &Command) -> ChangeResult {
        let result = match command {
            Command::Set {
                camera,
                setting: Setting::Text(id, _),
            } => {
                let prompts = self
                    .camera(camera)
                    .map_or(&[][..], |camera| &camera.prompts);
                let prompt = prompts.iter().find(|prompt| prompt.id == *id);
                prompt.map(|prompt| ChangeResult::Revision(prompt.revision))
            }
            Command::SetShapes { camera, .. } => {
                let report = self.shapes(camera).ok();
                report.map(|report| ChangeResult::ShapesVersion(report.version()))
            }
            _ => None,
        };
        result.unwrap_or(ChangeResult::Done)
    }

    /// True when an override has ended, or a schedule has switched the mode or ended a choice.
    pub fn tick(&mut self, now: Mono, wall: WallTime) -> bool {
        let before = self.modes.stored().clone();
        if self.modes.update(wall) {
            self.change_base(true, now);
        }
        let is_due = self.boosts.iter().any(|boost| boost.until <= now);
        if is_due {
            self.update(now);
        }
        is_due || *self.modes.stored() != before
    }

    /// The adapters that prompts may name.
    pub fn adapter_ids(&self) -> Vec<AdapterId> {
        self.file.adapters.ids().cloned().collect()
    }

    fn is_own(&self, id: &CameraId) -> bool {
        self.own.as_ref().is_none_or(|own| own.contains(id))
    }

    fn keeps_overrides(&self) -> bool {
        self.file.mqtt.overrides == OverridePersistence::Keep
    }

    fn update(&mut self, now: Mono) {
        self.boosts.retain(|boost| now < boost.until);
        let mut cameras = self.overridden();
        let adapters = self.adapter_ids();
        for camera in &mut cameras {
            let added = self.added.iter().filter(|added| added.camera == camera.id);
            let added: Vec<_> = added
                .filter_map(|added| added.in_camera(camera, &adapters))
                .collect();
            camera.prompts.extend(added);
            for prompt in &mut camera.prompts {
                let adapter = prompt.adapter.as_ref();
                prompt.adapter_fault = adapter.and_then(|id| self.adapter_faults.get(id).cloned());
            }
            let mut boosts = self.boosts.iter();
            if let Some(boost) = boosts.find(|boost| boost.camera == camera.id) {
                boost.apply(camera);
            }
        }
        self.revisions.number(&mut cameras);
        cameras.retain(|camera| self.is_own(&camera.id));
        self.cameras = cameras;
    }

    /// The values below the overrides are others: those of the file, or the mode is another one, which is newer than all overrides.
    fn change_base(&mut self, is_switched: bool, now: Mono) {
        if is_switched {
            let mode = self.mode().map_or(NO_MODE, ModeId::as_str);
            tracing::info!(mode, "mode switched");
            self.overrides.discard_named(self.modes.settings());
        }
        self.base = self.modes.cameras(&self.file.cameras);
        self.overrides.rebase(&self.base, &self.rule);
        self.drop_added();
        let base = &self.base;
        self.boosts
            .retain(|boost| find(base, &boost.camera).is_ok());
        self.update(now);
    }

    /// An added prompt stays if its camera stays, with what it names and no prompt of the same name.
    fn drop_added(&mut self) {
        let (cameras, adapters) = (self.overridden(), self.adapter_ids());
        self.added.retain(|added| {
            find(&cameras, &added.camera).is_ok_and(|camera| {
                !added.is_in(camera) && added.in_camera(camera, &adapters).is_some()
            })
        });
    }
}

/// The camera that a command is about.
fn find<'a>(cameras: &'a [CameraConfig], id: &CameraId) -> Result<&'a CameraConfig, Refusal> {
    let known = cameras.iter().find(|camera| camera.id == *id);
    known.ok_or_else(|| Refusal::no_camera(id))
}

fn has_prompt(camera: &CameraConfig, prompt: &PromptId) -> bool {
    camera.prompts.iter().any(|known| known.id == *prompt)
}

#[cfg(test)]
pub(crate) mod tests;
