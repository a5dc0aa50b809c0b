//! The forward pass: which kernel and which product follows which. Everything is queued on one stream; nothing waits.
//!
//! ```text
//!   patches ─▶ VisionEncoder ─▶ image tokens ─▶ TextDecoder ─▶ hidden states ─▶ RegionHeads ─▶ decisions
//! ```
//!
//! Each part owns its weights and the buffers between its layers; `LayerRunner` has the kernels and products that
//! all of them use. Belongs here: the order, and the buffers between. Not here: the tables of a step (`program`), and when results are
//! read (`slot`).

use super::{
    error::CudaError,
    kernels::{DecisionBuffers, MatrixShape, TokenLogits},
    memory::{Buffer, Pointer},
    program::{StepTables, TableLayout},
    record::DecisionRecord,
    weights::GpuWeights,
};
use crate::model::ModelConfig;

mod heads;
mod runner;
mod text;
mod vision;

use heads::RegionHeads;
pub use runner::LayerRunner;
use text::TextDecoder;
use vision::VisionEncoder;

/// The model on the GPU.
pub struct Network {
    pub runner: LayerRunner,
    pub vision: VisionEncoder,
    pub text: TextDecoder,
    pub heads: RegionHeads,
}

impl Network {
    /// Allocates everything that steps within the layout need.
    pub fn new(
        mut runner: LayerRunner,
        config: &ModelConfig,
        weights: GpuWeights,
        layout: &TableLayout,
    ) -> Result<Self, CudaError> {
        let is_int8 = weights.vision.proj_fc1.at().is_int8();
        let (kernels, most) = (&runner.kernels, config.vision.max_crops);
        let images = layout.limits.images;
        let crops = (images * (most + 1)).max(most * 2);
        let vision = VisionEncoder::new(&kernels.stream, config, weights.vision, [crops, images])?;
        let text = TextDecoder::new(kernels, config, weights.text, layout)?;
        let heads = RegionHeads::new(&kernels.stream, config, weights.heads, layout)?;
        if is_int8 {
            let (text, vision) = (&config.text, &config.vision);
            let input = |rows, width| MatrixShape { rows, width };
            let (patches, tokens) = (
                config.image_tokens() * crops,
                config.image_tokens() * images,
            );
            runner.allow_int8(&[
                input(patches, vision.enc_dim.max(vision.enc_ff_dim)),
                input(tokens, vision.proj_inner_dim.max(2 * vision.enc_dim)),
                input(layout.positions, text.dim + text.ff_dim),
            ])?;
        }
        Ok(Self {
            runner,
            vision,
            text,
            heads,
        })
    }

    /// Plans the products of expected steps; other steps plan theirs when they run. Blocks for some seconds the first time on a GPU.
    pub fn prepare(&self) -> Result<(), CudaError> {
        let mut expected = self.vision.expected_products();
        expected.extend(self.text.expected_products());
        self.runner.prepare(&expected)
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
            rows: tables.counts.tokens,
            vocab: self.heads.vocab,
        };
        let picks = self.text.picks(tables);
        self.runner.kernels.choose_token(&logits, &picks, out)
    }

    /// Measures from now on the largest inputs of the layers that can be in fp8: those of all blocks.
    pub fn measure_inputs(&mut self) -> Result<(), CudaError> {
        let vision = self.vision.weights.blocks.iter_mut();
        let text = self.text.weights.blocks.iter_mut();
        let vision = vision.flat_map(|block| block.linears_mut());
        for linear in vision.chain(text.flat_map(|block| block.linears_mut())) {
            linear.measure_inputs(&self.runner.kernels)?;
        }
        Ok(())
    }

    /// Runs these layers in fp8 from now on, with scales from the measured inputs. Waits for the stream.
    pub fn quantise(&mut self) -> Result<(), CudaError> {
        // Buffers that steps of many positions in fp8 do not use.
        let unused = [&self.vision.inner, &self.text.proj_fc2_in].map(Buffer::start);
        self.runner.bf16_scratch = unused.into_iter().max_by_key(Pointer::len);
        self.vision.quantise(&self.runner.kernels)?;
        self.text.quantise(&self.runner.kernels)
    }
}
