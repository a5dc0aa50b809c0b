//! The model's weights on the GPU, in bf16, int8, e4m3 or int4, in the layout that the network reads. The GPU has one copy of each.
//!
//! In int8 are the large layers: those of the blocks of encoder and decoder, and the projection, but for those with large errors. Each is
//! converted when it is copied. Where experts are in int4, `lm_head` is in int8 too.
//! In e4m3 are those of the blocks, converted layer by layer when their inputs have been measured in bf16 (`fp8`).

use std::rc::Rc;

use half::bf16;

use self::load::Frequencies;
pub use self::load::GpuLoader;
use super::{
    error::CudaError,
    fp8::{self, GpuScales},
    kernels::Kernels,
    memory::{Buffer, wait_for_stream},
    tensor::{
        GpuLinear, GpuNorm, GpuTextBlock, LinearRef, MatrixShape, StridedRows, WeightPointer,
    },
};
use crate::{
    model::{self, Formats, ModelConfig},
    network::{Network, PartMap, Region, Text, TextMlp, Vision, VisionBlock, format::Number},
};

mod load;
mod rows;

pub use rows::put_pairs_together;

/// The decoder, with what leads into and out of it.
pub struct GpuText {
    pub layers: Text<GpuLinear, Buffer<bf16>>,
    /// The rows of `lm_head` for the coordinate token and the end token.
    pub coord_or_end: GpuLinear,
    /// With frequencies in f32, and its norm beside it.
    pub region: Region<GpuLinear, Buffer<f32>>,
    pub region_ln: Option<GpuNorm>,
    /// What experts read in steps of many rows.
    pub expert_input: Number,
}

pub type GpuVision = Vision<GpuLinear, Buffer<bf16>>;

pub struct GpuWeights {
    pub vision: GpuVision,
    pub text: GpuText,
}

impl GpuWeights {
    /// Reads all weights and copies them to the GPU, piece by piece, each layer in its format or, if that is e4m3, in bf16 until it is
    /// [`GpuWeights::quantised`]. Blocks.
    pub fn upload(
        kernels: &Kernels,
        config: &ModelConfig,
        weights: model::Weights,
        formats: Formats<'_>,
    ) -> Result<Self, CudaError> {
        let mut loader = GpuLoader::new(kernels, formats, weights.number_of_experts())?;
        let Network {
            text,
            vision,
            mut region,
        } = weights;
        let region_ln = region.ln.take();
        let region_ln = region_ln.map(|ln| ln.try_map(|tensor| loader.plain(tensor)));
        let ids = [config.tokenizer.coord_id, config.tokenizer.eos_id].map(|id| id as usize);
        let coord_or_end = loader.outputs_of(&text.lm_head, &ids)?;
        let blocks = text.blocks.into_iter();
        Ok(Self {
            text: GpuText {
                layers: Text {
                    wte: loader.plain(text.wte)?,
                    blocks: blocks
                        .map(|block| loader.text_block(block))
                        .collect::<Result<_, _>>()?,
                    post_ln: text.post_ln.try_map(|tensor| loader.plain(tensor))?,
                    lm_head: loader.lm_head(text.lm_head)?,
                },
                coord_or_end,
                region: region.try_map(&mut Frequencies(&mut loader))?,
                region_ln: region_ln.transpose()?,
                expert_input: formats.experts.input,
            },
            vision: vision.try_map(&mut loader)?,
        })
    }

    /// Converts layers whose inputs were measured to e4m3, one by one. Waits for the stream.
    pub fn quantised(mut self, kernels: &Kernels) -> Result<Self, CudaError> {
        for VisionBlock { qkv, proj, mlp, .. } in &mut self.vision.blocks {
            for layer in [qkv, proj, &mut mlp.fc1, &mut mlp.fc2] {
                *layer = quantised(layer, kernels)?;
            }
        }
        let block = |block: GpuTextBlock| {
            let [qkv_fc1, proj_fc2] = block.joined();
            let layers = [
                quantised(&qkv_fc1, kernels)?,
                quantised(&proj_fc2, kernels)?,
            ];
            Ok::<_, CudaError>(match block.mlp {
                TextMlp::Dense(_) => {
                    GpuTextBlock::of_joined(block.ln, block.tau, layers, block.qkv.outputs)
                }
                TextMlp::Experts(_) => {
                    let [qkv, proj] = layers;
                    GpuTextBlock { qkv, proj, ..block }
                }
            })
        };
        let blocks = self.text.layers.blocks.into_iter().map(block);
        self.text.layers.blocks = blocks.collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// True when a layer is in this format.
    pub fn has(&self, number: Number) -> bool {
        self.large_layers().any(|layer| layer.number() == number)
    }

    /// Those that can be in 8 bits, but for experts.
    pub fn large_layers(&self) -> impl Iterator<Item = &GpuLinear> {
        let Self { vision, text } = self;
        let encoder = vision.blocks.iter().flat_map(VisionBlock::layers);
        let decoder = text.layers.blocks.iter().flat_map(GpuTextBlock::layers);
        let decoder = decoder.filter(|layer| !layer.is_experts());
        encoder
            .chain([&vision.proj.fc1, &vision.proj.fc2])
            .chain(decoder)
    }
}

/// The layer in e4m3 if its inputs were measured. Waits for the stream.
fn quantised(layer: &GpuLinear, kernels: &Kernels) -> Result<GpuLinear, CudaError> {
    let Some(largest_input) = &layer.largest_input else {
        return Ok(layer.clone());
    };
    let stream = &kernels.stream;
    let LinearRef { outputs, inner, .. } = layer.at;
    let shape = MatrixShape {
        rows: outputs,
        width: inner,
    };
    let from = StridedRows::packed(layer.bf16()?, inner);
    let largest = Buffer::zeros(stream, 1)?;
    kernels.abs_max(from, largest.start(), shape)?;
    let scales = [
        fp8::scale(largest.to_host(stream)?[0], 1.0)?,
        fp8::scale(largest_input.to_host(stream)?[0], fp8::MARGIN)?,
    ];
    let scales = GpuScales::new(stream, &scales)?;
    let values = Buffer::zeros(stream, outputs * inner)?;
    let to = StridedRows::packed(values.start(), inner);
    kernels.quantise(from, to, scales.at(0), shape)?;
    wait_for_stream(stream, "converting weights to e4m3")?;
    Ok(GpuLinear {
        at: LinearRef {
            weight: WeightPointer::E4m3 {
                values: values.start(),
                scale: scales.at(0),
                input: scales.at(1),
            },
            largest_input: None,
            ..layer.at
        },
        weight: Rc::new((values, scales)),
        largest_input: None,
        ..layer.clone()
    })
}
