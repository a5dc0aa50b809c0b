//! One tensor as a file holds it.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    sync::{Arc, OnceLock},
};

use half::{bf16, f16};
use safetensors::tensor::TensorInfo;

use super::pickle::row_major;
use crate::network::{
    format::Number,
    shard::{Shard, TensorPart},
};

/// Bytes of a file that are in memory at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Why weights cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// A source does not have the tensor with this name, without `model.`. [`super::Weights::load`] names all of them together.
    #[error("no tensor {0}")]
    NotFound(String),
    /// What is wrong with one tensor.
    #[error("{0}")]
    Odd(String),
    #[error("{0}")]
    Unusable(String),
}

impl Number {
    /// Fills `to` with what `convert` makes of each value.
    fn decode<T>(self, bytes: &[u8], to: &mut [T], convert: impl Fn(f32) -> T) {
        let (pairs, _) = bytes.as_chunks::<2>();
        let (words, _) = bytes.as_chunks::<4>();
        match self {
            Self::Bf16 => fill(to, pairs, |pair| {
                convert(bf16::from_le_bytes(pair).to_f32())
            }),
            Self::F16 => fill(to, pairs, |pair| convert(f16::from_le_bytes(pair).to_f32())),
            Self::F32 => fill(to, words, |word| convert(f32::from_le_bytes(word))),
            Self::E4m3 => fill(to, bytes, |byte: u8| {
                convert(F32_FROM_E4M3[usize::from(byte)])
            }),
            Self::Int8 => fill(to, bytes, |byte| convert(f32::from(byte.cast_signed()))),
            // No file has it.
            Self::Int4 => {}
        }
    }

    /// The same in bf16, rounded to nearest.
    fn decode_bf16(self, bytes: &[u8], to: &mut [bf16]) {
        match self {
            Self::Bf16 => fill(to, bytes.as_chunks::<2>().0, bf16::from_le_bytes),
            _ => self.decode(bytes, to, bf16::from_f32),
        }
    }
}

/// The number that each byte is.
pub static F32_FROM_E4M3: [f32; 256] = {
    let mut numbers = [0.0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (sign, exponent, mantissa) = (byte >> 7, byte >> 3 & 0xf, byte & 7);
        let size = match (exponent, mantissa) {
            (15, 7) => f32::NAN,
            (0, _) => mantissa as f32 / 512.0,
            _ => f32::from_bits(((exponent + 120) << 23 | mantissa << 20) as u32),
        };
        numbers[byte] = if sign == 1 { -size } else { size };
        byte += 1;
    }
    numbers
};

fn fill<T, F: Copy>(to: &mut [T], from: &[F], convert: impl Fn(F) -> T) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = convert(*from);
    }
}

/// The values of a tensor, row-major.
#[derive(Clone, Debug)]
pub enum TensorData {
    /// Little-endian bytes, in a file or in the program itself.
    Encoded {
        /// What the bytes are.
        format: Number,
        /// `values * format.bytes()` of them.
        bytes: TensorBytes,
    },
    F32(Vec<f32>),
}

/// Bytes of a tensor, of which clones share the memory.
#[derive(Clone, Debug)]
pub enum TensorBytes {
    /// In the program itself.
    Static(&'static [u8]),
    /// Made by the program; free when the last clone is gone.
    Shared(Arc<Vec<u8>>),
    /// In a file, from which they are read when they are needed.
    File(FileRange),
    /// Those that lie in another order, or among others.
    Picked(Arc<PickedBytes>),
}

/// A part of an open file.
#[derive(Clone, Debug)]
pub struct FileRange {
    pub file: Arc<File>,
    /// Names the file in messages.
    pub origin: Arc<str>,
    /// Bytes before it.
    pub start: u64,
}

/// Bytes of a tensor of which some are read, or all in another order. The first use reads the whole tensor and picks them.
#[derive(Debug)]
pub struct PickedBytes {
    whole: TensorBytes,
    from: PickedFrom,
    picked: OnceLock<Vec<u8>>,
}

#[derive(Debug)]
enum PickedFrom {
    /// All of a tensor that is not row-major.
    RowMajor {
        info: TensorInfo,
        /// Values between two neighbours in each dimension.
        strides: Vec<usize>,
    },
    /// A part of a row-major tensor of values of so many bytes.
    Part(TensorPart, usize),
}

impl PickedBytes {
    /// Those of a tensor that is not row-major.
    pub fn row_major(whole: TensorBytes, info: TensorInfo, strides: Vec<usize>) -> Self {
        Self::new(whole, PickedFrom::RowMajor { info, strides })
    }

    fn new(whole: TensorBytes, from: PickedFrom) -> Self {
        let picked = OnceLock::new();
        Self {
            whole,
            from,
            picked,
        }
    }

    fn picked(&self) -> Result<&[u8], WeightsError> {
        if let Some(bytes) = self.picked.get() {
            return Ok(bytes);
        }
        let bytes = match &self.from {
            PickedFrom::RowMajor { info, strides } => {
                let (start, end) = info.data_offsets;
                row_major(&self.whole.read(end - start)?, info, strides)
            }
            PickedFrom::Part(part, size) => {
                let values = part.outer * part.middle * part.tail;
                let tail = part.tail * size;
                TensorPart {
                    tail,
                    ..part.clone()
                }
                .of(&self.whole.read(values * size)?)
            }
        };
        Ok(self.picked.get_or_init(|| bytes))
    }
}

impl From<Vec<u8>> for TensorBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Shared(Arc::new(bytes))
    }
}

impl TensorBytes {
    /// The first `length` bytes. Blocks on the disk.
    fn read(&self, length: usize) -> Result<Vec<u8>, WeightsError> {
        let mut bytes = Vec::with_capacity(length);
        self.pieces(0, length, |piece| bytes.extend_from_slice(piece))?;
        Ok(bytes)
    }

    /// Gives `length` bytes from `start` on to `with`, in pieces of a multiple of four bytes, in order. Blocks on the disk.
    fn pieces(
        &self,
        start: usize,
        length: usize,
        mut with: impl FnMut(&[u8]),
    ) -> Result<(), WeightsError> {
        let range = match self {
            Self::Static(bytes) => {
                with(&bytes[start..start + length]);
                return Ok(());
            }
            Self::Shared(bytes) => {
                with(&bytes[start..start + length]);
                return Ok(());
            }
            Self::Picked(picked) => {
                with(&picked.picked()?[start..start + length]);
                return Ok(());
            }
            Self::File(range) => range,
        };
        let mut buffer = vec![0; length.min(PIECE_BYTES)];
        for at in (0..length).step_by(PIECE_BYTES) {
            let piece = &mut buffer[..PIECE_BYTES.min(length - at)];
            let from = range.start + (start + at) as u64;
            range.file.read_exact_at(piece, from).map_err(|error| {
                WeightsError::Unusable(format!("cannot read {}: {error}", range.origin))
            })?;
            with(piece);
        }
        Ok(())
    }
}

/// A tensor with its published name, without the `model.` prefix.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// As many values as the product of `shape`.
    pub data: TensorData,
}

impl Tensor {
    /// Of no values.
    pub fn empty(name: String) -> Self {
        Self {
            name,
            shape: vec![0],
            data: TensorData::F32(Vec::new()),
        }
    }

    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True when a size is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the values are stored in.
    pub fn number(&self) -> Number {
        match self.data {
            TensorData::Encoded { format, .. } => format,
            TensorData::F32(_) => Number::F32,
        }
    }

    /// What a shard has of it when it is cut along a dimension, counted from the last one, in so many parts. One without values stays so.
    pub fn of_shard(self, shard: Shard, from_last: usize, parts: usize) -> Self {
        if self.is_empty() {
            return self;
        }
        let mut shape = self.shape;
        let dimension = shape.len().saturating_sub(1 + from_last);
        let part = shard.part(&shape, dimension, parts);
        shape[dimension] /= shard.ranks;
        let data = match self.data {
            TensorData::F32(values) => TensorData::F32(part.of(&values)),
            TensorData::Encoded { format, bytes } => {
                let picked = PickedBytes::new(bytes, PickedFrom::Part(part, format.bytes()));
                TensorData::Encoded {
                    format,
                    bytes: TensorBytes::Picked(Arc::new(picked)),
                }
            }
        };
        Self {
            name: self.name,
            shape,
            data,
        }
    }

    /// As many zeros.
    pub fn zeroed(self) -> Self {
        Self {
            data: TensorData::F32(vec![0.0; self.len()]),
            ..self
        }
    }

    /// The values in single precision; exact for all formats. May block on the disk.
    pub fn to_f32(&self) -> Result<Vec<f32>, WeightsError> {
        if let TensorData::F32(values) = &self.data {
            return Ok(values.clone());
        }
        let mut values = vec![0.0; self.len()];
        self.read_f32(0, &mut values)?;
        Ok(values)
    }

    /// The same, giving up the tensor: its memory is free when this returns, or becomes the result.
    pub fn into_f32(self) -> Result<Vec<f32>, WeightsError> {
        match self.data {
            TensorData::F32(values) => Ok(values),
            TensorData::Encoded { .. } => self.to_f32(),
        }
    }

    /// Reads the values into memory as the file has them. May block on the disk.
    pub fn into_stored(self) -> Result<StoredValues, WeightsError> {
        let length = self.len();
        let (format, bytes) = match self.data {
            TensorData::F32(values) => {
                let bytes = values.iter().flat_map(|value| value.to_le_bytes());
                (Number::F32, TensorBytes::from(bytes.collect::<Vec<u8>>()))
            }
            TensorData::Encoded {
                format,
                bytes: bytes @ (TensorBytes::File(_) | TensorBytes::Picked(_)),
            } => {
                let read = bytes.read(length * format.bytes())?;
                if format == Number::E4m3 {
                    refuse_nan(&self.name, &read)?;
                }
                (format, TensorBytes::from(read))
            }
            TensorData::Encoded { format, bytes } => (format, bytes),
        };
        Ok(StoredValues { format, bytes })
    }

    /// Fills `to` with the values from `first` on; exact for all formats. May block on the disk.
    pub fn read_f32(&self, first: usize, to: &mut [f32]) -> Result<(), WeightsError> {
        let decode = |format: Number, bytes: &[u8], to: &mut [f32]| format.decode(bytes, to, |v| v);
        self.read(first, to, |value| value, decode)
    }

    /// The same in bf16, rounded to nearest.
    pub fn read_bf16(&self, first: usize, to: &mut [bf16]) -> Result<(), WeightsError> {
        self.read(first, to, bf16::from_f32, Number::decode_bf16)
    }

    /// Fills `to` with the bytes of a tensor in e4m3 from value `first` on. NaN is an error. May block on the disk.
    pub fn read_e4m3(&self, first: usize, to: &mut [u8]) -> Result<(), WeightsError> {
        let TensorData::Encoded {
            format: Number::E4m3,
            bytes,
        } = &self.data
        else {
            return Err(WeightsError::Odd(format!(
                "tensor {} is not in F8_E4M3",
                self.name
            )));
        };
        let length = to.len();
        let mut rest = &mut *to;
        bytes.pieces(first, length, |piece| {
            take_first(&mut rest, piece.len()).copy_from_slice(piece);
        })?;
        refuse_nan(&self.name, to)
    }

    fn read<T>(
        &self,
        first: usize,
        to: &mut [T],
        convert: impl Fn(f32) -> T,
        decode: impl Fn(Number, &[u8], &mut [T]),
    ) -> Result<(), WeightsError> {
        let count = to.len();
        match &self.data {
            TensorData::F32(values) => fill(to, &values[first..first + count], convert),
            TensorData::Encoded { format, bytes } => {
                let (size, mut rest) = (format.bytes(), to);
                bytes.pieces(first * size, count * size, |piece| {
                    decode(*format, piece, take_first(&mut rest, piece.len() / size));
                })?;
            }
        }
        Ok(())
    }
}

/// Values of a tensor that are in memory in the format of its file.
#[derive(Clone, Debug)]
pub struct StoredValues {
    format: Number,
    bytes: TensorBytes,
}

impl StoredValues {
    /// Fills `to` with the values from `first` on.
    pub fn read_f32(&self, first: usize, to: &mut [f32]) {
        let bytes: &[u8] = match &self.bytes {
            TensorBytes::Static(bytes) => bytes,
            TensorBytes::Shared(bytes) => bytes,
            TensorBytes::File(_) | TensorBytes::Picked(_) => &[],
        };
        let size = self.format.bytes();
        let bytes = &bytes[first * size..][..to.len() * size];
        self.format.decode(bytes, to, |value| value);
    }
}

/// An error when one of these numbers in e4m3 is NaN: kernels take it for a large number.
fn refuse_nan(name: &str, e4m3: &[u8]) -> Result<(), WeightsError> {
    match e4m3.iter().any(|byte| byte & 0x7f == 0x7f) {
        true => Err(WeightsError::Odd(format!(
            "tensor {name} has a value that is not a number; copy or download the file again"
        ))),
        false => Ok(()),
    }
}

/// The first `count` values, which are no longer in `rest`.
fn take_first<'a, T>(rest: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    let (first, behind) = std::mem::take(rest).split_at_mut(count);
    *rest = behind;
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(format: Number, bytes: Vec<u8>) -> Tensor {
        Tensor {
            name: "t".into(),
            shape: vec![bytes.len() / format.bytes()],
            data: TensorData::Encoded {
                format,
                bytes: bytes.into(),
            },
        }
    }

    #[test]
    fn all_formats_decode_to_the_same_numbers() {
        let values = [0.0f32, -1.5, 0.15625, 256.0, f32::NEG_INFINITY];
        let of = |bytes: fn(f32) -> Vec<u8>| values.iter().flat_map(|&v| bytes(v)).collect();
        let tensors = [
            encoded(Number::F32, of(|v| v.to_le_bytes().into())),
            encoded(Number::Bf16, of(|v| bf16::from_f32(v).to_le_bytes().into())),
            encoded(Number::F16, of(|v| f16::from_f32(v).to_le_bytes().into())),
        ];
        for tensor in tensors {
            assert_eq!(tensor.to_f32().unwrap(), values);
            let mut narrow = [bf16::ZERO; 3];
            tensor.read_bf16(1, &mut narrow).unwrap();
            assert_eq!(narrow.map(bf16::to_f32), values[1..4]);
            assert_eq!(tensor.into_f32().unwrap(), values);
        }
    }

    #[test]
    fn bytes_in_a_file_are_read_piece_by_piece() {
        let values: Vec<f32> = (0..PIECE_BYTES / 2).map(|i| i as f32).collect();
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let named = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(named.path(), [b"head".as_slice(), &bytes].concat()).unwrap();
        let in_file = |start| Tensor {
            name: "t".into(),
            shape: vec![values.len()],
            data: TensorData::Encoded {
                format: Number::F32,
                bytes: TensorBytes::File(FileRange {
                    file: Arc::new(File::open(named.path()).unwrap()),
                    origin: "f".into(),
                    start,
                }),
            },
        };
        assert_eq!(in_file(4).to_f32().unwrap(), values);
        let mut some = vec![bf16::ZERO; 300_000];
        in_file(4).read_bf16(5, &mut some).unwrap();
        let wanted = values[5..].iter().map(|&value| bf16::from_f32(value));
        assert!(some.iter().copied().eq(wanted.take(300_000)));
        let error = in_file(8).to_f32().unwrap_err().to_string();
        assert!(error.starts_with("cannot read f: "), "{error}");
    }
}
