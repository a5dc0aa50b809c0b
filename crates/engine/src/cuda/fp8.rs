//! fp8: the largest values, the scales that follow from them, and buffers for values in e4m3.
//!
//! ```text
//!   pictures ─▶ steps in bf16, measured ─▶ largest input of each layer ─▶ scales ─▶ weights and inputs in e4m3
//! ```
//!
//! A scale is that of a whole tensor, is a power of two and is constant: e4m3 is a floating-point format, so a scale only moves its
//! range, and rounding it up costs a part of the range at most. A power of two also hides the last bits of the measurement, so that
//! equal pictures give equal scales. Magnitudes beyond the measured ones saturate.

use std::{collections::HashMap, sync::Arc};

use cudarc::driver::CudaStream;

use super::{
    error::CudaError,
    kernels::{Activations, SCALE_STEP, Scale, StridedRows},
    library::Gpu,
    memory::{Buffer, Pointer},
    products::{LinearRef, bucket},
};
use crate::{
    model::{ModelConfig, TextConfig, VisionConfig},
    scheduler::backend::{
        BackendLimits, DecoderInput, Feed, ImageJob, KvTable, PageId, Pick, Row, Step,
    },
};
use spotter_core::Picture;

/// The largest number in e4m3.
const LARGEST: f32 = 448.0;
/// How much larger inputs may be than in the calibration pictures.
pub const MARGIN: f32 = 1.25;
/// Tokens of a calibration's prompt, spread over the vocabulary.
const TOKENS: usize = 16;

/// The least power of two that brings sizes up to `largest * margin` into the format; 1 where all is zero.
pub fn scale(largest: f32, margin: f32) -> Result<f32, CudaError> {
    if !largest.is_finite() {
        return Err(CudaError::Fp8(
            "some of its values are NaN or infinite".into(),
        ));
    }
    let exact = largest * margin / LARGEST;
    // Beyond these bounds a scale or its inverse would not be a normal number.
    let least = exact
        .max(f32::MIN_POSITIVE)
        .log2()
        .ceil()
        .clamp(-100.0, 100.0);
    Ok(if largest > 0.0 { least.exp2() } else { 1.0 })
}

/// Scales, here and on the GPU.
pub struct Scales {
    values: Vec<f32>,
    /// Each with its inverse.
    at: Buffer<f32>,
}

impl Scales {
    /// Copies them to the GPU.
    pub fn new(stream: &Arc<CudaStream>, scales: &[f32]) -> Result<Self, CudaError> {
        let apart = |value: f32| std::iter::once(value).chain([0.0; SCALE_STEP - 1]);
        let pairs: Vec<f32> = scales
            .iter()
            .flat_map(|s| apart(*s).chain(apart(s.recip())))
            .collect();
        Ok(Self {
            values: scales.to_vec(),
            at: Buffer::from_host(stream, &pairs)?,
        })
    }

    pub fn at(&self, index: usize) -> Scale {
        Scale {
            value: self.values[index],
            at: self.at.start().at(index * 2 * SCALE_STEP),
        }
    }
}

/// Sizes of layers' inputs, collected while steps run in bf16.
pub struct InputSizes {
    /// By address of the layer's weights.
    slots: HashMap<u64, usize>,
    largest: Buffer<f32>,
}

impl InputSizes {
    /// For these layers.
    pub fn new(
        stream: &Arc<CudaStream>,
        linears: impl Iterator<Item = LinearRef>,
    ) -> Result<Self, CudaError> {
        let slots: HashMap<u64, usize> = linears
            .enumerate()
            .map(|(slot, linear)| (linear.weight.address(), slot))
            .collect();
        Ok(Self {
            largest: Buffer::zeros(stream, slots.len())?,
            slots,
        })
    }

    /// Where the largest size of the layer's inputs is kept; `None` when the layer is not measured.
    pub fn of(&self, linear: &LinearRef) -> Option<Pointer<f32>> {
        let slot = self.slots.get(&linear.weight.address())?;
        Some(self.largest.start().at(*slot))
    }

    /// The largest sizes so far, in the order of the layers. Waits for the stream.
    pub fn largest(&self, stream: &Arc<CudaStream>) -> Result<Vec<f32>, CudaError> {
        self.largest.to_host(stream)
    }
}

fn scales(stream: &Arc<CudaStream>, largest: &[f32]) -> Result<Scales, CudaError> {
    let scales: Result<Vec<f32>, _> = largest.iter().map(|&l| scale(l, MARGIN)).collect();
    Scales::new(stream, &scales?)
}

fn e4m3_rows(stream: &Arc<CudaStream>, rows: usize, width: usize) -> Result<E4m3Rows, CudaError> {
    Ok(E4m3Rows {
        values: Buffer::zeros(stream, bucket(rows) * width)?,
        width,
    })
}

/// Memory for rows in e4m3.
struct E4m3Rows {
    values: Buffer<u8>,
    width: usize,
}

impl E4m3Rows {
    fn scaled(&self, scale: Scale) -> Activations {
        Activations::E4m3(StridedRows::packed(self.values.start(), self.width), scale)
    }
}

/// Inputs of the vision encoder's layers in e4m3, with their scales.
pub struct VisionFp8 {
    /// Of each block: into qkv, proj, fc1, fc2.
    scales: Scales,
    normed: E4m3Rows,
    attended: E4m3Rows,
    inner: E4m3Rows,
}

impl VisionFp8 {
    /// For up to `patches` patches; `largest` are the largest inputs of the four layers of each block.
    pub fn new(
        stream: &Arc<CudaStream>,
        config: &VisionConfig,
        patches: usize,
        largest: &[f32],
    ) -> Result<Self, CudaError> {
        Ok(Self {
            scales: scales(stream, largest)?,
            normed: e4m3_rows(stream, patches, config.enc_dim)?,
            attended: e4m3_rows(stream, patches, config.enc_dim)?,
            inner: e4m3_rows(stream, patches, config.enc_ff_dim)?,
        })
    }

    /// Inputs of the four layers of a block.
    pub fn inputs(&self, block: usize) -> [Activations; 4] {
        let scale = |nth| self.scales.at(block * 4 + nth);
        [
            self.normed.scaled(scale(0)),
            self.attended.scaled(scale(1)),
            self.normed.scaled(scale(2)),
            self.inner.scaled(scale(3)),
        ]
    }
}

/// Inputs of the text decoder's layers in e4m3, with their scales.
pub struct TextFp8 {
    /// Of each block: into qkv and fc1; into proj and fc2.
    scales: Scales,
    normed: E4m3Rows,
    proj_fc2_in: E4m3Rows,
}

impl TextFp8 {
    /// For up to `positions` positions; `largest` are the largest inputs of the two layers of each block.
    pub fn new(
        stream: &Arc<CudaStream>,
        config: &TextConfig,
        positions: usize,
        largest: &[f32],
    ) -> Result<Self, CudaError> {
        Ok(Self {
            scales: scales(stream, largest)?,
            normed: e4m3_rows(stream, positions, config.dim)?,
            proj_fc2_in: e4m3_rows(stream, positions, config.dim + config.ff_dim)?,
        })
    }

    /// Scales of a block's inputs, in the order of [`inputs`](Self::inputs).
    pub fn scales(&self, block: usize) -> [f32; 2] {
        [0, 1].map(|nth| self.scales.at(block * 2 + nth).value)
    }

    /// Inputs of a block: normed states, and attention's result beside the MLP's inner values.
    pub fn inputs(&self, block: usize) -> [Activations; 2] {
        let scale = |nth| self.scales.at(block * 2 + nth);
        [
            self.normed.scaled(scale(0)),
            self.proj_fc2_in.scaled(scale(1)),
        ]
    }
}

/// Checks the GPU and the shape of the model.
pub fn supported(config: &ModelConfig, gpu: &Gpu) -> Result<(), CudaError> {
    if !gpu.has_fp8() {
        let (major, minor) = gpu.capability;
        return Err(CudaError::NoFp8 {
            name: gpu.name.clone(),
            major,
            minor,
        });
    }
    wide_enough(config)
}

fn wide_enough(config: &ModelConfig) -> Result<(), CudaError> {
    let widths = [
        ("text.dim", config.text.dim),
        ("text.ff_dim", config.text.ff_dim),
        ("vision.enc_dim", config.vision.enc_dim),
        ("vision.enc_ff_dim", config.vision.enc_ff_dim),
    ];
    match widths.iter().find(|(_, width)| !width.is_multiple_of(16)) {
        Some((name, width)) => Err(CudaError::Fp8(format!(
            "{name} is {width}, must be a multiple of 16"
        ))),
        None => Ok(()),
    }
}

/// A step that runs a picture through all layers: its prefix, and a row with all kinds of inputs.
pub fn calibration_step(picture: &Picture, config: &ModelConfig, limits: &BackendLimits) -> Step {
    let template = &config.tokenizer.templates.detect;
    let vocab = config.text.vocab_size;
    let words = (1..=TOKENS).map(|i| (i * vocab / (TOKENS + 1)) as u32);
    let ids = template.prefix.iter().copied().chain(words);
    let inputs = ids
        .chain(template.suffix.iter().copied())
        .map(DecoderInput::Token);
    let drafted = [
        DecoderInput::Coord(0.25),
        DecoderInput::Coord(0.75),
        DecoderInput::Size(0.1, 0.4),
    ];
    let inputs: Vec<DecoderInput> = inputs.chain(drafted).collect();
    let pages = |positions: usize| positions.div_ceil(limits.page_tokens) as u32;
    let prefix = pages(limits.prefix_positions);
    let own = prefix..prefix + pages(inputs.len());
    let prefix: Vec<PageId> = (0..prefix).map(PageId).collect();
    Step {
        images: vec![ImageJob {
            picture: picture.clone(),
            pages: prefix.clone(),
            camera: None,
        }],
        rows: vec![Row {
            inputs: Feed::Host(inputs),
            position: limits.prefix_positions,
            kv: KvTable {
                prefix,
                prefix_positions: limits.prefix_positions,
                own: own.map(PageId).collect(),
            },
            picks: vec![Pick::CoordOrEnd],
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_the_least_powers_of_two_that_fit() {
        for (largest, margin, want) in [
            (448.0, 1.0, 1.0),
            (449.0, 1.0, 2.0),
            (400.0, 1.25, 2.0),
            (3.5, 1.0, 1.0 / 128.0),
            (3.6, 1.0, 1.0 / 64.0),
            (0.0, 1.25, 1.0),
        ] {
            assert_eq!(scale(largest, margin).unwrap(), want, "{largest}");
        }
        for largest in [1e-45, 1e-20, 0.7, 12.5, 1e30] {
            let scale = scale(largest, MARGIN).unwrap();
            assert!(largest * MARGIN / scale <= LARGEST && scale.recip().is_normal());
        }
        assert!(scale(f32::INFINITY, 1.0).is_err() && scale(f32::NAN, 1.0).is_err());
    }

    #[test]
    fn widths_that_fp8_does_not_take_are_named() {
        assert!(wide_enough(&ModelConfig::default()).is_ok());
        let mut config = ModelConfig::default();
        config.vision.enc_ff_dim = 136;
        let message = wide_enough(&config).unwrap_err().to_string();
        assert!(message.contains("vision.enc_ff_dim is 136") && message.contains("bf16"));
    }
}
