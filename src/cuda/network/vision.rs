//! Pictures to tokens: the vision encoder over crops, and what it made, with what was kept, through the projection.

use half::bf16;

use super::Network;
use crate::cuda::{
    error::CudaError,
    kernels::Rows,
    memory::{Pointer, copy},
    products::Epilogue,
    reuse::Keep,
    weights::Linear,
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
    /// Queues the vision encoder over the patches of `crops` crops, and the tokens of `images` images from them and from
    /// crops that were kept.
    pub fn encode(
        &self,
        crops: usize,
        images: usize,
        features: Features<'_>,
    ) -> Result<(), CudaError> {
        if crops > 0 {
            self.look(crops)?;
        }
        self.tokens(images, features)
    }

    /// Patches to features.
    fn look(&self, crops: usize) -> Result<(), CudaError> {
        let (config, scratch, weights) = (&self.config.vision, &self.vision, &self.weights);
        let (tokens, width) = (self.config.image_tokens(), config.enc_dim);
        let rows = crops * tokens;
        let heads = (config.enc_n_heads, config.head_dim());
        let packed = Rows::packed;
        let hidden = packed(scratch.hidden.start(), width);
        let normed = packed(scratch.normed.start(), width);
        let qkv = packed(scratch.qkv.start(), 3 * width);
        let attended = packed(scratch.attended.start(), width);
        let inner = packed(scratch.inner.start(), config.enc_ff_dim);
        let product = |linear: &Linear, x, out, epilogue| {
            self.products.run(&linear.at(), x, out, rows, epilogue)
        };
        product(
            &weights.patch_emb,
            self.patch_rows(),
            hidden,
            Epilogue::Bias,
        )?;
        self.kernels
            .add_places(hidden.start, weights.places.start(), (rows, tokens, width))?;
        for block in &weights.vision {
            self.kernels
                .layer_norm(hidden.start, block.ln1.at(), normed.start, (rows, width))?;
            product(&block.qkv, normed, qkv, Epilogue::Bias)?;
            self.kernels
                .attend_dense(qkv, attended, (crops, tokens), heads)?;
            product(&block.proj, attended, hidden, Epilogue::BiasAdd)?;
            self.kernels
                .layer_norm(hidden.start, block.ln2.at(), normed.start, (rows, width))?;
            product(&block.fc1, normed, inner, Epilogue::BiasGelu)?;
            product(&block.fc2, inner, hidden, Epilogue::BiasAdd)?;
        }
        let norm = weights.vision_post_ln.at();
        self.kernels
            .layer_norm(hidden.start, norm, normed.start, (rows, width))
    }

    /// Features to tokens. Copies what is to be kept only behind all that is read.
    fn tokens(&self, images: usize, features: Features<'_>) -> Result<(), CudaError> {
        let (config, scratch, weights) = (&self.config.vision, &self.vision, &self.weights);
        let (tokens, width) = (self.config.image_tokens(), config.enc_dim);
        let (packed, crop) = (Rows::packed, tokens * width);
        let combined = packed(scratch.combined.start(), 2 * width);
        let (made, kept) = (scratch.normed.start(), features.kept);
        self.kernels.combine(
            (made, kept),
            (features.image, features.source),
            combined.start,
            images,
            (config.grid(), config.overlap_margin, width),
        )?;
        for keep in features.keeps {
            let (from, to) = (made.at(keep.place * crop), kept.at(keep.entry * crop));
            copy(&self.stream, from, to, crop)?;
        }
        let projected = packed(scratch.projected.start(), config.proj_inner_dim);
        let out = packed(scratch.tokens.start(), config.proj_out_dim);
        let rows = images * tokens;
        self.products.run(
            &weights.proj_fc1.at(),
            combined,
            projected,
            rows,
            Epilogue::BiasGelu,
        )?;
        self.products
            .run(&weights.proj_fc2.at(), projected, out, rows, Epilogue::Bias)
    }
}
