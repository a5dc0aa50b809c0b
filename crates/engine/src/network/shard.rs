//! Which part of the decoder one of several devices has that compute it together. Pure.

use std::ops::Range;

use super::{Experts, Mlp, Norm, Tau, TextBlock, TextMlp};

/// One of so many devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0 on.
    pub rank: usize,
    pub ranks: usize,
}

/// How devices divide a layer with weights `[…, outputs, inner]`, in so many parts that lie one behind the other, like q, k and v: each has
/// its share of every part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Each has all of it.
    Whole,
    Outputs(usize),
    /// What they make of their inputs is added up. The first one has the bias.
    Inner(usize),
}

/// A part of a network with how devices divide it.
#[derive(Clone, Debug)]
pub struct Divided<T> {
    pub part: T,
    pub cut: Cut,
}

/// What a shard has of a tensor whose values are `[outer, middle, tail]`: some of the middle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorPart {
    pub outer: usize,
    pub middle: usize,
    pub tail: usize,
    pub kept: Range<usize>,
}

impl Default for Shard {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl Shard {
    /// Of a device that works alone.
    pub const WHOLE: Self = Self { rank: 0, ranks: 1 };

    pub fn is_whole(self) -> bool {
        self.ranks == 1
    }

    /// The one that adds what is added once.
    pub fn is_first(self) -> bool {
        self.rank == 0
    }

    /// Its share of so many values, heads or crops; shares differ by one at most.
    pub fn range(self, count: usize) -> Range<usize> {
        self.rank * count / self.ranks..(self.rank + 1) * count / self.ranks
    }

    /// What it has of a tensor of these sizes that is cut along one of them, in so many parts.
    pub fn part(self, shape: &[usize], dimension: usize, parts: usize) -> TensorPart {
        let (outer, inner) = shape.split_at(dimension);
        let middle = inner.first().map_or(0, |size| size / parts);
        TensorPart {
            outer: outer.iter().product::<usize>() * parts,
            middle,
            tail: inner.iter().skip(1).product(),
            kept: self.range(middle),
        }
    }
}

impl TensorPart {
    /// Number of its values.
    pub fn values(&self) -> usize {
        self.outer * self.kept.len() * self.tail
    }

    /// Where they lie among those of the whole tensor, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let Range { start, end } = self.kept;
        (0..self.outer).map(move |block| {
            let at = |middle| (block * self.middle + middle) * self.tail;
            at(start)..at(end)
        })
    }

    /// Its values of all values.
    pub fn of<T: Copy>(&self, all: &[T]) -> Vec<T> {
        let mut own = Vec::with_capacity(self.values());
        self.ranges()
            .for_each(|range| own.extend_from_slice(&all[range]));
        own
    }
}

impl<L, P> TextBlock<L, P> {
    /// Each part of a block with how devices divide it: attention by heads, the MLP and each expert by the values between its two layers.
    pub fn with_cuts(self) -> TextBlock<Divided<L>, Divided<P>> {
        let outputs = |part, parts| Divided {
            part,
            cut: Cut::Outputs(parts),
        };
        let inner = |part| Divided {
            part,
            cut: Cut::Inner(1),
        };
        TextBlock {
            ln: Norm {
                weight: whole(self.ln.weight),
                bias: whole(self.ln.bias),
            },
            qkv: outputs(self.qkv, 3),
            tau: self.tau.map(|tau| Tau {
                wq_wv: Divided {
                    part: tau.wq_wv,
                    cut: Cut::Inner(3),
                },
                alpha: Divided {
                    part: tau.alpha,
                    cut: Cut::Inner(1),
                },
            }),
            proj: inner(self.proj),
            mlp: match self.mlp {
                TextMlp::Dense(mlp) => TextMlp::Dense(Mlp {
                    fc1: outputs(mlp.fc1, 1),
                    fc2: inner(mlp.fc2),
                }),
                TextMlp::Experts(experts) => TextMlp::Experts(Experts {
                    router: whole(experts.router),
                    up: outputs(experts.up, 2),
                    down: inner(experts.down),
                    active: experts.active,
                }),
            },
        }
    }
}

fn whole<T>(part: T) -> Divided<T> {
    let cut = Cut::Whole;
    Divided { part, cut }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::{
        model::{ModelConfig, released_config},
        network::{
            PartMap,
            spec::{LayerSpec, TensorSpec},
        },
    };

    #[test]
    fn shards_have_each_value_once() {
        let shape = [3, 24, 12];
        for cut in [(1, 3), (1, 1), (2, 1), (2, 3)] {
            for ranks in [1, 2, 4] {
                let mut seen = vec![0; shape.iter().product()];
                for rank in 0..ranks {
                    let part = Shard { rank, ranks }.part(&shape, cut.0, cut.1);
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
        let part = shard.part(&[12, 2], 0, 3);
        assert_eq!(Vec::from_iter(part.ranges()), [4..8, 12..16, 20..24]);
        let part = shard.part(&[2, 4], 1, 1);
        assert_eq!(Vec::from_iter(part.ranges()), [2..4, 6..8]);
    }

    /// The shapes by which files are checked and those by which they are cut are the same.
    #[test]
    fn parts_have_the_sizes_of_the_divided_configuration() {
        for config in [
            ModelConfig::default(),
            released_config("moondream3.1").unwrap(),
        ] {
            for shard in [0, 3].map(|rank| Shard { rank, ranks: 4 }) {
                let divided = config.of_shard(shard).unwrap().network().layers.text;
                let whole = config.network().layers.text.blocks.into_iter();
                for (block, divided) in whole.zip(&divided.blocks) {
                    let Ok(cut) = block.with_cuts().try_map(&mut CutShapes(shard));
                    let shapes = divided.layers().map(LayerSpec::shape);
                    assert!(cut.layers().cloned().eq(shapes), "{cut:?}");
                    let tau = divided.tau.as_ref().map(|tau| [&tau.wq_wv, &tau.alpha]);
                    let tau = tau.map(|tensors| tensors.map(|tensor| tensor.shape.clone()));
                    assert_eq!(cut.tau.map(|tau| [tau.wq_wv, tau.alpha]), tau);
                }
            }
        }
    }

    struct CutShapes(Shard);

    impl CutShapes {
        fn cut(&self, mut shape: Vec<usize>, cut: Cut) -> Vec<usize> {
            let last = shape.len() - 1;
            match cut {
                Cut::Whole => {}
                Cut::Outputs(parts) => shape[last - 1] = self.share(shape[last - 1], parts),
                Cut::Inner(parts) => shape[last] = self.share(shape[last], parts),
            }
            shape
        }

        fn share(&self, values: usize, parts: usize) -> usize {
            parts * self.0.range(values / parts).len()
        }
    }

    impl PartMap<Divided<LayerSpec>, Divided<TensorSpec>> for CutShapes {
        type Layer = Vec<usize>;
        type Plain = Vec<usize>;
        type Error = Infallible;

        fn layer(&mut self, layer: Divided<LayerSpec>) -> Result<Vec<usize>, Infallible> {
            Ok(self.cut(layer.part.shape(), layer.cut))
        }

        fn plain(&mut self, tensor: Divided<TensorSpec>) -> Result<Vec<usize>, Infallible> {
            Ok(self.cut(tensor.part.shape, tensor.cut))
        }
    }

    #[test]
    fn heads_that_devices_cannot_divide_are_named() {
        let three = Shard { rank: 0, ranks: 3 };
        let error = ModelConfig::default().of_shard(three).unwrap_err();
        assert_eq!(
            error,
            "3 GPUs cannot divide the model's 32 heads among them"
        );
    }
}
