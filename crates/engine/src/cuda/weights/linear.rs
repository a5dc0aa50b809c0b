//! A linear layer's weights on the GPU.

use half::bf16;

use crate::cuda::{
    error::CudaError,
    fp8::{self, Scales},
    kernels::Kernels,
    memory::{Buffer, Pointer, wait_for_stream},
    tensor::{Int8Rows, LinearRef, MatrixShape, StridedRows, WeightPointer},
};

/// Weights of a layer, `[outputs, inner]`.
pub enum GpuWeight {
    Bf16(Buffer<bf16>),
    /// A weight is the number times the scale of its output; rows are [`Int8Rows::stride_of`] values apart.
    Int8 {
        values: Buffer<i8>,
        scales: Buffer<f32>,
    },
    /// A weight is the number times the scale.
    E4m3 {
        values: Buffer<u8>,
        scale: Scales,
    },
}

pub struct GpuLinear {
    pub(super) weight: GpuWeight,
    pub(super) bias: Buffer<bf16>,
    pub(super) bias_f32: Buffer<f32>,
    /// The largest size of an input so far, while fp8 is calibrated.
    pub(super) largest_input: Option<Buffer<f32>>,
    pub(super) outputs: usize,
    pub(super) inner: usize,
}

/// What the weights of the large layers are stored in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightFormat {
    Bf16,
    Int8,
}

impl GpuLinear {
    pub fn is_int8(&self) -> bool {
        matches!(self.weight, GpuWeight::Int8 { .. })
    }

    pub fn at(&self) -> LinearRef {
        LinearRef {
            weight: match &self.weight {
                GpuWeight::Bf16(weight) => WeightPointer::Bf16(weight.start()),
                GpuWeight::Int8 { values, scales } => {
                    let rows = Int8Rows::new(values.start(), scales.start(), self.inner);
                    WeightPointer::Int8(rows)
                }
                GpuWeight::E4m3 { values, scale } => WeightPointer::E4m3 {
                    values: values.start(),
                    scale: scale.at(0),
                },
            },
            bias: self.bias.start(),
            bias_f32: Some(self.bias_f32.start()),
            largest_input: self.largest_input.as_ref().map(Buffer::start),
            outputs: self.outputs,
            inner: self.inner,
        }
    }

    /// Its bias in f32, for results in f32.
    pub fn bias_f32(&self) -> Pointer<f32> {
        self.bias_f32.start()
    }

    /// Measures its inputs from now on.
    pub fn measure_inputs(&mut self, kernels: &Kernels) -> Result<(), CudaError> {
        self.largest_input = Some(Buffer::zeros(&kernels.stream, 1)?);
        Ok(())
    }

    /// Converts the weights to e4m3 and frees those in bf16. Returns the largest size of the inputs that were measured. Waits for the
    /// stream.
    pub fn quantise(&mut self, kernels: &Kernels) -> Result<f32, CudaError> {
        let stream = &kernels.stream;
        let from = StridedRows::packed(self.at().bf16()?, self.inner);
        let shape = MatrixShape {
            rows: self.outputs,
            width: self.inner,
        };
        let largest = Buffer::zeros(stream, 1)?;
        kernels.abs_max(from, largest.start(), shape)?;
        let scale = fp8::scale(largest.to_host(stream)?[0], 1.0)?;
        let scale = Scales::new(stream, &[scale])?;
        let values = Buffer::zeros(stream, self.outputs * self.inner)?;
        let to = StridedRows::packed(values.start(), self.inner);
        kernels.quantise(from, to, scale.at(0), shape)?;
        wait_for_stream(stream, "converting weights to e4m3")?;
        self.weight = GpuWeight::E4m3 { values, scale };
        match self.largest_input.take() {
            Some(largest) => Ok(largest.to_host(stream)?[0]),
            None => Err(CudaError::Fp8("its inputs were not measured".into())),
        }
    }
}
