//! Pictures to tokens: the vision encoder over crops, and what it made, with what was kept, through the projection.

use half::bf16;

use super::Network;
use crate::cuda::{
    error::CudaError,
    kernels::{Rows, Values},
    memory::{Pointer, copy},
    products::{Epilogue, Product},
    reuse::Keep,
};

/// Where the features of a step's crops come from.
#[derive(Clone, Copy)]
pub struct Features<'a> {
    /// Which crops are whose.
    pub image: Pointer<i32>,
    /// Of each crop.
    pub source: Pointer<i32>,
    /// Kept from earlier steps, crop after crop.
    pub kept: Pointer<bf16>,
    /// What of this step is to be kept.
    pub keeps: &'a [Keep],
}

impl Network {
    /// Queues the vision encoder over the patches of `crops` crops, at least one.
    pub fn look(&self, crops: usize) -> Result<(), CudaError> {
        let (config, weights) = (&self.config.vision, &self.weights);
        let (tokens, width) = (self.config.image_tokens(), config.enc_dim);
        let rows = crops * tokens;
        let heads = (config.enc_n_heads, config.head_dim());
        let hidden = self.vision.hidden.start();
        let qkv_rows = Rows::packed(self.vision.qkv.start(), 3 * width);
        self.product(&self.embedding(rows))?;
        self.kernels
            .add_places(hidden, weights.places.start(), (rows, tokens, width))?;
        for (index, block) in weights.vision.iter().enumerate() {
            let [qkv, proj, fc1, fc2] = self.vision_products(index, rows);
            self.kernels
                .layer_norm(hidden, block.ln1.at(), qkv.x, (rows, width))?;
            self.product(&qkv)?;
            self.kernels
                .attend_dense(qkv_rows, proj.x, (crops, tokens), heads)?;
            self.product(&proj)?;
            self.kernels
                .layer_norm(hidden, block.ln2.at(), fc1.x, (rows, width))?;
            self.product(&fc1)?;
            self.product(&fc2)?;
        }
        let (norm, normed) = (weights.vision_post_ln.at(), self.vision.normed.start());
        let out = Values::bf16(normed, width);
        self.kernels.layer_norm(hidden, norm, out, (rows, width))
    }

    /// Queues the tokens of `images` images, from what the encoder made in this step and from crops that were kept. Copies
    /// what is to be kept only behind all that is read.
    pub fn tokens(&self, images: usize, features: Features<'_>) -> Result<(), CudaError> {
        let config = &self.config.vision;
        let (tokens, width) = (self.config.image_tokens(), config.enc_dim);
        let (made, kept) = (self.vision.normed.start(), features.kept);
        self.kernels.combine(
            (made, kept),
            (features.image, features.source),
            self.vision.combined.start(),
            images,
            (config.grid(), config.overlap_margin, width),
        )?;
        let crop = tokens * width;
        for keep in features.keeps {
            let (from, to) = (made.at(keep.place * crop), kept.at(keep.entry * crop));
            copy(&self.stream, from, to, crop)?;
        }
        let [fc1, fc2] = self.projection(images * tokens);
        self.product(&fc1)?;
        self.product(&fc2)
    }

    /// Patches to hidden states.
    pub(super) fn embedding(&self, rows: usize) -> Product {
        Product {
            linear: self.weights.patch_emb.at(),
            x: Values::Bf16(self.patch_rows()),
            out: Values::bf16(self.vision.hidden.start(), self.config.vision.enc_dim),
            rows,
            epilogue: Epilogue::Bias,
        }
    }

    /// The products of a block over `rows` patches: queries, keys and values; attention's projection; into the MLP; out.
    pub(super) fn vision_products(&self, block: usize, rows: usize) -> [Product; 4] {
        let width = self.config.vision.enc_dim;
        let hidden = Values::bf16(self.vision.hidden.start(), width);
        let attention = Values::bf16(self.vision.qkv.start(), 3 * width);
        let [first, attended, second, inner] = self.vision_inputs(block);
        let [qkv, proj, fc1, fc2] = self.weights.vision[block].linears();
        [
            (qkv, first, attention, Epilogue::Bias),
            (proj, attended, hidden, Epilogue::BiasAdd),
            (fc1, second, inner, Epilogue::BiasGelu),
            (fc2, inner, hidden, Epilogue::BiasAdd),
        ]
        .map(|(linear, x, out, epilogue)| Product {
            linear: linear.at(),
            x,
            out,
            rows,
            epilogue,
        })
    }

    /// Features of `rows` cells to tokens.
    pub(super) fn projection(&self, rows: usize) -> [Product; 2] {
        let (config, scratch) = (&self.config.vision, &self.vision);
        let combined = Values::bf16(scratch.combined.start(), 2 * config.enc_dim);
        let projected = Values::bf16(scratch.projected.start(), config.proj_inner_dim);
        let out = Values::bf16(scratch.tokens.start(), config.proj_out_dim);
        let (fc1, fc2) = (&self.weights.proj_fc1, &self.weights.proj_fc2);
        [
            (fc1, combined, projected, Epilogue::BiasGelu),
            (fc2, projected, out, Epilogue::Bias),
        ]
        .map(|(linear, x, out, epilogue)| Product {
            linear: linear.at(),
            x,
            out,
            rows,
            epilogue,
        })
    }
}
