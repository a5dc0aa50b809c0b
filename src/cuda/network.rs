//! The forward pass: which kernel and which product follows which. Everything is queued on one stream; nothing waits.
//!
//! Belongs here: the order, and the buffers between. Not here: what a step is (`program`), and when results are read (`slot`).

use std::sync::Arc;

use cudarc::driver::CudaStream;
use half::bf16;

use super::{
    error::CudaError,
    kernels::{
        InputTables, Kernels, LayerCache, OwnTables, PAGE, Parts, PickTables, PrefixTables, Rows,
        SkinnyTo, TEXT_HEAD, TILE,
    },
    memory::{Buffer, Pointer},
    products::{Epilogue, Products, bucket},
    program::{Counts, Layout, Table},
    record::Record,
    weights::Weights,
};
use crate::{
    engine::backend::Limits,
    model::{BINS, ModelConfig, ROPE_THETA, ROTARY_DIM},
};

mod vision;

pub use vision::Features;

/// Parts that each prefix is read in: few tiles are split, so that all multiprocessors read.
fn splits(tiles: usize) -> usize {
    match tiles {
        0..=2 => 12,
        3..=8 => 4,
        9..=32 => 2,
        _ => 1,
    }
}

/// The most parts that a step with up to `tiles` tiles has.
fn parts_max(tiles: usize) -> usize {
    (0..=tiles)
        .map(|tiles| tiles * splits(tiles))
        .max()
        .unwrap_or(0)
}

/// Weights, cache and the memory of a step's forward pass.
pub struct Network {
    stream: Arc<CudaStream>,
    config: ModelConfig,
    weights: Weights,
    kernels: Kernels,
    products: Products,
    /// `[layers][pages, heads, 16, 64]`.
    keys: Buffer<bf16>,
    values: Buffer<bf16>,
    layer_values: usize,
    /// Cosine and sine of each position's angles, `[context][16][2]`.
    turns: Buffer<f32>,
    vision: VisionScratch,
    text: TextScratch,
}

/// Between the layers of the vision encoder; rows are patches.
struct VisionScratch {
    patches: Buffer<bf16>,
    hidden: Buffer<bf16>,
    normed: Buffer<bf16>,
    qkv: Buffer<bf16>,
    attended: Buffer<bf16>,
    inner: Buffer<bf16>,
    combined: Buffer<bf16>,
    projected: Buffer<bf16>,
    tokens: Buffer<bf16>,
    crops: usize,
}

/// Between the layers of the decoder; rows are positions.
struct TextScratch {
    hidden: Buffer<bf16>,
    normed: Buffer<bf16>,
    qkv: Buffer<bf16>,
    /// Attention's result beside the MLP's inner values.
    mix: Buffer<bf16>,
    part_values: Buffer<f32>,
    part_masses: Buffer<f32>,
    dead: Buffer<i32>,
    gathered: Buffer<bf16>,
    head_inner: Buffer<bf16>,
    coords: Buffer<f32>,
    sizes: Buffer<f32>,
    logits: Buffer<f32>,
}

/// The tables of a step on the GPU.
#[derive(Clone, Copy)]
pub struct Tables<'a> {
    /// Where they lie in the block.
    pub layout: &'a Layout,
    /// The block.
    pub block: Pointer<i32>,
}

impl Tables<'_> {
    fn at(&self, table: Table) -> Pointer<i32> {
        self.block.at(table.start)
    }

    fn picks(&self, dead: Pointer<i32>) -> PickTables {
        PickTables {
            pick: self.at(self.layout.pick),
            dead,
            choice: self.at(self.layout.choice),
            banned: self.at(self.layout.banned),
        }
    }
}

impl Network {
    /// Allocates everything that steps within `limits` and `layout` need.
    pub fn new(
        stream: &Arc<CudaStream>,
        config: &ModelConfig,
        (weights, kernels, products): (Weights, Kernels, Products),
        limits: &Limits,
        layout: &Layout,
        crops: usize,
    ) -> Result<Self, CudaError> {
        let (text, vision) = (&config.text, &config.vision);
        let zeros = |rows: usize, width: usize| Buffer::<bf16>::zeros(stream, bucket(rows) * width);
        let floats = |values: usize| Buffer::<f32>::zeros(stream, values);
        let layer_values = limits.pages * text.n_heads * PAGE * TEXT_HEAD;
        let (patches, images) = (crops * config.image_tokens(), limits.images);
        let tokens = images * config.image_tokens();
        let positions = layout.positions;
        let tile_parts = parts_max(layout.tiles) * text.n_heads * TILE;
        let picks = bucket(layout.picks);
        Ok(Self {
            stream: Arc::clone(stream),
            keys: Buffer::zeros(stream, text.n_layers * layer_values)?,
            values: Buffer::zeros(stream, text.n_layers * layer_values)?,
            layer_values,
            turns: Buffer::from_host(stream, &turns(text.max_context))?,
            vision: VisionScratch {
                patches: zeros(patches, vision.patch_values().next_multiple_of(8))?,
                hidden: zeros(patches, vision.enc_dim)?,
                normed: zeros(patches, vision.enc_dim)?,
                qkv: zeros(patches, 3 * vision.enc_dim)?,
                attended: zeros(patches, vision.enc_dim)?,
                inner: zeros(patches, vision.enc_ff_dim)?,
                combined: zeros(tokens, 2 * vision.enc_dim)?,
                projected: zeros(tokens, vision.proj_inner_dim)?,
                tokens: zeros(tokens, text.dim)?,
                crops,
            },
            text: TextScratch {
                hidden: zeros(positions, text.dim)?,
                normed: zeros(positions, text.dim)?,
                qkv: zeros(positions, 3 * text.dim)?,
                mix: zeros(positions, text.dim + text.ff_dim)?,
                part_values: floats(tile_parts * TEXT_HEAD)?,
                part_masses: floats(tile_parts * 2)?,
                dead: Buffer::zeros(stream, positions)?,
                gathered: zeros(layout.picks, text.dim)?,
                head_inner: zeros(layout.picks, config.region.inner_dim)?,
                coords: floats(picks * BINS)?,
                sizes: floats(picks * 2 * BINS)?,
                logits: floats(bucket(layout.token_rows.len) * text.vocab_size)?,
            },
            config: config.clone(),
            weights,
            kernels,
            products,
        })
    }

    /// `out = epilogue(x w^T + bias)`: few rows by a kernel that reads the weights at the memory's speed, more by cuBLASLt.
    fn product(
        &self,
        linear: &super::weights::Linear,
        x: Rows,
        out: Rows,
        rows: usize,
        epilogue: Epilogue,
    ) -> Result<(), CudaError> {
        let linear = linear.at();
        if !Kernels::is_skinny(&linear, rows) {
            return self.products.run(&linear, x, out, rows, epilogue);
        }
        let to = match epilogue {
            Epilogue::Bias => SkinnyTo::Bf16(out),
            Epilogue::BiasGelu => SkinnyTo::Gelu(out),
            Epilogue::BiasAdd => SkinnyTo::Add(out),
        };
        self.kernels.skinny(&linear, x, to, rows)
    }

    /// The same with a result in f32.
    fn product_to_f32(
        &self,
        linear: &super::weights::Linear,
        x: Rows,
        out: Pointer<f32>,
        rows: usize,
    ) -> Result<(), CudaError> {
        let linear = linear.at();
        match Kernels::is_skinny(&linear, rows) {
            true => self.kernels.skinny(&linear, x, SkinnyTo::F32(out), rows),
            false => self.products.run_to_f32(&linear, x, out, rows),
        }
    }

    /// The kernels.
    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Where the patches of a step's crops go, a row each.
    pub fn patch_rows(&self) -> Rows {
        let width = self.config.vision.patch_values().next_multiple_of(8);
        Rows::packed(self.vision.patches.start(), width)
    }

    /// Crops that fit into a step.
    pub fn crops_max(&self) -> usize {
        self.vision.crops
    }

    /// Queues the decoder over all positions of a step: its rows, then its images, which only write keys and values.
    pub fn forward(
        &self,
        tables: Tables<'_>,
        counts: &Counts,
        decided: Pointer<Record>,
    ) -> Result<(), CudaError> {
        let (layout, scratch, width) = (tables.layout, &self.text, self.config.text.dim);
        let (tokens, rows) = (self.config.image_tokens(), counts.row_positions);
        let inputs = InputTables {
            kind: tables.at(layout.kind),
            a: tables.at(layout.a),
            b: tables.at(layout.b),
        };
        let encoders = (
            self.weights.coord_encoder.at(),
            self.weights.size_encoder.at(),
        );
        let wte = self.weights.wte.start();
        if rows > 0 {
            let out = (scratch.hidden.start(), scratch.dead.start());
            self.kernels
                .embed(&inputs, decided, wte, encoders, out, (rows, width))?;
        }
        if counts.images > 0 {
            let bos = wte.at(self.config.tokenizer.bos_id as usize * width);
            let to = scratch.hidden.start().at(rows * width);
            let shape = (counts.images, tokens, width);
            self.kernels
                .place_images(self.vision.tokens.start(), bos, to, shape)?;
        }
        for layer in 0..self.weights.text.len() {
            self.block(layer, tables, counts)?;
        }
        Ok(())
    }

    /// One block: `hidden += attention(n) + mlp(n)` with `n = norm(hidden)`. Of the last one, images need keys and values
    /// only.
    fn block(&self, layer: usize, tables: Tables<'_>, counts: &Counts) -> Result<(), CudaError> {
        let (layout, scratch, config) = (tables.layout, &self.text, &self.config.text);
        let (width, heads) = (config.dim, config.n_heads);
        let prefix = self.config.prefix_positions();
        let (rows, all) = (
            counts.row_positions,
            counts.row_positions + counts.images * prefix,
        );
        let last = layer + 1 == self.weights.text.len();
        let deep = if last { rows } else { all };
        let block = &self.weights.text[layer];
        let hidden = Rows::packed(scratch.hidden.start(), width);
        let normed = Rows::packed(scratch.normed.start(), width);
        let qkv = Rows::packed(scratch.qkv.start(), 3 * width);
        let mix = Rows::packed(scratch.mix.start(), width + config.ff_dim);
        let cache = LayerCache {
            keys: self.keys.start().at(layer * self.layer_values),
            values: self.values.start().at(layer * self.layer_values),
        };
        self.kernels
            .layer_norm(hidden.start, block.ln.at(), normed.start, (all, width))?;
        self.product(&block.qkv, normed, qkv, all, Epilogue::Bias)?;
        let places = (tables.at(layout.position), tables.at(layout.slot));
        self.kernels
            .rope_scatter(qkv.start, places, self.turns.start(), cache, (all, heads))?;
        if deep == 0 {
            return Ok(());
        }
        if deep > rows {
            let images = (counts.images, prefix);
            let head = (heads, TEXT_HEAD);
            self.kernels
                .attend_dense(qkv.from(rows), mix.from(rows), images, head)?;
        }
        if rows > 0 {
            self.attend(qkv.start, mix, cache, tables, counts)?;
        }
        let inner = Rows {
            start: mix.start.at(width),
            ..mix
        };
        self.product(&block.fc1, normed, inner, deep, Epilogue::BiasGelu)?;
        self.product(&block.out, mix, hidden, deep, Epilogue::BiasAdd)
    }

    /// Rows to the cache: their images' prefixes, and themselves.
    fn attend(
        &self,
        qkv: Pointer<bf16>,
        out: Rows,
        cache: LayerCache,
        tables: Tables<'_>,
        counts: &Counts,
    ) -> Result<(), CudaError> {
        let (layout, heads) = (tables.layout, self.config.text.n_heads);
        let parts = Parts {
            values: self.text.part_values.start(),
            masses: self.text.part_masses.start(),
            splits: splits(counts.tiles),
        };
        let prefix = PrefixTables {
            pages: tables.at(layout.pages),
            tile_row: tables.at(layout.tile_row),
            tile_table: tables.at(layout.tile_table),
            tile_length: tables.at(layout.tile_length),
        };
        if counts.tiles > 0 {
            let shape = (counts.tiles, heads);
            self.kernels
                .attend_prefix(qkv, cache, &prefix, parts, shape)?;
        }
        let own = OwnTables {
            pages: prefix.pages,
            own_table: tables.at(layout.own_table),
            own_length: tables.at(layout.own_length),
            place: tables.at(layout.place),
        };
        let shape = (counts.row_positions, heads);
        self.kernels.attend_own(qkv, cache, &own, parts, out, shape)
    }

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
                self.product(fc1, gathered, inner, rows, Epilogue::BiasGelu)?;
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
                .layer_norm(gathered.start, norm, normed.start, shape)?;
            let logits = scratch.logits.start();
            self.product_to_f32(&weights.lm_head, normed, logits, counts.tokens)?;
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

/// `[context][16][2]`: cosine and sine of `position * theta^(-2j/32)` (moondream-model.md section 5.2).
fn turns(context: usize) -> Vec<f32> {
    let pairs = ROTARY_DIM / 2;
    let angle = |position: usize, j: usize| {
        position as f32 * ROPE_THETA.powf(-2.0 * j as f32 / ROTARY_DIM as f32)
    };
    (0..context)
        .flat_map(|position| (0..pairs).map(move |j| angle(position, j)))
        .flat_map(|angle| [angle.cos(), angle.sin()])
        .collect()
}
