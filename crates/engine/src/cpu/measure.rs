//! What pictures show of the large layers: the largest inputs, and the errors of products in int8.
//!
//! ```text
//!   pictures ─▶ hidden states of all of them ─▶ block 0 ─▶ block 1 ─▶ .. ─▶ ModelCalibration
//!                                               inputs of its layers ─▶ largest, some rows ─▶ error in int8
//! ```
//!
//! The model runs in f32. The weights of one block are in memory at a time, and the states of all pictures: some 30 MB for each of nine
//! crops with Moondream 2.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, PoisonError},
};

use super::{
    device::embed,
    gemm::{InputLog, LayerInputs, PackedLinear, matrix, product},
    int8::{largest, rounded_to_int8},
    kv::{KvCache, KvShape},
    ops::linear,
    region::RegionModel,
    text::{BlockOutputs, PositionSpan, Sees, TextModel},
    vision::VisionModel,
};
use crate::{
    model::{
        LargeLayer, LayerRange, LinearWeights, ModelCalibration, ModelConfig, Tensor, Weights,
        WeightsError, calibration_inputs, crops,
    },
    network::{Region, Text, TextBlock, Vision},
    scheduler::backend::{KvTable, PageId},
};
use spotter_core::Picture;

/// Rows of a layer's inputs that are multiplied in int8 too, at most, of each picture.
const ROWS_PER_PICTURE: usize = 128;
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
        log: InputLog::default(),
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
    /// Inputs of the layers that ran last.
    log: InputLog,
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
        let logged = logging_to(&self.log);
        let projection = [&weights.proj.fc1, &weights.proj.fc2].map(Clone::clone);
        let blocks = mem::take(&mut weights.blocks);
        let mut model = VisionModel::new(&self.config.vision, weights, &logged)?;
        let (mut states, mut tilings) = (Vec::new(), Vec::new());
        for picture in pictures {
            let crops = crops(picture, &self.config.vision);
            let all: Vec<&[u8]> = (0..crops.encoded).map(|nth| crops.crop(nth)).collect();
            states.push(model.tokens(&all));
            tilings.push(crops.tiling);
        }
        for block in blocks {
            let layers = block.layers().map(Clone::clone);
            model.set_block(block, &logged)?;
            let mut samples = <[LayerSamples; 4]>::default();
            for hidden in &mut states {
                model.block(0, hidden);
                take(&mut samples, self.logged_inputs());
            }
            self.add_all(layers, samples)?;
            self.end_block();
        }
        let mut samples = <[LayerSamples; 2]>::default();
        let mut tokens = Vec::with_capacity(states.len());
        for (hidden, tiling) in states.into_iter().zip(tilings) {
            tokens.push(model.image_tokens(&model.features(&hidden), tiling));
            take(&mut samples, self.logged_inputs());
        }
        self.add_all(projection, samples)?;
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
        let logged = logging_to(&self.log);
        let blocks = mem::take(&mut weights.blocks);
        let mut model = TextModel::new(config, weights, &logged)?;
        let region = RegionModel::new(region)?;
        let prompt = calibration_inputs(config);
        let with_prompt = |tokens: Vec<f32>| {
            let mut hidden = [model.embedding(config.tokenizer.bos_id), &tokens].concat();
            embed(&mut hidden, &model, &region, &prompt);
            hidden
        };
        let mut states: Vec<Vec<f32>> = tokens.into_iter().map(with_prompt).collect();
        let kv = table(config.prefix_positions(), prompt.len());
        let spans = spans(&kv, prompt.len());
        // One block at a time, picture after picture.
        let mut cache = KvCache::new(KvShape {
            layers: 1,
            ..TextModel::kv_shape(&config.text, kv.prefix.len() + kv.own.len(), PAGE_TOKENS)
        });
        for (nth, block) in blocks.into_iter().enumerate() {
            let layers = joined_weights(&block)?;
            model.set_block(block, &logged)?;
            let mut samples = <[LayerSamples; 2]>::default();
            for hidden in &mut states {
                model.block(0, hidden, &spans, &mut cache, BlockOutputs::Hidden);
                take(&mut samples, joined_inputs(self.logged_inputs()));
            }
            for ((layer, weights), samples) in LargeLayer::of_decoder(nth)
                .into_iter()
                .zip(layers)
                .zip(samples)
            {
                self.add(layer, samples, &weights)?;
            }
            self.end_block();
        }
        Ok(())
    }

    fn logged_inputs(&self) -> Vec<LayerInputs> {
        mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds the large ones of these layers.
    fn add_all<const N: usize>(
        &mut self,
        layers: [LinearWeights; N],
        samples: [LayerSamples; N],
    ) -> Result<(), WeightsError> {
        for (LinearWeights { weight, large, .. }, samples) in layers.into_iter().zip(samples) {
            if let Some(layer) = large {
                self.add(layer, samples, &weight.into_f32()?)?;
            }
        }
        Ok(())
    }

    /// Adds a layer with its weights.
    fn add(
        &mut self,
        layer: LargeLayer,
        samples: LayerSamples,
        weights: &[f32],
    ) -> Result<(), WeightsError> {
        let range = LayerRange {
            largest_input: samples.largest,
            int8_error: int8_error(&samples.rows, weights),
        };
        if !range.largest_input.is_finite() || !range.int8_error.is_finite() {
            return Err(WeightsError::Unusable(format!(
                "inputs or results of the layer {layer} are not numbers; the weights are damaged"
            )));
        }
        self.layers.insert(layer, range);
        Ok(())
    }

    fn end_block(&mut self) {
        self.blocks.done += 1;
        (self.progress)(self.blocks);
    }
}

/// Makes layers, of which the large ones copy their inputs to the log.
pub(super) fn logging_to(
    log: &InputLog,
) -> impl Fn(LinearWeights) -> Result<PackedLinear, WeightsError> + use<> {
    let log = Arc::clone(log);
    move |weights| match weights.large {
        Some(_) => Ok(linear(weights)?.logging(&log)),
        None => linear(weights),
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
    };
    [
        span(0..prefix, Sees::EachOther),
        span(prefix..prefix + prompt, Sees::Past),
    ]
}

/// What was seen of a layer's inputs.
#[derive(Default)]
struct LayerSamples {
    largest: f32,
    /// Some of them.
    rows: LayerInputs,
}

/// Adds a picture's inputs to the samples of their layers.
fn take(samples: &mut [LayerSamples], inputs: Vec<LayerInputs>) {
    for (samples, inputs) in samples.iter_mut().zip(inputs) {
        samples.add(&inputs);
    }
}

impl LayerSamples {
    fn add(&mut self, inputs: &LayerInputs) {
        let LayerInputs { values, width } = inputs;
        // Unlike `f32::max`, this keeps what is not a number.
        self.largest = largest(&[self.largest, largest(values)]);
        let step = (values.len() / width).div_ceil(ROWS_PER_PICTURE).max(1);
        let some = values.chunks_exact(*width).step_by(step);
        self.rows.values.extend(some.flatten());
        self.rows.width = *width;
    }
}

/// Weights of a decoder's block as [`LargeLayer`] has them: below each other where the inputs are the same, side by side where the results
/// are added up.
fn joined_weights(block: &TextBlock<LinearWeights, Tensor>) -> Result<[Vec<f32>; 2], WeightsError> {
    let [qkv, proj, fc1, fc2] = block.layers().map(|layer| layer.weight.to_f32());
    let outputs = block.proj.bias.len();
    let of = |values: Vec<f32>| LayerInputs {
        width: values.len() / outputs,
        values,
    };
    let proj_fc2 = side_by_side(&of(proj?), &of(fc2?));
    Ok([[qkv?, fc1?].concat(), proj_fc2.values])
}

/// The inputs of these layers, from those of queries, projection and both layers of the MLP.
fn joined_inputs(logged: Vec<LayerInputs>) -> Vec<LayerInputs> {
    match <[LayerInputs; 4]>::try_from(logged) {
        Ok([normed, attended, _, inner]) => {
            let added = side_by_side(&attended, &inner);
            vec![normed, added]
        }
        Err(_) => Vec::new(),
    }
}

/// Row beside row.
fn side_by_side(left: &LayerInputs, right: &LayerInputs) -> LayerInputs {
    let rows = left.values.chunks_exact(left.width);
    let rows = rows.zip(right.values.chunks_exact(right.width));
    LayerInputs {
        values: rows.flat_map(|(a, b)| a.iter().chain(b)).copied().collect(),
        width: left.width + right.width,
    }
}

/// The error of the product of rows with weights in int8 ([`LayerRange`]).
pub(super) fn int8_error(rows: &LayerInputs, weights: &[f32]) -> f32 {
    let LayerInputs { values, width } = rows;
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
