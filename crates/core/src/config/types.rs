//! The checked configuration: only valid values, nothing optional that has a default. Read by `load` and `check` alone.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    ApiConfig, Environment, FleetConfig, SourceConfig, TriggerConfig, WebhookConfig,
    keys::{KeyForm, model as keys},
};
use crate::{
    AdapterId, CameraId, DirectionId, LineId, LookRate, ModeId, NodeId, PromptId, PromptRegion,
    PromptText, PromptView, Setting, Share, StripShape, Task, ZoneId,
};

/// A login or key that cannot be printed: `Debug` shows `***` and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself. Call it where the text is handed to a library, never to format or store it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub node: NodeConfig,
    pub http: HttpConfig,
    /// `None`: off.
    pub api: Option<ApiConfig>,
    pub mqtt: MqttConfig,
    pub model: ModelSettings,
    /// `None`: a box with its own cameras.
    pub fleet: Option<FleetConfig>,
    /// `[webhook.*]`, in the order of the file.
    pub webhooks: Vec<WebhookConfig>,
    /// `[camera.*]`, in the order of the file; at least one, and none in a fleet, whose cameras are in its list.
    pub cameras: Vec<CameraConfig>,
    /// `[mode.*]`, in the order of the file; none in a fleet.
    pub modes: Vec<ModeConfig>,
    /// First 12 hex digits of the file's SHA-256, to tell configurations apart.
    pub hash: String,
}

impl Config {
    /// The same with other cameras.
    pub fn with_cameras(&self, cameras: Vec<CameraConfig>) -> Self {
        Self {
            cameras,
            ..self.clone()
        }
    }

    /// The most engines that have a use: a camera has one engine, and a fleet may have more cameras any time.
    pub fn engines_max(&self) -> usize {
        match self.fleet {
            Some(_) => usize::MAX,
            None => self.cameras.len(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct NodeConfig {
    /// Level of the topics; the host name by default.
    pub name: NodeId,
    /// Where state is kept; `auto` is systemd's `STATE_DIRECTORY`, else `$XDG_STATE_HOME/spotter` or `~/.local/state/spotter`.
    pub state_dir: PathBuf,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HttpConfig {
    /// Address to listen on; `None` = off. Default `127.0.0.1:9464`.
    pub listen: Option<std::net::SocketAddr>,
    /// Host names under which browsers call the page, beside those of this machine.
    pub names: Vec<String>,
}

/// The broker, and what is published there.
#[derive(Clone, Debug, PartialEq)]
pub struct MqttConfig {
    pub broker: BrokerAccess,
    /// First level of all topics; default `spotter`.
    pub base: String,
    /// Which commands are obeyed; default basic.
    pub commands: Commands,
    /// Besides topics below `base`, replies go to these topics and those below them.
    pub reply_topics: Vec<String>,
    /// Whether run-time changes survive a restart; default keep.
    pub overrides: OverridePersistence,
    /// The broker keeps the last picture of each prompt's events for later subscribers; default false.
    pub retain_snapshots: bool,
    /// What is kept while the broker is away.
    pub spool: SpoolConfig,
    pub ha: HomeAssistantConfig,
}

/// How a client reaches a broker and logs in.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerAccess {
    pub host: String,
    /// Port; 1883, with TLS 8883.
    pub port: u16,
    /// `None` = plain TCP.
    pub tls: Option<MqttTls>,
    pub user: Option<String>,
    pub password: Option<Secret>,
    pub version: MqttVersion,
    /// 0 or 1. With 0 nothing is acknowledged.
    pub max_qos: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MqttVersion {
    /// 5, or 3.1.1 where the broker does not accept 5.
    Auto,
    V5,
    V311,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MqttTls {
    /// PEM file of the authority; `None` = the machine's own list.
    pub ca: Option<PathBuf>,
    /// PEM file with our certificate, for mutual TLS.
    pub client_cert: Option<PathBuf>,
    /// PEM text of our key.
    pub client_key: Option<Secret>,
    /// The certificate is not checked. Warned at each start.
    pub insecure: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commands {
    Off,
    /// Only commands on the `/set` topics.
    Basic,
    /// Commands on the `/set` topics and on `cmd`.
    All,
}

/// Whether run-time changes survive a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverridePersistence {
    Keep,
    Forget,
}

/// Bounds of what is kept for the broker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpoolConfig {
    pub events: usize,
    pub max_age: Duration,
    /// Limit of the files on disk, in megabytes.
    pub max_mb: u64,
}

/// How Home Assistant learns of us.
#[derive(Clone, Debug, PartialEq)]
pub struct HomeAssistantConfig {
    /// Which kind of discovery message.
    pub discovery: Discovery,
    /// Its first topic level; default `homeassistant`.
    pub prefix: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// One message a device (Home Assistant 2024.11 and later).
    Device,
    Off,
}

/// Where frames lie that an NVIDIA GPU decodes for an engine on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FramePlace {
    /// They come to the host: unchanged tiles are found and not encoded again.
    Host,
    /// They stay on the GPU, and every tile is encoded.
    Gpu,
}

/// When a part of a picture counts as unchanged, so that it is not encoded again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReuseMode {
    /// It differs by less than the camera's noise.
    Auto,
    /// All of its bytes are equal.
    Exact,
    /// Never.
    Off,
}

/// Which model runs where. Its serde form goes to the processes of engines and is not that of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelSettings {
    pub source: ModelSource,
    /// True when no path is set and no model was fetched, so that the embedded model is the only one.
    pub is_stand_in: bool,
    pub device: DevicePreference,
    /// Indices of the GPUs, one engine each, of several each in a process of its own; default `[0]`.
    pub gpus: Vec<u32>,
    /// Default bf16.
    pub precision: PrecisionSetting,
    /// The most memory of a GPU that an engine may take, bytes; `None`: what is free, less a share for others.
    pub memory: Option<u64>,
    /// Receive to publish; older work is dropped. Default 250 ms with a GPU model, 1 s with the embedded one.
    pub budget: Duration,
    /// Objects a prompt may return; default 50.
    pub max_objects: u32,
    /// Where frames lie that an NVIDIA GPU decodes for the only engine, on a GPU; with several they come to the host. Default
    /// the host.
    pub frames: FramePlace,
    /// What is used again of a camera's picture that does not change.
    pub reuse: ReuseMode,
    /// A picture is encoded afresh after this time, also when it has not changed. Default 10 s.
    pub reuse_max_age: Duration,
    /// The adapters that looks may name, in the order of the file.
    pub adapters: Vec<AdapterConfig>,
}

/// A file that the model answers some looks with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterConfig {
    pub id: AdapterId,
    pub path: PathBuf,
}

impl ModelSettings {
    /// A model with every other setting at its default.
    pub fn of(source: ModelSource) -> Self {
        let budget = match source {
            // It runs on a small machine's CPU.
            ModelSource::Embedded => Duration::from_secs(1),
            ModelSource::Directory(_) => Duration::from_millis(250),
        };
        Self {
            source,
            is_stand_in: false,
            device: keys::DEVICE.form.default(),
            gpus: vec![0],
            frames: keys::FRAMES.form.default(),
            precision: keys::PRECISION.form.default(),
            memory: None,
            budget,
            max_objects: keys::MAX_OBJECTS.form.default() as u32,
            reuse: keys::REUSE.form.default(),
            reuse_max_age: keys::REUSE_MAX_AGE.form.default(),
            adapters: Vec::new(),
        }
    }

    /// The model that is used when no path is set: the fetched one, else the embedded one. Blocks on the disk.
    pub fn of_default(environment: &Environment) -> Self {
        match environment.fetched_model() {
            Some(directory) => Self::of(ModelSource::Directory(directory)),
            None => Self {
                is_stand_in: true,
                ..Self::of(ModelSource::Embedded)
            },
        }
    }
}

/// Where a model comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelSource {
    /// The demonstration model in the binary.
    Embedded,
    /// A directory with config.json, model.safetensors, tokenizer.json.
    Directory(PathBuf),
}

/// On what a model runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DevicePreference {
    /// The GPU when it works, else the CPU.
    Auto,
    Cpu,
    /// The GPU or nothing.
    Cuda,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuPrecision {
    Bf16,
    /// 8-bit products of many rows (compute capability 8.9 and newer).
    Fp8,
    /// 8-bit weights, and 8-bit products of many rows.
    Int8,
    /// The same with experts in 4 bits.
    Int4,
}

/// `None`: the fastest on the GPU that fits into its memory.
pub type PrecisionSetting = Option<GpuPrecision>;

impl GpuPrecision {
    /// As the file writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
        }
    }
}

/// One camera with everything filled in (from `[defaults]` where it has no value).
#[derive(Clone, Debug, PartialEq)]
pub struct CameraConfig {
    pub id: CameraId,
    /// It is watched: always in the file; a command can change it.
    pub enabled: bool,
    /// Where its pictures come from.
    pub source: SourceConfig,
    /// Looks a second at most; 0.01 to 30, default 1. The newest frame wins.
    pub rate: LookRate,
    /// Pictures are scaled to this width while decoding, aspect kept; never enlarged. Default 1280. With a prompt that has a region
    /// they are not scaled, see [`CameraConfig::frame_width`].
    pub width: u32,
    /// The most crops of a look at the whole picture or at a region; `None` = as many as the model's rule makes.
    pub crops_max: Option<u8>,
    /// No frame for so long = stalled; default 5 s.
    pub stall: Duration,
    /// Time from connecting to the first frame; default 15 s.
    pub first_frame: Duration,
    pub decode: Decode,
    pub motion: MotionConfig,
    /// Areas blacked out before the model, polygons in shares of the picture.
    pub mask: Vec<Vec<(f64, f64)>>,
    pub zones: Vec<ZoneConfig>,
    pub lines: Vec<LineConfig>,
    /// The camera is looked at while one of them is active; empty = always.
    pub triggers: Vec<TriggerConfig>,
    /// Address of its ONVIF service; `None` = the usual one on the host of its source.
    pub onvif_url: Option<String>,
    /// When the camera is looked at; `None` = always. Checked text such as `Mon-Fri 18:00-06:00 Europe/Berlin`.
    pub schedule: Option<WeeklySchedule>,
    /// Of the prompts that have no rules of their own.
    pub events: EventConfig,
    /// What is looked for; at least one.
    pub prompts: Vec<PromptConfig>,
}

impl CameraConfig {
    /// The zones in which the objects of a prompt are counted: those that it names, or all.
    pub fn zones_counted(&self, prompt: &PromptConfig) -> Vec<ZoneId> {
        let all = self.zones.iter().map(|zone| &zone.id);
        all.filter(|zone| prompt.zones.is_empty() || prompt.zones.contains(zone))
            .cloned()
            .collect()
    }

    /// The lines at which the objects of a prompt are counted: those that it names.
    pub fn lines_counted(&self, prompt: &PromptConfig) -> impl Iterator<Item = &LineConfig> {
        let all = self.lines.iter();
        all.filter(|line| prompt.lines.contains(&line.id))
    }

    /// Width to which frames are scaled while decoding; `None`: a prompt has a region or describes its objects, which are cut from the camera's
    /// own pixels.
    pub fn frame_width(&self) -> Option<u32> {
        let is_whole = |prompt: &PromptConfig| {
            prompt.region == PromptRegion::Whole && prompt.describe.is_none()
        };
        self.prompts.iter().all(is_whole).then_some(self.width)
    }

    /// How a prompt of this camera sees the picture.
    pub fn view_of(&self, prompt: &PromptConfig) -> PromptView {
        let is_query = matches!(prompt.task, Task::Query { .. });
        let strip = prompt.strip.filter(|_| is_query);
        PromptView {
            region: prompt.region,
            crops_max: prompt.crops_max,
            width_max: (prompt.region == PromptRegion::Whole && strip.is_none())
                .then_some(self.width),
            strip,
        }
    }

    /// The values that a command may change.
    pub fn changeable_settings(&self) -> Vec<Setting> {
        let mut settings = vec![
            Setting::Enabled(self.enabled),
            Setting::Rate(self.rate),
            Setting::MotionGate(self.motion.on),
        ];
        for prompt in &self.prompts {
            let id = || prompt.id.clone();
            settings.extend(prompt.text_setting());
            settings.extend([
                Setting::PromptEnabled(id(), prompt.enabled),
                Setting::MinScore(id(), prompt.min_score),
            ]);
        }
        settings
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decode {
    All,
    /// Key frames only: cheapest.
    KeyFrames,
}

/// The motion gate: frames without motion are not looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MotionConfig {
    pub on: bool,
    /// Share of the picture that must change.
    pub threshold: f64,
    /// The gate stays open so long after motion.
    pub hold: Duration,
    /// A look is taken at least so often, motion or not.
    pub at_least_every: Duration,
}

/// A named area of a camera's picture.
#[derive(Clone, Debug, PartialEq)]
pub struct ZoneConfig {
    pub id: ZoneId,
    /// Corners in shares of the picture, at least three, edges do not cross.
    pub polygon: Vec<(f64, f64)>,
    /// Which point of a box must lie inside.
    pub point: ZonePoint,
}

/// A named line in a camera's picture, at which objects are counted in two directions.
#[derive(Clone, Debug, PartialEq)]
pub struct LineConfig {
    pub id: LineId,
    /// In shares of the picture, at least two. The pieces between them do not touch, except at their common points.
    pub points: Vec<(f64, f64)>,
    /// From the left of the line to its right, seen along it from its first point; and back.
    pub directions: [DirectionId; 2],
    /// Which point of a box must cross.
    pub point: ZonePoint,
    /// When its counts return to 0; `None`: by a command only.
    pub reset: Option<WeeklyTime>,
}

/// Which point of a box decides whether it is in a zone or on which side of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZonePoint {
    /// Middle of the lower edge, where an object touches the ground.
    Bottom,
    Centre,
}

/// A prompt with its filters.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptConfig {
    pub id: PromptId,
    /// It is asked: always in the file; a command can change it.
    pub enabled: bool,
    /// Rises by one with each change of the words while Spotter runs; 1 in the file.
    pub revision: u32,
    pub task: Task,
    /// The part of the picture that it is about.
    pub region: PromptRegion,
    /// The most crops of its look; `None` = as many as the model's rule makes.
    pub crops_max: Option<u8>,
    /// Looks a second; at most the camera's.
    pub rate: LookRate,
    /// Found things below it are not reported; default 0.
    pub min_score: Share,
    /// Smaller boxes are not reported, share of the picture; default 0.
    pub min_area: f64,
    /// Only boxes in one of these zones count; empty = everywhere.
    pub zones: Vec<ZoneId>,
    /// Lines at which its objects are counted; empty = none.
    pub lines: Vec<LineId>,
    /// An object that is so long in a zone is reported.
    pub dwell: BTreeMap<ZoneId, Duration>,
    /// A picture of the best moment is published.
    pub snapshot: bool,
    /// Yes/no question asked before an event starts.
    pub verify: Option<String>,
    /// A question about the object of each event, asked when it starts; its answer is part of the event.
    pub describe: Option<String>,
    /// The question of `query` or `describe` is about a strip of several frames; `None`: about one frame.
    pub strip: Option<StripShape>,
    /// Life cycle of events, presence.
    pub events: EventConfig,
}

impl PromptConfig {
    /// Its words as a value that a command may change; `None`: it has none, as a caption.
    pub fn text_setting(&self) -> Option<Setting> {
        let text = PromptText::new(self.task.text()).ok()?;
        Some(Setting::Text(self.id.clone(), text))
    }
}

/// Hysteresis of presence and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventConfig {
    /// `confirm.0` of the last `confirm.1` looks must see it; default 2 of 3.
    pub confirm: (u32, u32),
    /// Unseen for so long = gone; default 3 s.
    pub end_after: Duration,
    /// Unmoved for so long = still; default 30 s.
    pub still_after: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeeklySchedule {
    /// True for days on which a span starts, Monday first.
    pub days: [bool; 7],
    /// Minutes after midnight; a span whose end is not after its start runs over midnight.
    pub from_minute: u16,
    /// In minutes after midnight, like `from_minute`.
    pub to_minute: u16,
    /// IANA name, e.g. Europe/Berlin.
    pub zone: String,
}

/// A time of day on some days of the week.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeeklyTime {
    /// Monday first.
    pub days: [bool; 7],
    /// Minutes after midnight.
    pub minute: u16,
    /// IANA name of the time zone.
    pub zone: String,
}

/// A named set of values that replace those of the cameras while it is active.
#[derive(Clone, Debug, PartialEq)]
pub struct ModeConfig {
    pub id: ModeId,
    /// When it is active by itself; `None` = by commands alone.
    pub schedule: Option<WeeklySchedule>,
    /// In the order of the file, a camera's own values before those of its prompts.
    pub settings: Vec<ModeSetting>,
}

/// A value of a camera in a mode.
#[derive(Clone, Debug, PartialEq)]
pub struct ModeSetting {
    pub camera: CameraId,
    pub setting: Setting,
}
