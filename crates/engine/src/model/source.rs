//! Where tensors come from: a safetensors file, or bytes in the program, read one tensor at a time.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::tensor::{FloatFormat, Tensor, TensorBytes, TensorData};

/// Most names that a message lists.
const NAMES_SHOWN: usize = 20;
/// Longest header that is read, bytes; the format's own limit.
const HEADER_MAX_BYTES: u64 = 100_000_000;

/// Why weights cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}")]
    Io {
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// Not a safetensors file.
    #[error("{file} is not a safetensors file: {reason}")]
    Header {
        file: String,
        /// What is wrong with its header.
        reason: String,
    },
    /// Fewer or more bytes than the header announces.
    #[error("{file} has {found} bytes, its header announces {expected}: {}; copy or download it again",
        if found < expected { "it is cut off" } else { "something was appended" })]
    Length {
        file: String,
        /// Bytes announced.
        expected: u64,
        /// Bytes there.
        found: u64,
    },
    /// Two names of the file mean the same tensor.
    #[error("{file}: {first} and {second} are the same tensor; remove one of them")]
    Twice {
        file: String,
        first: String,
        second: String,
    },
    /// A source does not have this tensor. [`super::Weights::load`] gathers these into [`WeightsError::Missing`].
    #[error("no tensor {name}")]
    NotFound {
        /// Its name, without `model.`.
        name: String,
    },
    /// Tensors that the configuration needs are missing.
    #[error("{file} lacks {} tensors that its config.json needs: {}", names.len(), listed(names))]
    Missing {
        file: String,
        /// All of them, without `model.`.
        names: Vec<String>,
    },
    /// A tensor does not fit the configuration.
    #[error(
        "{file}: tensor {name} has shape {found:?}, config.json needs {expected:?}; the two files belong to different models"
    )]
    Shape {
        file: String,
        name: String,
        /// By the configuration.
        expected: Vec<usize>,
        /// In the file.
        found: Vec<usize>,
    },
    /// A tensor whose numbers cannot be used.
    #[error(
        "{file}: tensor {name} holds {format}, needs BF16, F16 or F32; use the bf16 file of the model"
    )]
    Format {
        file: String,
        name: String,
        /// As the file calls it.
        format: String,
    },
}

/// The first names and how many more there are.
pub(super) fn listed(names: &[String]) -> String {
    let shown = names.len().min(NAMES_SHOWN);
    let text = names[..shown].join(", ");
    match names.len() - shown {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

/// Gives tensors by name.
pub trait TensorSource {
    /// The tensor `name`, a published name without the `model.` prefix (`text.blocks.0.ln.weight`), or
    /// [`WeightsError::NotFound`]. `expected` is the shape that the configuration gives; the caller checks it. May block on
    /// the disk.
    fn tensor(&mut self, name: &str, expected: &[usize]) -> Result<Tensor, WeightsError>;

    /// Names the source in messages.
    fn origin(&self) -> String {
        "the weights".to_owned()
    }
}

/// An opened safetensors file. Only the header is in memory.
#[derive(Debug)]
pub struct WeightsFile {
    origin: String,
    bytes: Bytes,
    /// By our name: what the header says of it, and whether it was asked for.
    tensors: BTreeMap<String, Entry>,
    /// Bytes before the first tensor.
    data_start: u64,
}

#[derive(Debug)]
struct Entry {
    file_name: String,
    info: TensorInfo,
    taken: bool,
}

#[derive(Debug)]
enum Bytes {
    File(File),
    Static(&'static [u8]),
}

impl WeightsFile {
    /// Opens a file and reads its header. Blocks on the disk.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let origin = path.display().to_string();
        let io_error = |source| WeightsError::Io {
            file: origin.clone(),
            source,
        };
        let file = File::open(path).map_err(io_error)?;
        let length = file.metadata().map_err(io_error)?.len();
        Self::read(origin, Bytes::File(file), length)
    }

    /// The same for a file compiled into the program. `origin` names it in messages.
    pub fn from_static(bytes: &'static [u8], origin: &str) -> Result<Self, WeightsError> {
        Self::read(origin.to_owned(), Bytes::Static(bytes), bytes.len() as u64)
    }

    fn read(origin: String, mut bytes: Bytes, length: u64) -> Result<Self, WeightsError> {
        let header_error = |reason: String| WeightsError::Header {
            file: origin.clone(),
            reason,
        };
        let io_error = |source| WeightsError::Io {
            file: origin.clone(),
            source,
        };
        if length < 8 {
            return Err(header_error(format!(
                "it has {length} bytes, needs 8 or more"
            )));
        }
        let mut size = [0; 8];
        size.copy_from_slice(&bytes.at(0, 8).map_err(io_error)?);
        let size = u64::from_le_bytes(size);
        if size > HEADER_MAX_BYTES {
            return Err(header_error(format!(
                "its first 8 bytes announce a header of {size} bytes"
            )));
        }
        let data_start = 8 + size;
        let check = |expected| {
            (length == expected)
                .then_some(())
                .ok_or(WeightsError::Length {
                    file: origin.clone(),
                    expected,
                    found: length,
                })
        };
        if length < data_start {
            check(data_start)?;
        }
        let header = bytes.at(8, size as usize).map_err(io_error)?;
        let metadata: Metadata =
            serde_json::from_slice(&header).map_err(|error| header_error(error.to_string()))?;
        check(data_start + metadata.data_len() as u64)?;
        Ok(Self {
            tensors: entries(&metadata, &origin)?,
            origin,
            bytes,
            data_start,
        })
    }

    /// Names in the file that were not asked for so far, as the file spells them.
    pub fn unused(&self) -> Vec<String> {
        let unused = self.tensors.values().filter(|entry| !entry.taken);
        unused.map(|entry| entry.file_name.clone()).collect()
    }
}

impl TensorSource for WeightsFile {
    fn tensor(&mut self, name: &str, _: &[usize]) -> Result<Tensor, WeightsError> {
        let Some(entry) = self.tensors.get_mut(name) else {
            return Err(WeightsError::NotFound {
                name: name.to_owned(),
            });
        };
        entry.taken = true;
        let format = match entry.info.dtype {
            Dtype::BF16 => FloatFormat::Bf16,
            Dtype::F16 => FloatFormat::F16,
            Dtype::F32 => FloatFormat::F32,
            other => {
                return Err(WeightsError::Format {
                    file: self.origin.clone(),
                    name: entry.file_name.clone(),
                    format: format!("{other:?}"),
                });
            }
        };
        let (start, end) = entry.info.data_offsets;
        let shape = entry.info.shape.clone();
        let bytes = self
            .bytes
            .at(self.data_start + start as u64, end - start)
            .map_err(|source| WeightsError::Io {
                file: self.origin.clone(),
                source,
            })?;
        Ok(Tensor {
            name: name.to_owned(),
            shape,
            data: TensorData::Encoded { format, bytes },
        })
    }

    fn origin(&self) -> String {
        self.origin.clone()
    }
}

impl Bytes {
    fn at(&mut self, start: u64, length: usize) -> io::Result<TensorBytes> {
        match self {
            Self::File(file) => {
                let mut bytes = vec![0; length];
                file.seek(SeekFrom::Start(start))?;
                file.read_exact(&mut bytes)?;
                Ok(bytes.into())
            }
            Self::Static(all) => {
                let rest = all.get(start as usize..).unwrap_or_default();
                let bytes = rest.get(..length);
                bytes
                    .map(TensorBytes::Static)
                    .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
            }
        }
    }
}

fn entries(metadata: &Metadata, origin: &str) -> Result<BTreeMap<String, Entry>, WeightsError> {
    let mut entries = BTreeMap::new();
    for (file_name, info) in metadata.tensors() {
        let entry = Entry {
            file_name: file_name.clone(),
            info: info.clone(),
            taken: false,
        };
        if let Some(other) = entries.insert(plain_name(&file_name), entry) {
            return Err(WeightsError::Twice {
                file: origin.to_owned(),
                first: other.file_name,
                second: file_name,
            });
        }
    }
    Ok(entries)
}

/// Exports differ in a leading `model.`; compiled models have `._orig_mod` inside of their names.
fn plain_name(file_name: &str) -> String {
    let name = file_name.replace("._orig_mod", "");
    name.strip_prefix("model.").unwrap_or(&name).to_owned()
}
