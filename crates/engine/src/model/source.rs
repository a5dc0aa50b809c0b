//! Where tensors come from: a safetensors or torch file, or bytes in the program. The values of a file's tensors are read when they are needed
//! ([`Tensor`]), so a model that is being loaded takes little memory beside its copy on the device. The file is read at positions and not
//! mapped: a file that is cut off meanwhile is then an error and not the end of the process.

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    fs::File,
    io, mem,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use spotter_core::plain_line;

use super::{
    pickle::{FileTensor, is_torch_file, torch_tensors},
    tensor::{FileRange, PickedBytes, Tensor, TensorBytes, TensorData, WeightsError},
};
use crate::network::format::Number;

/// Most names that a message lists.
const NAMES_SHOWN: usize = 20;
/// Longest header that is read, bytes; the format's own limit.
const HEADER_MAX_BYTES: u64 = 100_000_000;

/// The first names and how many more there are.
pub(super) fn listed(names: &[String], between: &str) -> String {
    let shown = names.len().min(NAMES_SHOWN);
    let text = names[..shown].join(between);
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

/// An opened safetensors file, one that `torch.save` wrote, or the shards of a model. Only what names the tensors is in memory.
#[derive(Debug)]
pub struct WeightsFile {
    /// Names the files in messages.
    origin: String,
    shards: Vec<ShardFile>,
    /// By our name: what the header says of it, and whether it was asked for.
    tensors: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct ShardFile {
    origin: String,
    bytes: Bytes,
    /// Bytes before the first tensor.
    data_start: u64,
}

#[derive(Debug)]
struct Entry {
    file_name: String,
    /// Its index.
    shard: usize,
    info: TensorInfo,
    /// Of a tensor that is not row-major, as torch files have them.
    strides: Option<Vec<usize>>,
    taken: bool,
}

/// What a file's tensor is to us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TensorName {
    Own(String),
    /// Its rows are our columns.
    Transposed(String),
    /// We need it for nothing, and need not say so.
    Ignored,
}

#[derive(Debug)]
enum Bytes {
    File(Arc<File>),
    Static(&'static [u8]),
}

impl WeightsFile {
    /// Opens a file and reads its header. Blocks on the disk.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        Self::open_all(std::slice::from_ref(&path.to_owned()))
    }

    /// The same for the files of one model. No tensor may be in two of them.
    pub fn open_all(paths: &[PathBuf]) -> Result<Self, WeightsError> {
        let origins: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
        let mut all = Self {
            origin: listed(&origins, ", "),
            shards: Vec::new(),
            tensors: BTreeMap::new(),
        };
        for (path, origin) in paths.iter().zip(origins) {
            let io_error = |error| WeightsError::Unusable(format!("cannot read {origin}: {error}"));
            let file = File::open(path).map_err(io_error)?;
            let length = file.metadata().map_err(io_error)?.len();
            all.read(origin, Bytes::File(Arc::new(file)), length)?;
        }
        Ok(all)
    }

    /// The same for a file compiled into the program. `origin` names it in messages.
    pub fn from_static(bytes: &'static [u8], origin: &str) -> Result<Self, WeightsError> {
        let mut file = Self {
            origin: origin.to_owned(),
            shards: Vec::new(),
            tensors: BTreeMap::new(),
        };
        file.read(origin.to_owned(), Bytes::Static(bytes), bytes.len() as u64)?;
        Ok(file)
    }

    fn read(&mut self, origin: String, bytes: Bytes, length: u64) -> Result<(), WeightsError> {
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
            return self.read_torch(origin, bytes, length);
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
        let shard = ShardFile {
            origin,
            bytes,
            data_start,
        };
        self.add(shard, of_header(&metadata))
    }

    fn read_torch(
        &mut self,
        origin: String,
        bytes: Bytes,
        length: u64,
    ) -> Result<(), WeightsError> {
        let tensors = torch_tensors(&|start, count| bytes.read(start, count), length);
        let tensors = tensors.map_err(|reason| {
            // It quotes what the file says.
            let reason = plain_line(&reason);
            WeightsError::Unusable(format!("{origin} is not a torch file of tensors: {reason}"))
        })?;
        let shard = ShardFile {
            origin,
            bytes,
            data_start: 0,
        };
        self.add(shard, tensors.into_iter())
    }

    fn add(
        &mut self,
        shard: ShardFile,
        tensors: impl Iterator<Item = FileTensor>,
    ) -> Result<(), WeightsError> {
        let index = self.shards.len();
        self.shards.push(shard);
        for tensor in tensors {
            let name = plain_name(&tensor.name);
            let entry = Entry {
                file_name: tensor.name,
                shard: index,
                info: tensor.info,
                strides: tensor.strides,
                taken: false,
            };
            self.insert(name, entry)?;
        }
        Ok(())
    }

    fn insert(&mut self, name: String, entry: Entry) -> Result<(), WeightsError> {
        let file_name = entry.file_name.clone();
        match self.tensors.insert(name, entry) {
            None => Ok(()),
            Some(other) => Err(WeightsError::Unusable(format!(
                "{}: {} and {file_name} are the same tensor; remove one of them",
                self.origin, other.file_name
            ))),
        }
    }

    /// Renames the tensors: `own` says what each is, by its name without `model.` and `._orig_mod`.
    pub fn renamed(mut self, own: &dyn Fn(&str) -> TensorName) -> Result<Self, WeightsError> {
        for (name, mut entry) in mem::take(&mut self.tensors) {
            let name = match own(&name) {
                TensorName::Own(name) => name,
                TensorName::Transposed(name) => {
                    entry.transpose();
                    name
                }
                TensorName::Ignored => continue,
            };
            self.insert(name, entry)?;
        }
        Ok(self)
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Names in the file that were not asked for so far, as the file spells them.
    pub fn unused(&self) -> Vec<String> {
        let unused = self.tensors.values().filter(|entry| !entry.taken);
        unused.map(|entry| entry.file_name.clone()).collect()
    }
}

impl Entry {
    fn transpose(&mut self) {
        let shape = &self.info.shape;
        let row_major = (1..=shape.len()).map(|outer| shape[outer..].iter().product());
        let mut strides = (self.strides.take()).unwrap_or_else(|| row_major.collect());
        strides.reverse();
        self.strides = Some(strides);
        self.info.shape.reverse();
    }
}

impl TensorSource for WeightsFile {
    fn tensor(&mut self, name: &str, _: &[usize]) -> Result<Tensor, WeightsError> {
        let Some(entry) = self.tensors.get_mut(name) else {
            return Err(WeightsError::NotFound(name.to_owned()));
        };
        entry.taken = true;
        let shard = &self.shards[entry.shard];
        let format = match entry.info.dtype {
            Dtype::BF16 => Number::Bf16,
            Dtype::F16 => Number::F16,
            Dtype::F32 => Number::F32,
            Dtype::F8_E4M3 => Number::E4m3,
            other => {
                return Err(WeightsError::Odd(format!(
                    "tensor {} holds {other:?}, needs BF16, F16 or F32; use the bf16 file of the model",
                    entry.file_name
                )));
            }
        };
        let (start, end) = entry.info.data_offsets;
        let shape = entry.info.shape.clone();
        let values = shape
            .iter()
            .try_fold(format.bytes(), |all, &size| all.checked_mul(size));
        let length = end.checked_sub(start);
        // Values with strides may have gaps between them.
        let fits = match &entry.strides {
            None => values == length,
            Some(_) => values.is_some() && values <= length,
        };
        if !fits {
            return Err(out_of_place(entry));
        }
        let position = shard.data_start + start as u64;
        let mut bytes = match &shard.bytes {
            Bytes::File(file) => TensorBytes::File(FileRange {
                file: Arc::clone(file),
                origin: shard.origin.as_str().into(),
                start: position,
            }),
            Bytes::Static(all) => {
                let range = position as usize..shard.data_start as usize + end;
                let bytes = all.get(range).ok_or_else(|| out_of_place(entry))?;
                TensorBytes::Static(bytes)
            }
        };
        if let Some(strides) = &entry.strides {
            let ordered = PickedBytes::row_major(bytes, entry.info.clone(), strides.clone());
            bytes = TensorBytes::Picked(Arc::new(ordered));
        }
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

fn out_of_place(entry: &Entry) -> WeightsError {
    let TensorInfo {
        shape,
        data_offsets: (start, end),
        ..
    } = &entry.info;
    WeightsError::Odd(format!(
        "tensor {} of shape {shape:?} is at bytes {start} to {end}, which does not fit; copy or download the file again",
        entry.file_name
    ))
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

/// Exports differ in a leading `model.`; compiled models have `._orig_mod` inside of their names.
fn plain_name(file_name: &str) -> String {
    let name = file_name.replace("._orig_mod", "");
    name.strip_prefix("model.").unwrap_or(&name).to_owned()
}
