//! From a path to a checked [`Config`], or to everything that is wrong with the file.

use std::path::Path;

use sha2::{Digest, Sha256};

use crate::{
    forms::{environment::Environment, prelude::*, scope::ReadPurpose},
    read::{prelude::*, problem::*, syntax},
    tables::{
        adapter::*, api::*, camera::*, fleet::*, history::*, http::*, mode::*, model::*, mqtt::*,
        node::*, webhook::*,
    },
};
use spotter_core::{AdapterId, ModeId, WebhookId, read_bounded};

/// Version of the file's shape.
const SCHEMA: i128 = 1;
/// No configuration is longer, in bytes.
const FILE_MAX_BYTES: u64 = 4 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub node: NodeConfig,
    pub http: HttpConfig,
    /// `None`: off.
    pub api: Option<ApiConfig>,
    /// `None`: no event is stored.
    pub history: Option<HistoryConfig>,
    pub mqtt: MqttConfig,
    pub model: ModelSettings,
    pub adapters: AdapterSettings,
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
}

/// A checked configuration with the warnings of each start.
#[derive(Debug)]
pub struct LoadedConfig {
    pub config: Config,
    /// Sorted by their line in the file.
    pub warnings: Vec<ConfigProblem>,
}

/// Reads the file to run with it. Everything it names on this machine must be there: secrets, certificates, models.
/// Blocks on the disk.
pub fn load(path: &Path, environment: &Environment) -> Result<LoadedConfig, ConfigProblems> {
    read(path, environment, ReadPurpose::Run)
}

/// Reads the file to check it, perhaps on another machine than the one it is for: a secret, certificate or model
/// that is not here is a warning, and the secret is left out of the result. Blocks on the disk.
pub fn check(path: &Path, environment: &Environment) -> Result<LoadedConfig, ConfigProblems> {
    read(path, environment, ReadPurpose::Check)
}

/// Reads a configuration that a program wrote and that is in no file, called `name` in messages; relative paths in it start at the
/// working directory.
pub fn of_text(
    name: &str,
    text: &str,
    environment: &Environment,
) -> Result<LoadedConfig, ConfigProblems> {
    let scope = Scope::new(environment, Path::new(""), ReadPurpose::Run);
    read_text(name, text.as_bytes(), scope)
}

fn read(
    path: &Path,
    environment: &Environment,
    purpose: ReadPurpose,
) -> Result<LoadedConfig, ConfigProblems> {
    let file = path.display().to_string();
    let bytes = read_bounded(path, FILE_MAX_BYTES).map_err(|error| {
        let text = format!("cannot be read: {error}; name a configuration file");
        ConfigProblems::of_file(&file, text)
    })?;
    let dir = path.parent().unwrap_or(Path::new(""));
    read_text(&file, &bytes, Scope::new(environment, dir, purpose))
}

/// Reads the bytes of a file that is called `file` in messages.
pub(crate) fn read_text(
    file: &str,
    bytes: &[u8],
    scope: Scope<'_>,
) -> Result<LoadedConfig, ConfigProblems> {
    let text = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let notes = Notes::new(file, text);
    let config = if text.len() < bytes.len() {
        let problem = "not TOML: contains bytes that are not UTF-8";
        notes.error(&(text.len()..text.len()), "", problem);
        None
    } else {
        syntax::parse(&notes, text).and_then(|document| {
            let root = Reader::new(&notes, "", 0..0, Some(document.get_ref()));
            read_root(root, scope, hash(bytes))
        })
    };
    match (config, notes.into_result()) {
        (Some(config), Ok(warnings)) => Ok(LoadedConfig { config, warnings }),
        (_, Err(problems)) => Err(problems),
        // A reader that gives nothing has noted why; should one ever not, the empty list still stops the start.
        (None, Ok(_)) => Err(ConfigProblems::new(file, Vec::new())),
    }
}

/// Reads the tables of a file. `hash`: that of the file.
pub(super) fn read_root(
    mut root: Reader<'_>,
    mut scope: Scope<'_>,
    hash: String,
) -> Option<Config> {
    check_schema(&mut root);
    keys! { root;
        /// Accepts passwords and keys as plain text in this file, with a warning at each start.
        allow_plain_secrets = flag().or(false), "allow_plain_secrets = true";
        /// This machine.
        node = sub_table("see `[node]`"), "[node]";
        /// Status page, metrics and health.
        http = sub_table("see `[http]`"), "[http]";
        /// HTTP API for pictures of other programs.
        api = optional_table("table", "off"), "[api]";
        /// Events and their pictures on disk.
        history = optional_table("table", "off"), "[history]";
        /// The broker.
        mqtt = optional_table("table", "required"), "[mqtt]";
        /// The model and its device.
        model = sub_table("see `[model]`"), "[model]";
        /// Adapters of the model, which prompts and requests of the API name. Names as those of cameras.
        adapter = tables(AdapterId::new, "adapter", "none"), "[adapter.plates]";
        /// Receivers of events over HTTP. The name in the header is the webhook's id: 1 to 32 characters of a-z 0-9 _ -.
        webhook = tables(WebhookId::new, "webhook", "none"), "[webhook.door]";
        /// Boxes that share cameras; then the file has no cameras.
        fleet = optional_table("table", "see `[fleet]`"), "[fleet]";
        /// Named sets of values for cameras and prompts, of which one or none is active. Names as those of cameras.
        mode = tables(ModeId::new, "mode", "none"), "[mode.night]";
    }
    scope.allow_plain_secrets = allow_plain_secrets;
    scope.has_api = root.given("api").is_some();
    scope.adapters = Some(adapter.iter().map(|(id, _)| id.clone()).collect());
    let is_in_fleet = root.given("fleet").is_some();

    let node = self::node(&scope, node);
    let http = self::http(&scope, http);
    let api = api.map(|table| self::api(&scope, table, http.listen));
    let history = history.map(self::history);
    if root.given("mqtt").is_none() {
        let text = "no broker; add [mqtt] with url = \"mqtt://HOST\"";
        root.error(text);
    }
    let mqtt = mqtt.and_then(|table| self::mqtt(&scope, table));
    let (model, adapter_limit) = self::model(&scope, model);
    let adapters = adapters(&scope, adapter, adapter_limit);
    let base = mqtt.as_ref().map(|mqtt| &mqtt.base);
    scope.own_topics = base.map(|base| format!("{base}/{}", node.name));
    let fleet = fleet.and_then(|table| self::fleet(&scope, table, &node.name));
    let cameras = match is_in_fleet {
        true => no_cameras(&mut root),
        false => cameras(&mut root, |id, table, base| camera(&scope, id, table, base)),
    };
    let modes = mode.into_iter().filter(|_| !is_in_fleet);
    let modes = modes
        .map(|(id, table)| self::mode(&root, id, table))
        .collect();
    let watched = (!is_in_fleet).then_some(cameras.as_slice());
    let read = |(id, table)| self::webhook(&scope, id, table, watched);
    let webhooks = webhook.into_iter().filter_map(read).collect();
    root.finish();
    Some(Config {
        node,
        http,
        api,
        history,
        mqtt: mqtt?,
        model,
        adapters,
        fleet,
        webhooks,
        cameras,
        modes,
        hash,
    })
}

/// In a fleet, a node has no cameras of its own, and none that a mode could change.
fn no_cameras(root: &mut Reader<'_>) -> Vec<CameraConfig> {
    let of_list = "write it to the fleet's list with `spotter fleet apply FILE`";
    let of_mode = "a mode changes cameras of this file, and those of a fleet are in its list; \
        remove it and send commands to the fleet's topics instead";
    for (key, remedy) in [
        ("defaults", of_list),
        ("camera", of_list),
        ("mode", of_mode),
    ] {
        if let Some(value) = root.get(key) {
            value.error(format!("not together with [fleet]: {remedy}"));
        }
    }
    Vec::new()
}

/// Reads the version, which is the one key with no meaning but its range.
pub(super) fn check_schema(root: &mut Reader<'_>) {
    keys! { root in "The top of the file", "Keys above the first table.", "schema = 1";
        /// Version of the file format. This version of Spotter reads schema 1 only.
        schema = Form::new("`1`", |value| whole(SCHEMA..=SCHEMA, "").read(value)).or_as("`1`", SCHEMA), "schema = 1";
    }
    _ = schema;
}

/// First 12 hex digits of the SHA-256.
fn hash(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
