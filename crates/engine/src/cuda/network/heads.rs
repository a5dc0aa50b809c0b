//! Hidden states to decisions: coordinates, sizes, ends and tokens.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use half::bf16;

use super::{DecodedStates, StepTables, runner::LayerRunner};
use crate::{
    cuda::{
        error::CudaError,
        kernels::{Activations, PickTables, StridedRows},
        memory::{Buffer, Pointer},
        products::{Epilogue, Product, bucket},
        program::{StepCounts, TableLayout},
        record::DecisionRecord,
        weights::GpuHeadWeights,
    },
    model::{BINS, ModelConfig},
};

/// Where the decisions of a step go.
#[derive(Clone, Copy)]
pub struct DecisionBuffers {
    /// `[picks]`: copied to the host.
    pub records: Pointer<DecisionRecord>,
    /// `[slots, rows]`: read by the next step on the GPU.
    pub carried: Pointer<DecisionRecord>,
}

/// The region heads and the vocabulary's head: their weights, and the buffers between their layers. Rows are decisions.
pub struct RegionHeads {
    width: usize,
    inner_dim: usize,
    vocab: usize,
    weights: GpuHeadWeights,
    gathered: Buffer<bf16>,
    inner: Buffer<bf16>,
    pub(super) coords: Buffer<f32>,
    pub(super) sizes: Buffer<f32>,
    pub(super) logits: Buffer<f32>,
}

impl RegionHeads {
    pub fn new(
        stream: &Arc<CudaStream>,
        config: &ModelConfig,
        weights: GpuHeadWeights,
        layout: &TableLayout,
    ) -> Result<Self, CudaError> {
        let (width, inner_dim) = (config.text.dim, config.region.inner_dim);
        let vocab = config.text.vocab_size;
        let picks = bucket(layout.picks);
        Ok(Self {
            width,
            inner_dim,
            vocab,
            weights,
            gathered: Buffer::zeros(stream, picks * width)?,
            inner: Buffer::zeros(stream, picks * inner_dim)?,
            coords: Buffer::zeros(stream, picks * BINS)?,
            sizes: Buffer::zeros(stream, picks * 2 * BINS)?,
            logits: Buffer::zeros(stream, bucket(layout.token_rows.len) * vocab)?,
        })
    }

    /// Queues the heads and all decisions but those of tokens, whose logits it computes.
    pub fn decide(
        &self,
        runner: &LayerRunner,
        states: DecodedStates,
        tables: StepTables<'_>,
        counts: &StepCounts,
        out: DecisionBuffers,
    ) -> Result<(), CudaError> {
        let (layout, weights, width) = (tables.layout, &self.weights, self.width);
        let kernels = &runner.kernels;
        let hidden = states.hidden;
        let gathered = StridedRows::packed(self.gathered.start(), width);
        let inner = StridedRows::packed(self.inner.start(), self.inner_dim);
        let coords = (
            &weights.coord_decoder,
            layout.coord_rows,
            counts.coords,
            self.coords.start(),
        );
        let sizes = (
            &weights.size_decoder,
            layout.size_rows,
            counts.sizes,
            self.sizes.start(),
        );
        for ([fc1, fc2], index, rows, out) in [coords, sizes] {
            if rows > 0 {
                let index = tables.at(index);
                kernels.gather_rows(hidden, index, gathered.start, (rows, width))?;
                runner.product(&Product {
                    linear: fc1.at(),
                    x: Activations::Bf16(gathered),
                    out: Activations::Bf16(inner),
                    rows,
                    epilogue: Epilogue::BiasGelu,
                })?;
                runner.product_to_f32(fc2, inner, out, rows)?;
            }
        }
        if counts.tokens > 0 {
            let (index, shape) = (tables.at(layout.token_rows), (counts.tokens, width));
            kernels.gather_rows(hidden, index, gathered.start, shape)?;
            let normed = StridedRows::packed(states.scratch, width);
            let norm = weights.post_ln.at();
            kernels.layer_norm(gathered.start, norm, Activations::Bf16(normed), shape)?;
            let logits = self.logits.start();
            runner.product_to_f32(&weights.lm_head, normed, logits, counts.tokens)?;
        }
        if counts.picks == 0 {
            return Ok(());
        }
        let coord_or_end = weights.coord_or_end.at();
        let bias = coord_or_end.bias_f32.unwrap_or(self.coords.start());
        kernels.decide(
            hidden,
            &tables.picks(states.is_zombie),
            weights.post_ln.at(),
            (coord_or_end.weight, bias),
            (self.coords.start(), self.sizes.start()),
            (out.records, out.carried),
            (counts.picks, width),
        )
    }

    /// Queues the choice of the step's tokens from their logits.
    pub fn choose_tokens(
        &self,
        runner: &LayerRunner,
        picks: PickTables,
        counts: &StepCounts,
        masks: Pointer<u32>,
        out: DecisionBuffers,
    ) -> Result<(), CudaError> {
        let shape = (counts.tokens, self.vocab);
        let (logits, results) = (self.logits.start(), (out.records, out.carried));
        runner
            .kernels
            .choose_token(logits, &picks, masks, results, shape)
    }
}
