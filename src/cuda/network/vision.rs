//! The vision encoder: patches of crops to tokens of images.

use super::Network;
use crate::cuda::{
    error::CudaError,
    kernels::Rows,
    memory::Pointer,
    products::{Epilogue, Product},
    weights::VisionBlock,
};

/// Rows between the layers.
struct VisionRows {
    hidden: Rows,
    normed: Rows,
    qkv: Rows,
    attended: Rows,
    inner: Rows,
}

impl Network {
    /// Queues the vision encoder over the patches of `crops` crops, and the tokens of `images` images from them; `image`
    /// says which crops are whose.
    pub fn encode(
        &self,
        crops: usize,
        images: usize,
        image: Pointer<i32>,
    ) -> Result<(), CudaError> {
        let (config, weights) = (&self.config.vision, &self.weights);
        let (tokens, width) = (self.config.image_tokens(), config.enc_dim);
        let rows = crops * tokens;
        let heads = (config.enc_n_heads, config.head_dim());
        let at = self.vision_rows();
        let (hidden, normed) = (at.hidden.start, at.normed.start);
        self.products.run(&self.embedding(rows))?;
        self.kernels
            .add_places(hidden, weights.places.start(), (rows, tokens, width))?;
        for block in &weights.vision {
            let [qkv, proj, fc1, fc2] = self.vision_products(block, rows);
            self.kernels
                .layer_norm(hidden, block.ln1.at(), normed, (rows, width))?;
            self.products.run(&qkv)?;
            self.kernels
                .attend_dense(at.qkv, at.attended, (crops, tokens), heads)?;
            self.products.run(&proj)?;
            self.kernels
                .layer_norm(hidden, block.ln2.at(), normed, (rows, width))?;
            self.products.run(&fc1)?;
            self.products.run(&fc2)?;
        }
        let norm = weights.vision_post_ln.at();
        self.kernels
            .layer_norm(hidden, norm, normed, (rows, width))?;
        let shape = (config.grid(), config.overlap_margin, width);
        let [fc1, fc2] = self.projection(images * tokens);
        self.kernels
            .combine(normed, image, fc1.x.start, images, shape)?;
        self.products.run(&fc1)?;
        self.products.run(&fc2)
    }

    fn vision_rows(&self) -> VisionRows {
        let (config, scratch) = (&self.config.vision, &self.vision);
        let width = config.enc_dim;
        VisionRows {
            hidden: Rows::packed(scratch.hidden.start(), width),
            normed: Rows::packed(scratch.normed.start(), width),
            qkv: Rows::packed(scratch.qkv.start(), 3 * width),
            attended: Rows::packed(scratch.attended.start(), width),
            inner: Rows::packed(scratch.inner.start(), config.enc_ff_dim),
        }
    }

    /// Patches to hidden states.
    pub(super) fn embedding(&self, rows: usize) -> Product {
        Product {
            linear: self.weights.patch_emb.at(),
            x: self.patch_rows(),
            out: self.vision_rows().hidden,
            rows,
            epilogue: Epilogue::Bias,
        }
    }

    /// The products of a block over `rows` patches: queries, keys and values; attention's projection; into the MLP; out.
    pub(super) fn vision_products(&self, block: &VisionBlock, rows: usize) -> [Product; 4] {
        let at = self.vision_rows();
        [
            (&block.qkv, at.normed, at.qkv, Epilogue::Bias),
            (&block.proj, at.attended, at.hidden, Epilogue::BiasAdd),
            (&block.fc1, at.normed, at.inner, Epilogue::BiasGelu),
            (&block.fc2, at.inner, at.hidden, Epilogue::BiasAdd),
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
        let combined = Rows::packed(scratch.combined.start(), 2 * config.enc_dim);
        let projected = Rows::packed(scratch.projected.start(), config.proj_inner_dim);
        let out = Rows::packed(scratch.tokens.start(), config.proj_out_dim);
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
