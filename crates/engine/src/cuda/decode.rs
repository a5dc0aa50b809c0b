//! Steps of few positions: all blocks of the decoder in one launch (`kernels/decode_step.cu`).
//!
//! Such a step is bound by reading the weights once. As separate kernels its products would wait for each other, and the memory would be
//! idle meanwhile; in one launch the next weights are always being read. In fp8 they are half as many bytes.
//!
//! Belongs here: which steps run in one launch, and the scratch of the kernel. Not here: kernel by kernel, which works for every step
//! (`network`).

use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::{
    error::CudaError,
    kernels::{
        AttentionParts, DecodeArguments, DecodeLayers, DecodeScratch, DecodeShape, DecodeStates,
        DecodeTables, GATES, Kernels, LAYER_WORDS, LayerCache, ROWS_MAX, UNIT, WIDTH,
    },
    library::Gpu,
    memory::Buffer,
    program::StepCounts,
    weights::{GpuLinear, GpuTextBlock},
};
use crate::model::TextConfig;

/// Buffers of the network that a launch uses.
#[derive(Clone, Copy)]
pub struct OneLaunchInputs {
    pub states: DecodeStates,
    /// That of the first layer.
    pub cache: LayerCache,
    pub tables: DecodeTables,
    pub parts: AttentionParts,
}

/// What a decoder in one launch is built from.
pub struct OneLaunchParts<'a> {
    pub stream: &'a Arc<CudaStream>,
    pub gpu: &'a Gpu,
    pub kernels: &'a Kernels,
    pub config: &'a TextConfig,
    /// Their weights must live as long as the decoder.
    pub blocks: &'a [GpuTextBlock],
    /// Values of the cache of one layer.
    pub layer_values: usize,
}

/// The decoder's layers as the kernel reads them, and its scratch.
pub struct OneLaunchDecoder {
    layers: Buffer<u64>,
    is_e4m3: bool,
    sums: Buffer<f32>,
    counters: Buffer<u32>,
    inner: usize,
    layer_count: usize,
    layer_values: usize,
    blocks: usize,
}

impl OneLaunchDecoder {
    /// `None` when the kernel does not support the GPU or the model's shape.
    pub fn new(parts: OneLaunchParts<'_>) -> Result<Option<Self>, CudaError> {
        let OneLaunchParts {
            stream,
            gpu,
            kernels,
            config,
            blocks,
            layer_values,
        } = parts;
        let is_supported =
            DecodeShape::is_supported(blocks.len(), config.ff_dim, gpu.multiprocessors);
        if config.dim != WIDTH || !is_supported || !kernels.has_decode_step() {
            return Ok(None);
        }
        let chunks = 1 + config.ff_dim / WIDTH;
        let layers: Vec<u64> = blocks.iter().flat_map(in_bf16).collect();
        Ok(Some(Self {
            layers: Buffer::from_host(stream, &layers)?,
            is_e4m3: false,
            sums: Buffer::zeros(stream, chunks * ROWS_MAX * WIDTH)?,
            counters: Buffer::zeros(stream, GATES + WIDTH / UNIT + ROWS_MAX * config.n_heads)?,
            inner: config.ff_dim,
            layer_count: blocks.len(),
            layer_values,
            blocks: gpu.multiprocessors,
        }))
    }

    /// Reads the blocks' weights in e4m3 from now on, where all have them; `scales` are those of each block's inputs, as
    /// [`TextFp8::scales`](super::fp8::TextFp8::scales) gives them.
    pub fn quantise(
        &mut self,
        stream: &Arc<CudaStream>,
        blocks: &[GpuTextBlock],
        scales: impl Fn(usize) -> [f32; 2],
    ) -> Result<(), CudaError> {
        let layer = |(index, block)| in_e4m3(block, scales(index));
        let layers: Option<Vec<_>> = blocks.iter().enumerate().map(layer).collect();
        if let Some(layers) = layers {
            self.layers = Buffer::from_host(stream, &layers.concat())?;
            self.is_e4m3 = true;
        }
        Ok(())
    }

    /// True for steps that run in one launch: few positions, all of them behind an image, and no new image.
    pub fn can_run(&self, counts: &StepCounts) -> bool {
        counts.images == 0
            && counts.without_prefix == 0
            && (1..=ROWS_MAX).contains(&counts.row_positions)
    }

    /// Queues all blocks of the decoder over the hidden states of the step's positions.
    pub fn run(
        &self,
        kernels: &Kernels,
        inputs: &OneLaunchInputs,
        counts: &StepCounts,
    ) -> Result<(), CudaError> {
        let parts = inputs.parts;
        let scratch = DecodeScratch {
            parts: parts.values,
            max_sums: parts.max_sums,
            sums: self.sums.start(),
            counters: self.counters.start(),
        };
        let shape = DecodeShape {
            layers: self.layer_count,
            layer_values: self.layer_values,
            inner: self.inner,
            rows: counts.row_positions,
            tiles: counts.tiles,
            splits: DecodeShape::splits(counts.row_positions, counts.tiles, self.blocks),
            blocks: self.blocks,
        };
        let layers = DecodeLayers {
            table: self.layers.start(),
            is_e4m3: self.is_e4m3,
        };
        kernels.decode_step(&DecodeArguments {
            layers,
            states: inputs.states,
            cache: inputs.cache,
            tables: inputs.tables,
            scratch,
            shape,
        })
    }
}

/// `struct Layer` of `decode_ring.cuh`, with weights in bf16.
fn in_bf16(block: &GpuTextBlock) -> [u64; LAYER_WORDS] {
    let weights = [&block.qkv_fc1, &block.proj_fc2].map(|linear| linear.at().weight.address());
    words(block, weights, [(1.0, 1.0); 2])
}

/// The same with weights in e4m3, `None` without them; `scales` are those of the inputs of the two layers.
fn in_e4m3(block: &GpuTextBlock, scales: [f32; 2]) -> Option<[u64; LAYER_WORDS]> {
    let (qkv_fc1, proj_fc2) = (block.qkv_fc1.at().e4m3?, block.proj_fc2.at().e4m3?);
    let factors = |scale: f32, of_weight: f32| (scale.recip(), scale * of_weight);
    let factors = [
        factors(scales[0], qkv_fc1.1.value),
        factors(scales[1], proj_fc2.1.value),
    ];
    Some(words(
        block,
        [qkv_fc1.0.address(), proj_fc2.0.address()],
        factors,
    ))
}

/// `factors`: of inputs and of sums of each layer.
fn words(
    block: &GpuTextBlock,
    [qkv_fc1, proj_fc2]: [u64; 2],
    factors: [(f32, f32); 2],
) -> [u64; LAYER_WORDS] {
    let norm = block.ln.at();
    let bias = |linear: &GpuLinear| linear.at().bias.address();
    let [qkv_fc1_factors, proj_fc2_factors] = factors.map(|(of_input, of_sum)| {
        u64::from(of_input.to_bits()) | u64::from(of_sum.to_bits()) << 32
    });
    [
        norm.weight.address(),
        norm.bias.address(),
        qkv_fc1,
        bias(&block.qkv_fc1),
        proj_fc2,
        bias(&block.proj_fc2),
        qkv_fc1_factors,
        proj_fc2_factors,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_tiles_are_split_and_many_are_not() {
        // An H200: one image with one row and with eight, four images, and 32.
        assert_eq!(DecodeShape::splits(1, 1, 132), 8);
        assert_eq!(DecodeShape::splits(8, 1, 132), 16);
        assert_eq!(DecodeShape::splits(4, 4, 132), 4);
        assert_eq!(DecodeShape::splits(32, 32, 132), 1);
    }

    #[test]
    fn what_the_kernel_is_not_made_for_goes_the_other_way() {
        // Moondream 2 on an H200 and a B200.
        assert!(
            DecodeShape::is_supported(24, 8192, 132) && DecodeShape::is_supported(24, 8192, 148)
        );
        // Too deep, too wide, not in chunks, and GPUs that are too large and too small a share of one.
        for (layers, inner, blocks) in [
            (33, 8192, 132),
            (24, 8 * 2048, 132),
            (24, 8000, 132),
            (24, 8192, 161),
            (24, 8192, 4),
        ] {
            assert!(
                !DecodeShape::is_supported(layers, inner, blocks),
                "{layers} {inner} {blocks}"
            );
        }
    }
}
