//! What pictures show of the large layers: the largest inputs, and the errors of products in int8.
//!
//! ```text
//!   pictures ─▶ hidden states of all of them ─▶ block 0 ─▶ block 1 ─▶ .. ─▶ ModelCalibration
//!                                               inputs of its layers ─▶ largest, some rows ─▶ error in int8
//! ```
//!
//! The model runs in f32. The weights of one block are in memory at a time, and the states of all pictures: some 30 MB for each of nine
//! crops with Moondream 2.

use std::{collections::BTreeMap, mem};

use super::{
    device::embed,
    gemm::{matrix, product},
    int8::rounded_to_int8,
    kv::{KvCache, KvShape},
    ops::linear,
    region::RegionModel,
    samples::{F32Rows, Samples},
    span::{PositionSpan, Sees},
    text::TextModel,
    vision::VisionModel,
};
use crate::{
    model::{
        LargeLayer, LayerRange, LinearWeights, ModelCalibration, ModelConfig, Tensor, Weights,
        WeightsError, calibration_inputs, crops,
    },
    network::{
        Mlp, Region, Text, Vision,
        forward::{text_block, vision_block},
        ops::DecoderRun,
    },
    scheduler::backend::{KvTable, PageId},
};
use spotter_core::Picture;

const PAGE_TOKENS: usize = 16;

/// How many of the model's blocks are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredBlocks {
    pub done: usize,
    pub all: usize,
}

/// Runs `pictures`, at least one, through a model and measures its large layers. Blocks, with a Moondream 2 for minutes;
/// shows `progress` how far it is.
pub fn measure_layers(
    config: &ModelConfig,
    weights: Weights,
    pictures: &[Picture],
    progress: &mut dyn FnMut(MeasuredBlocks),
) -> Result<ModelCalibration, WeightsError> {
    let mut measurement = LayerMeasurement {
        config,
        layers: BTreeMap::new(),
        blocks: MeasuredBlocks {
            done: 0,
            all: config.vision.enc_n_layers + config.text.n_layers,
        },
        progress,
    };
    let tokens = measurement.encoder(weights.vision, pictures)?;
    measurement.decoder(weights.text, weights.region, tokens)?;
    Ok(ModelCalibration::new(pictures.len(), measurement.layers))
}

struct LayerMeasurement<'a> {
    config: &'a ModelConfig,
    /// Results.
    layers: BTreeMap<LargeLayer, LayerRange>,
    blocks: MeasuredBlocks,
    progress: &'a mut dyn FnMut(MeasuredBlocks),
}

impl LayerMeasurement<'_> {
    /// Measures encoder and projection. Returns the image tokens of each picture.
    fn encoder(
        &mut self,
        mut weights: Vision<LinearWeights, Tensor>,
        pictures: &[Picture],
    ) -> Result<Vec<Vec<f32>>, WeightsError> {
        let projection = [&weights.proj.fc1, &weights.proj.fc2].map(Clone::clone);
        let blocks = mem::take(&mut weights.blocks);
        let mut model = VisionModel::new(&self.config.vision, weights, &linear)?;
        let (mut states, mut tilings) = (Vec::new(), Vec::new());
        for picture in pictures {
            let crops = crops(picture, &self.config.vision);
            let all: Vec<&[u8]> = (0..crops.encoded).map(|nth| crops.crop(nth)).collect();
            states.push(model.tokens(&all));
            tilings.push(crops.tiling);
        }
        for block in blocks {
            let layers = block.layers().map(Clone::clone);
            model.set_block(block, &linear)?;
            let mut samples = Samples::default();
            for hidden in &mut states {
                let rows = hidden.len() / self.config.vision.enc_dim;
                let mut ops = model.ops();
                ops.samples = Some(&mut samples);
                let Ok(()) = vision_block(&mut ops, &model.layers.blocks[0], hidden, rows);
            }
            self.add(&layers, samples)?;
            self.end_block();
        }
        let mut samples = Samples::default();
        let mut tokens = Vec::with_capacity(states.len());
        for (hidden, tiling) in states.into_iter().zip(tilings) {
            let combined = model.combine(&model.features(&hidden), tiling);
            let Mlp { fc1, fc2 } = &model.layers.proj;
            let inner = model.layers.proj.inner(&combined);
            samples.see(fc1, &[(&combined, fc1.inputs())]);
            samples.see(fc2, &[(&inner, fc2.inputs())]);
            tokens.push(fc2.forward(&inner));
        }
        self.add(&projection, samples)?;
        Ok(tokens)
    }

    /// Measures the decoder on images with these tokens and a prompt behind each.
    fn decoder(
        &mut self,
        mut weights: Text<LinearWeights, Tensor>,
        region: Region<LinearWeights, Tensor>,
        tokens: Vec<Vec<f32>>,
    ) -> Result<(), WeightsError> {
        let config = self.config;
        let blocks = mem::take(&mut weights.blocks);
        let mut model = TextModel::new(config, weights, &linear)?;
        let region = RegionModel::new(region)?;
        let prompt = calibration_inputs(config);
        let with_prompt = |tokens: Vec<f32>| {
            let mut hidden = [model.embedding(config.tokenizer.bos_id), tokens].concat();
            embed(&mut hidden, &model, &region, &prompt);
            hidden
        };
        let mut states: Vec<Vec<f32>> = tokens.into_iter().map(with_prompt).collect();
        let kv = table(config.prefix_positions(), prompt.len());
        let spans = spans(&kv, prompt.len());
        // One block at a time, picture after picture.
        let mut cache = KvCache::new(KvShape {
            layers: 1,
            ..model.kv_shape(kv.prefix.len() + kv.own.len(), PAGE_TOKENS)
        });
        let positions = config.prefix_positions() + prompt.len();
        let run = DecoderRun {
            layer: 0,
            outputs: positions,
        };
        for block in blocks {
            let layers: Vec<LinearWeights> = block.layers().cloned().collect();
            model.set_block(block, &linear)?;
            let mut samples = Samples::default();
            for hidden in &mut states {
                let mut ops = model.ops(&spans, &mut cache);
                ops.samples = Some(&mut samples);
                let block = &model.layers.blocks[0];
                let run = text_block(&mut ops, block, hidden, run);
                run.map_err(|error| WeightsError::Unusable(error.to_string()))?;
            }
            self.add(&layers, samples)?;
            self.end_block();
        }
        Ok(())
    }

    /// Adds the large ones of these layers.
    fn add(&mut self, layers: &[LinearWeights], samples: Samples) -> Result<(), WeightsError> {
        let mut weights = large_weights(layers)?;
        for (layer, samples) in samples.0 {
            let Some(weights) = weights.remove(&layer) else {
                continue;
            };
            let range = LayerRange {
                largest_input: samples.largest,
                int8_error: int8_error(&samples.rows, &weights.values),
            };
            if !range.largest_input.is_finite() || !range.int8_error.is_finite() {
                return Err(WeightsError::Unusable(format!(
                    "inputs or results of the layer {layer} are not numbers; the weights are damaged"
                )));
            }
            self.layers.insert(layer, range);
        }
        Ok(())
    }

    fn end_block(&mut self) {
        self.blocks.done += 1;
        (self.progress)(self.blocks);
    }
}

/// Weights of the large ones of these layers as [`LargeLayer`] joins them: below each other where the inputs are the same, side by side
/// where the results are added up.
fn large_weights(layers: &[LinearWeights]) -> Result<BTreeMap<LargeLayer, F32Rows>, WeightsError> {
    let mut joined: BTreeMap<LargeLayer, F32Rows> = BTreeMap::new();
    for layer in layers {
        let Some(large) = layer.large else { continue };
        let values = layer.weight.to_f32()?;
        let width = values.len() / layer.bias.len();
        let weights = F32Rows { values, width };
        let weights = match (joined.remove(&large), large) {
            (None, _) => weights,
            (Some(first), LargeLayer::DecoderProjFc2(_)) => side_by_side(&first, &weights),
            (Some(first), _) => F32Rows {
                values: [first.values, weights.values].concat(),
                width,
            },
        };
        joined.insert(large, weights);
    }
    Ok(joined)
}

/// Row beside row.
fn side_by_side(left: &F32Rows, right: &F32Rows) -> F32Rows {
    let rows = left.values.chunks_exact(left.width);
    let rows = rows.zip(right.values.chunks_exact(right.width));
    F32Rows {
        values: rows.flat_map(|(a, b)| a.iter().chain(b)).copied().collect(),
        width: left.width + right.width,
    }
}

/// Pages of an image's prefix, and of the prompt behind it.
pub(super) fn table(prefix_positions: usize, prompt: usize) -> KvTable {
    let prefix = prefix_positions.div_ceil(PAGE_TOKENS) as u32;
    let own = prompt.div_ceil(PAGE_TOKENS) as u32;
    KvTable {
        prefix: (0..prefix).map(PageId).collect(),
        prefix_positions,
        own: (prefix..prefix + own).map(PageId).collect(),
    }
}

/// The image, and the prompt behind it.
pub(super) fn spans(kv: &KvTable, prompt: usize) -> [PositionSpan<'_>; 2] {
    let prefix = kv.prefix_positions;
    let span = |positions, sees| PositionSpan {
        positions,
        kv,
        sees,
        adapter: None,
    };
    [
        span(0..prefix, Sees::EachOther),
        span(prefix..prefix + prompt, Sees::Past),
    ]
}

/// The error of the product of rows with weights in int8 ([`LayerRange`]).
pub(super) fn int8_error(rows: &F32Rows, weights: &[f32]) -> f32 {
    let F32Rows { values, width } = rows;
    let outputs = weights.len() / width;
    let multiplied =
        |x: &[f32], w: &[f32]| product(matrix(x, *width), matrix(w, *width).transposed(), 1.0);
    let exact = multiplied(values, weights);
    let rounded = multiplied(
        &rounded_to_int8(values, *width),
        &rounded_to_int8(weights, *width),
    );
    let squares = |values: &mut dyn Iterator<Item = f32>| -> f64 {
        values.map(|value| f64::from(value).powi(2)).sum()
    };
    let mut shares = Vec::new();
    for (exact, rounded) in exact
        .chunks_exact(outputs)
        .zip(rounded.chunks_exact(outputs))
    {
        let mut errors = exact.iter().zip(rounded).map(|(a, b)| a - b);
        let all = squares(&mut exact.iter().copied());
        // A row of zeros has no error.
        if all != 0.0 {
            shares.push(squares(&mut errors) / all);
        }
    }
    (shares.iter().sum::<f64>() / shares.len().max(1) as f64).sqrt() as f32
}
