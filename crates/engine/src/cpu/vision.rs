//! The vision encoder: crops in, image tokens out (docs/moondream.md section 5).

use std::ops::Range;

use rayon::prelude::*;

use super::{
    attention::AttentionHeads,
    blocks::{CpuOps, CropAttention},
    gemm::PackedLinear,
    ops::{IntoF32, MakeLinear},
};
use crate::{
    model::{LinearWeights, Tensor, Tiling, VisionConfig, WeightsError, normalise_table},
    network::{Vision, VisionBlock, forward},
};

/// The encoder's weights in f32.
#[derive(Debug)]
pub(super) struct VisionModel {
    config: VisionConfig,
    /// What each byte of a crop becomes.
    normalised: [f32; 256],
    pub layers: Vision<PackedLinear, Vec<f32>>,
}

impl VisionModel {
    /// Converts the weights, dropping each source as soon as it is converted; `linear` makes the layers.
    pub fn new(
        config: &VisionConfig,
        weights: Vision<LinearWeights, Tensor>,
        linear: MakeLinear<'_>,
    ) -> Result<Self, WeightsError> {
        Ok(Self {
            config: config.clone(),
            normalised: normalise_table(),
            layers: weights.try_map(&mut IntoF32(linear))?,
        })
    }

    /// Replaces all blocks by this one.
    pub fn set_block(
        &mut self,
        block: VisionBlock<LinearWeights, Tensor>,
        linear: MakeLinear<'_>,
    ) -> Result<(), WeightsError> {
        self.layers.blocks = vec![block.try_map(&mut IntoF32(linear))?];
        Ok(())
    }

    /// Features of crops of `[crop_size, crop_size, 3]` bytes, as one batch: `[crops, tokens, width]`. What a crop
    /// becomes does not depend on the others, to the bit: it sees only itself, and a row of a product is summed in the
    /// same order also beside others.
    pub fn encode(&self, crops: &[&[u8]]) -> Vec<f32> {
        if crops.is_empty() {
            return Vec::new();
        }
        let mut hidden = self.tokens(crops);
        let rows = hidden.len() / self.config.enc_dim;
        let Ok(()) = forward::encode(&mut self.ops(), &self.layers, &mut hidden, rows);
        self.features(&hidden)
    }

    /// The image tokens of one picture, `[tokens, text width]`, from the features of its crops.
    pub fn image_tokens(&self, features: &[f32], tiling: Tiling) -> Vec<f32> {
        self.project(&self.combine(features, tiling))
    }

    /// Values of one crop's features.
    pub fn crop_values(&self) -> usize {
        self.layers.pos_emb.len()
    }

    #[cfg(test)]
    pub fn blocks(&self) -> usize {
        self.layers.blocks.len()
    }

    /// Embedded patches of crops with their places, `[crops * tokens, width]`.
    pub fn tokens(&self, crops: &[&[u8]]) -> Vec<f32> {
        let grid = self.config.grid();
        let patch = Patches {
            side: self.config.enc_patch_size,
            grid,
            values: &self.normalised,
        };
        let mut patches = vec![0.0; crops.len() * grid * grid * patch.len()];
        let places = patches.par_chunks_exact_mut(patch.len()).enumerate();
        places
            .for_each(|(i, place)| patch.fill(place, crops[i / (grid * grid)], i % (grid * grid)));
        let mut tokens = self.layers.patch_emb.forward(&patches);
        for crop in tokens.chunks_exact_mut(self.layers.pos_emb.len()) {
            crop.iter_mut()
                .zip(&self.layers.pos_emb)
                .for_each(|(x, place)| *x += place);
        }
        tokens
    }

    /// What its blocks run with.
    pub fn ops<'a>(&self) -> CpuOps<'a, CropAttention> {
        CpuOps {
            heads: AttentionHeads {
                count: self.config.enc_n_heads,
                dim: self.config.head_dim(),
            },
            attention: CropAttention {
                tokens: self.config.grid() * self.config.grid(),
            },
            part: None,
            samples: None,
        }
    }

    /// The final layer norm.
    pub fn features(&self, hidden: &[f32]) -> Vec<f32> {
        self.layers.post_ln.forward(hidden)
    }

    /// Features of the whole picture beside the pooled features of its tiles: `[crops * tokens, width]` to
    /// `[tokens, 2 * width]`. With one crop, that is also the only tile.
    pub fn combine(&self, features: &[f32], tiling: Tiling) -> Vec<f32> {
        let (grid, width) = (self.config.grid(), self.config.enc_dim);
        let (global, tiles) = features.split_at(grid * grid * width);
        let tiles = if tiles.is_empty() { global } else { tiles };
        let pooled = pool(&stitch(tiles, tiling, &self.config), grid);
        let mut combined = Vec::with_capacity(2 * global.len());
        let pairs = global.chunks_exact(width).zip(pooled.chunks_exact(width));
        for (global, local) in pairs {
            combined.extend_from_slice(global);
            combined.extend_from_slice(local);
        }
        combined
    }

    /// `[tokens, 2 * width]` to `[tokens, text width]`.
    pub fn project(&self, combined: &[f32]) -> Vec<f32> {
        self.layers.proj.forward(combined)
    }
}

/// How a crop, `[size, size, 3]` bytes, is cut into patches.
pub(super) struct Patches<'a> {
    /// Pixels across and down.
    pub side: usize,
    /// Patches across and down.
    pub grid: usize,
    /// What each byte becomes.
    pub values: &'a [f32; 256],
}

impl Patches<'_> {
    /// Values of a patch.
    pub fn len(&self) -> usize {
        3 * self.side * self.side
    }

    /// Writes one patch of `crop` channel by channel, row by row.
    pub fn fill(&self, place: &mut [f32], crop: &[u8], index: usize) {
        let row_bytes = 3 * self.side * self.grid;
        let (down, across) = (index / self.grid, index % self.grid);
        let first = down * self.side * row_bytes + across * self.side * 3;
        for (i, place) in place.chunks_exact_mut(self.side).enumerate() {
            let (channel, y) = (i / self.side, i % self.side);
            let row = crop[first + y * row_bytes + channel..].iter().step_by(3);
            place
                .iter_mut()
                .zip(row)
                .for_each(|(value, &byte)| *value = self.values[usize::from(byte)]);
        }
    }
}

/// Features of a picture's tiles laid side by side.
#[derive(Debug, PartialEq)]
pub(super) struct FeatureMap {
    /// Cells down.
    pub height: usize,
    /// Cells across.
    pub width: usize,
    /// `[height, width, features]`.
    pub values: Vec<f32>,
}

/// Lays the tiles' features, `[tiles, grid, grid, enc_dim]`, side by side. Where neighbours overlap, each gives up its
/// margin, so every cell comes from one tile.
pub(super) fn stitch(tiles: &[f32], tiling: Tiling, config: &VisionConfig) -> FeatureMap {
    let (grid, margin, features) = (config.grid(), config.overlap_margin, config.enc_dim);
    let step = grid - 2 * margin;
    let (height, width) = (
        tiling.rows * step + 2 * margin,
        tiling.cols * step + 2 * margin,
    );
    let mut values = vec![0.0; height * width * features];
    for (i, tile) in tiles.chunks_exact(grid * grid * features).enumerate() {
        let (down, across) = (i / tiling.cols, i % tiling.cols);
        let rows = kept(down, tiling.rows, grid, margin);
        let cols = kept(across, tiling.cols, grid, margin);
        for row in rows {
            let source = (row * grid + cols.start) * features;
            let target = ((down * step + row) * width + across * step + cols.start) * features;
            let length = cols.len() * features;
            values[target..][..length].copy_from_slice(&tile[source..][..length]);
        }
    }
    FeatureMap {
        height,
        width,
        values,
    }
}

/// Cells of tile `index` of `count` along one axis that are not another tile's.
fn kept(index: usize, count: usize, grid: usize, margin: usize) -> Range<usize> {
    let start = if index == 0 { 0 } else { margin };
    let end = if index + 1 == count {
        grid
    } else {
        grid - margin
    };
    start..end
}

/// Adaptive average pooling: cell `i` of `grid` averages the cells `⌊i·n/grid⌋ .. ⌈(i+1)·n/grid⌉` of `n` along each
/// axis. Returns `[grid, grid, features]`.
pub(super) fn pool(map: &FeatureMap, grid: usize) -> Vec<f32> {
    let features = map.values.len() / (map.height * map.width);
    let window = |i: usize, n: usize| (i * n / grid)..((i + 1) * n).div_ceil(grid);
    let mut pooled = vec![0.0; grid * grid * features];
    pooled
        .par_chunks_exact_mut(features)
        .enumerate()
        .for_each(|(cell, pooled)| {
            let (rows, cols) = (
                window(cell / grid, map.height),
                window(cell % grid, map.width),
            );
            let count = (rows.len() * cols.len()) as f32;
            for row in rows {
                for col in cols.clone() {
                    let source = &map.values[(row * map.width + col) * features..][..features];
                    pooled.iter_mut().zip(source).for_each(|(sum, x)| *sum += x);
                }
            }
            pooled.iter_mut().for_each(|sum| *sum /= count);
        });
    pooled
}
