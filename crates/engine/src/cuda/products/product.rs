//! Products of layers: weights, inputs and outputs.

use std::ops::Range;

use half::bf16;

use super::{
    bucket,
    plan::{ALIGNED_BYTES, NumberTypes, Operands, ProductShape},
};
use crate::cuda::{
    error::CudaError,
    kernels::{Activations, Int8Rows, SCALE_STEP, Scale},
    memory::Pointer,
};

/// What a sum goes through before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Epilogue {
    Bias,
    /// Plus bias, through GELU (tanh).
    BiasGelu,
    /// Plus bias, plus the previous value of the output.
    BiasAdd,
}

/// Where the weights of a linear layer are, `[outputs, inner]`.
#[derive(Clone, Copy, Debug)]
pub enum WeightPointer {
    Bf16(Pointer<bf16>),
    Int8(Int8Rows),
    /// A weight is the number times the scale.
    E4m3 {
        values: Pointer<u8>,
        scale: Scale,
    },
}

/// Weights and bias of a linear layer.
#[derive(Clone, Copy, Debug)]
pub struct LinearRef {
    pub weight: WeightPointer,
    /// `[outputs]`.
    pub bias: Pointer<bf16>,
    /// The same in f32, for results in f32.
    pub bias_f32: Option<Pointer<f32>>,
    /// The largest size of an input so far, where inputs are measured.
    pub largest_input: Option<Pointer<f32>>,
    pub outputs: usize,
    pub inner: usize,
}

/// `out = epilogue(x w^T + bias)` for `rows` rows. `x` and `out` have room for [`bucket`] rows. Where x is in e4m3, so are the
/// weights, and out may be.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    pub linear: LinearRef,
    /// `[rows, inner]`.
    pub x: Activations,
    /// `[rows, outputs]`.
    pub out: Activations,
    pub rows: usize,
    /// What is done with a sum.
    pub epilogue: Epilogue,
}

impl LinearRef {
    /// Some of its outputs, as a layer of its own.
    pub fn outputs_in(&self, range: Range<usize>) -> Self {
        let weights = range.start * self.inner;
        Self {
            weight: match self.weight {
                WeightPointer::Bf16(weight) => WeightPointer::Bf16(weight.at(weights)),
                WeightPointer::Int8(rows) => WeightPointer::Int8(rows.from(range.start)),
                WeightPointer::E4m3 { values, scale } => WeightPointer::E4m3 {
                    values: values.at(weights),
                    scale,
                },
            },
            bias: self.bias.at(range.start),
            bias_f32: self.bias_f32.map(|bias| bias.at(range.start)),
            outputs: range.len(),
            ..*self
        }
    }

    pub fn is_int8(&self) -> bool {
        matches!(self.weight, WeightPointer::Int8(_))
    }

    /// Its bias in f32; an error where it has none.
    pub fn bias_f32(&self) -> Result<Pointer<f32>, CudaError> {
        self.bias_f32.ok_or_else(|| {
            CudaError::Shape(format!(
                "a layer of {} outputs has no bias in f32 where one is needed",
                self.outputs
            ))
        })
    }

    /// Its weights in bf16; an error where they are in 8 bits.
    pub fn bf16(&self) -> Result<Pointer<bf16>, CudaError> {
        match self.weight {
            WeightPointer::Bf16(weight) => Ok(weight),
            WeightPointer::Int8(_) | WeightPointer::E4m3 { .. } => Err(CudaError::Shape(format!(
                "a layer of {} outputs is in 8 bits where bf16 is needed",
                self.outputs
            ))),
        }
    }

    /// The product of `rows` rows with it.
    pub fn product(
        self,
        x: Activations,
        out: Activations,
        rows: usize,
        epilogue: Epilogue,
    ) -> Product {
        Product {
            linear: self,
            x,
            out,
            rows,
            epilogue,
        }
    }

    /// True when the buffers have all weights.
    pub fn is_within_buffers(&self) -> bool {
        let values = self.outputs * self.inner;
        match self.weight {
            WeightPointer::Bf16(weight) => weight.len() >= values,
            WeightPointer::E4m3 { values: at, .. } => at.len() >= values,
            WeightPointer::Int8(rows) => rows.has_room_for(self.outputs, self.inner),
        }
    }
}

impl Product {
    /// What its algorithm is chosen by.
    pub(super) fn shape(&self) -> ProductShape {
        let Self { linear, x, out, .. } = self;
        ProductShape {
            rows: bucket(self.rows),
            outputs: linear.outputs,
            inner: linear.inner,
            x_stride: x.stride(),
            out_stride: out.stride(),
            epilogue: self.epilogue,
            numbers: match (x, out) {
                (Activations::E4m3(..), Activations::E4m3(..)) => NumberTypes::E4m3ToE4m3,
                (Activations::E4m3(..), _) => NumberTypes::E4m3,
                // Those in int8 are not cuBLASLt's: `operands` rejects them.
                (Activations::Bf16(_) | Activations::Int8(_), _) => NumberTypes::Bf16,
            },
            skew: skew(x.address(), out.address()),
        }
    }

    /// True when the buffers have room for all rows of the bucket.
    pub(super) fn is_within_buffers(&self) -> bool {
        let rows = bucket(self.rows);
        self.x.has_room_for(rows, self.linear.inner)
            && self.out.has_room_for(rows, self.linear.outputs)
            && self.linear.is_within_buffers()
    }

    pub(super) fn operands(&self) -> Result<Operands, CudaError> {
        let (weight, scales) = match (&self.x, &self.out, self.linear.weight) {
            (Activations::Bf16(_), Activations::Bf16(_), _) => {
                (self.linear.bf16()?.address(), [0; 3])
            }
            (Activations::E4m3(..), _, WeightPointer::E4m3 { values, scale }) => {
                (values.address(), self.scales(scale))
            }
            _ => {
                return Err(CudaError::Shape(format!(
                    "a product in e4m3 of what is in bf16: {:?}",
                    self.shape()
                )));
            }
        };
        Ok(Operands {
            weight,
            bias: self.linear.bias.address(),
            x: self.x.address(),
            out: self.out.address(),
            scales,
        })
    }

    /// Where cuBLASLt reads what weights and x are multiplied with, and, for a result in e4m3, the inverse of its scale.
    fn scales(&self, weight: Scale) -> [u64; 3] {
        let read = |values: &Activations, nth| match values {
            Activations::Bf16(_) | Activations::Int8(_) => 0,
            Activations::E4m3(_, scale) => scale.at.at(nth * SCALE_STEP).address(),
        };
        [weight.at.address(), read(&self.x, 0), read(&self.out, 1)]
    }
}

pub(super) fn skew(x: u64, out: u64) -> (u64, u64) {
    (x % ALIGNED_BYTES, out % ALIGNED_BYTES)
}
