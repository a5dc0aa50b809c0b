//! Pictures to image tokens: the vision encoder over crops, then combination with kept features, then the projection.

use std::{rc::Rc, sync::Arc};

use cudarc::driver::CudaStream;
use half::bf16;

use super::runner::LayerRunner;
use crate::{
    cuda::{
        error::CudaError,
        fp8::{E4m3Inputs, E4m3Rows},
        kernels::{
            Activations, CombineInputs, CombineShape, DenseAttention, Kernels, MatrixShape,
            StridedRows,
        },
        memory::{Buffer, Pointer, copy},
        products::{Epilogue, Product, bucket},
        program::StepTables,
        reuse::FeatureCopy,
        weights::GpuVisionWeights,
    },
    model::{ModelConfig, VisionConfig},
};

/// The vision encoder and the projection: their weights, and the buffers between their layers. Rows are patches.
pub struct VisionEncoder {
    config: VisionConfig,
    /// Patches of a crop, which are also the tokens of an image.
    image_tokens: usize,
    pub weights: GpuVisionWeights,
    /// Set where products are in fp8.
    fp8: Option<E4m3Inputs<4>>,
    /// Crops that fit into a step.
    pub crops_max: usize,
    images_max: usize,
    patches: Buffer<bf16>,
    pub hidden: Buffer<bf16>,
    pub normed: Buffer<bf16>,
    qkv: Buffer<bf16>,
    attended: Buffer<bf16>,
    pub inner: Buffer<bf16>,
    combined: Buffer<bf16>,
    projected: Buffer<bf16>,
    pub tokens: Buffer<bf16>,
}

impl VisionEncoder {
    /// With its part of the weights, for steps of up to `crops_max` crops and `images_max` images.
    pub fn new(
        stream: &Arc<CudaStream>,
        config: &ModelConfig,
        weights: GpuVisionWeights,
        [crops_max, images_max]: [usize; 2],
    ) -> Result<Self, CudaError> {
        let (vision, image_tokens) = (&config.vision, config.image_tokens());
        let zeros = |rows: usize, width: usize| Buffer::<bf16>::zeros(stream, bucket(rows) * width);
        let (patches, tokens) = (crops_max * image_tokens, images_max * image_tokens);
        Ok(Self {
            image_tokens,
            weights,
            fp8: None,
            crops_max,
            images_max,
            patches: zeros(patches, vision.patch_values().next_multiple_of(8))?,
            hidden: zeros(patches, vision.enc_dim)?,
            normed: zeros(patches, vision.enc_dim)?,
            qkv: zeros(patches, 3 * vision.enc_dim)?,
            attended: zeros(patches, vision.enc_dim)?,
            inner: zeros(patches, vision.enc_ff_dim)?,
            combined: zeros(tokens, 2 * vision.enc_dim)?,
            projected: zeros(tokens, vision.proj_inner_dim)?,
            tokens: zeros(tokens, config.text.dim)?,
            config: vision.clone(),
        })
    }

    /// Memory for patches, a row each.
    pub fn patch_rows(&self) -> StridedRows {
        let width = self.config.patch_values().next_multiple_of(8);
        StridedRows::packed(self.patches.start(), width)
    }

    /// Queues the encoder over the patches of `crops` crops, at least one.
    pub fn encode(&self, runner: &LayerRunner, crops: usize) -> Result<(), CudaError> {
        let (tokens, width) = (self.image_tokens, self.config.enc_dim);
        let rows = crops * tokens;
        let shape = MatrixShape { rows, width };
        let hidden = self.hidden.start();
        let qkv_rows = StridedRows::packed(self.qkv.start(), 3 * width);
        let kernels = &runner.kernels;
        runner.product(&self.embedding(rows))?;
        kernels.add_places(hidden, self.weights.pos_emb.start(), shape, tokens)?;
        for (index, block) in self.weights.blocks.iter().enumerate() {
            let [qkv, proj, fc1, fc2] = self.block_products(index, rows);
            runner.product(&runner.norm(hidden, &block.ln1, qkv)?)?;
            kernels.attend_dense(&DenseAttention {
                qkv: qkv_rows,
                out: proj.x,
                sequences: crops,
                length: tokens,
                heads: self.config.enc_n_heads,
                head_dim: self.config.head_dim(),
            })?;
            runner.product(&proj)?;
            runner.product(&runner.norm(hidden, &block.ln2, fc1)?)?;
            runner.product(&fc2)?;
        }
        let (norm, normed) = (&self.weights.post_ln, self.normed.start());
        let out = Activations::bf16(normed, width);
        kernels.layer_norm(hidden, norm, out, shape)
    }

    /// Queues the tokens of the step's images, from the features of this step and from those that are `kept`, crop after crop, from
    /// earlier steps. Copies features that are to be kept only after everything that is read.
    pub fn project(
        &self,
        runner: &LayerRunner,
        tables: StepTables<'_>,
        kept: Pointer<bf16>,
        keeps: &[FeatureCopy],
    ) -> Result<(), CudaError> {
        let (config, tokens, width) = (&self.config, self.image_tokens, self.config.enc_dim);
        let (images, made) = (tables.counts.images, self.normed.start());
        let inputs = CombineInputs {
            features: made,
            kept,
            image: tables.at(tables.layout.image),
            source: tables.at(tables.layout.crop_source),
        };
        let shape = CombineShape {
            images,
            grid: config.grid(),
            margin: config.overlap_margin,
            width,
        };
        runner
            .kernels
            .combine(&inputs, self.combined.start(), shape)?;
        let crop = tokens * width;
        for keep in keeps {
            let (from, to) = (made.at(keep.place * crop), kept.at(keep.entry * crop));
            copy(&runner.kernels.stream, from, to, crop)?;
        }
        let [fc1, fc2] = self.projection(images * tokens);
        runner.product(&fc1)?;
        runner.product(&fc2)
    }

    /// Products of all steps with up to the largest number of crops and images.
    pub fn expected_products(&self) -> Vec<Product> {
        let mut expected = Vec::new();
        for crops in 1..=self.crops_max {
            let rows = crops * self.image_tokens;
            expected.push(self.embedding(rows));
            if !self.weights.blocks.is_empty() {
                expected.extend(self.block_products(0, rows));
            }
        }
        let cells = (1..=self.images_max).map(|images| images * self.image_tokens);
        expected.extend(cells.flat_map(|rows| self.projection(rows)));
        expected
    }

    /// Runs the blocks in fp8 from now on, with scales from the inputs that were measured. Waits for the stream.
    pub fn quantise(&mut self, kernels: &Kernels) -> Result<(), CudaError> {
        let layers = self.weights.blocks.iter_mut().flat_map(|b| b.linears_mut());
        let inputs: Result<Vec<f32>, _> = layers.map(|linear| linear.quantise(kernels)).collect();
        let inputs = &inputs?;
        let patches = self.crops_max * self.image_tokens;
        let rows = |width| E4m3Rows::new(&kernels.stream, patches, width);
        let (normed, attended) = (rows(self.config.enc_dim)?, rows(self.config.enc_dim)?);
        let inner = rows(self.config.enc_ff_dim)?;
        let rows = [Rc::clone(&normed), attended, normed, inner];
        self.fp8 = Some(E4m3Inputs::new(&kernels.stream, inputs, rows)?);
        Ok(())
    }

    /// Patches to hidden states.
    fn embedding(&self, rows: usize) -> Product {
        let x = Activations::Bf16(self.patch_rows());
        let out = Activations::bf16(self.hidden.start(), self.config.enc_dim);
        let linear = self.weights.patch_emb.at();
        linear.product(x, out, rows, Epilogue::Bias)
    }

    /// Inputs of the four layers of a block.
    fn block_inputs(&self, block: usize) -> [Activations; 4] {
        let config = &self.config;
        match &self.fp8 {
            Some(fp8) => fp8.of_block(block),
            None => {
                let normed = Activations::bf16(self.normed.start(), config.enc_dim);
                let attended = Activations::bf16(self.attended.start(), config.enc_dim);
                let inner = Activations::bf16(self.inner.start(), config.enc_ff_dim);
                [normed, attended, normed, inner]
            }
        }
    }

    /// The products of a block over `rows` patches: queries, keys and values; attention's projection; the MLP's two layers.
    fn block_products(&self, block: usize, rows: usize) -> [Product; 4] {
        let width = self.config.enc_dim;
        let hidden = Activations::bf16(self.hidden.start(), width);
        let attention = Activations::bf16(self.qkv.start(), 3 * width);
        let [first, attended, second, inner] = self.block_inputs(block);
        let block = &self.weights.blocks[block];
        let [qkv, proj] = [block.qkv.at(), block.proj.at()];
        let [fc1, fc2] = [block.fc1.at(), block.fc2.at()];
        [
            qkv.product(first, attention, rows, Epilogue::Bias),
            proj.product(attended, hidden, rows, Epilogue::BiasAdd),
            fc1.product(second, inner, rows, Epilogue::BiasGelu),
            fc2.product(inner, hidden, rows, Epilogue::BiasAdd),
        ]
    }

    /// Features of `rows` cells to tokens.
    fn projection(&self, rows: usize) -> [Product; 2] {
        let config = &self.config;
        let combined = Activations::bf16(self.combined.start(), 2 * config.enc_dim);
        let projected = Activations::bf16(self.projected.start(), config.proj_inner_dim);
        let out = Activations::bf16(self.tokens.start(), config.proj_out_dim);
        let [fc1, fc2] = [&self.weights.proj_fc1, &self.weights.proj_fc2].map(|fc| fc.at());
        [
            fc1.product(combined, projected, rows, Epilogue::BiasGelu),
            fc2.product(projected, out, rows, Epilogue::Bias),
        ]
    }
}
