//! Where tensors come from: a safetensors or torch file, or bytes in the program. The values of a file's tensors are read when they are needed
//! ([`Tensor`]), so a model that is being loaded takes little memory beside its copy on the device. The file is read at positions and not
//! mapped: a file that is cut off meanwhile is then an error and not the end of the process.

use std::{
    cmp::Ordering, collections::BTreeMap, fs::File, io, os::unix::fs::FileExt as _, path::Path,
    sync::Arc,
};

use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use spotter_core::plain_line;

use super::{
    pickle::{FileTensor, is_torch_file, row_major, torch_tensors},
    tensor::{FileRange, FloatFormat, Tensor, TensorBytes, TensorData, WeightsError},
};

/// Most names that a message lists.
const NAMES_SHOWN: usize = 20;
/// Longest header that is read, bytes; the format's own limit.
const HEADER_MAX_BYTES: u64 = 100_000_000;

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
    /// [`WeightsError::NotFound`]. `expected` is the shape that the configuration gives; the caller checks it.
    fn tensor(&mut self, name: &str, expected: &[usize]) -> Result<Tensor, WeightsError>;

    /// Names the source in messages.
    fn origin(&self) -> String {
        "the weights".to_owned()
    }
}

/// An opened safetensors file, or one that `torch.save` wrote. Only what names the tensors is in memory.
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
    /// Of a tensor that is not row-major, as torch files have them.
    strides: Option<Vec<usize>>,
    taken: bool,
}

#[derive(Debug)]
enum Bytes {
    File(Arc<File>),
    Static(&'static [u8]),
}

impl WeightsFile {
    /// Opens a file and reads its header. Blocks on the disk.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let origin = path.display().to_string();
        let io_error = |error| WeightsError::Unusable(format!("cannot read {origin}: {error}"));
        let file = File::open(path).map_err(io_error)?;
        let length = file.metadata().map_err(io_error)?.len();
        Self::read(origin, Bytes::File(Arc::new(file)), length)
    }

    /// The same for a file compiled into the program. `origin` names it in messages.
    pub fn from_static(bytes: &'static [u8], origin: &str) -> Result<Self, WeightsError> {
        Self::read(origin.to_owned(), Bytes::Static(bytes), bytes.len() as u64)
    }

    fn read(origin: String, bytes: Bytes, length: u64) -> Result<Self, WeightsError> {
        let header_error = |reason: String| {
            WeightsError::Unusable(format!("{origin} is not a safetensors file: {reason}"))
        };
        let io_error = |error| WeightsError::Unusable(format!("cannot read {origin}: {error}"));
        if length < 8 {
            return Err(header_error(format!(
                "it has {length} bytes, needs 8 or more"
            )));
        }
        let mut size = [0; 8];
        size.copy_from_slice(&bytes.read(0, 8).map_err(io_error)?);
        if is_torch_file(&size) {
            return Self::read_torch(origin, bytes, length);
        }
        let size = u64::from_le_bytes(size);
        if size > HEADER_MAX_BYTES {
            return Err(header_error(format!(
                "its first 8 bytes announce a header of {size} bytes"
            )));
        }
        let data_start = 8 + size;
        let check = |expected| {
            let fault = match length.cmp(&expected) {
                Ordering::Equal => return Ok(()),
                Ordering::Less => "it is cut off",
                Ordering::Greater => "something was appended",
            };
            Err(WeightsError::Unusable(format!(
                "{origin} has {length} bytes, its header announces {expected}: {fault}; copy or download it again"
            )))
        };
        if length < data_start {
            check(data_start)?;
        }
        let header = bytes.read(8, size as usize).map_err(io_error)?;
        let metadata: Metadata =
            serde_json::from_slice(&header).map_err(|error| header_error(error.to_string()))?;
        check(data_start + metadata.data_len() as u64)?;
        Ok(Self {
            tensors: entries(of_header(&metadata), &origin)?,
            origin,
            bytes,
            data_start,
        })
    }

    fn read_torch(origin: String, bytes: Bytes, length: u64) -> Result<Self, WeightsError> {
        let tensors = torch_tensors(&|start, count| bytes.read(start, count), length);
        let tensors = tensors.map_err(|reason| {
            // It quotes what the file says.
            let reason = plain_line(&reason);
            WeightsError::Unusable(format!("{origin} is not a torch file of tensors: {reason}"))
        })?;
        Ok(Self {
            tensors: entries(tensors.into_iter(), &origin)?,
            origin,
            bytes,
            data_start: 0,
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
            return Err(WeightsError::NotFound(name.to_owned()));
        };
        entry.taken = true;
        let format = match entry.info.dtype {
            Dtype::BF16 => FloatFormat::Bf16,
            Dtype::F16 => FloatFormat::F16,
            Dtype::F32 => FloatFormat::F32,
            other => {
                return Err(WeightsError::Unusable(format!(
                    "{}: tensor {} holds {other:?}, needs BF16, F16 or F32; use the bf16 file of the model",
                    self.origin, entry.file_name
                )));
            }
        };
        let (start, end) = entry.info.data_offsets;
        if let Some(strides) = &entry.strides {
            let span = self.bytes.read(start as u64, end - start);
            let span = span.map_err(|error| {
                WeightsError::Unusable(format!("cannot read {}: {error}", self.origin))
            })?;
            return Ok(Tensor {
                name: name.to_owned(),
                shape: entry.info.shape.clone(),
                data: TensorData::Encoded {
                    format,
                    bytes: row_major(&span, &entry.info, strides).into(),
                },
            });
        }
        let shape = entry.info.shape.clone();
        let values = shape
            .iter()
            .try_fold(format.bytes(), |all, &size| all.checked_mul(size));
        let out_of_place = || {
            WeightsError::Unusable(format!(
                "{}: tensor {} of shape {shape:?} is at bytes {start} to {end}, which does not fit; copy or download the file again",
                self.origin, entry.file_name
            ))
        };
        if values != end.checked_sub(start) {
            return Err(out_of_place());
        }
        let start = self.data_start + start as u64;
        let bytes = match &self.bytes {
            Bytes::File(file) => TensorBytes::File(FileRange {
                file: Arc::clone(file),
                origin: self.origin.as_str().into(),
                start,
            }),
            Bytes::Static(all) => {
                let range = start as usize..self.data_start as usize + end;
                TensorBytes::Static(all.get(range).ok_or_else(out_of_place)?)
            }
        };
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
    fn read(&self, start: u64, length: usize) -> io::Result<Vec<u8>> {
        match self {
            Self::File(file) => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, start)?;
                Ok(bytes)
            }
            Self::Static(all) => {
                let rest = all.get(start as usize..).unwrap_or_default();
                let bytes = rest.get(..length);
                bytes
                    .map(<[u8]>::to_vec)
                    .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
            }
        }
    }
}

/// The tensors of a safetensors header.
fn of_header(metadata: &Metadata) -> impl Iterator<Item = FileTensor> {
    let tensors = metadata.tensors().into_iter();
    tensors.map(|(name, info)| FileTensor {
        name,
        info: info.clone(),
        strides: None,
    })
}

fn entries(
    tensors: impl Iterator<Item = FileTensor>,
    origin: &str,
) -> Result<BTreeMap<String, Entry>, WeightsError> {
    let mut entries = BTreeMap::new();
    for tensor in tensors {
        let file_name = tensor.name.clone();
        let entry = Entry {
            file_name: tensor.name,
            info: tensor.info,
            strides: tensor.strides,
            taken: false,
        };
        if let Some(other) = entries.insert(plain_name(&file_name), entry) {
            return Err(WeightsError::Unusable(format!(
                "{origin}: {} and {file_name} are the same tensor; remove one of them",
                other.file_name
            )));
        }
    }
    Ok(entries)
}

/// Exports differ in a leading `model.`; compiled models have `._orig_mod` inside of their names.
fn plain_name(file_name: &str) -> String {
    let name = file_name.replace("._orig_mod", "");
    name.strip_prefix("model.").unwrap_or(&name).to_owned()
}
