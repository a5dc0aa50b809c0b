//! The plain operations of the network over row-major f32: layer norm, GELU, softmax, argmax, and dot products.

use rayon::prelude::*;
use rten_simd::{SimdOp, SimdUnaryOp};
use rten_vecmath::{ApproxGelu, Gelu, Normalize, NormalizeOptions, Softmax, Sum, SumSquareSub};

use super::gemm::PackedLinear;
use crate::{
    model::{LAYER_NORM_EPS, LinearWeights, Tensor, WeightsError},
    network::{Mlp, Norm, PartMap},
};

/// Values that one task of an element-wise operation takes: enough to outweigh the hand-over to another thread.
const TASK_VALUES: usize = 16 * 1024;

/// Converts to f32 and drops the source. Experts stay as they are.
pub(super) fn linear(source: LinearWeights) -> Result<PackedLinear, WeightsError> {
    packed(source, PackedLinear::new)
}

/// The same in int8.
pub(super) fn linear_in_int8(source: LinearWeights) -> Result<PackedLinear, WeightsError> {
    packed(source, PackedLinear::in_int8)
}

fn packed(
    source: LinearWeights,
    pack: fn(&[f32], Vec<f32>) -> PackedLinear,
) -> Result<PackedLinear, WeightsError> {
    if source.is_experts() {
        return stored_linear(source);
    }
    let large = source.large;
    let (weight, bias) = (source.weight.into_f32()?, source.bias.into_f32()?);
    Ok(pack(&weight, bias).of_large(large))
}

/// Reads the weights into memory as the file has them.
pub(super) fn stored_linear(source: LinearWeights) -> Result<PackedLinear, WeightsError> {
    let bias = match source.bias.is_empty() {
        true => vec![0.0; source.outputs()],
        false => source.bias.into_f32()?,
    };
    let layer = PackedLinear::stored(source.weight, source.row_scales, bias)?;
    Ok(layer.of_large(source.large))
}

/// Makes a layer of its weights.
pub(super) type MakeLinear<'a> = &'a dyn Fn(LinearWeights) -> Result<PackedLinear, WeightsError>;

/// Converts the parts of a network, each as soon as it is read: layers by a function, and the others to f32.
pub(super) struct IntoF32<'a>(pub MakeLinear<'a>);

impl PartMap<LinearWeights, Tensor> for IntoF32<'_> {
    type Layer = PackedLinear;
    type Plain = Vec<f32>;
    type Error = WeightsError;

    fn layer(&mut self, layer: LinearWeights) -> Result<PackedLinear, WeightsError> {
        (self.0)(layer)
    }

    fn plain(&mut self, tensor: Tensor) -> Result<Vec<f32>, WeightsError> {
        tensor.into_f32()
    }
}

impl Mlp<PackedLinear> {
    pub(super) fn forward(&self, x: &[f32]) -> Vec<f32> {
        self.fc2.forward(&self.inner(x))
    }

    /// What the second layer reads.
    pub(super) fn inner(&self, x: &[f32]) -> Vec<f32> {
        let mut inner = self.fc1.forward(x);
        gelu(&mut inner);
        inner
    }
}

impl Norm<Vec<f32>> {
    /// `(x - mean) / sqrt(variance + eps) * weight + bias` for every row: `[rows, width]` to the same.
    pub(super) fn forward(&self, x: &[f32]) -> Vec<f32> {
        let width = self.weight.len();
        let task = width * rows_per_task(width);
        let mut y = vec![0.0; x.len()];
        y.par_chunks_mut(task)
            .zip(x.par_chunks(task))
            .for_each(|(y, x)| {
                for (y, x) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
                    self.row(y, x);
                }
            });
        y
    }

    fn row(&self, y: &mut [f32], x: &[f32]) {
        let width = x.len() as f32;
        let mean = Sum::new(x).dispatch() / width;
        let variance = SumSquareSub::new(x, mean).dispatch() / width;
        let options = NormalizeOptions {
            pre_scale_bias: mean,
            scale: (variance + LAYER_NORM_EPS).sqrt().recip(),
            element_scale: Some(&self.weight),
            element_bias: Some(&self.bias),
            ..NormalizeOptions::default()
        };
        y.copy_from_slice(x);
        Normalize::new_mut(y, options).dispatch();
    }
}

/// Dot product of two vectors of one length, in eight partial sums: the compiler may then use vector instructions, and the
/// rounding error is smaller than that of one long sum.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// Tanh GELU, `x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`, in place.
pub(super) fn gelu(values: &mut [f32]) {
    let tasks = values.par_chunks_mut(TASK_VALUES);
    tasks.for_each(|values| ApproxGelu {}.map_mut(values));
}

/// GELU by the error function, `x/2 · (1 + erf(x/√2))`, in place.
pub(super) fn gelu_erf(values: &mut [f32]) {
    Gelu {}.map_mut(values);
}

/// `e^(x - max) / sum` in place, for one row. The largest value is finite.
pub(super) fn softmax(row: &mut [f32]) {
    Softmax::new_mut(row).dispatch();
}

/// Index of the largest value, the lowest among equals; 0 when there is none.
pub(super) fn argmax(values: &[f32]) -> usize {
    let mut best = 0;
    for (i, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = i;
        }
    }
    best
}

fn rows_per_task(width: usize) -> usize {
    TASK_VALUES.div_ceil(width)
}
