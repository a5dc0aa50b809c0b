//! Attention within whole sequences, by each kernel.

use cudarc::driver::sys::CUevent_flags;
use half::bf16;

use super::{Random, Rig, assert_close, f32s, fp8::in_both_types, rig};
use crate::cuda::{
    kernels::{DenseAttention, DenseKernel},
    memory::{Buffer, wait_between},
    tensor::{Activations, MatrixShape, StridedRows},
};

/// `softmax(q k^T / sqrt(d)) v` for one query.
pub(super) fn attend(q: &[f32], keys: &[&[f32]], values: &[&[f32]]) -> Vec<f32> {
    let scale = (q.len() as f32).sqrt().recip();
    let dot = |k: &&[f32]| q.iter().zip(*k).map(|(q, k)| q * k).sum::<f32>() * scale;
    let scores: Vec<f32> = keys.iter().map(dot).collect();
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = scores.iter().map(|s| (s - max).exp()).collect();
    let sum: f32 = weights.iter().sum();
    let mixed = |d: usize| {
        weights
            .iter()
            .zip(values)
            .map(|(p, v)| p * v[d])
            .sum::<f32>()
            / sum
    };
    (0..q.len()).map(mixed).collect()
}

/// Values behind each row of outputs that no kernel may write.
const BEHIND: usize = 8;

#[derive(Clone, Copy)]
struct CaseShape {
    sequences: usize,
    length: usize,
    heads: usize,
    head_dim: usize,
}

impl CaseShape {
    fn width(self) -> usize {
        self.heads * self.head_dim
    }
}

struct Case {
    shape: CaseShape,
    qkv: Vec<bf16>,
    up: Buffer<bf16>,
}

impl Case {
    /// Values `spread` times as wide as usual: with 5, few keys have all the weight, and running maxima grow much.
    fn new(rig: &Rig, random: &mut Random, shape: CaseShape, spread: f32) -> Self {
        let values = random.values(shape.sequences * shape.length * 3 * shape.width());
        let qkv: Vec<bf16> = values
            .iter()
            .map(|value| bf16::from_f32(value.to_f32() * spread))
            .collect();
        Self {
            shape,
            up: rig.up(&qkv),
            qkv,
        }
    }

    fn attention(&self, out: Activations) -> DenseAttention {
        let CaseShape {
            sequences,
            length,
            heads,
            head_dim,
        } = self.shape;
        DenseAttention {
            qkv: StridedRows::packed(self.up.start(), 3 * self.shape.width()),
            out,
            sequences,
            length,
            heads,
            head_dim,
        }
    }

    /// Compares every `step`th row of every head.
    fn check(&self, rig: &Rig, kernel: DenseKernel, step: usize) {
        let CaseShape {
            sequences,
            length,
            heads,
            head_dim,
        } = self.shape;
        let (rows, width) = (sequences * length, self.shape.width());
        let stride = width + BEHIND;
        let got = in_both_types(rig, MatrixShape { rows, width }, stride, |to| {
            rig.kernels.attend_dense_by(kernel, &self.attention(to))
        });
        let qkv = f32s(&self.qkv);
        let (mut wanted, mut found) = (Vec::new(), Vec::new());
        for (sequence, head) in (0..sequences).flat_map(|s| (0..heads).map(move |h| (s, h))) {
            let part = |row: usize, part: usize| {
                let row = (sequence * length + row) * 3 + part;
                &qkv[row * width + head * head_dim..][..head_dim]
            };
            let keys: Vec<_> = (0..length).map(|row| part(row, 1)).collect();
            let values: Vec<_> = (0..length).map(|row| part(row, 2)).collect();
            for row in (0..length).step_by(step) {
                wanted.extend(attend(part(row, 0), &keys, &values));
                let at = (sequence * length + row) * stride + head * head_dim;
                found.extend(&got[at..][..head_dim]);
            }
        }
        let name = format!("{kernel:?}, {head_dim} x {heads}, {length}");
        assert_close(&name, &found, &wanted, 1e-2);
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn all_ways_are_softmax_attention() {
    let rig = rig();
    let mut random = Random::new(5);
    for (head_dim, heads, length) in [
        (64, 3, 730),
        (72, 2, 729),
        (72, 1, 64),
        (72, 3, 97),
        (72, 2, 193),
        (64, 1, 1),
        (64, 2, 130),
        (64, 4, 192),
        (18, 2, 49),
        (16, 4, 36),
    ] {
        for spread in [1.0, 5.0] {
            let shape = CaseShape {
                sequences: 2,
                length,
                heads,
                head_dim,
            };
            let case = Case::new(&rig, &mut random, shape, spread);
            for kernel in rig.kernels.dense_kernels(head_dim) {
                case.check(&rig, *kernel, 7);
            }
        }
    }
}

/// More jobs than blocks, so that blocks compute several heads and sequences.
#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn many_heads_of_many_crops() {
    let rig = rig();
    let mut random = Random::new(6);
    for (sequences, length, heads, head_dim) in [(12, 729, 16, 72), (200, 65, 8, 64)] {
        let shape = CaseShape {
            sequences,
            length,
            heads,
            head_dim,
        };
        let case = Case::new(&rig, &mut random, shape, 1.0);
        for kernel in rig.kernels.dense_kernels(head_dim) {
            case.check(&rig, *kernel, 97);
        }
    }
}

/// Moondream 2's encoder, as many crops as one, four and eleven pictures of 1280x720 have.
#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn attention_of_crops_is_timed() {
    let rig = rig();
    let mut random = Random::new(7);
    for sequences in [9, 36, 104] {
        let shape = CaseShape {
            sequences,
            length: 729,
            heads: 16,
            head_dim: 72,
        };
        let case = Case::new(&rig, &mut random, shape, 1.0);
        let out = rig.room(sequences * shape.length * shape.width());
        let attention = case.attention(Activations::bf16(out.start(), shape.width()));
        let kernels = rig.kernels.dense_kernels(shape.head_dim).iter();
        for kernel in kernels.filter(|kernel| **kernel != DenseKernel::Any) {
            let us = microseconds(&rig, *kernel, &attention);
            let flop = 4.0 * (shape.length.pow(2) * shape.width() * sequences) as f32;
            println!(
                "attention, {sequences} crops, {kernel:?}: {us:.1} us, {:.0} TFLOP/s",
                flop / us * 1e-6
            );
            assert!(us > 0.0 && rig.down(&out).iter().all(|x| x.abs() < 4.0));
        }
    }
}

fn microseconds(rig: &Rig, kernel: DenseKernel, attention: &DenseAttention) -> f32 {
    let queue = |count: usize| {
        (0..count).for_each(|_| rig.kernels.attend_dense_by(kernel, attention).unwrap());
        let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
        rig.stream.record_event(flags).unwrap()
    };
    let (begun, count) = (queue(10), 50);
    wait_between(&begun, &queue(count), "timing attention").unwrap() * 1e3 / count as f32
}
