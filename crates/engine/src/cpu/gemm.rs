//! Matrix products, all of them: the only file that knows the library that computes them.
//!
//! Large products run on Rayon's pool. A shape that does not fit is a bug of the caller and panics.

use std::{fmt, mem::MaybeUninit, ops::Range, sync::Mutex};

use rayon::prelude::*;
use rten_gemm::{
    BiasVector, GemmExecutor, GemmInputA, GemmInputB, GemmOptions, GemmResult, GemmUninitOptions,
    PackedBMatrix, QuantParams,
};
use rten_tensor::{NdTensorView, prelude::*};
use rten_vecmath::ExtendInit;

use super::int8::{Int8Sums, ZERO, to_int8};
use crate::{
    model::{StoredValues, Tensor, WeightsError},
    network::layers::LargeLayer,
};

/// A matrix to read: any strides.
pub(super) type Matrix<'a> = NdTensorView<'a, f32, 2>;

thread_local! {
    /// The kernels for this machine's processor. The choice is the same in every thread (packed weights depend on that), and
    /// asking a virtual machine's processor for each product costs a hundredth of a look.
    static EXECUTOR: GemmExecutor = GemmExecutor::new();
    /// The same for products in int8: of VNNI, of AVX2, of NEON's dot products.
    static INT8_EXECUTOR: GemmExecutor<u8, i8, i32> = GemmExecutor::new();
}

/// `values` as rows of `width`.
pub(super) fn matrix(values: &[f32], width: usize) -> Matrix<'_> {
    NdTensorView::from_data([values.len() / width, width], values)
}

/// Columns of `values`, which holds rows of `width`.
pub(super) fn columns(values: &[f32], width: usize, range: Range<usize>) -> Matrix<'_> {
    matrix(values, width).slice((.., range))
}

/// `scale · a · b`, row-major: `[rows, inner]` times `[inner, columns]`.
pub(super) fn product(a: Matrix<'_>, b: Matrix<'_>, scale: f32) -> Vec<f32> {
    let mut out = vec![0.0; a.size(0) * b.size(1)];
    let options = GemmOptions {
        alpha: scale,
        ..GemmOptions::default()
    };
    run(&mut out, a, GemmInputB::Unpacked(b), options);
    out
}

/// The right side of several products, packed once.
pub(super) struct PackedRight {
    values: PackedBMatrix<f32>,
    columns: usize,
}

impl PackedRight {
    /// Of `[inner, columns]`.
    pub fn new(values: Matrix<'_>) -> Self {
        Self {
            values: EXECUTOR.with(|executor| executor.prepack_b(values)),
            columns: values.size(1),
        }
    }

    pub fn columns(&self) -> usize {
        self.columns
    }

    /// `scale · a` times it, row-major: `[rows, inner]` to `[rows, columns]`.
    pub fn product(&self, a: Matrix<'_>, scale: f32) -> Vec<f32> {
        let options = GemmUninitOptions {
            alpha: scale,
            ..GemmUninitOptions::default()
        };
        let length = a.size(0) * self.columns;
        let (a, b) = (GemmInputA::Unpacked(a), GemmInputB::Packed(&self.values));
        let mut out = Vec::new();
        fill(&mut out, length, |out| {
            EXECUTOR.with(|executor| executor.gemm_uninit(out, a, b, options.clone()))
        });
        out
    }
}

/// Makes `out` the `length` values that a product writes: zeros first would be one more pass over memory.
fn fill<T>(
    out: &mut Vec<T>,
    length: usize,
    product: impl Fn(&mut [MaybeUninit<T>]) -> GemmResult<&mut [T]>,
) {
    out.clear();
    out.reserve_exact(length);
    out.extend_init(|room| match product(&mut room[..length]) {
        Ok(values) => values,
        Err(error) => panic!("shapes of a matrix product do not fit: {error:?}"),
    });
}

/// `Wᵀ`, packed. Packing at every call would cost a product of few rows up to forty times its own time.
enum PackedWeight {
    F32(PackedBMatrix<f32>),
    /// A weight is the number times the scale of its output.
    Int8 {
        values: PackedBMatrix<i8>,
        scales: Vec<f32>,
    },
    Stored(StoredWeight),
}

/// Weights in the format of their file, `[experts, outputs, inputs]`: in f32 those of a Moondream 3 would take 37 GB.
struct StoredWeight {
    values: StoredValues,
    /// Of each output, what its values are multiplied with.
    scales: Option<Vec<f32>>,
}

/// Outputs of a stored weight that are in f32 at a time.
const UNPACKED_OUTPUTS: usize = 512;

impl StoredWeight {
    /// Gives products of all rows with the outputs in `range` to `with`, some outputs at a time.
    fn multiply(
        &self,
        x: Matrix<'_>,
        range: Range<usize>,
        mut with: impl FnMut(Range<usize>, Vec<f32>),
    ) {
        // A head that no row of a step asks would be unpacked for nothing.
        if x.size(0) == 0 {
            return;
        }
        let inputs = x.size(1);
        for first in range.clone().step_by(UNPACKED_OUTPUTS) {
            let outputs = first..range.end.min(first + UNPACKED_OUTPUTS);
            let mut unpacked = vec![0.0; outputs.len() * inputs];
            let rows = unpacked.par_chunks_exact_mut(inputs);
            rows.zip(outputs.clone()).for_each(|(row, output)| {
                self.values.read_f32(output * inputs, row);
                if let Some(scales) = &self.scales {
                    row.iter_mut().for_each(|value| *value *= scales[output]);
                }
            });
            // Packed, so that the sum of a row does not depend on how many there are.
            let unpacked = PackedRight::new(matrix(&unpacked, inputs).transposed());
            with(outputs, unpacked.product(x, 1.0));
        }
    }
}

/// A linear layer, `y = x · Wᵀ + b` for rows of `x`, with its weights in the order in which they are read.
pub(super) struct PackedLinear {
    weight: PackedWeight,
    bias: Vec<f32>,
    inputs: usize,
    /// The large layer that it is, or is a part of.
    pub large: Option<LargeLayer>,
}

impl PackedLinear {
    /// From `[outputs, inputs]` and `[outputs]`.
    pub fn new(weight: &[f32], bias: Vec<f32>) -> Self {
        let inputs = weight.len() / bias.len();
        Self {
            weight: PackedWeight::F32(
                EXECUTOR.with(|executor| executor.prepack_b(matrix(weight, inputs).transposed())),
            ),
            bias,
            inputs,
            large: None,
        }
    }

    /// The same with weights in int8.
    pub fn in_int8(weight: &[f32], bias: Vec<f32>) -> Self {
        let inputs = weight.len() / bias.len();
        // Without VNNI, sums of two products saturate in 16 bits unless weights have 7.
        let most = if INT8_EXECUTOR.with(GemmExecutor::may_saturate) {
            63.0
        } else {
            127.0
        };
        let mut rounded = vec![ZERO; weight.len()];
        let rows = rounded.par_chunks_mut(inputs);
        let scales = rows
            .zip(weight.par_chunks(inputs))
            .map(|(numbers, row)| to_int8(row, numbers, most))
            .collect();
        let numbers: Vec<i8> = rounded
            .into_iter()
            .map(|number| number.wrapping_sub(ZERO) as i8)
            .collect();
        let rows = NdTensorView::from_data([bias.len(), inputs], &numbers[..]);
        Self {
            weight: PackedWeight::Int8 {
                values: INT8_EXECUTOR.with(|executor| executor.prepack_b(rows.transposed())),
                scales,
            },
            bias,
            inputs,
            large: None,
        }
    }

    /// Named as a large layer, or as a part of one.
    pub fn of_large(self, large: Option<LargeLayer>) -> Self {
        Self { large, ..self }
    }

    /// The same with weights that stay as the file has them. Of experts, `bias` has zeros for the outputs of one.
    pub fn stored(
        weight: Tensor,
        row_scales: Option<Tensor>,
        bias: Vec<f32>,
    ) -> Result<Self, WeightsError> {
        Ok(Self {
            inputs: weight.shape.last().copied().unwrap_or(1),
            weight: PackedWeight::Stored(StoredWeight {
                values: weight.into_stored()?,
                scales: row_scales.map(Tensor::into_f32).transpose()?,
            }),
            bias,
            large: None,
        })
    }

    /// `[rows, inputs]` through one of the experts that it is.
    pub fn expert(&self, expert: usize, x: &[f32]) -> Vec<f32> {
        let PackedWeight::Stored(weight) = &self.weight else {
            panic!("{self:?} has no experts");
        };
        let mut y = vec![0.0; x.len() / self.inputs * self.outputs()];
        self.run_stored(weight, expert, &mut y, x);
        y
    }

    fn run_stored(&self, weight: &StoredWeight, expert: usize, y: &mut [f32], x: &[f32]) {
        let outputs = self.outputs();
        let range = expert * outputs..(expert + 1) * outputs;
        weight.multiply(matrix(x, self.inputs), range.clone(), |part, products| {
            let (first, count) = (part.start - range.start, part.len());
            let rows = y.par_chunks_exact_mut(outputs);
            rows.zip(products.par_chunks_exact(count))
                .for_each(|(y, products)| {
                    let bias = &self.bias[first..];
                    let y = &mut y[first..first + count];
                    for ((y, product), bias) in y.iter_mut().zip(products).zip(bias) {
                        *y += product + bias;
                    }
                });
        });
    }

    /// Width of `x`.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Width of `y`.
    pub fn outputs(&self) -> usize {
        self.bias.len()
    }

    /// `[rows, inputs]` to `[rows, outputs]`.
    pub fn forward(&self, x: &[f32]) -> Vec<f32> {
        let mut y = vec![0.0; x.len() / self.inputs * self.outputs()];
        self.run(&mut y, x, 0.0);
        y
    }

    /// `y += x · Wᵀ + b` for the first rows of `y`, as many as `x` has.
    pub fn add_to(&self, y: &mut [f32], x: &[f32]) {
        let values = x.len() / self.inputs * self.outputs();
        self.run(&mut y[..values], x, 1.0);
    }

    /// With `beta` 0, `y` is zeros.
    fn run(&self, y: &mut [f32], x: &[f32], beta: f32) {
        match &self.weight {
            PackedWeight::F32(weight) => {
                let options = GemmOptions {
                    beta,
                    bias: Some(BiasVector::Row(&self.bias)),
                    ..GemmOptions::default()
                };
                run(
                    y,
                    matrix(x, self.inputs),
                    GemmInputB::Packed(weight),
                    options,
                );
            }
            PackedWeight::Stored(weight) => self.run_stored(weight, 0, y, x),
            PackedWeight::Int8 { values, scales } => {
                let mut buffers = Int8Buffers::take();
                buffers.round(x, self.inputs);
                buffers.multiply(values, y.len());
                let outputs = self.outputs();
                let sums = buffers.sums.par_chunks(outputs);
                let rows = y.par_chunks_mut(outputs).zip(sums);
                rows.zip(&buffers.scales)
                    .for_each(|((y, sums), &row_scale)| {
                        let row = Int8Sums {
                            sums,
                            row_scale,
                            scales,
                            bias: &self.bias,
                        };
                        row.add_to(y);
                    });
                buffers.give_back();
            }
        }
    }
}

/// Rows of inputs in int8, and sums of their products: a value is the number less [`ZERO`], times the scale of its row.
#[derive(Default)]
struct Int8Buffers {
    numbers: Vec<u8>,
    scales: Vec<f32>,
    sums: Vec<i32>,
}

/// Those that no product uses, as many as there were products at one time. The system's allocator returns vectors of this size
/// to the system, which clears each page again when it is next written: up to a third of a look's time.
static SPARE_BUFFERS: Mutex<Vec<Int8Buffers>> = Mutex::new(Vec::new());

impl Int8Buffers {
    fn take() -> Self {
        let spare = SPARE_BUFFERS.lock().map(|mut spare| spare.pop());
        spare.ok().flatten().unwrap_or_default()
    }

    fn give_back(self) {
        if let Ok(mut spare) = SPARE_BUFFERS.lock() {
            spare.push(self);
        }
    }

    /// Reads rows of `width`.
    fn round(&mut self, x: &[f32], width: usize) {
        self.numbers.resize(x.len(), ZERO);
        let rows = self.numbers.par_chunks_mut(width).zip(x.par_chunks(width));
        rows.map(|(numbers, row)| to_int8(row, numbers, 127.0))
            .collect_into_vec(&mut self.scales);
    }

    /// `length` exact sums of the products of the numbers.
    fn multiply(&mut self, weight: &PackedBMatrix<i8>, length: usize) {
        let rows = self.scales.len();
        let zeros = vec![ZERO; rows];
        let options = GemmUninitOptions {
            a_quant: Some(QuantParams { zero_point: &zeros }),
            ..GemmUninitOptions::default()
        };
        let inputs =
            NdTensorView::from_data([rows, self.numbers.len() / rows.max(1)], &self.numbers[..]);
        let (a, b) = (GemmInputA::Unpacked(inputs), GemmInputB::Packed(weight));
        fill(&mut self.sums, length, |sums| {
            INT8_EXECUTOR.with(|executor| executor.gemm_uninit(sums, a, b, options.clone()))
        });
    }
}

impl fmt::Debug for PackedLinear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Linear({} to {})", self.inputs, self.outputs())
    }
}

fn run(
    out: &mut [f32],
    a: Matrix<'_>,
    b: GemmInputB<'_, f32>,
    options: GemmOptions<'_, f32, f32, f32>,
) {
    let a = GemmInputA::Unpacked(a);
    if let Err(error) = EXECUTOR.with(|executor| executor.gemm(out, a, b, options)) {
        panic!("shapes of a matrix product do not fit: {error:?}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count)
            .map(|i| ((i * 7 + seed * 13) % 11) as f32 - 5.0)
            .collect()
    }

    proptest! {
        /// Small whole numbers, so every order of summation gives the same bits.
        #[test]
        fn linear_and_product_give_the_plain_sums(
            rows in 0_usize..9,
            inner in 1_usize..300,
            cols in 1_usize..70,
            (left, right) in (0_usize..3, 0_usize..3),
        ) {
            let width = left + inner + right;
            let padded = numbers(rows * width, 1);
            let x = columns(&padded, width, left..left + inner);
            let (weight, bias) = (numbers(cols * inner, 2), numbers(cols, 3));
            let mut expected = Vec::new();
            for row in 0..rows {
                for col in 0..cols {
                    let pairs = (0..inner).map(|i| padded[row * width + left + i] * weight[col * inner + i]);
                    expected.push(pairs.sum::<f32>());
                }
            }
            let by_product = product(x, matrix(&weight, inner).transposed(), 2.0);
            prop_assert_eq!(&by_product, &expected.iter().map(|x| 2.0 * x).collect::<Vec<_>>());

            let linear = PackedLinear::new(&weight, bias.clone());
            expected.chunks_exact_mut(cols).for_each(|row| row.iter_mut().zip(&bias).for_each(|(y, b)| *y += b));
            let mut y = linear.forward(&x.to_vec());
            prop_assert_eq!(&y, &expected);
            linear.add_to(&mut y, &x.to_vec());
            prop_assert_eq!(&y, &expected.iter().map(|x| 2.0 * x).collect::<Vec<_>>());
        }
    }

    /// Whole numbers with the largest that int8 has: all scales are 1, and nothing is rounded.
    #[test]
    fn int8_layer_of_whole_numbers_gives_the_plain_sums() {
        let most: usize = if INT8_EXECUTOR.with(GemmExecutor::may_saturate) {
            63
        } else {
            127
        };
        let whole = |count: usize, width: usize, most: usize| -> Vec<f32> {
            let number = |i: usize| ((i * 31 + most) % (2 * most + 1)) as f32 - most as f32;
            let values = (0..count).map(|i| {
                if i % width == 0 {
                    most as f32
                } else {
                    number(i)
                }
            });
            values.collect()
        };
        for (rows, inputs, outputs) in [(1, 64, 40), (5, 300, 7), (33, 701, 65)] {
            let (x, weight) = (
                whole(rows * inputs, inputs, 127),
                whole(outputs * inputs, inputs, most),
            );
            let bias = numbers(outputs, 3);
            let narrow = PackedLinear::in_int8(&weight, bias.clone());
            let wide = PackedLinear::new(&weight, bias);
            let (mut y, want) = (narrow.forward(&x), wide.forward(&x));
            assert_eq!(y, want, "{rows} {inputs} {outputs}");
            narrow.add_to(&mut y, &x);
            assert_eq!(y, want.iter().map(|y| 2.0 * y).collect::<Vec<_>>());
        }
        let zeros = PackedLinear::in_int8(&[0.0; 12], vec![1.0, 2.0, 3.0]);
        assert_eq!(zeros.forward(&[0.0; 4]), [1.0, 2.0, 3.0]);
    }
}
