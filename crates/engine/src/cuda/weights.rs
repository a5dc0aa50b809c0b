//! The model's weights on the GPU, in bf16, int8, e4m3 or int4, in the layout that the network reads. The GPU has one copy of each.
//!
//! In int8 are the large layers: those of the blocks of encoder and decoder, and the projection, but for those with large errors. Each is
//! converted when it is copied. Where experts are in int4, `lm_head` is in int8 too.
//! In e4m3 are those of the blocks, converted layer by layer when their inputs have been measured in bf16 (`fp8`).

use std::rc::Rc;

use cudarc::driver::{DeviceRepr, ValidAsZeroBits};
use half::bf16;

use self::load::Frequencies;
pub use self::load::GpuLoader;
use super::{
    error::CudaError,
    fp8::{self, GpuScales},
    kernels::Kernels,
    memory::{Buffer, copy, wait_for_stream},
    tensor::{
        GpuLinear, GpuNorm, GpuTextBlock, LinearRef, MatrixShape, StridedRows, WeightPointer,
    },
};
use crate::{
    model::{self, Formats, LayerShape, ModelConfig},
    network::{Mlp, Network, PartMap, Region, Text, TextMlp, Vision, VisionBlock, format::Number},
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

/// Values between the layers of an encoder's MLP in e4m3, of which those behind `values` are zeros: products are faster whose rows begin
/// at lines of memory and have whole tiles (BENCHMARKS.md, "Kernels of a look").
pub fn inner_in_e4m3(values: usize) -> usize {
    values.next_multiple_of(128)
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
            for layer in [qkv, proj] {
                *layer = quantised(layer, kernels)?;
            }
            let Mlp { fc1, fc2 } = mlp;
            let (mut of_fc1, mut of_fc2) = (shape_of(fc1), shape_of(fc2));
            if fc1.largest_input.is_some() && fc2.largest_input.is_some() {
                of_fc2.inner = inner_in_e4m3(of_fc2.inner);
                of_fc1.outputs = of_fc2.inner;
            }
            *fc1 = padded(fc1, of_fc1, kernels)?;
            *fc2 = padded(fc2, of_fc2, kernels)?;
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

fn shape_of(layer: &LinearRef) -> LayerShape {
    let &LinearRef { outputs, inner, .. } = layer;
    LayerShape { outputs, inner }
}

/// The layer in e4m3 if its inputs were measured. Waits for the stream.
fn quantised(layer: &GpuLinear, kernels: &Kernels) -> Result<GpuLinear, CudaError> {
    padded(layer, shape_of(layer), kernels)
}

/// The same, with zeros behind its outputs and inputs up to the shape `to`.
fn padded(layer: &GpuLinear, to: LayerShape, kernels: &Kernels) -> Result<GpuLinear, CudaError> {
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
    let values = Buffer::zeros(stream, to.outputs * to.inner)?;
    let rows = StridedRows::packed(values.start(), to.inner);
    kernels.quantise(from, rows, scales.at(0), shape)?;
    let mut layer = layer.clone();
    if to.outputs > outputs {
        let (in_bf16, in_f32) = &*layer.bias;
        let bias = (
            longer(in_bf16, outputs, to.outputs)?,
            longer(in_f32, outputs, to.outputs)?,
        );
        (layer.at.bias, layer.at.bias_f32) = (bias.0.start(), Some(bias.1.start()));
        layer.bias = Rc::new(bias);
    }
    wait_for_stream(stream, "converting weights to e4m3")?;
    Ok(GpuLinear {
        at: LinearRef {
            weight: WeightPointer::E4m3 {
                values: values.start(),
                scale: scales.at(0),
                input: scales.at(1),
            },
            largest_input: None,
            outputs: to.outputs,
            inner: to.inner,
            ..layer.at
        },
        weight: Rc::new((values, scales)),
        largest_input: None,
        ..layer
    })
}

/// A copy of the first `used` values, with zeros behind them.
fn longer<T: DeviceRepr + ValidAsZeroBits>(
    from: &Buffer<T>,
    used: usize,
    len: usize,
) -> Result<Buffer<T>, CudaError> {
    let to = Buffer::zeros(from.stream(), len)?;
    copy(from.stream(), from.start(), to.start(), used)?;
    Ok(to)
}
