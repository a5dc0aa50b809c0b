//! Which part of each layer one of several devices has that compute the decoder together. Pure.

use std::ops::Range;

/// One of so many devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0 on.
    pub rank: usize,
    pub ranks: usize,
}

/// How devices divide a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Each has all of it.
    Whole,
    /// Each has some outputs of each of so many parts that lie one behind the other, like q, k and v.
    Outputs { parts: usize },
    /// Each has some inputs, and what they make is added up. The first one has the bias.
    Inner,
}

/// What a shard has of a tensor: of its values in four dimensions, ranges of the last two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorPart {
    pub outer: [usize; 2],
    /// Sizes of the last two dimensions, whole.
    pub whole: [usize; 2],
    pub kept: [Range<usize>; 2],
}

impl Shard {
    pub fn is_first(self) -> bool {
        self.rank == 0
    }

    /// Its share of so many values, heads or outputs, which the number of devices divides.
    pub fn range(self, count: usize) -> Range<usize> {
        let share = count / self.ranks;
        self.rank * share..(self.rank + 1) * share
    }

    /// What it has of weights `[count, outputs, inner]`.
    pub fn of_weights(self, cut: Cut, [count, outputs, inner]: [usize; 3]) -> TensorPart {
        let parts = match cut {
            Cut::Outputs { parts } => parts,
            Cut::Whole | Cut::Inner => 1,
        };
        let whole = [outputs / parts, inner];
        let kept = match cut {
            Cut::Whole => [0..whole[0], 0..inner],
            Cut::Outputs { .. } => [self.range(whole[0]), 0..inner],
            Cut::Inner => [0..whole[0], self.range(inner)],
        };
        TensorPart {
            outer: [count, parts],
            whole,
            kept,
        }
    }
}

impl TensorPart {
    /// Number of its values.
    pub fn values(&self) -> usize {
        let all = self.outer.iter().copied();
        all.chain(self.kept.iter().map(ExactSizeIterator::len))
            .product()
    }

    /// Where its values lie among those of the whole tensor, in order: as few ranges as there are.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let ([across, inner], [rows, columns]) = (self.whole, self.kept.clone());
        let is_whole = columns.len() == inner;
        let step = if is_whole { rows.len().max(1) } else { 1 };
        (0..self.outer.iter().product()).flat_map(move |block| {
            let columns = columns.clone();
            rows.clone().step_by(step).map(move |row| {
                let first = (block * across + row) * inner + columns.start;
                first..first + step * columns.len()
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_have_each_value_once() {
        let shape = [3, 24, 8];
        for cut in [
            Cut::Outputs { parts: 3 },
            Cut::Outputs { parts: 1 },
            Cut::Inner,
        ] {
            for ranks in [1, 2, 4] {
                let mut seen = vec![0; shape.iter().product()];
                for rank in 0..ranks {
                    let part = Shard { rank, ranks }.of_weights(cut, shape);
                    assert_eq!(part.values() * ranks, seen.len());
                    let values = part.ranges().map(|range| range.len());
                    assert_eq!(values.sum::<usize>(), part.values());
                    part.ranges().flatten().for_each(|value| seen[value] += 1);
                }
                assert!(seen.iter().all(|&times| times == 1), "{cut:?} {ranks}");
            }
        }
    }

    #[test]
    fn shard_has_its_heads_of_q_k_and_v() {
        let shard = Shard { rank: 1, ranks: 2 };
        let part = shard.of_weights(Cut::Outputs { parts: 3 }, [1, 12, 2]);
        assert_eq!(Vec::from_iter(part.ranges()), [4..8, 12..16, 20..24]);
        let part = shard.of_weights(Cut::Inner, [1, 2, 4]);
        assert_eq!(Vec::from_iter(part.ranges()), [2..4, 6..8]);
    }
}
