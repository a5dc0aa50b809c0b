//! The three files of a model, in a directory or in the binary, become a model that a backend can take over.

use std::{
    borrow::Cow,
    fmt::Write,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::{
    calibration::CalibrationState,
    config::ModelConfigError,
    families::{FAMILIES, parse_config},
    family::ModelConfig,
    source::{TensorSource, WeightsFile, listed},
    tensor::WeightsError,
    tokenizer::{Tokenizer, TokenizerError},
    weights::Weights,
};
use spotter_core::{
    FileMismatch, ModelRecord, ModelRecordError, config::ModelSource, read_short_file,
};

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
    /// SHA-256 of `model.safetensors`, hex.
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
    config: FileBytes,
    weights: FileBytes,
    tokenizer: FileBytes,
    record: FileRecord,
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

/// Checks that all files of a model exist and that its configuration and tokenizer are valid; reads no weights. Blocks on the
/// disk.
pub fn check_model(source: &ModelSource) -> Result<(), ModelError> {
    let files = ModelFiles::find(source)?;
    files.tokenizer(&files.dimensions()?).map(drop)
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
        let weights_sha256 = self.weights.sha256()?;
        self.record.check_sha256(&self.weights, &weights_sha256)?;
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
            FileBytes::Path(weights) => {
                let directory = weights.parent().unwrap_or(Path::new("."));
                CalibrationState::of(directory, weights_sha256, config)
            }
            FileBytes::Static(..) => CalibrationState::Missing,
        }
    }

    fn dimensions(&self) -> Result<ModelConfig, ModelError> {
        let json = self.read_checked(&self.config)?;
        let json = String::from_utf8_lossy(&json);
        Ok(parse_config(&json, &self.config.origin())?)
    }

    /// The model inside of the binary: a small network trained on the drawn street (`models/embedded`).
    fn embedded() -> Self {
        Self {
            label: "embedded".into(),
            config: FileBytes::Static(
                "embedded config.json",
                include_bytes!("../../../../models/embedded/config.json"),
            ),
            weights: FileBytes::Static(
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
        if is_moondream3(directory) {
            return Err(ModelError::Files(format!(
                "{} has a Moondream 3; this version of Spotter cannot run Moondream 3 yet; set model.path to a Moondream 2, like that of \
                 `spotter model get moondream2`",
                directory.display()
            )));
        }
        // Without config.json the family is not known.
        let files = FAMILIES[0].files();
        let problems: Vec<String> = files
            .iter()
            .filter(|file| !directory.join(file.name).is_file())
            .map(|file| format!("{} is missing ({})", file.name, file.remedy))
            .collect();
        if !problems.is_empty() {
            return Err(missing(problems));
        }
        let [config, weights, tokenizer] =
            files.map(|file| FileBytes::Path(directory.join(file.name)));
        let found = Self {
            label: label(directory),
            config,
            weights,
            tokenizer,
            record: FileRecord::of(directory)?,
        };
        for file in [&found.config, &found.weights, &found.tokenizer] {
            found.record.check_size(file)?;
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
        let mut file = match &self.weights {
            FileBytes::Path(path) => WeightsFile::open(path)?,
            FileBytes::Static(origin, bytes) => WeightsFile::from_static(bytes, origin)?,
        };
        let weights = Weights::load(config, &mut file)?;
        let unused = file.unused();
        if !unused.is_empty() {
            tracing::warn!(
                file = file.origin(),
                count = unused.len(),
                names = listed(&unused),
                family = config.family.name(),
                "weights hold tensors that the model family does not use"
            );
        }
        Ok(weights)
    }
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

/// Are the files of a Moondream 3, by their record, or by a file or a tensor that no other family has?
fn is_moondream3(directory: &Path) -> bool {
    let is_recorded = || {
        let record = ModelRecord::read(directory).ok().flatten();
        record.is_some_and(|record| record.model.starts_with("moondream3"))
    };
    let in_weights = || {
        let weights = WeightsFile::open(&directory.join("model.safetensors"));
        weights.is_ok_and(|weights| weights.unused().iter().any(|name| name.contains(".tau")))
    };
    let in_index = || {
        let index = directory.join("model.safetensors.index.json");
        let index = read_short_file(&index, INDEX_MAX_BYTES).ok().flatten();
        index.is_some_and(|index| index.contains(".tau"))
    };
    is_recorded()
        || match directory.join("model.safetensors").is_file() {
            true => in_weights(),
            false => directory.join("model_fp8.pt").is_file() || in_index(),
        }
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
