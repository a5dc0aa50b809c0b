//! The three files of a model, in a directory or in the binary, become a model that a backend can take over.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{
    calibration::CalibrationState,
    config::ModelConfigError,
    families::{FAMILIES, FamilyClues, named},
    family::{ConfigFile, ModelConfig, ModelFamily, ModelFile},
    source::{TensorSource, WeightsFile, listed},
    tensor::WeightsError,
    tokenizer::{Tokenizer, TokenizerError},
    weights::Weights,
};
use spotter_config::ModelSource;
use spotter_core::{FileMismatch, ModelRecord, ModelRecordError, read_short_file};

/// Longest index of shards that is read, bytes.
const INDEX_MAX_BYTES: u64 = 4 << 20;
/// Hex digits of the weights' hash in a model's name.
const NAME_DIGITS: usize = 4;

/// Why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The text says which file is missing or wrong and what to do.
    #[error("{0}")]
    Files(String),
    #[error(transparent)]
    Config(#[from] ModelConfigError),
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    Record(#[from] ModelRecordError),
}

/// A model whose weights can be read.
#[derive(Clone, Debug)]
pub struct LoadedModel {
    /// Short name for messages: the directory's name, or `embedded`, and the first digits of the hash of the weights,
    /// as in `moondream-2b@9f3c`.
    pub name: String,
    /// SHA-256 of the file of the weights, hex; of shards, that of their hashes.
    pub weights_sha256: String,
    /// Dimensions and token ids.
    pub config: ModelConfig,
    /// Every tensor, in the file.
    pub weights: Weights,
    pub tokenizer: Tokenizer,
    /// What the user's pictures showed of its layers.
    pub calibration: CalibrationState,
    /// Its `model.toml`.
    pub record: Option<ModelRecord>,
    /// True when no `model.toml` says which files these should be: only a look can show whether they fit together.
    pub is_unknown: bool,
    /// The embedded demonstration model.
    pub is_embedded: bool,
}

/// The files of a model, found but not read.
struct ModelFiles {
    label: String,
    /// `None` for a model with the built-in values of its family.
    config: Option<FileBytes>,
    weights: WeightsPlace,
    tokenizer: FileBytes,
    record: FileRecord,
}

/// Where the weights are.
enum WeightsPlace {
    Embedded(&'static str, &'static [u8]),
    /// One file, or the shards of a model in order.
    Files(Vec<PathBuf>),
}

/// What is known about the files beforehand.
enum FileRecord {
    /// They are in the binary.
    Embedded,
    /// The directory has no `model.toml`.
    Unknown,
    /// It may name no files, but maps of scores alone.
    Recorded {
        directory: PathBuf,
        record: ModelRecord,
    },
}

enum FileBytes {
    Path(PathBuf),
    Static(&'static str, &'static [u8]),
}

/// Finds a model, reads and checks its files. Blocks on the disk, for seconds with a released Moondream 2. Its weights stay in the
/// file, from which a backend reads them.
pub fn load_model(source: &ModelSource) -> Result<LoadedModel, ModelError> {
    ModelFiles::find(source)?.load()
}

/// Checks that all files of a model exist, that its configuration and tokenizer are valid, and that the weights have all tensors in their
/// shapes; reads no weights. Blocks on the disk.
pub fn check_model(source: &ModelSource) -> Result<(), ModelError> {
    let files = ModelFiles::find(source)?;
    let config = files.dimensions()?;
    files.tokenizer(&config)?;
    Ok(files.weights(&config).map(drop)?)
}

/// The dimensions of a model, from its configuration alone. All its files must be there. Blocks on the disk.
pub fn model_config(source: &ModelSource) -> Result<ModelConfig, ModelError> {
    ModelFiles::find(source)?.dimensions()
}

/// The tokenizer of a model with these dimensions. Blocks on the disk.
pub fn model_tokenizer(
    source: &ModelSource,
    config: &ModelConfig,
) -> Result<Tokenizer, ModelError> {
    ModelFiles::find(source)?.tokenizer(config)
}

impl ModelFiles {
    /// Looks whether the files are there; all missing ones are named together.
    fn find(source: &ModelSource) -> Result<Self, ModelError> {
        match source {
            ModelSource::Embedded => Ok(Self::embedded()),
            ModelSource::Directory(directory) => Self::in_directory(directory),
        }
    }

    /// Reads and checks everything. Blocks on the disk.
    fn load(&self) -> Result<LoadedModel, ModelError> {
        let config = self.dimensions()?;
        let tokenizer = self.tokenizer(&config)?;
        // Reads the header alone.
        let weights = self.weights(&config);
        let weights_sha256 = self.weights_sha256()?;
        let weights = weights?;
        Ok(LoadedModel {
            calibration: self.calibration(&weights_sha256, &config),
            name: format!("{}@{}", self.label, &weights_sha256[..NAME_DIGITS]),
            weights_sha256,
            config,
            weights,
            tokenizer,
            record: self.record.record().cloned(),
            is_unknown: self.record.is_unknown(),
            is_embedded: matches!(self.record, FileRecord::Embedded),
        })
    }

    fn calibration(&self, weights_sha256: &str, config: &ModelConfig) -> CalibrationState {
        match &self.weights {
            WeightsPlace::Files(files) => {
                let directory = files.first().and_then(|file| file.parent());
                CalibrationState::of(directory.unwrap_or(Path::new(".")), weights_sha256, config)
            }
            WeightsPlace::Embedded(..) => CalibrationState::Missing,
        }
    }

    fn dimensions(&self) -> Result<ModelConfig, ModelError> {
        let (json, origin) = match &self.config {
            Some(file) => (self.read_checked(file)?, file.origin()),
            None => (
                Cow::Borrowed(b"{}".as_slice()),
                "built-in values".to_owned(),
            ),
        };
        // A damaged file is named when it is loaded.
        let tensors = self
            .weights
            .open()
            .map(|file| file.names().map(str::to_owned).collect());
        let tensors: Vec<String> = tensors.unwrap_or_default();
        let clues = FamilyClues {
            recorded: self.record.record().map(|record| record.model.as_str()),
            config: ConfigFile {
                json: &String::from_utf8_lossy(&json),
                origin: &origin,
                tensors: &tensors,
            },
        };
        Ok(clues.parse()?)
    }

    /// Each file must be the recorded one.
    fn weights_sha256(&self) -> Result<String, ModelError> {
        let mut hashes = Vec::new();
        for file in self.weights.files() {
            let hash = file.sha256()?;
            self.record.check_sha256(&file, &hash)?;
            hashes.push(hash);
        }
        match hashes.as_slice() {
            [hash] => Ok(hash.clone()),
            hashes => Ok(hex(&Sha256::digest(hashes.concat()))),
        }
    }

    /// The model inside of the binary: a small network trained on the drawn street (`models/embedded`).
    fn embedded() -> Self {
        Self {
            label: "embedded".into(),
            config: Some(FileBytes::Static(
                "embedded config.json",
                include_bytes!("../../../../models/embedded/config.json"),
            )),
            weights: WeightsPlace::Embedded(
                "embedded model.safetensors",
                include_bytes!("../../../../models/embedded/model.safetensors"),
            ),
            tokenizer: FileBytes::Static(
                "embedded tokenizer.json",
                include_bytes!("../../../../models/embedded/tokenizer.json"),
            ),
            record: FileRecord::Embedded,
        }
    }

    fn in_directory(directory: &Path) -> Result<Self, ModelError> {
        let missing = |problems: Vec<String>| {
            let text = format!(
                "no model in {}: {}; `spotter model get` fetches all files of a model",
                directory.display(),
                problems.join("; ")
            );
            ModelError::Files(text)
        };
        if !directory.is_dir() {
            return Err(missing(vec![
                "it is not a directory; model.path must name one with config.json, model.safetensors and tokenizer.json"
                    .into(),
            ]));
        }
        let record = FileRecord::of(directory)?;
        let [config, weights, tokenizer] = files_of(directory, record.record());
        let found = |file: &ModelFile| match file.find(directory) {
            None if file.is_required => {
                let names = [&[file.name], file.others].concat().join(" or ");
                Err(format!("{names} is missing ({})", file.remedy))
            }
            path => Ok(path),
        };
        let files = [&config, &weights, &tokenizer].map(found);
        let (config, weights, tokenizer) = match files {
            [Ok(config), Ok(Some(weights)), Ok(Some(tokenizer))] => (config, weights, tokenizer),
            files => return Err(missing(files.into_iter().filter_map(Result::err).collect())),
        };
        let found = Self {
            label: label(directory),
            config: config.map(FileBytes::Path),
            weights: WeightsPlace::at(weights)?,
            tokenizer: FileBytes::Path(tokenizer),
            record,
        };
        let files = found.config.iter().chain([&found.tokenizer]);
        for file in files {
            found.record.check_size(file)?;
        }
        for file in found.weights.files() {
            found.record.check_size(&file)?;
        }
        Ok(found)
    }

    /// The content of a small file, which must be the recorded one.
    fn read_checked(&self, file: &FileBytes) -> Result<Cow<'static, [u8]>, ModelError> {
        let bytes = file.read()?;
        if let FileRecord::Recorded { .. } = self.record {
            let sha256 = hex(&Sha256::digest(&bytes));
            self.record.check_sha256(file, &sha256)?;
        }
        Ok(bytes)
    }

    fn tokenizer(&self, config: &ModelConfig) -> Result<Tokenizer, ModelError> {
        let file = self.tokenizer.origin();
        let tokenizer = Tokenizer::from_bytes(&self.read_checked(&self.tokenizer)?, &file)?;
        tokenizer.check_vocabulary(config.text.vocab_size, &file)?;
        let expected = config.tokenizer.eos_id;
        let [_, _, remedy] = config.family.files().map(|file| file.remedy);
        let token = config.family.end_of_text();
        match tokenizer.id(token) {
            // The released repository has such a file.
            Some(found) if found != expected => Err(ModelError::Files(format!(
                "{file} is of another model: its {token} is {found}, config.json says {expected}; {remedy}"
            ))),
            _ => Ok(tokenizer),
        }
    }

    fn weights(&self, config: &ModelConfig) -> Result<Weights, WeightsError> {
        let file = self.weights.open()?;
        let mut file = file.renamed(&|name| config.family.own_name(name))?;
        let weights = Weights::load(config, &mut file)?;
        let unused = file.unused();
        if !unused.is_empty() {
            tracing::warn!(
                file = file.origin(),
                count = unused.len(),
                names = listed(&unused, ", "),
                family = config.family.name(),
                "weights hold tensors that the model family does not use"
            );
        }
        Ok(weights)
    }
}

impl WeightsPlace {
    /// A file, or the shards that an index names, which are beside it.
    fn at(path: PathBuf) -> Result<Self, ModelError> {
        let is_index = path
            .extension()
            .is_some_and(|extension| extension == "json");
        if !is_index {
            return Ok(Self::Files(vec![path]));
        }
        let unusable = |reason: &str| ModelError::Files(format!("{}: {reason}", path.display()));
        let index = read_short_file(&path, INDEX_MAX_BYTES);
        let index = index.map_err(|error| unusable(&error.to_string()))?;
        let index: ShardIndex = serde_json::from_str(&index.unwrap_or_default())
            .map_err(|error| unusable(&format!("is no index of shards: {error}")))?;
        let names: BTreeSet<&String> = index.weight_map.values().collect();
        // What is not a plain name could be a file elsewhere.
        let is_plain = |name: &&String| Path::new(name).file_name() == Some(name.as_ref());
        if let Some(name) = names.iter().find(|name| !is_plain(name)) {
            return Err(unusable(&format!(
                "{name:?} is not the name of a file beside it"
            )));
        }
        let files: Vec<PathBuf> = names.iter().map(|name| path.with_file_name(name)).collect();
        let missing = files.iter().zip(&names).filter(|(file, _)| !file.is_file());
        let missing: Vec<String> = missing.map(|(_, name)| (*name).clone()).collect();
        match (files.is_empty(), missing.is_empty()) {
            (false, true) => Ok(Self::Files(files)),
            (true, _) => Err(unusable("it names no files")),
            (_, false) => Err(unusable(&format!(
                "{} missing beside it; copy or download the model again",
                listed(&missing, ", ")
            ))),
        }
    }

    fn files(&self) -> Vec<FileBytes> {
        match self {
            Self::Embedded(origin, bytes) => vec![FileBytes::Static(origin, bytes)],
            Self::Files(files) => files.iter().cloned().map(FileBytes::Path).collect(),
        }
    }

    /// Reads the headers alone.
    fn open(&self) -> Result<WeightsFile, WeightsError> {
        match self {
            Self::Embedded(origin, bytes) => WeightsFile::from_static(bytes, origin),
            Self::Files(files) => WeightsFile::open_all(files),
        }
    }
}

/// Which file has which tensor.
#[derive(Deserialize)]
struct ShardIndex {
    weight_map: BTreeMap<String, String>,
}

impl FileRecord {
    fn of(directory: &Path) -> Result<Self, ModelError> {
        Ok(match ModelRecord::read(directory)? {
            Some(record) => Self::Recorded {
                directory: directory.to_owned(),
                record,
            },
            None => Self::Unknown,
        })
    }

    fn record(&self) -> Option<&ModelRecord> {
        match self {
            Self::Recorded { record, .. } => Some(record),
            Self::Embedded | Self::Unknown => None,
        }
    }

    /// Nothing says which files these should be.
    fn is_unknown(&self) -> bool {
        match self {
            Self::Embedded => false,
            Self::Unknown => true,
            Self::Recorded { record, .. } => record.files.is_empty(),
        }
    }

    fn check_size(&self, file: &FileBytes) -> Result<(), ModelError> {
        self.check(file, |record, name| {
            let size = file.size()?;
            Ok(record.check_size(name, size))
        })
    }

    fn check_sha256(&self, file: &FileBytes, sha256: &str) -> Result<(), ModelError> {
        self.check(file, |record, name| Ok(record.check_sha256(name, sha256)))
    }

    /// Does nothing when no files are recorded.
    fn check(
        &self,
        file: &FileBytes,
        compare: impl FnOnce(&ModelRecord, &str) -> Result<Result<(), FileMismatch>, ModelError>,
    ) -> Result<(), ModelError> {
        let (Self::Recorded { directory, record }, FileBytes::Path(path)) = (self, file) else {
            return Ok(());
        };
        if self.is_unknown() {
            return Ok(());
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        compare(record, &name)?.map_err(|mismatch| {
            let (directory, model) = (directory.display(), &record.model);
            ModelError::Files(format!(
                "{directory}: {mismatch}; run `spotter model get {model} --dir {directory}`, which fetches what is wrong, or \
                 remove {} to load the files unchecked",
                ModelRecord::FILE
            ))
        })
    }
}

impl FileBytes {
    fn size(&self) -> Result<u64, ModelError> {
        match self {
            Self::Path(path) => {
                let found = std::fs::metadata(path).map_err(|source| self.io_error(source))?;
                Ok(found.len())
            }
            Self::Static(_, bytes) => Ok(bytes.len() as u64),
        }
    }

    fn origin(&self) -> String {
        match self {
            Self::Path(path) => path.display().to_string(),
            Self::Static(origin, _) => (*origin).to_owned(),
        }
    }

    fn read(&self) -> Result<Cow<'static, [u8]>, ModelError> {
        match self {
            Self::Path(path) => std::fs::read(path)
                .map(Cow::Owned)
                .map_err(|source| self.io_error(source)),
            Self::Static(_, bytes) => Ok(Cow::Borrowed(bytes)),
        }
    }

    /// Hex. Reads a file in pieces.
    fn sha256(&self) -> Result<String, ModelError> {
        let mut hash = Sha256::new();
        match self {
            Self::Path(path) => {
                let read_all = |hash: &mut Sha256| -> io::Result<()> {
                    let mut file = File::open(path)?;
                    let mut piece = vec![0; 1 << 20];
                    loop {
                        match file.read(&mut piece)? {
                            0 => return Ok(()),
                            n => hash.update(&piece[..n]),
                        }
                    }
                };
                read_all(&mut hash).map_err(|source| self.io_error(source))?;
            }
            Self::Static(_, bytes) => hash.update(bytes),
        }
        Ok(hex(&hash.finalize()))
    }

    fn io_error(&self, source: io::Error) -> ModelError {
        ModelError::Files(format!("cannot read {}: {source}", self.origin()))
    }
}

/// The files of a model, before its configuration is read: of the family that the record names, else of the first whose weights are there.
fn files_of(directory: &Path, record: Option<&ModelRecord>) -> [ModelFile; 3] {
    let is_there = |family: &&dyn ModelFamily| {
        let [config, weights, _] = family.files();
        let Some(path) = weights.find(directory) else {
            return false;
        };
        let has_config = config.find(directory).is_some();
        // Other families have a file of the first name too.
        let is_own = || path != directory.join(weights.name) || is_shown_by(*family, &path);
        has_config || !config.is_required && is_own()
    };
    let recorded = record.and_then(|record| named(&record.model));
    let family = recorded.or_else(|| FAMILIES.iter().copied().find(is_there));
    family.unwrap_or(FAMILIES[0]).files()
}

fn is_shown_by(family: &dyn ModelFamily, weights: &Path) -> bool {
    WeightsFile::open(weights).is_ok_and(|file| {
        let names: Vec<String> = file.names().map(str::to_owned).collect();
        family.is_shown(&serde_json::Value::Null, &names)
    })
}

/// Lower-case hex digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The last name of a directory, also when it is given as `.`.
fn label(directory: &Path) -> String {
    let full = directory.canonicalize();
    let full = full.as_deref().unwrap_or(directory);
    full.file_name().map_or_else(
        || "model".into(),
        |name| name.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests;
