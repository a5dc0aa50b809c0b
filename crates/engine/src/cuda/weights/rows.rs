//! Matrices of weights that are read some rows at a time, in the order that the network reads. Pure but for the file behind a tensor.

use std::ops::Range;

use half::bf16;

use crate::{
    cuda::tensor::TEXT_HEAD,
    model::{Tensor, WeightsError},
};

/// Values of a piece, at least: 16 MiB.
pub const PIECE_VALUES: usize = 8 << 20;

/// Fills its second argument with some rows, in bf16.
type ReadRows<'a> = dyn Fn(Range<usize>, &mut [bf16]) -> Result<(), WeightsError> + 'a;

/// A matrix `[rows, width]`.
pub struct WeightRows<'a> {
    pub rows: usize,
    pub width: usize,
    read: Box<ReadRows<'a>>,
}

impl<'a> WeightRows<'a> {
    fn new(
        rows: usize,
        width: usize,
        read: impl Fn(Range<usize>, &mut [bf16]) -> Result<(), WeightsError> + 'a,
    ) -> Self {
        let read = Box::new(read);
        Self { rows, width, read }
    }

    /// A tensor as it is.
    pub fn of(tensor: &'a Tensor, width: usize) -> Self {
        let read =
            move |rows: Range<usize>, to: &mut [bf16]| tensor.read_bf16(rows.start * width, to);
        Self::new(tensor.len() / width, width, read)
    }

    /// Some rows of a tensor of rows of `width` values.
    pub fn picked(tensor: &'a Tensor, width: usize, picked: &'a [usize]) -> Self {
        let read = move |rows: Range<usize>, to: &mut [bf16]| {
            let mut rows = picked[rows].iter().zip(to.chunks_exact_mut(width));
            rows.try_for_each(|(row, to)| tensor.read_bf16(row * width, to))
        };
        Self::new(picked.len(), width, read)
    }

    /// A tensor of rows of `inner` values, with zeros behind each row up to a multiple of 8 values, which products require.
    pub fn padded(tensor: &'a Tensor, inner: usize) -> Self {
        let width = inner.next_multiple_of(8);
        if width == inner {
            return Self::of(tensor, inner);
        }
        let read = move |rows: Range<usize>, to: &mut [bf16]| {
            to.fill(bf16::ZERO);
            let mut rows = rows.zip(to.chunks_exact_mut(width));
            rows.try_for_each(|(row, to)| tensor.read_bf16(row * inner, &mut to[..inner]))
        };
        Self::new(tensor.len() / inner, width, read)
    }

    /// Queries, keys and values with the pairs of each head of queries and keys together, then `below`, if it is there; rows of `width`
    /// values.
    pub fn stacked(qkv: &'a Tensor, below: Option<&'a Tensor>, width: usize) -> Self {
        let outputs = qkv.len() / width;
        let read = move |rows: Range<usize>, to: &mut [bf16]| {
            let above = outputs.saturating_sub(rows.start).min(rows.len());
            let (to, behind) = to.split_at_mut(above * width);
            if above > 0 {
                qkv.read_bf16(rows.start * width, to)?;
                let rotated = (outputs / 3 * 2).saturating_sub(rows.start).min(above);
                put_pairs_together(&mut to[..rotated * width], width);
            }
            match below {
                Some(below) if !behind.is_empty() => {
                    below.read_bf16((rows.start + above - outputs) * width, behind)
                }
                _ => Ok(()),
            }
        };
        let rows_below = below.map_or(0, |below| below.len() / width);
        Self::new(outputs + rows_below, width, read)
    }

    /// Two tensors of so many rows beside each other.
    pub fn side_by_side(left: &'a Tensor, right: &'a Tensor, rows: usize) -> Self {
        let width = (left.len() + right.len()) / rows;
        let split = left.len() / rows;
        let read = move |rows: Range<usize>, to: &mut [bf16]| {
            for (tensor, columns) in [(left, 0..split), (right, split..width)] {
                let inner = columns.len();
                let mut values = vec![bf16::ZERO; rows.len() * inner];
                tensor.read_bf16(rows.start * inner, &mut values)?;
                for (to, from) in to.chunks_exact_mut(width).zip(values.chunks_exact(inner)) {
                    to[columns.clone()].copy_from_slice(from);
                }
            }
            Ok(())
        };
        Self::new(rows, width, read)
    }

    /// The rows of each piece: whole heads of the decoder, but for the last piece.
    pub fn pieces(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let at_once = (PIECE_VALUES / self.width / TEXT_HEAD).max(1) * TEXT_HEAD;
        let rows = self.rows;
        let firsts = (0..rows).step_by(at_once);
        firsts.map(move |first| first..(first + at_once).min(rows))
    }

    /// Fills `to` with these rows, which begin with a head. May block on the disk.
    pub fn read(&self, rows: Range<usize>, to: &mut [bf16]) -> Result<(), WeightsError> {
        (self.read)(rows, to)
    }
}

/// In each head of queries or keys, of `width` values a row, puts rows that are rotated by the same angle (j and j + 16) 8 apart.
/// Attention does not depend on the order.
pub fn put_pairs_together<T>(rows: &mut [T], width: usize) {
    for head in rows.chunks_exact_mut(TEXT_HEAD * width) {
        let (first, second) = head.split_at_mut(16 * width);
        first[8 * width..].swap_with_slice(&mut second[..8 * width]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TensorData;

    #[test]
    fn rope_pairs_are_eight_elements_apart() {
        // One head each of q and k; a row is two values.
        let mut rows: Vec<usize> = (0..2 * TEXT_HEAD).flat_map(|row| [row, row]).collect();
        put_pairs_together(&mut rows, 2);
        let put: Vec<usize> = rows.chunks(2).map(|row| row[0]).collect();
        let (q, k) = (&put[..64], &put[64..]);
        for first in [0, 16] {
            for j in first..first + 8 {
                assert_eq!(q[j] + 16, q[j + 8]);
                assert_eq!(k[j], q[j] + 64);
            }
        }
        assert_eq!(q[32..], (32..64).collect::<Vec<_>>());
    }

    /// Values that bf16 has: 0 to 255 again and again, from `first` on.
    fn tensor(rows: usize, width: usize, first: usize) -> Tensor {
        let values = (0..rows * width).map(|i| ((first + i) % 256) as f32);
        Tensor {
            name: "t".into(),
            shape: vec![rows, width],
            data: TensorData::F32(values.collect()),
        }
    }

    /// All rows, read in pieces of so many.
    fn read(matrix: &WeightRows<'_>, at_once: usize) -> Vec<f32> {
        let mut all = vec![bf16::ONE; matrix.rows * matrix.width];
        for first in (0..matrix.rows).step_by(at_once) {
            let rows = first..(first + at_once).min(matrix.rows);
            let to = &mut all[rows.start * matrix.width..rows.end * matrix.width];
            matrix.read(rows, to).unwrap();
        }
        all.into_iter().map(bf16::to_f32).collect()
    }

    #[test]
    fn layers_do_not_depend_on_their_pieces() {
        let (qkv, fc1) = (tensor(3 * TEXT_HEAD, 5, 0), tensor(100, 5, 7));
        let stacked = WeightRows::stacked(&qkv, Some(&fc1), 5);
        let mut want = qkv.to_f32().unwrap();
        put_pairs_together(&mut want[..2 * TEXT_HEAD * 5], 5);
        want.extend(fc1.to_f32().unwrap());
        for heads in [1, 2, 3, 4, 5] {
            assert_eq!(read(&stacked, heads * TEXT_HEAD), want, "{heads} heads");
        }

        let (left, right) = (tensor(9, 2, 0), tensor(9, 3, 100));
        let beside = WeightRows::side_by_side(&left, &right, 9);
        for at_once in [1, 4, 9] {
            let found = read(&beside, at_once);
            assert_eq!(found[5..10], [2.0, 3.0, 103.0, 104.0, 105.0], "{at_once}");
            assert_eq!(found.len(), 45);
        }

        let patches = tensor(7, 3, 0);
        let padded = WeightRows::padded(&patches, 3);
        assert_eq!((padded.rows, padded.width), (7, 8));
        assert_eq!(read(&padded, 2)[8..13], [3.0, 4.0, 5.0, 0.0, 0.0]);

        let picked = WeightRows::picked(&patches, 3, &[5, 0]);
        assert_eq!(read(&picked, 1), [15.0, 16.0, 17.0, 0.0, 1.0, 2.0]);
    }

    #[test]
    fn pieces_have_each_row_once_and_begin_with_heads() {
        for (rows, width) in [(51_200, 2048), (2048, 10_240), (51_200, 1), (3, 70_000)] {
            let tensor = Tensor {
                name: "t".into(),
                shape: vec![rows, width],
                data: TensorData::F32(Vec::new()),
            };
            let pieces: Vec<_> = WeightRows::of(&tensor, width).pieces().collect();
            assert!(pieces.iter().cloned().flatten().eq(0..rows));
            for piece in pieces {
                assert!(piece.start % TEXT_HEAD == 0, "{piece:?}");
                let most = PIECE_VALUES.max(TEXT_HEAD * width);
                assert!(piece.len() * width <= most, "{piece:?}");
            }
        }
    }
}
