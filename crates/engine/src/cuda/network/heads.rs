//! Hidden states to decisions: coordinates, sizes, ends and tokens.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use half::bf16;

use super::{runner::LayerRunner, text::TextDecoder};
use crate::{
    cuda::{
        error::CudaError,
        kernels::{DecideInputs, DecisionBuffers},
        memory::Buffer,
        program::{StepTables, TableLayout},
        tensor::{Activations, Epilogue, MatrixShape, StridedRows, bucket},
        weights::GpuText,
    },
    model::{BINS, ModelConfig},
    network::Decoder,
};

/// The buffers of the region heads and of the vocabulary's head. Rows are decisions.
pub struct RegionHeads {
    width: usize,
    inner_dim: usize,
    pub vocab: usize,
    gathered: Buffer<bf16>,
    inner: Buffer<bf16>,
    pub coords: Buffer<f32>,
    pub sizes: Buffer<f32>,
    pub logits: Buffer<f32>,
}

impl RegionHeads {
    pub fn new(
        stream: &Arc<CudaStream>,
        config: &ModelConfig,
        layout: &TableLayout,
    ) -> Result<Self, CudaError> {
        let (width, inner_dim) = (config.text.dim, config.region.inner_dim);
        let vocab = config.text.vocab_size;
        let [gathered, inner, coords, sizes, logits] = buffer_lengths(config, layout);
        Ok(Self {
            width,
            inner_dim,
            vocab,
            gathered: Buffer::zeros(stream, gathered)?,
            inner: Buffer::zeros(stream, inner)?,
            coords: Buffer::zeros(stream, coords)?,
            sizes: Buffer::zeros(stream, sizes)?,
            logits: Buffer::zeros(stream, logits)?,
        })
    }

    /// Bytes that they take.
    pub fn scratch_bytes(config: &ModelConfig, layout: &TableLayout) -> usize {
        let [gathered, inner, floats @ ..] = buffer_lengths(config, layout);
        let floats: usize = floats.iter().sum();
        (gathered + inner) * size_of::<bf16>() + floats * size_of::<f32>()
    }

    /// Queues the heads and all decisions but those of tokens, whose logits it computes.
    pub fn decide(
        &self,
        runner: &LayerRunner,
        text: &TextDecoder,
        tables: StepTables<'_>,
        out: DecisionBuffers,
    ) -> Result<(), CudaError> {
        let (layout, counts) = (tables.layout, tables.counts);
        let (weights, width): (&GpuText, _) = (&text.weights, self.width);
        let kernels = &runner.kernels;
        let hidden = text.hidden.start();
        let gathered = StridedRows::packed(self.gathered.start(), width);
        let inner = StridedRows::packed(self.inner.start(), self.inner_dim);
        let heads = [
            (
                &weights.region.coord_decoder,
                layout.coord_rows,
                counts.coords,
                &self.coords,
            ),
            (
                &weights.region.size_decoder,
                layout.size_rows,
                counts.sizes,
                &self.sizes,
            ),
        ];
        for (decoder, index, rows, out) in heads {
            if rows > 0 {
                let shape = MatrixShape { rows, width };
                kernels.gather_rows(hidden, tables.at(index), gathered.start, shape)?;
                let (last, x) = match decoder {
                    Decoder::Linear(layer) => (layer, gathered),
                    Decoder::Mlp(mlp) => {
                        let (x, to) = (Activations::Bf16(gathered), Activations::Bf16(inner));
                        let fc1 = mlp.fc1.product(x, to, rows, Epilogue::BiasGelu);
                        runner.product(&fc1)?;
                        (&mlp.fc2, inner)
                    }
                };
                runner.product_to_f32(last, x, out.start(), rows)?;
            }
        }
        if counts.tokens > 0 {
            let index = tables.at(layout.token_rows);
            let shape = MatrixShape {
                rows: counts.tokens,
                width,
            };
            kernels.gather_rows(hidden, index, gathered.start, shape)?;
            let normed = StridedRows::packed(text.normed.start(), width);
            let norm = &weights.post_ln;
            kernels.layer_norm(gathered.start, norm, Activations::Bf16(normed), shape)?;
            let logits = self.logits.start();
            runner.product_to_f32(&weights.lm_head, normed, logits, counts.tokens)?;
        }
        if counts.picks == 0 {
            return Ok(());
        }
        let inputs = DecideInputs {
            hidden,
            norm: &weights.post_ln,
            on_end_weight: weights.coord_or_end.bf16()?,
            on_end_bias: weights.coord_or_end.bias_f32()?,
            coords: self.coords.start(),
            sizes: self.sizes.start(),
        };
        let shape = MatrixShape {
            rows: counts.picks,
            width,
        };
        kernels.decide(&inputs, &text.picks(tables), out, shape)
    }
}

/// Values of the buffers, in the order of the fields of [`RegionHeads`].
fn buffer_lengths(config: &ModelConfig, layout: &TableLayout) -> [usize; 5] {
    let picks = bucket(layout.picks);
    [
        picks * config.text.dim,
        picks * config.region.inner_dim,
        picks * BINS,
        picks * 2 * BINS,
        bucket(layout.token_rows.len) * config.text.vocab_size,
    ]
}
