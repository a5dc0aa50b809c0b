//! What the node publishes about itself: information, configuration, settings, Home Assistant discovery.

use super::stage::Handles;
use spotter_config::{self as config, CameraConfig, Config, ConfigChange, Environment};
use spotter_control::ConfigStore;
use spotter_core::{CameraId, Mono, PromptId, Setting, WallTime};
use spotter_engine::open::ModelCard;
use spotter_mqtt::{
    Announcer, CameraInfo, ConfigReport, DaemonInfo, Identity, Info, ModelInfo, RequestHead, Update,
};
use spotter_state::Document;

/// Publishes the topics of the node itself.
pub struct NodeReporter {
    handles: Handles,
    announcer: Announcer,
    info: Info,
    config: ConfigReport,
}

impl NodeReporter {
    pub fn new(identity: &Identity, info: Info, handles: Handles) -> Self {
        let listed = handles.state.get(Document::RetainedTopics);
        Self {
            announcer: Announcer::new(listed.as_deref(), identity.machine()),
            config: ConfigReport::new(String::new(), handles.clock.wall(), Vec::new()),
            info,
            handles,
        }
    }

    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The last report of the configuration.
    pub fn config(&self) -> &ConfigReport {
        &self.config
    }

    /// Publishes what is different: discovery, information, and the values that commands may change.
    pub fn apply(&mut self, change: &ConfigChange, config: &ConfigStore) {
        // Another file may have other modes.
        if change.has_other_topics() || self.info.config_hash != config.file().hash {
            // After the last states of removed cameras, which this clears.
            self.announce(config);
        }
        self.publish_settings(config);
    }

    /// Publishes the node's information and the values that commands may change, as far as they are not published.
    pub fn publish_settings(&mut self, config: &ConfigStore) {
        let file = config.file();
        self.info.cams = camera_infos(config.cameras());
        self.info.config_hash.clone_from(&file.hash);
        self.info.features = config::advice::insecure_features(file);
        self.info.overrides = config.overrides().count() as u32;
        self.publish_info();
        // Unchanged values are not sent again.
        for (camera, settings) in config.settings() {
            for setting in settings {
                self.publish_setting(camera.clone(), setting, false);
            }
        }
        self.publish_mode(config, false);
    }

    /// Publishes the discovery records, and clears those on the broker that are not valid any more.
    pub fn announce(&mut self, config: &ConfigStore) {
        let stored = config.file().with_cameras(config.stored_cameras());
        // Entities for the figures of a GPU only where there is one.
        let has_gpu = !self.info.gpus.is_empty();
        let (publisher, cameras) = (&self.handles.publisher, config.cameras());
        let topics = publisher.topics();
        let updates = self.announcer.announce(&topics, &stored, cameras, has_gpu);
        updates
            .into_iter()
            .for_each(|update| publisher.publish(update));
        self.store_topics();
    }

    /// Before the broker can have a topic that is not on the stored list for long.
    fn store_topics(&mut self) {
        if let Some(list) = self.announcer.take_unstored() {
            self.handles.state.put(Document::RetainedTopics, list);
        }
    }

    /// Other nodes of the fleet publish these cameras now, or are about to: their topics are not cleared. To be called before
    /// [`apply`](Self::apply) without them.
    pub fn cameras_moved(&mut self, cameras: &[CameraId]) {
        self.announcer.cameras_moved(cameras);
    }

    /// The GPUs in use are others now.
    pub fn gpus_changed(&mut self, gpus: Vec<String>) {
        self.info.gpus = gpus;
        self.publish_info();
    }

    /// Publishes the effective value that a request names, the mode or a setting, also when the request changed nothing: its sender shows
    /// another value.
    pub fn confirm(&self, config: &ConfigStore, head: &RequestHead) {
        if head.op == "mode_set" {
            self.publish_mode(config, true);
        }
        let is_named = |setting: &Setting| {
            Some(setting.field()) == head.field
                && setting.prompt().map(PromptId::as_str) == head.prompt.as_deref()
        };
        let settings = config.settings().into_iter();
        let of_camera = settings.filter(|(id, _)| Some(id.as_str()) == head.camera.as_deref());
        for (camera, settings) in of_camera {
            if let Some(setting) = settings.into_iter().find(is_named) {
                self.publish_setting(camera, setting, true);
            }
        }
    }

    /// Publishes whether the last configuration that was read is the running one: `errors` says why not.
    pub fn report_config(&mut self, config: &ConfigStore, errors: Vec<String>) {
        let hash = config.file().hash.clone();
        let report = ConfigReport::new(hash, self.handles.clock.wall(), errors);
        self.config = report.clone();
        self.handles.publisher.publish(Update::Config(report));
    }

    pub fn home_assistant_started(&mut self) {
        tracing::info!("Home Assistant restarted; discovery records published again");
        self.announcer
            .home_assistant_started(self.handles.clock.now());
    }

    /// Once a second.
    pub fn tick(&mut self, now: Mono) {
        self.announcer.tick(&self.handles.publisher, now);
        self.store_topics();
    }

    fn publish_info(&self) {
        self.handles
            .publisher
            .publish(Update::Info(self.info.clone()));
    }

    /// Nothing without modes.
    fn publish_mode(&self, config: &ConfigStore, again: bool) {
        let mode = config.mode().cloned();
        if !config.file().modes.is_empty() {
            self.handles.publisher.publish(Update::Mode { mode, again });
        }
    }

    fn publish_setting(&self, camera: CameraId, setting: Setting, again: bool) {
        self.handles.publisher.publish(Update::Setting {
            camera,
            setting,
            again,
        });
    }
}

/// The node's information. `config`: the effective configuration.
pub fn node_info(
    config: &Config,
    identity: &Identity,
    card: &ModelCard,
    started: WallTime,
) -> Info {
    Info {
        daemon: DaemonInfo {
            name: "spotter".into(),
            version: env!("CARGO_PKG_VERSION").into(),
        },
        boot: identity.boot.to_string(),
        started_ms: started.unix_millis(),
        host: Environment::process().host_name().to_owned(),
        gpus: Vec::new(),
        model: Some(ModelInfo {
            name: card.name.to_string(),
            family: card.family.to_string(),
            sha256: card.sha256.clone(),
            precision: card.precision.to_string(),
            object_limit: card.max_objects,
        }),
        cams: camera_infos(&config.cameras),
        config_hash: config.hash.clone(),
        overrides: 0,
        features: config::advice::insecure_features(config),
    }
}

fn camera_infos(cameras: &[CameraConfig]) -> Vec<CameraInfo> {
    let info = |camera: &CameraConfig| CameraInfo {
        id: camera.id.to_string(),
        prompts: camera.prompts.iter().map(|p| p.id.to_string()).collect(),
        zones: camera.zones.iter().map(|z| z.id.to_string()).collect(),
        lines: camera
            .lines
            .iter()
            .map(|line| line.id.to_string())
            .collect(),
        triggers: camera
            .triggers
            .iter()
            .map(|trigger| trigger.id.to_string())
            .collect(),
        rate: camera.rate.hz(),
    };
    cameras.iter().map(info).collect()
}
