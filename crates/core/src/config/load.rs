//! From a path to a checked [`Config`], or to everything that is wrong with the file.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::{
    Config, ConfigProblem, ConfigProblems, Environment, Severity, api, camera,
    fleet::{ListRights, fleet},
    keys::root,
    modes,
    problem::Notes,
    reader::{ConfigValue, Reader},
    sections, syntax, webhook,
};

/// Version of the file's shape (`schema`).
const SCHEMA: u64 = 1;
/// No configuration is longer, in bytes.
const FILE_MAX_BYTES: u64 = 4 * 1024 * 1024;

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

/// What the configuration is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadPurpose {
    Run,
    Check,
    /// To check it where its secrets are not expected.
    CheckElsewhere,
}

/// What every section needs to know beside its table.
pub(super) struct Scope<'a> {
    pub(super) environment: &'a Environment,
    /// Directory of the file: relative paths in it start there.
    pub(super) dir: PathBuf,
    pub(super) purpose: ReadPurpose,
    /// `allow_plain_secrets`, off by default: passwords may stand in the file.
    pub(super) allow_plain_secrets: bool,
    /// Below which the topics of this node are; `None`: not known here.
    pub(super) own_topics: Option<String>,
    /// There is a local API; also where that is not known.
    pub(super) has_api: bool,
    /// What the text may name; `None`: it is the box's own file.
    pub(super) list: Option<&'a ListRights>,
}

impl<'a> Scope<'a> {
    pub(super) fn new(environment: &'a Environment, dir: &Path, purpose: ReadPurpose) -> Self {
        Self {
            environment,
            dir: dir.to_owned(),
            purpose,
            allow_plain_secrets: false,
            own_topics: None,
            has_api: true,
            list: None,
        }
    }

    /// A path of the file, relative ones seen from the file's directory.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        self.dir.join(text)
    }

    /// Notes that a fleet's list has no right to `value`. The boxes refuse the camera; an operator who applies the list does not know their files.
    pub(super) fn forbidden(&self, value: &ConfigValue<'_>, text: String) {
        let severity = match self.purpose {
            ReadPurpose::Run => Severity::Error,
            ReadPurpose::Check | ReadPurpose::CheckElsewhere => Severity::Warning,
        };
        value.add(severity, text);
    }

    /// Notes that something which `value` names is not on this machine.
    pub(super) fn absent(&self, value: &ConfigValue<'_>, text: String) {
        let severity = match self.purpose {
            ReadPurpose::Run => Severity::Error,
            ReadPurpose::Check => Severity::Warning,
            ReadPurpose::CheckElsewhere => return,
        };
        value.add(severity, text);
    }
}

fn read(
    path: &Path,
    environment: &Environment,
    purpose: ReadPurpose,
) -> Result<LoadedConfig, ConfigProblems> {
    let file = path.display().to_string();
    let bytes = read_bytes(path).map_err(|error| {
        let text = format!("cannot be read: {error}; name a configuration file");
        let problem = ConfigProblem {
            file: file.clone(),
            place: None,
            key: String::new(),
            text,
            severity: Severity::Error,
        };
        ConfigProblems::new(&file, vec![problem])
    })?;
    let dir = path.parent().unwrap_or(Path::new(""));
    read_text(&file, &bytes, Scope::new(environment, dir, purpose))
}

/// Reads the bytes of a file that is called `file` in messages.
pub(super) fn read_text(
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

fn read_root(mut root: Reader<'_>, mut scope: Scope<'_>, hash: String) -> Option<Config> {
    check_schema(&mut root);
    scope.allow_plain_secrets = root.read_or_default(&root::ALLOW_PLAIN_SECRETS);

    let node = sections::node(&scope, root.table(&root::NODE));
    let http = sections::http(root.table(&root::HTTP));
    let api = api::api(&scope, &mut root, http.listen);
    scope.has_api = root.get(&root::API).is_some();
    let mqtt = sections::mqtt(&scope, &mut root);
    let model = sections::model(&scope, &mut root);
    let base = mqtt.as_ref().map(|mqtt| &mqtt.base);
    scope.own_topics = base.map(|base| format!("{base}/{}", node.name));
    let fleet = fleet(&scope, &mut root, &node.name);
    let (cameras, modes) = match root.get(&root::FLEET) {
        Some(_) => (camera::no_cameras(&mut root), modes::no_modes(&mut root)),
        None => (camera::cameras(&scope, &mut root), modes::modes(&mut root)),
    };
    let watched = fleet.is_none().then_some(cameras.as_slice());
    let webhooks = webhook::webhooks(&scope, &mut root, watched);
    root.finish();
    Some(Config {
        node,
        http,
        api,
        mqtt: mqtt?,
        model,
        fleet,
        webhooks,
        cameras,
        modes,
        hash,
    })
}

pub(super) fn check_schema(root: &mut Reader<'_>) {
    if let Some(value) = root.get(&root::SCHEMA)
        && value
            .whole(0..=u64::MAX)
            .is_some_and(|schema| schema != SCHEMA)
    {
        value.error(format!("this version reads schema {SCHEMA} only"));
    }
}

/// First 12 hex digits of the SHA-256.
fn hash(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path)?;
    let count = file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if count as u64 > FILE_MAX_BYTES {
        return Err(io::Error::other(format!(
            "longer than {FILE_MAX_BYTES} bytes"
        )));
    }
    Ok(bytes)
}
