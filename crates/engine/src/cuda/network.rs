//! The forward pass: which kernel and which product follows which. Everything is queued on one stream; nothing waits.
//!
//! ```text
//!   patches ─▶ VisionEncoder ─▶ image tokens ─▶ TextDecoder ─▶ hidden states ─▶ RegionHeads ─▶ decisions
//! ```
//!
//! Each part owns its weights and the buffers between its layers; `LayerRunner` has the kernels and products that
//! all of them use. Belongs here: the order, and the buffers between. Not here: the tables of a step (`program`), and when results are
//! read (`slot`).

use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::{
    error::CudaError,
    kernels::{DecisionBuffers, Kernels, StridedRows},
    library::Gpu,
    memory::Pointer,
    products::{LinearRef, Products},
    program::{StepCounts, TableLayout},
    record::DecisionRecord,
    weights::GpuWeights,
};
use crate::{model::ModelConfig, scheduler::backend::BackendLimits};

mod heads;
#[cfg(test)]
mod inside;
mod runner;
mod tables;
mod text;
mod vision;

use heads::RegionHeads;
#[cfg(test)]
pub use inside::NetworkBuffer;
use runner::LayerRunner;
pub use tables::StepTables;
pub use text::DecodedStates;
use text::{TextDecoder, TextDecoderParts};
pub use vision::FeatureSources;
use vision::{VisionEncoder, VisionLimits};

/// What a network is built from.
pub struct NetworkParts<'a> {
    pub gpu: &'a Gpu,
    pub stream: &'a Arc<CudaStream>,
    pub config: &'a ModelConfig,
    pub weights: GpuWeights,
    pub kernels: Kernels,
    pub products: Products,
    pub limits: &'a BackendLimits,
    pub layout: &'a TableLayout,
    /// Crops in a step, at most.
    pub crops: usize,
}

/// The model on the GPU.
pub struct Network {
    runner: LayerRunner,
    vision: VisionEncoder,
    text: TextDecoder,
    heads: RegionHeads,
}

impl Network {
    /// Allocates everything that steps within the limits and the layout need.
    pub fn new(parts: NetworkParts<'_>) -> Result<Self, CudaError> {
        let NetworkParts {
            gpu,
            stream,
            config,
            weights,
            kernels,
            products,
            limits,
            layout,
            crops,
        } = parts;
        let vision_limits = VisionLimits {
            crops,
            images: limits.images,
        };
        let vision = VisionEncoder::new(stream, config, weights.vision, vision_limits)?;
        let text = TextDecoder::new(TextDecoderParts {
            stream,
            gpu,
            kernels: &kernels,
            config,
            weights: weights.text,
            limits,
            layout,
        })?;
        let heads = RegionHeads::new(stream, config, weights.heads, layout)?;
        let (a, b) = (vision.unused_in_fp8(), text.unused_in_fp8());
        let bf16_scratch = if a.len() > b.len() { a } else { b };
        Ok(Self {
            runner: LayerRunner::new(kernels, products, bf16_scratch),
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

    pub fn kernels(&self) -> &Kernels {
        &self.runner.kernels
    }

    /// Where the patches of a step's crops go, a row each.
    pub fn patch_rows(&self) -> StridedRows {
        self.vision.patch_rows()
    }

    /// Crops that fit into a step.
    pub fn crops_max(&self) -> usize {
        self.vision.crops_max()
    }

    /// Queues the vision encoder over the patches of `crops` crops, at least one.
    pub fn encode(&self, crops: usize) -> Result<(), CudaError> {
        self.vision.encode(&self.runner, crops)
    }

    /// Queues the tokens of `images` images, from the features of this step and from kept ones.
    pub fn project(&self, images: usize, features: FeatureSources<'_>) -> Result<(), CudaError> {
        self.vision.project(&self.runner, images, features)
    }

    /// Queues the decoder over all positions of a step: its rows, then its images, which only write keys and values.
    pub fn forward(
        &self,
        tables: StepTables<'_>,
        decided: Pointer<DecisionRecord>,
    ) -> Result<(), CudaError> {
        let image_tokens = self.vision.image_tokens();
        self.text
            .forward(&self.runner, tables, image_tokens, decided)
    }

    /// True when the decoder's blocks are one launch in this step.
    pub fn is_one_launch(&self, counts: &StepCounts) -> bool {
        self.text.is_one_launch(counts)
    }

    /// Queues the heads and all decisions but those of tokens, whose logits it computes.
    pub fn decide(&self, tables: StepTables<'_>, out: DecisionBuffers) -> Result<(), CudaError> {
        self.heads
            .decide(&self.runner, self.text.states(), tables, out)
    }

    /// Queues the choice of the step's tokens from their logits.
    pub fn choose_tokens(
        &self,
        tables: StepTables<'_>,
        masks: Pointer<u32>,
        out: DecisionBuffers,
    ) -> Result<(), CudaError> {
        let picks = tables.picks(self.text.states().is_zombie);
        let logits = self.heads.token_logits(masks, tables.counts.tokens);
        self.runner.kernels.choose_token(&logits, &picks, out)
    }

    /// Measures from now on the largest inputs of the layers that can be in fp8.
    pub fn measure_inputs(&mut self, stream: &Arc<CudaStream>) -> Result<(), CudaError> {
        let layers = self.block_layers();
        self.runner.measure_inputs(stream, layers)
    }

    /// Runs these layers in fp8 from now on, with scales from the measured inputs. Waits for the stream.
    pub fn quantise(&mut self, stream: &Arc<CudaStream>) -> Result<(), CudaError> {
        let inputs = self.runner.largest_inputs(stream)?;
        let weights = self.runner.largest_weights(stream, &self.block_layers())?;
        let vision = self.vision.block_layers().len();
        let (vision_inputs, text_inputs) = inputs.split_at(vision);
        let (vision_weights, text_weights) = weights.split_at(vision);
        self.vision
            .quantise(&self.runner, vision_inputs, vision_weights)?;
        self.text.quantise(&self.runner, text_inputs, text_weights)
    }

    /// The layers that can be in fp8: of each block, the vision encoder's first.
    fn block_layers(&self) -> Vec<LinearRef> {
        let mut layers = self.vision.block_layers();
        layers.extend(self.text.block_layers());
        layers
    }
}
