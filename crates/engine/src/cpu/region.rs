//! Coordinates and sizes in and out of the decoder (docs/moondream.md section 7).

use std::f32::consts::TAU;

use super::{
    gemm::{PackedLinear, matrix, product},
    ops::{IntoF32, linear},
};
use crate::{
    model::{LinearWeights, Tensor, WeightsError},
    network::{Decoder, Region},
};

/// The region encoders and decoders in f32.
#[derive(Debug)]
pub(super) struct RegionModel(Region<PackedLinear, Vec<f32>>);

impl RegionModel {
    /// Converts the weights, dropping each source as soon as it is converted.
    pub fn new(weights: Region<LinearWeights, Tensor>) -> Result<Self, WeightsError> {
        Ok(Self(weights.try_map(&mut IntoF32(&linear))?))
    }

    /// Coordinates, 0..1, to embeddings `[coords, width]`.
    pub fn encode_coords(&self, coords: &[f32]) -> Vec<f32> {
        let features = fourier(coords, &self.0.coord_features, 1);
        self.0.coord_encoder.forward(&features)
    }

    /// Widths and heights, 0..1, as pairs, to embeddings `[pairs, width]`.
    pub fn encode_sizes(&self, sizes: &[f32]) -> Vec<f32> {
        let features = fourier(sizes, &self.0.size_features, 2);
        self.0.size_encoder.forward(&features)
    }

    /// Hidden states before the final layer norm, `[rows, width]`, to logits of the coordinate bins, `[rows, 1024]`.
    pub fn decode_coords(&self, hidden: &[f32]) -> Vec<f32> {
        self.decode(&self.0.coord_decoder, hidden)
    }

    /// The same for sizes: `[rows, 2048]`, in each row the bins of the width and then of the height.
    pub fn decode_sizes(&self, hidden: &[f32]) -> Vec<f32> {
        self.decode(&self.0.size_decoder, hidden)
    }

    fn decode(&self, decoder: &Decoder<PackedLinear>, hidden: &[f32]) -> Vec<f32> {
        let normed = self.0.ln.as_ref().map(|ln| ln.forward(hidden));
        let hidden = normed.as_deref().unwrap_or(hidden);
        match decoder {
            Decoder::Mlp(mlp) => mlp.forward(hidden),
            Decoder::Linear(layer) => layer.forward(hidden),
        }
    }
}

/// `[cos f | sin f]` with `f = 2π · x · frequencies`: x `[rows, values]`, frequencies `[values, n]`, to `[rows, 2n]`.
pub(super) fn fourier(x: &[f32], frequencies: &[f32], values: usize) -> Vec<f32> {
    let n = frequencies.len() / values;
    let angles = product(matrix(x, values), matrix(frequencies, n), TAU);
    let row = |angles: &[f32]| {
        let cos = angles.iter().map(|angle| angle.cos());
        let sin = angles.iter().map(|angle| angle.sin());
        cos.chain(sin).collect::<Vec<f32>>()
    };
    angles.chunks_exact(n).flat_map(row).collect()
}
