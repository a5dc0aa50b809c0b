//! The forward pass: which kernel and which product follows which. Everything is queued on one stream; nothing waits.
//!
//! Belongs here: the order, and the buffers between. Not here: what a step is (`program`), and when results are read (`slot`).

use std::sync::Arc;

use cudarc::driver::CudaStream;
use half::bf16;

use super::{
    decode::Decoder,
    error::CudaError,
    fp8::{Fp8, Watch},
    kernels::{
        DecodeStates, DecodeTables, InputTables, Kernels, LayerCache, PAGE, Parts, Rows, SkinnyTo,
        TEXT_HEAD, TILE, Values,
    },
    library::Gpu,
    memory::{Buffer, Pointer},
    products::{Epilogue, Product, Products, bucket},
    program::{Counts, Layout},
    record::Record,
    weights::{Linear, Weights},
};
use crate::{
    model::{BINS, ModelConfig, ROPE_THETA, ROTARY_DIM},
    scheduler::backend::Limits,
};

mod fp8;
mod heads;
#[cfg(test)]
mod inside;
mod prepare;
mod tables;
mod vision;

#[cfg(test)]
pub use inside::Part;
pub use tables::Tables;
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
    /// Where products of many rows are in fp8.
    fp8: Option<Fp8>,
    /// While the layers' inputs are watched.
    watch: Option<Watch>,
    /// Images in a step, at most.
    images: usize,
    /// `[layers][pages, heads, 16, 64]`.
    keys: Buffer<bf16>,
    values: Buffer<bf16>,
    layer_values: usize,
    /// For steps of few positions, where the GPU and the model allow it.
    decoder: Option<Decoder>,
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

impl Network {
    /// Allocates everything that steps within `limits` and `layout` need.
    pub fn new(
        (gpu, stream): (&Gpu, &Arc<CudaStream>),
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
            decoder: Decoder::new(stream, gpu, &kernels, text, &weights.text, layer_values)?,
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
            fp8: None,
            watch: None,
            images,
        })
    }

    /// Queues a product: few rows by a kernel that reads the weights at the memory's speed, more by cuBLASLt.
    fn product(&self, product: &Product) -> Result<(), CudaError> {
        self.note(product)?;
        let (Values::Bf16(x), Values::Bf16(out)) = (product.x, product.out) else {
            return self.product_of_e4m3(product);
        };
        let (linear, rows) = (&product.linear, product.rows);
        if !Kernels::is_skinny(linear, rows) {
            return self.products.run(product);
        }
        let to = match product.epilogue {
            Epilogue::Bias => SkinnyTo::Bf16(out),
            Epilogue::BiasGelu => SkinnyTo::Gelu(out),
            Epilogue::BiasAdd => SkinnyTo::Add(out),
        };
        self.kernels.skinny(linear, x, to, rows)
    }

    /// Queues `out = x w^T + bias` in f32, `[rows, outputs]`.
    fn product_to_f32(
        &self,
        linear: &Linear,
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
        if let Some(decoder) = self.decoder.as_ref().filter(|d| d.takes(counts)) {
            return self.decode(decoder, tables, counts);
        }
        for layer in 0..self.weights.text.len() {
            self.block(layer, tables, counts)?;
        }
        Ok(())
    }

    /// True when the step's blocks are one launch.
    pub fn is_one_launch(&self, counts: &Counts) -> bool {
        self.decoder.as_ref().is_some_and(|d| d.takes(counts))
    }

    /// All blocks in one launch.
    fn decode(
        &self,
        decoder: &Decoder,
        tables: Tables<'_>,
        counts: &Counts,
    ) -> Result<(), CudaError> {
        let scratch = &self.text;
        let states = DecodeStates {
            hidden: scratch.hidden.start(),
            queries: scratch.qkv.start(),
            mix: scratch.mix.start(),
        };
        let cache = LayerCache {
            keys: self.keys.start(),
            values: self.values.start(),
        };
        let tables = DecodeTables {
            position: tables.at(tables.layout.position),
            slot: tables.at(tables.layout.slot),
            turns: self.turns.start(),
            prefix: tables.prefix(),
            own: tables.own(),
        };
        decoder.run(
            &self.kernels,
            states,
            (cache, &tables),
            self.parts(counts),
            counts,
        )
    }

    fn parts(&self, counts: &Counts) -> Parts {
        Parts {
            values: self.text.part_values.start(),
            masses: self.text.part_masses.start(),
            splits: splits(counts.tiles),
        }
    }

    /// One block: `hidden += attention(n) + mlp(n)` with `n = norm(hidden)`. Of the last one, images need keys and values
    /// only.
    fn block(&self, layer: usize, tables: Tables<'_>, counts: &Counts) -> Result<(), CudaError> {
        let (layout, config) = (tables.layout, &self.config.text);
        let (width, heads) = (config.dim, config.n_heads);
        let prefix = self.config.prefix_positions();
        let (rows, all) = (
            counts.row_positions,
            counts.row_positions + counts.images * prefix,
        );
        let last = layer + 1 == self.weights.text.len();
        let deep = if last { rows } else { all };
        let block = &self.weights.text[layer];
        let [qkv, fc1, out] = self.text_products(layer, (all, deep));
        let (hidden, mix) = (self.text.hidden.start(), out.x);
        let cache = LayerCache {
            keys: self.keys.start().at(layer * self.layer_values),
            values: self.values.start().at(layer * self.layer_values),
        };
        self.kernels
            .layer_norm(hidden, block.ln.at(), qkv.x, (all, width))?;
        self.product(&qkv)?;
        let qkv = Rows::packed(self.text.qkv.start(), 3 * width);
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
        self.product(&fc1)?;
        self.product(&out)
    }

    /// The products of a block: queries, keys and values of `all` positions; into the MLP of the `deep` ones; attention's
    /// projection and the MLP's second layer at once.
    fn text_products(&self, layer: usize, (all, deep): (usize, usize)) -> [Product; 3] {
        let width = self.config.text.dim;
        let hidden = Values::bf16(self.text.hidden.start(), width);
        let attention = Values::bf16(self.text.qkv.start(), 3 * width);
        let [normed, mix] = self.text_inputs(layer, all);
        let block = &self.weights.text[layer];
        let inner = mix.behind(width);
        [
            (block.qkv(), normed, attention, all, Epilogue::Bias),
            (block.fc1(), normed, inner, deep, Epilogue::BiasGelu),
            (block.out.at(), mix, hidden, deep, Epilogue::BiasAdd),
        ]
        .map(|(linear, x, out, rows, epilogue)| Product {
            linear,
            x,
            out,
            rows,
            epilogue,
        })
    }

    /// Rows to the cache: their images' prefixes, and themselves.
    fn attend(
        &self,
        qkv: Pointer<bf16>,
        out: Values,
        cache: LayerCache,
        tables: Tables<'_>,
        counts: &Counts,
    ) -> Result<(), CudaError> {
        let (heads, parts) = (self.config.text.n_heads, self.parts(counts));
        if counts.tiles > 0 {
            let shape = (counts.tiles, heads);
            self.kernels
                .attend_prefix(qkv, cache, &tables.prefix(), parts, shape)?;
        }
        let shape = (counts.row_positions, heads);
        self.kernels
            .attend_own(qkv, cache, &tables.own(), parts, out, shape)
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
