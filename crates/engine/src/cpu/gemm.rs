//! Matrix products, all of them: the only file that knows the library that computes them.
//!
//! Large products run on Rayon's pool. A shape that does not fit is a bug of the caller and panics.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use rayon::prelude::*;
use rten_gemm::{
    BiasVector, GemmExecutor, GemmInputA, GemmInputB, GemmOptions, PackedBMatrix, QuantParams,
};
use rten_tensor::{NdTensorView, prelude::*};

/// A matrix to read: any strides.
pub(super) type Matrix<'a> = NdTensorView<'a, f32, 2>;

/// The kernels for this machine's processor. It cannot be kept across threads, and costs next to nothing: the choice is
/// the same every time (packed weights depend on that) and is remembered by the standard library.
fn executor() -> GemmExecutor {
    GemmExecutor::new()
}

/// The same for products in int8: of VNNI, of AVX2, of NEON's dot products.
fn int8_executor() -> GemmExecutor<u8, i8, i32> {
    GemmExecutor::new()
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

/// `Wᵀ`, packed. Packing at every call would cost a product of few rows up to forty times its own time.
enum PackedWeight {
    F32(PackedBMatrix<f32>),
    /// A weight is the number times the scale of its output.
    Int8 {
        values: PackedBMatrix<i8>,
        scales: Vec<f32>,
    },
}

/// A linear layer, `y = x · Wᵀ + b` for rows of `x`, with its weights in the order in which they are read.
pub(super) struct PackedLinear {
    weight: PackedWeight,
    bias: Vec<f32>,
    inputs: usize,
    /// Set where inputs are measured.
    log: Option<InputLog>,
}

/// Inputs of layers, in the order of their products.
pub(super) type InputLog = Arc<Mutex<Vec<LayerInputs>>>;

/// `[rows, width]`.
#[derive(Debug, Default)]
pub(super) struct LayerInputs {
    pub values: Vec<f32>,
    pub width: usize,
}

impl PackedLinear {
    /// From `[outputs, inputs]` and `[outputs]`.
    pub fn new(weight: &[f32], bias: Vec<f32>) -> Self {
        let inputs = weight.len() / bias.len();
        Self {
            weight: PackedWeight::F32(executor().prepack_b(matrix(weight, inputs).transposed())),
            bias,
            inputs,
            log: None,
        }
    }

    /// Copies its inputs to `log` from now on.
    pub fn logging(self, log: &InputLog) -> Self {
        Self {
            log: Some(Arc::clone(log)),
            ..self
        }
    }

    /// The same with weights in int8.
    pub fn in_int8(weight: &[f32], bias: Vec<f32>) -> Self {
        let inputs = weight.len() / bias.len();
        let executor = int8_executor();
        // Without VNNI, sums of two products saturate in 16 bits unless weights have 7.
        let most = if executor.may_saturate() { 63.0 } else { 127.0 };
        let scales: Vec<f32> = weight
            .chunks_exact(inputs)
            .map(|row| largest(row) / most)
            .collect();
        let numbers = weight.chunks_exact(inputs).zip(&scales);
        let numbers: Vec<i8> = numbers
            .flat_map(|(row, &scale)| {
                row.iter()
                    .map(move |x| (x * inverse(scale)).round_ties_even() as i8)
            })
            .collect();
        let rows = NdTensorView::from_data([bias.len(), inputs], &numbers[..]);
        Self {
            weight: PackedWeight::Int8 {
                values: executor.prepack_b(rows.transposed()),
                scales,
            },
            bias,
            inputs,
            log: None,
        }
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

    /// `y += x · Wᵀ + b`.
    pub fn add_to(&self, y: &mut [f32], x: &[f32]) {
        self.run(y, x, 1.0);
    }

    fn run(&self, y: &mut [f32], x: &[f32], beta: f32) {
        if let Some(log) = &self.log {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.push(LayerInputs {
                values: x.to_vec(),
                width: self.inputs,
            });
        }
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
            PackedWeight::Int8 { values, scales } => {
                let x = Int8Inputs::of(x, self.inputs);
                let mut sums = vec![0; y.len()];
                x.multiply(&mut sums, values);
                let outputs = self.outputs();
                let rows = y.par_chunks_mut(outputs).zip(sums.par_chunks(outputs));
                rows.zip(&x.scales).for_each(|((y, sums), x_scale)| {
                    for (((y, &sum), scale), bias) in
                        y.iter_mut().zip(sums).zip(scales).zip(&self.bias)
                    {
                        *y = beta * *y + sum as f32 * (x_scale * scale) + bias;
                    }
                });
            }
        }
    }
}

/// The number of the value zero in inputs in int8: the library wants numbers without a sign.
const ZERO: u8 = 128;

/// Rows of inputs in int8: a value is the number less [`ZERO`], times the scale of its row.
struct Int8Inputs {
    values: Vec<u8>,
    scales: Vec<f32>,
    width: usize,
}

impl Int8Inputs {
    fn of(x: &[f32], width: usize) -> Self {
        let mut values = vec![ZERO; x.len()];
        let rows = values.par_chunks_mut(width).zip(x.par_chunks(width));
        let scales = rows.map(|(to, row)| {
            let scale = largest(row) / 127.0;
            let factor = inverse(scale);
            for (to, x) in to.iter_mut().zip(row) {
                // The last bits of a sum with this number are the nearest whole number: faster than rounding where the processor's
                // instruction for that is not assumed.
                *to = (x * factor + (ROUNDS + f32::from(ZERO))).to_bits() as u8;
            }
            scale
        });
        Self {
            scales: scales.collect(),
            values,
            width,
        }
    }

    /// Exact sums of the products of the numbers.
    fn multiply(&self, sums: &mut [i32], weight: &PackedBMatrix<i8>) {
        let rows = self.scales.len();
        let zeros = vec![ZERO; rows];
        let options = GemmOptions {
            a_quant: Some(QuantParams { zero_point: &zeros }),
            ..GemmOptions::default()
        };
        let a = NdTensorView::from_data([rows, self.width], &self.values[..]);
        let (a, b) = (GemmInputA::Unpacked(a), GemmInputB::Packed(weight));
        if let Err(error) = int8_executor().gemm(sums, a, b, options) {
            panic!("shapes of a product in int8 do not fit: {error:?}");
        }
    }
}

/// 1.5 · 2^23, whose neighbours are whole numbers.
const ROUNDS: f32 = 12_582_912.0;

/// Rows of `width` values, each rounded to whole parts of its scale, of which the largest value is 127: what int8 makes of inputs, and of
/// the weights of each output.
pub(super) fn rounded_to_int8(rows: &[f32], width: usize) -> Vec<f32> {
    let mut rounded = rows.to_vec();
    rounded.par_chunks_mut(width).for_each(|row| {
        let scale = largest(row) / 127.0;
        let factor = inverse(scale);
        for x in row {
            *x = (*x * factor).round_ties_even() * scale;
        }
    });
    rounded
}

/// The largest magnitude. For floats that are not negative, the order of their bits is their order.
pub(super) fn largest(row: &[f32]) -> f32 {
    let magnitudes = row.iter().map(|x| x.abs().to_bits());
    f32::from_bits(magnitudes.max().unwrap_or_default())
}

/// What values with this scale are multiplied with; 0 for a row of zeros.
fn inverse(scale: f32) -> f32 {
    if scale > 0.0 { scale.recip() } else { 0.0 }
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
    if let Err(error) = executor().gemm(out, GemmInputA::Unpacked(a), b, options) {
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
        let most: usize = if int8_executor().may_saturate() {
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
