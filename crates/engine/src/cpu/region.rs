//! Coordinates and sizes in and out of the decoder (docs/moondream.md section 7).

use std::f32::consts::TAU;

use super::{
    gemm::{PackedLinear, matrix, product},
    ops::{gelu, linear},
};
use crate::model::{RegionWeights, WeightsError};

/// The region encoders and decoders in f32.
#[derive(Debug)]
pub(super) struct RegionModel {
    coord: Encoder,
    size: Encoder,
    coord_decoder: Decoder,
    size_decoder: Decoder,
}

#[derive(Debug)]
struct Encoder {
    /// `[values, features / 2]`.
    frequencies: Vec<f32>,
    values: usize,
    linear: PackedLinear,
}

#[derive(Debug)]
struct Decoder {
    fc1: PackedLinear,
    fc2: PackedLinear,
}

impl RegionModel {
    /// Converts the weights, dropping each source as soon as it is converted.
    pub fn new(weights: RegionWeights) -> Result<Self, WeightsError> {
        Ok(Self {
            coord: Encoder {
                frequencies: weights.coord_features.into_f32()?,
                values: 1,
                linear: linear(weights.coord_encoder)?,
            },
            size: Encoder {
                frequencies: weights.size_features.into_f32()?,
                values: 2,
                linear: linear(weights.size_encoder)?,
            },
            coord_decoder: Decoder {
                fc1: linear(weights.coord_fc1)?,
                fc2: linear(weights.coord_fc2)?,
            },
            size_decoder: Decoder {
                fc1: linear(weights.size_fc1)?,
                fc2: linear(weights.size_fc2)?,
            },
        })
    }

    /// Coordinates, 0..1, to embeddings `[coords, width]`.
    pub fn encode_coords(&self, coords: &[f32]) -> Vec<f32> {
        self.coord.forward(coords)
    }

    /// Widths and heights, 0..1, as pairs, to embeddings `[pairs, width]`.
    pub fn encode_sizes(&self, sizes: &[f32]) -> Vec<f32> {
        self.size.forward(sizes)
    }

    /// Hidden states before the final layer norm, `[rows, width]`, to logits of the coordinate bins, `[rows, 1024]`.
    pub fn decode_coords(&self, hidden: &[f32]) -> Vec<f32> {
        self.coord_decoder.forward(hidden)
    }

    /// The same for sizes: `[rows, 2048]`, in each row the bins of the width and then of the height.
    pub fn decode_sizes(&self, hidden: &[f32]) -> Vec<f32> {
        self.size_decoder.forward(hidden)
    }
}

impl Encoder {
    fn forward(&self, x: &[f32]) -> Vec<f32> {
        self.linear
            .forward(&fourier(x, &self.frequencies, self.values))
    }
}

impl Decoder {
    fn forward(&self, hidden: &[f32]) -> Vec<f32> {
        let mut inner = self.fc1.forward(hidden);
        gelu(&mut inner);
        self.fc2.forward(&inner)
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
