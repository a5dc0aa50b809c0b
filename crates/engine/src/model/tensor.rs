//! One tensor as a file holds it.

use std::{ops::Deref, sync::Arc};

use half::{bf16, f16};

/// Number formats of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatFormat {
    /// 8 exponent bits, 7 of mantissa.
    Bf16,
    /// IEEE half precision.
    F16,
    /// IEEE single precision.
    F32,
}

impl FloatFormat {
    /// Bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// The values of a tensor, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorData {
    /// Little-endian bytes, read from a file or borrowed from the program itself.
    Encoded {
        /// What the bytes are.
        format: FloatFormat,
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
    /// Read from a file; free when the last clone is gone.
    Shared(Arc<Vec<u8>>),
}

impl Deref for TensorBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Static(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for TensorBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Shared(Arc::new(bytes))
    }
}

impl PartialEq for TensorBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

/// A tensor with its published name, without the `model.` prefix.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub name: String,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// As many values as the product of `shape`.
    pub data: TensorData,
}

impl Tensor {
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True when a size is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values in single precision; exact for all formats.
    pub fn to_f32(&self) -> Vec<f32> {
        match &self.data {
            TensorData::F32(values) => values.clone(),
            TensorData::Encoded { format, bytes } => decode(*format, bytes),
        }
    }

    /// The same, giving up the tensor: its memory is free when this returns, or becomes the result.
    pub fn into_f32(self) -> Vec<f32> {
        match self.data {
            TensorData::F32(values) => values,
            TensorData::Encoded { format, bytes } => decode(format, &bytes),
        }
    }
}

fn decode(format: FloatFormat, bytes: &[u8]) -> Vec<f32> {
    let (pairs, _) = bytes.as_chunks::<2>();
    match format {
        FloatFormat::Bf16 => pairs
            .iter()
            .map(|&pair| bf16::from_le_bytes(pair).to_f32())
            .collect(),
        FloatFormat::F16 => pairs
            .iter()
            .map(|&pair| f16::from_le_bytes(pair).to_f32())
            .collect(),
        FloatFormat::F32 => {
            let (words, _) = bytes.as_chunks::<4>();
            words.iter().map(|&word| f32::from_le_bytes(word)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(format: FloatFormat, bytes: Vec<u8>) -> Tensor {
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
            encoded(FloatFormat::F32, of(|v| v.to_le_bytes().into())),
            encoded(
                FloatFormat::Bf16,
                of(|v| bf16::from_f32(v).to_le_bytes().into()),
            ),
            encoded(
                FloatFormat::F16,
                of(|v| f16::from_f32(v).to_le_bytes().into()),
            ),
        ];
        for tensor in tensors {
            assert_eq!(tensor.to_f32(), values);
            assert_eq!(tensor.into_f32(), values);
        }
    }

    #[test]
    fn clones_share_their_bytes() {
        let tensor = encoded(FloatFormat::Bf16, vec![1, 2, 3, 4]);
        let address = |tensor: &Tensor| match &tensor.data {
            TensorData::Encoded { bytes, .. } => bytes.as_ptr(),
            TensorData::F32(_) => panic!("bytes were given"),
        };
        let clone = tensor.clone();
        assert_eq!(clone, tensor);
        assert_eq!(address(&clone), address(&tensor));
    }
}
