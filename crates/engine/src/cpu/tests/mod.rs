//! The arithmetic against golden data, stage by stage and as whole answers.

mod adapters;
mod cases;
mod experts;
mod full;
mod golden;
mod images;
mod measure;
mod ops;
mod pipelined;
mod questions;
mod ranks;
mod stages;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use super::{CpuBackend, CpuSettings, kv::KvCache};
use crate::{
    model::{Crops, Formats, ModelConfig, ROTARY_DIM},
    scheduler::backend::KvTable,
    testing::{
        self, Tensors,
        golden_figures::stage,
        golden_model::{config, pages, picture, run, run_with, weights},
    },
};
use spotter_core::ManualClock;

/// Largest difference in parts of the root mean square of what is wanted; the reference differs from itself by a tenth.
const TOLERANCE: f32 = 1e-4;

/// Room for the prefix of one image and 32 rows of 160 positions of their own.
pub(super) fn capacity(config: &ModelConfig, page_tokens: usize) -> CpuSettings<'static> {
    let pages =
        config.prefix_positions().div_ceil(page_tokens) + 32 * 160_usize.div_ceil(page_tokens);
    CpuSettings {
        formats: Formats::F32,
        slots: 3,
        rows: 32,
        images: 4,
        pages,
        page_tokens,
        kept_crops: 64,
    }
}

pub(super) fn backend(set: &Path) -> CpuBackend {
    let config = config(set);
    let capacity = capacity(&config, 16);
    let clock = Arc::new(ManualClock::default());
    CpuBackend::new(&config, weights(set, &config), capacity, clock).unwrap()
}

/// Fails when a value of `got` differs too much, or is not a number.
pub(super) fn assert_near(name: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{name}: number of values");
    let rms =
        (want.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / want.len() as f64).sqrt() as f32;
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let near = (got - want).abs() <= TOLERANCE * rms;
        assert!(near, "{name}: value {i} is {got}, wants {want}; rms {rms}");
    }
}

/// What a set holds of an image, whole or in part.
#[derive(Clone, Copy)]
pub(super) struct GoldenImage<'a> {
    pub tensors: &'a Tensors,
    pub name: &'a str,
}

impl GoldenImage<'_> {
    /// Compares `got`, `[units, rows, width]`, with what the set holds of a tensor ([`stage`]).
    pub fn check(self, tensor: &str, got: &[f32], rows: usize) {
        let key = format!("{}.{tensor}", self.name);
        let stage = stage(self.tensors, self.name, tensor, got, rows);
        let (got, want) = stage.unwrap_or_else(|| panic!("no {key}"));
        assert_near(&key, &got, want);
    }

    /// The same, if the set holds anything of it.
    pub fn check_if_held(self, tensor: &str, got: &[f32], rows: usize) {
        let key = format!("{}.{tensor}", self.name);
        let holds = |key: &str| self.tensors.contains_key(key);
        if holds(&key) || holds(&format!("{key}.rows")) {
            self.check(tensor, got, rows);
        }
    }
}

/// All crops of a picture.
pub(super) fn all(crops: &Crops) -> Vec<&[u8]> {
    (0..crops.encoded).map(|i| crops.crop(i)).collect()
}

/// Width of a head in all golden sets.
const HEAD_DIM: usize = 64;

/// Keys and values of the prefix in some heads of a layer, `[heads, positions, 64]` each; keys in the reference's order,
/// in which the halves that turn together are interleaved.
pub(super) fn stored(
    cache: &KvCache,
    kv: &KvTable,
    layer: usize,
    heads: impl IntoIterator<Item = usize>,
) -> (Vec<f32>, Vec<f32>) {
    let segments: Vec<_> = heads
        .into_iter()
        .flat_map(|head| cache.segments(layer, head, kv, kv.prefix_positions))
        .collect();
    let interleaved = |key: &[f32]| {
        let (turned, plain) = key.split_at(ROTARY_DIM);
        let (first, second) = turned.split_at(ROTARY_DIM / 2);
        let pairs = first.iter().zip(second).flat_map(|(a, b)| [*a, *b]);
        pairs.chain(plain.iter().copied()).collect::<Vec<f32>>()
    };
    let keys = segments
        .iter()
        .flat_map(|segment| segment.keys.chunks_exact(HEAD_DIM));
    let values = segments.iter().flat_map(|segment| segment.values);
    (
        keys.flat_map(interleaved).collect(),
        values.copied().collect(),
    )
}

/// The images of a set by `expected/preprocess.json`.
pub(super) fn images(set: &Path) -> Vec<String> {
    let preprocess = testing::json(&set.join("expected/preprocess.json"));
    let names: BTreeMap<String, serde_json::Value> =
        serde_json::from_value(preprocess["images"].clone()).unwrap();
    names.into_keys().collect()
}
