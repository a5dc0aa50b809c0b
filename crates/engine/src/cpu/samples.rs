//! Inputs of the large layers, as a measurement sees them while blocks run.

use std::collections::BTreeMap;

use super::{gemm::PackedLinear, int8::largest};
use crate::model::LargeLayer;

/// Rows of a layer's inputs that are multiplied in int8 too, at most, of each picture.
const ROWS_PER_PICTURE: usize = 128;

/// What was seen of the inputs of large layers.
#[derive(Default)]
pub(super) struct Samples(pub BTreeMap<LargeLayer, LayerSamples>);

/// What was seen of a layer's inputs.
#[derive(Default)]
pub(super) struct LayerSamples {
    pub largest: f32,
    /// Some of them.
    pub rows: F32Rows,
}

/// `[rows, width]`.
#[derive(Debug, Default)]
pub(super) struct F32Rows {
    pub values: Vec<f32>,
    pub width: usize,
}

impl Samples {
    /// Adds inputs of a layer, if it is a large one: parts side by side, with their widths.
    pub fn see(&mut self, layer: &PackedLinear, parts: &[(&[f32], usize)]) {
        let Some(large) = layer.large else { return };
        let samples = self.0.entry(large).or_default();
        for (values, _) in parts {
            // Unlike `f32::max`, this keeps what is not a number.
            samples.largest = largest(&[samples.largest, largest(values)]);
        }
        let (values, width) = parts[0];
        let rows = values.len() / width;
        let step = rows.div_ceil(ROWS_PER_PICTURE).max(1);
        for row in (0..rows).step_by(step) {
            let part = |(values, width): &(&[f32], usize)| values[row * width..][..*width].to_vec();
            samples.rows.values.extend(parts.iter().flat_map(part));
        }
        samples.rows.width = parts.iter().map(|(_, width)| width).sum();
    }
}
