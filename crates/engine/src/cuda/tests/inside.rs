//! Access of tests to the backend: its buffers after the last step, also in the reference's order ([`Inside`]), and a backend with
//! fewer blocks.
//!
//! A step without rows leaves the states of its images in front of the last block of the decoder, which makes only keys and
//! values of them. With the blocks behind some block cut off, the states behind every block can be seen.
//!
//! The place of a value follows `kernels/common.cuh` (the cache) and `weights::load` (the order within a head). This is pure and
//! tested without a GPU.

use std::ops::Range;

use cudarc::driver::{DeviceRepr, ValidAsZeroBits};

use crate::{
    cuda::{
        CudaBackend,
        error::CudaError,
        memory::Buffer,
        tensor::{PAGE, TEXT_HEAD},
    },
    model::{BINS, ModelConfig, ROTARY_DIM, tiling},
    scheduler::backend::Backend as _,
    testing::{
        golden_model::pages,
        golden_run::{Head, Inside},
    },
};
use spotter_core::Picture;

impl CudaBackend {
    /// Without the decoder in one launch: it runs kernel by kernel.
    pub fn without_one_launch(mut self) -> Self {
        self.network.text.one_launch = None;
        self
    }

    /// True when steps of few positions run in one launch.
    pub fn has_one_launch(&self) -> bool {
        self.network.text.one_launch.is_some()
    }

    /// With the first blocks only, of the encoder and of the decoder.
    pub fn with_blocks(self, encoder: usize, decoder: usize) -> Self {
        let mut backend = self.without_one_launch();
        backend.graphs.clear();
        backend.network.vision.weights.blocks.truncate(encoder);
        backend.network.text.weights.layers.blocks.truncate(decoder);
        backend
    }

    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Some values of one of its buffers after the last step. Rows of the step are at its start, without gaps; the rows behind them
    /// are of earlier steps. Waits for it.
    pub fn read<T>(&self, buffer: &Buffer<T>, range: Range<usize>) -> Result<Vec<f32>, CudaError>
    where
        T: Copy + DeviceRepr + ValidAsZeroBits + Into<f32>,
    {
        let values = buffer.to_host(&self.streams.compute)?;
        Ok(values[range].iter().map(|&value| value.into()).collect())
    }

    /// Keys and values of a layer, in the layout of `kernels/common.cuh`.
    pub fn cache(&self, layer: usize) -> Result<[Vec<f32>; 2], CudaError> {
        let keys = self.network.text.keys.start().len();
        let values = keys / self.config.text.n_layers;
        let range = layer * values..(layer + 1) * values;
        let keys = self.read(&self.network.text.keys, range.clone())?;
        Ok([keys, self.read(&self.network.text.values, range)?])
    }

    /// Tokens of the first image and hidden states of the first positions of the last step. Waits for it.
    pub fn inside(&self, positions: usize) -> Result<[Vec<f32>; 2], CudaError> {
        let width = self.config.text.dim;
        let tokens = 0..self.config.image_tokens() * width;
        let tokens = self.read(&self.network.vision.tokens, tokens)?;
        let hidden = self.read(&self.network.text.hidden, 0..positions * width)?;
        Ok([tokens, hidden])
    }
}

/// Place of a key in its layer, `[page][head][16 positions][64]`; `slot` is page * 16 + place in the page.
fn key_at(heads: usize, slot: usize, head: usize, dimension: usize) -> usize {
    let row = (slot / PAGE * heads + head) * PAGE + slot % PAGE;
    row * TEXT_HEAD + dimension
}

/// Place of a value in its layer, `[page][head][64][16 positions]`.
fn value_at(heads: usize, slot: usize, head: usize, dimension: usize) -> usize {
    let row = (slot / PAGE * heads + head) * TEXT_HEAD + dimension;
    row * PAGE + slot % PAGE
}

/// Place of dimension `golden` of a golden key within the GPU's head.
///
/// ```text
///   model    j and j + 16 are rotated by angle j < 16; 32.. are not
///   golden   2j is the model's j, 2j + 1 its j + 16
///   GPU      8..16 are the model's 16..24, 16..24 its 8..16 (`weights::load`)
/// ```
fn turned_at(golden: usize) -> usize {
    let model = match golden < ROTARY_DIM {
        true => golden / 2 + golden % 2 * (ROTARY_DIM / 2),
        false => golden,
    };
    match model {
        8..16 => model + 8,
        16..24 => model - 8,
        _ => model,
    }
}

/// `[heads, slots, 64]` out of a layer of the cache: the value `at` the GPU's place of each value, whose dimension is
/// `dimension` of the golden one.
fn in_order(
    layer: &[f32],
    (heads, slots): (usize, &[usize]),
    at: fn(usize, usize, usize, usize) -> usize,
    dimension: fn(usize) -> usize,
) -> Vec<f32> {
    let row = |(head, slot)| {
        (0..TEXT_HEAD).map(move |golden| layer[at(heads, slot, head, dimension(golden))])
    };
    let rows = (0..heads).flat_map(|head| slots.iter().map(move |&slot| (head, slot)));
    rows.flat_map(row).collect()
}

/// Crops of a picture; without a camera all are encoded.
pub(super) fn crops(backend: &CudaBackend, picture: &Picture) -> usize {
    let vision = &backend.config().vision;
    tiling(picture.width(), picture.height(), vision).crops()
}

impl Inside for CudaBackend {
    fn image(&mut self, picture: &Picture) -> [Vec<f32>; 2] {
        let config = self.config();
        let (tokens, crops) = (config.image_tokens(), crops(self, picture));
        let vision = &self.network.vision;
        let features = 0..crops * tokens * config.vision.enc_dim;
        let features = self.read(&vision.normed, features).unwrap();
        let embedded = 0..tokens * config.text.dim;
        [features, self.read(&vision.tokens, embedded).unwrap()]
    }

    fn prefix(&mut self, layer: usize) -> [Vec<f32>; 2] {
        let pages = pages(self, 0).0;
        let slot = |position: usize| pages[position / PAGE].0 as usize * PAGE + position % PAGE;
        let slots: Vec<usize> = (0..self.limits().prefix_positions).map(slot).collect();
        let shape = (self.config().text.n_heads, &slots[..]);
        let [keys, values] = self.cache(layer).unwrap();
        [
            in_order(&keys, shape, key_at, turned_at),
            in_order(&values, shape, value_at, |dimension| dimension),
        ]
    }

    fn hidden(&mut self, positions: usize) -> Vec<f32> {
        let width = self.config().text.dim;
        self.read(&self.network.text.hidden, 0..positions * width)
            .unwrap()
    }

    fn logits(&mut self, head: Head) -> Vec<f32> {
        let heads = &self.network.heads;
        let (part, len) = match head {
            Head::Coord => (&heads.coords, BINS),
            Head::Size => (&heads.sizes, 2 * BINS),
            Head::Vocabulary => (&heads.logits, self.config().text.vocab_size),
        };
        self.read(part, 0..len).unwrap()
    }
}

#[test]
fn golden_keys_lie_where_the_loader_puts_them() {
    // Queries, keys and values of two heads; the label of an output is its number in the model.
    let mut put: Vec<usize> = (0..3 * 2 * TEXT_HEAD).collect();
    crate::cuda::weights::put_pairs_together(&mut put[..2 * 2 * TEXT_HEAD], 1);
    for head in 0..2 {
        let (keys, first) = (&put[(2 + head) * TEXT_HEAD..], (2 + head) * TEXT_HEAD);
        for j in 0..ROTARY_DIM / 2 {
            assert_eq!(keys[turned_at(2 * j)] - first, j);
            assert_eq!(keys[turned_at(2 * j + 1)] - first, j + 16);
            // As `kernels/rope_scatter.cu` rotates them.
            assert_eq!(turned_at(2 * j), j / 8 * 16 + j % 8);
            assert_eq!(turned_at(2 * j + 1), turned_at(2 * j) + 8);
        }
        for plain in ROTARY_DIM..TEXT_HEAD {
            assert_eq!(keys[turned_at(plain)] - first, plain);
        }
    }
}

#[test]
fn each_value_of_a_layer_has_its_own_memory() {
    let (heads, slots) = (3, 2 * PAGE);
    for at in [key_at, value_at] {
        let places = (0..slots).flat_map(|slot| {
            (0..heads).flat_map(move |head| (0..TEXT_HEAD).map(move |d| at(heads, slot, head, d)))
        });
        let mut places: Vec<usize> = places.collect();
        places.sort_unstable();
        assert!(places.into_iter().eq(0..heads * slots * TEXT_HEAD));
    }
    // Neighbouring dimensions of a key, neighbouring positions of a value are adjacent; a page has all heads.
    assert_eq!(key_at(heads, 5, 1, 9) + 1, key_at(heads, 5, 1, 10));
    assert_eq!(value_at(heads, 5, 1, 9) + 1, value_at(heads, 6, 1, 9));
    for at in [key_at, value_at] {
        assert_eq!(at(heads, PAGE, 0, 0), heads * PAGE * TEXT_HEAD);
        assert_eq!(at(heads, 0, 1, 0), PAGE * TEXT_HEAD);
    }
}

#[test]
fn a_layer_is_read_head_by_head() {
    let (heads, slots) = (2, [17, 3]);
    let mut layer = vec![0.0; heads * 2 * PAGE * TEXT_HEAD];
    let label = |head: usize, slot: usize, d: usize| (head * 10_000 + slot * 100 + d) as f32;
    for (head, slot) in [(0, 17), (0, 3), (1, 17), (1, 3)] {
        for d in 0..TEXT_HEAD {
            layer[value_at(heads, slot, head, d)] = label(head, slot, d);
        }
    }
    let read = in_order(&layer, (heads, &slots), value_at, |d| d);
    let want = [(0, 17), (0, 3), (1, 17), (1, 3)];
    let want = want.map(|(head, slot)| (0..TEXT_HEAD).map(move |d| label(head, slot, d)));
    assert_eq!(read, want.into_iter().flatten().collect::<Vec<_>>());
}
