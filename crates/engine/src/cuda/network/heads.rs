//! The network's end: from hidden states to decisions.

use super::{Network, Tables};
use crate::cuda::{
    error::CudaError,
    kernels::{Rows, Values},
    memory::Pointer,
    products::{Epilogue, Product},
    program::Counts,
    record::Record,
};

impl Network {
    /// Queues the heads and all decisions but those of tokens; the tokens' logits are made.
    pub fn decide(
        &self,
        tables: Tables<'_>,
        counts: &Counts,
        results: (Pointer<Record>, Pointer<Record>),
    ) -> Result<(), CudaError> {
        let (layout, scratch, weights) = (tables.layout, &self.text, &self.weights);
        let width = self.config.text.dim;
        let hidden = scratch.hidden.start();
        let gathered = Rows::packed(scratch.gathered.start(), width);
        let inner = Rows::packed(scratch.head_inner.start(), self.config.region.inner_dim);
        let coords = (
            &weights.coord_decoder,
            layout.coord_rows,
            counts.coords,
            scratch.coords.start(),
        );
        let sizes = (
            &weights.size_decoder,
            layout.size_rows,
            counts.sizes,
            scratch.sizes.start(),
        );
        for ([fc1, fc2], index, rows, out) in [coords, sizes] {
            if rows > 0 {
                let index = tables.at(index);
                self.kernels
                    .gather_rows(hidden, index, gathered.start, (rows, width))?;
                self.product(&Product {
                    linear: fc1.at(),
                    x: Values::Bf16(gathered),
                    out: Values::Bf16(inner),
                    rows,
                    epilogue: Epilogue::BiasGelu,
                })?;
                self.product_to_f32(fc2, inner, out, rows)?;
            }
        }
        if counts.tokens > 0 {
            let (index, shape) = (tables.at(layout.token_rows), (counts.tokens, width));
            // The gathered rows are normed into the buffer that the heads before are done with.
            self.kernels
                .gather_rows(hidden, index, gathered.start, shape)?;
            let normed = Rows::packed(scratch.normed.start(), width);
            let norm = weights.text_post_ln.at();
            self.kernels
                .layer_norm(gathered.start, norm, Values::Bf16(normed), shape)?;
            let logits = scratch.logits.start();
            self.product_to_f32(&weights.lm_head, normed, logits, counts.tokens)?;
        }
        if counts.picks == 0 {
            return Ok(());
        }
        let on_end = weights.on_end.at();
        let on_end_bias = on_end.bias_f32.unwrap_or(scratch.coords.start());
        self.kernels.decide(
            hidden,
            &tables.picks(scratch.dead.start()),
            weights.text_post_ln.at(),
            (on_end.weight, on_end_bias),
            (scratch.coords.start(), scratch.sizes.start()),
            results,
            (counts.picks, width),
        )
    }

    /// Queues the choice of the step's tokens from their logits.
    pub fn choose_tokens(
        &self,
        tables: Tables<'_>,
        counts: &Counts,
        masks: Pointer<u32>,
        results: (Pointer<Record>, Pointer<Record>),
    ) -> Result<(), CudaError> {
        let shape = (counts.tokens, self.config.text.vocab_size);
        let picks = tables.picks(self.text.dead.start());
        let logits = self.text.logits.start();
        self.kernels
            .choose_token(logits, &picks, masks, results, shape)
    }
}
