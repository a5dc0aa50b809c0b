//! Matrix products, all of them: the only file that knows the library that computes them.
//!
//! Large products run on Rayon's pool. A shape that does not fit is a bug of the caller and panics.

use std::{fmt, ops::Range};

use rten_gemm::{BiasVector, GemmExecutor, GemmInputA, GemmInputB, GemmOptions, PackedBMatrix};
use rten_tensor::{NdTensorView, prelude::*};

/// A matrix to read: any strides.
pub(super) type Matrix<'a> = NdTensorView<'a, f32, 2>;

/// The kernels for this machine's processor. It cannot be kept across threads, and costs next to nothing: the choice is
/// the same every time (packed weights depend on that) and is remembered by the standard library.
fn executor() -> GemmExecutor {
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

/// A linear layer, `y = x · Wᵀ + b` for rows of `x`, with its weights in the order in which they are read.
pub(super) struct PackedLinear {
    /// `Wᵀ`, packed. Packing at every call would cost a product of few rows up to forty times its own time.
    weight: PackedBMatrix<f32>,
    bias: Vec<f32>,
    inputs: usize,
}

impl PackedLinear {
    /// From `[outputs, inputs]` and `[outputs]`.
    pub fn new(weight: &[f32], bias: Vec<f32>) -> Self {
        let inputs = weight.len() / bias.len();
        Self {
            weight: executor().prepack_b(matrix(weight, inputs).transposed()),
            bias,
            inputs,
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
        let options = GemmOptions {
            beta,
            bias: Some(BiasVector::Row(&self.bias)),
            ..GemmOptions::default()
        };
        run(
            y,
            matrix(x, self.inputs),
            GemmInputB::Packed(&self.weight),
            options,
        );
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
}
