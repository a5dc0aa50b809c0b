//! Tests on a GPU run with `make test-gpu` and fail without one: every kernel against its formula in plain f32 on random values, then the
//! whole network against the CPU and the golden data.

mod adapters;
mod ahead;
mod attention;
mod bins;
mod choices;
mod decode;
mod decode_ranks;
mod dense;
mod experts;
mod faults;
mod foreign;
mod fp8;
mod frames;
mod golden;
mod inside;
mod int8;
mod layers;
mod limits;
mod low_rank;
mod memory;
mod peers;
mod products;
mod quiet;
mod ranks;
mod reuse;
mod whole;

use std::{
    path::PathBuf,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use cudarc::driver::CudaStream;
use half::bf16;
use rand_pcg::{Pcg64, rand_core::Rng as _};
use spotter_core::GpuPrecision;

use super::{
    kernels::Kernels,
    library::{self, Gpu},
    memory::Buffer,
    products::Products,
    tensor::{LinearRef, WeightPointer},
};

/// Folder of compiled kernels and chosen algorithms.
pub(super) static CACHE: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join("spotter-test-kernels"));

/// A sum over ranks holds a GPU until the others have come to it: of two tests at the same time, each could hold one GPU and wait for the other.
fn several_gpus() -> MutexGuard<'static, ()> {
    static SEVERAL: Mutex<()> = Mutex::new(());
    SEVERAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A GPU with everything loaded.
pub(super) struct Rig {
    pub gpu: Gpu,
    pub stream: Arc<CudaStream>,
    pub kernels: Kernels,
    pub products: Products,
}

/// Panics where there is no GPU.
pub(super) fn rig() -> Rig {
    let gpu = library::open(0).unwrap_or_else(|error| panic!("{error}"));
    let stream = gpu.context.new_stream().unwrap();
    Rig {
        kernels: Kernels::load(&gpu, Arc::clone(&stream), &CACHE).unwrap(),
        products: Products::new(&gpu, Arc::clone(&stream), &CACHE).unwrap(),
        stream,
        gpu,
    }
}

/// Those precisions that the architecture of the code has.
pub(super) fn of_architecture(precisions: &[GpuPrecision]) -> Vec<GpuPrecision> {
    let gpu = library::open(0).unwrap_or_else(|error| panic!("{error}"));
    let is_there = |precision: &&GpuPrecision| **precision != GpuPrecision::Fp8 || gpu.has_fp8();
    precisions.iter().filter(is_there).copied().collect()
}

/// Random values, similar to a normal distribution of width 1, rounded to bf16.
pub(super) struct Random(Pcg64);

impl Random {
    pub fn new(seed: u128) -> Self {
        Self(Pcg64::new(seed, 1))
    }

    pub fn unit(&mut self) -> f32 {
        (self.0.next_u32() >> 8) as f32 / (1 << 24) as f32
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0.next_u32() as usize % bound
    }

    pub fn values(&mut self, count: usize) -> Vec<bf16> {
        let one = |_| {
            let sum: f32 = (0..4).map(|_| self.unit() - 0.5).sum();
            bf16::from_f32(sum * 1.7)
        };
        (0..count).map(one).collect()
    }
}

impl Rig {
    pub fn up(&self, values: &[bf16]) -> Buffer<bf16> {
        Buffer::from_host(&self.stream, values).unwrap()
    }

    pub fn ints(&self, values: &[i32]) -> Buffer<i32> {
        Buffer::from_host(&self.stream, values).unwrap()
    }

    pub fn floats(&self, values: &[f32]) -> Buffer<f32> {
        Buffer::from_host(&self.stream, values).unwrap()
    }

    pub fn bytes(&self, values: &[u8]) -> Buffer<u8> {
        Buffer::from_host(&self.stream, values).unwrap()
    }

    pub fn room(&self, count: usize) -> Buffer<bf16> {
        // Not zeros, so that values that are not written are noticed.
        self.up(&vec![bf16::from_f32(77.0); count])
    }

    pub fn down(&self, buffer: &Buffer<bf16>) -> Vec<f32> {
        let values = buffer.to_host(&self.stream).unwrap();
        values.iter().map(|x| x.to_f32()).collect()
    }
}

/// A layer in bf16 alone.
pub(super) fn linear(
    weight: &Buffer<bf16>,
    bias: &Buffer<bf16>,
    outputs: usize,
    inner: usize,
) -> LinearRef {
    LinearRef {
        weight: WeightPointer::Bf16(weight.start()),
        bias: bias.start(),
        bias_f32: None,
        largest_input: None,
        outputs,
        inner,
    }
}

/// A row through a layer norm.
pub(super) fn normed(row: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
    let mean_of = |sum: f32| sum / row.len() as f32;
    let mean = mean_of(row.iter().sum());
    let variance = mean_of(row.iter().map(|x| (x - mean).powi(2)).sum());
    let scale = (variance + 1e-5).sqrt().recip();
    let parts = row.iter().zip(weight).zip(bias);
    parts
        .map(|((x, w), b)| (x - mean) * scale * w + b)
        .collect()
}

pub(super) fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh())
}

pub(super) fn f32s(values: &[bf16]) -> Vec<f32> {
    values.iter().map(|x| x.to_f32()).collect()
}

/// `|got - want| / |want|` over all values; NaN never passes.
#[track_caller]
pub(super) fn assert_close(what: &str, got: &[f32], want: &[f32], most: f32) {
    assert_eq!(got.len(), want.len(), "{what}");
    let norm = |x: &mut dyn Iterator<Item = f32>| x.map(|x| x * x).sum::<f32>().sqrt();
    let off = norm(&mut got.iter().zip(want).map(|(g, w)| g - w));
    let share = off / norm(&mut want.iter().copied());
    println!("{what}: error {share:.2e}");
    assert!(share <= most, "{what}: error {share}, at most {most}");
}
