//! The forward pass: which kernel and which product follows which. Everything is queued on one stream; nothing waits.
//!
//! ```text
//!   patches ─▶ VisionEncoder ─▶ image tokens ─▶ TextDecoder ─▶ hidden states ─▶ RegionHeads ─▶ decisions
//! ```
//!
//! The order within blocks is that of all devices (`network::forward`), over the operations of `blocks`. Each part owns its weights and the
//! buffers between its layers; `LayerRunner` has the kernels and products that all of them use. Belongs here: the order before and behind
//! blocks, and the buffers between. Not here: the tables of a step (`program`), and when results are read (`slot`).

use std::cell::RefCell;

use super::{
    error::CudaError,
    kernels::{DecisionBuffers, TokenLogits},
    memory::Pointer,
    program::{StepTables, TableLayout},
    record::DecisionRecord,
    tensor::Int8Rows,
    weights::GpuWeights,
};
use crate::{
    model::{Formats, ModelConfig},
    network::{format::Number, shard::Shard},
};

mod blocks;
mod experts;
mod heads;
mod runner;
mod shared;
mod text;
mod vision;

use blocks::Pass;
pub use experts::{ExpertBuffers, ExpertRoom, RowsForExperts};
use heads::RegionHeads;
pub use runner::LayerRunner;
use shared::{NetworkBase, SharedLengths, SharedMemory};
use text::TextDecoder;
pub use text::hidden_values;
use vision::{VisionEncoder, VisionRoom};

/// What a [`GpuNetwork`] is made of, and what can be made into another one.
pub struct NetworkParts {
    pub runner: LayerRunner,
    pub weights: GpuWeights,
}

/// The model on the GPU.
pub struct GpuNetwork {
    pub runner: LayerRunner,
    pub vision: VisionEncoder,
    pub text: TextDecoder,
    pub heads: RegionHeads,
    // Dropped behind those that have positions in it.
    _shared: SharedMemory,
}

impl GpuNetwork {
    /// Allocates everything that steps within the layout need.
    pub fn new(
        parts: NetworkParts,
        config: &ModelConfig,
        layout: &TableLayout,
        crops_at_once: usize,
        crops_of: Shard,
    ) -> Result<Self, CudaError> {
        let NetworkParts {
            mut runner,
            weights,
        } = parts;
        let room = VisionRoom::new(&config.vision, layout.limits.images, crops_at_once);
        let [has_int8, has_e4m3] = [Number::Int8, Number::E4m3].map(|number| weights.has(number));
        let blocks = &weights.text.layers.blocks;
        let input = blocks.first().map_or(Number::Bf16, |b| b.qkv.number());
        let lengths = shared_lengths(config, layout, room, input);
        let kernels = &runner.kernels;
        let shared = SharedMemory::new(&kernels.stream, lengths)?;
        let base = NetworkBase {
            runner: &runner,
            shared: &shared,
        };
        let vision = VisionEncoder::new(base, config, weights.vision, room, crops_of)?;
        let text = TextDecoder::new(base, config, weights.text, layout)?;
        let heads = RegionHeads::new(&kernels.stream, config, layout)?;
        if has_int8 {
            runner.allow_int8(int8_lengths(config, layout, room))?;
        }
        if has_e4m3 {
            // Buffers that steps of many positions in fp8 do not use, both at the start of the shared memory. What becomes e4m3 is as large as
            // that of its part of the network at most.
            let unused = [vision.inner, text.proj_fc2_in];
            runner.bf16_scratch = unused.into_iter().max_by_key(Pointer::len);
        }
        Ok(Self {
            runner,
            vision,
            text,
            heads,
            _shared: shared,
        })
    }

    /// Bytes that one takes beside its weights and the KV cache.
    pub fn scratch_bytes(
        config: &ModelConfig,
        layout: &TableLayout,
        crops_at_once: usize,
        formats: Formats<'_>,
    ) -> usize {
        let large = formats.large;
        let room = VisionRoom::new(&config.vision, layout.limits.images, crops_at_once);
        let of_int8 = match large.input {
            Number::Int8 => {
                let [values, rows] = int8_lengths(config, layout, room);
                values + rows * size_of::<f32>()
            }
            _ => 0,
        };
        shared_lengths(config, layout, room, large.input).bytes()
            + VisionEncoder::scratch_bytes(config, &room)
            + TextDecoder::scratch_bytes(&config.text, layout, formats)
            + RegionHeads::scratch_bytes(config, layout)
            + of_int8
    }

    /// Bytes of a page of the KV cache.
    pub fn page_bytes(config: &ModelConfig) -> usize {
        TextDecoder::page_bytes(&config.text)
    }

    /// Before the first step: plans the products of most steps; other steps plan theirs when they run. Blocks for some seconds the first
    /// time on a GPU, and times products in the KV cache, so that a start takes no more memory than steps.
    pub fn prepare(&self) -> Result<(), CudaError> {
        let expected = RefCell::default();
        self.vision.plan(&expected)?;
        self.text.plan(&expected)?;
        let idle = self.text.keys.start().as_bytes();
        self.runner.prepare(expected.into_inner(), idle)
    }

    /// Queues the encoder over the patches of `crops` crops, at least one.
    pub fn encode(&self, crops: usize) -> Result<(), CudaError> {
        self.vision.encode(Pass::Run(&self.runner), crops)
    }

    /// Queues the decoder over all positions of a step: its rows, then its images, which only write keys and values.
    pub fn forward(
        &self,
        tables: StepTables<'_>,
        decided: Pointer<DecisionRecord>,
    ) -> Result<(), CudaError> {
        let image_tokens = self.vision.tokens.start();
        self.text
            .forward(&self.runner, tables, image_tokens, decided)
    }

    /// Queues the heads and all decisions but those of tokens, whose logits it computes.
    pub fn decide(&self, tables: StepTables<'_>, out: DecisionBuffers) -> Result<(), CudaError> {
        self.heads.decide(&self.runner, &self.text, tables, out)
    }

    /// Queues the choice of the step's tokens from their logits.
    pub fn choose_tokens(
        &self,
        tables: StepTables<'_>,
        masks: Pointer<u32>,
        out: DecisionBuffers,
    ) -> Result<(), CudaError> {
        let logits = TokenLogits {
            logits: self.heads.logits.start(),
            mask: masks,
            coords: self.heads.coords.start(),
            sizes: self.heads.sizes.start(),
            rows: tables.counts.tokens,
            vocab: self.heads.vocab,
        };
        let picks = self.text.picks(tables);
        self.runner.kernels.choose_token(&logits, &picks, out)
    }

    /// Frees everything beside its kernels and weights.
    pub fn into_parts(self) -> NetworkParts {
        let mut runner = self.runner;
        runner.free_scratch();
        let weights = GpuWeights {
            vision: self.vision.weights,
            text: self.text.weights,
        };
        NetworkParts { runner, weights }
    }
}

/// Of the encoder or of the decoder; `input` is what the layers of their blocks read.
fn shared_lengths(
    config: &ModelConfig,
    layout: &TableLayout,
    room: VisionRoom,
    input: Number,
) -> SharedLengths {
    let of_text = TextDecoder::shared_lengths(&config.text, layout, input);
    VisionEncoder::shared_lengths(config, &room, input).or(of_text)
}

/// Values and rows of the largest inputs of products in int8.
fn int8_lengths(config: &ModelConfig, layout: &TableLayout, room: VisionRoom) -> [usize; 2] {
    let (text, vision, tokens) = (&config.text, &config.vision, config.image_tokens());
    let of_block = vision.enc_dim.max(vision.enc_ff_dim);
    let of_projection = vision.proj_inner_dim.max(2 * vision.enc_dim);
    let inputs = [
        (room.crops_at_once * tokens, of_block),
        (room.images * tokens, of_projection),
        (
            layout.positions,
            text.dim.max(text.attended_width() + text.ff_dim),
        ),
    ];
    inputs
        .into_iter()
        .fold([0; 2], |[values, most], (rows, width)| {
            [
                values.max(rows * Int8Rows::stride_of(width)),
                most.max(rows),
            ]
        })
}
