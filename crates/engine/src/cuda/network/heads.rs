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
        program::{StepTables, Table, TableLayout},
        tensor::{Activations, Epilogue, GpuLinear, MatrixShape, StridedRows, bucket},
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
        let region = &weights.region;
        let logits = |decoder: &Decoder<GpuLinear>, index: Table, rows, logits: &Buffer<f32>| {
            if rows == 0 {
                return Ok(());
            }
            let shape = MatrixShape { rows, width };
            kernels.gather_rows(hidden, tables.at(index), gathered.start, shape)?;
            let (mut gathered, inner) = (Activations::Bf16(gathered), Activations::Bf16(inner));
            if let Some(ln) = &weights.region_ln {
                let normed = Activations::bf16(text.normed, width);
                kernels.layer_norm(self.gathered.start(), ln.at(), normed, shape)?;
                gathered = normed;
            }
            let (last, x) = match decoder {
                Decoder::Linear(layer) => (layer, gathered),
                Decoder::Mlp(mlp) => {
                    let fc1 = &mlp.fc1;
                    runner.product(&fc1.product(gathered, inner, rows, Epilogue::BiasGelu))?;
                    (&mlp.fc2, inner)
                }
            };
            let to = Activations::f32(logits.start(), last.outputs);
            runner.product(&last.product(x, to, rows, Epilogue::Bias))
        };
        logits(
            &region.coord_decoder,
            layout.coord_rows,
            counts.coords,
            &self.coords,
        )?;
        logits(
            &region.size_decoder,
            layout.size_rows,
            counts.sizes,
            &self.sizes,
        )?;
        if counts.tokens > 0 {
            let (index, rows) = (tables.at(layout.token_rows), counts.tokens);
            let shape = MatrixShape { rows, width };
            kernels.gather_rows(hidden, index, gathered.start, shape)?;
            let normed = Activations::bf16(text.normed, width);
            let norm = weights.layers.post_ln.at();
            kernels.layer_norm(gathered.start, norm, normed, shape)?;
            let to = Activations::f32(self.logits.start(), self.vocab);
            let lm_head = &weights.layers.lm_head;
            runner.product(&lm_head.product(normed, to, rows, Epilogue::Bias))?;
        }
        if counts.picks == 0 {
            return Ok(());
        }
        let inputs = DecideInputs {
            hidden,
            norm: &weights.layers.post_ln,
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
