//! Embedded inputs and image tokens to hidden states: the text decoder with its KV cache.

use half::bf16;

use super::runner::LayerRunner;
use crate::{
    cuda::{
        error::CudaError,
        fp8::{E4m3Inputs, E4m3Rows},
        kernels::{
            AttentionParts, CachedAttention, DenseAttention, EmbedInputs, ImageShape, Kernels,
            LayerCache, ONE_LAUNCH_ROWS_MAX, OneLaunchDecoder, PickTables, StepLayer,
        },
        memory::{Buffer, Pointer},
        program::{StepCounts, StepTables, TableLayout},
        record::DecisionRecord,
        tensor::{
            Activations, Epilogue, MatrixShape, PAGE, Product, StridedRows, TEXT_HEAD, TILE, bucket,
        },
        weights::{GpuTextBlock, GpuTextWeights},
    },
    model::{ModelConfig, ROPE_THETA, ROTARY_DIM, TextConfig},
};

/// In fp8 and kernel by kernel, the inputs of steps of up to this number of positions are in bf16, beside weights in e4m3: reading the
/// weights limits their speed. Where a GPU can run them in one launch (`kernels/decode_step.rs`), the inputs are in f16.
const POSITIONS_IN_BF16: usize = ONE_LAUNCH_ROWS_MAX;
/// Positions of prompts and drafts beside an image in its first step, at most, for most looks.
const POSITIONS_BESIDE_IMAGE: usize = 64;
/// Positions in a step without images, at most, for most steps.
const ROWS_WITHOUT_IMAGE_MAX: usize = 512;
/// Products of fewer rows do not use cuBLASLt, or are not timed when they are planned.
const PLANNED_ROWS_MIN: usize = 17;

/// Splits of each prefix: few tiles are split, so that all multiprocessors read.
fn splits(tiles: usize) -> usize {
    match tiles {
        0..=2 => 12,
        3..=8 => 4,
        9..=32 => 2,
        _ => 1,
    }
}

/// The most (tile, split)s of a step with up to `tiles` tiles.
fn parts_max(tiles: usize) -> usize {
    (0..=tiles)
        .map(|tiles| tiles * splits(tiles))
        .max()
        .unwrap_or(0)
}

/// The text decoder: its weights, the KV cache, and the buffers between its layers. Rows are positions.
pub struct TextDecoder {
    config: TextConfig,
    image_tokens: usize,
    prefix_positions: usize,
    images_max: usize,
    bos_id: usize,
    pub weights: GpuTextWeights,
    /// Set where products of many rows are in fp8.
    fp8: Option<E4m3Inputs<2>>,
    /// For steps of few positions, where the GPU and the model allow it.
    pub one_launch: Option<OneLaunchDecoder>,
    /// `[layers][pages, heads, 16, 64]`.
    pub keys: Buffer<bf16>,
    pub values: Buffer<bf16>,
    pub layer_values: usize,
    /// Cosine and sine of each position's angles, `[context][16][2]`.
    rope_cos_sin: Buffer<f32>,
    /// `[positions, width]`: after the last block, before `post_ln`, where all blocks have run.
    pub hidden: Buffer<bf16>,
    /// `[positions, width]`: free for the heads, because the decoder has read it.
    pub normed: Buffer<bf16>,
    qkv: Buffer<bf16>,
    /// Attention's result beside the MLP's inner values.
    pub proj_fc2_in: Buffer<bf16>,
    partial_values: Buffer<f32>,
    partial_max_sums: Buffer<f32>,
    /// `[positions]`: 1 where the row had ended before this step.
    is_zombie: Buffer<i32>,
}

impl TextDecoder {
    /// With its part of the weights, for steps within the layout.
    pub fn new(
        kernels: &Kernels,
        config: &ModelConfig,
        weights: GpuTextWeights,
        layout: &TableLayout,
    ) -> Result<Self, CudaError> {
        let (stream, limits, text) = (&kernels.stream, &layout.limits, &config.text);
        let zeros = |values: usize| Buffer::<bf16>::zeros(stream, values);
        let floats = |values: usize| Buffer::<f32>::zeros(stream, values);
        let layer_values = limits.pages * page_values(text);
        let positions = layout.positions;
        let [hidden, normed, qkv, proj_fc2_in] = row_lengths(text, layout);
        let [partial_values, partial_max_sums] = partial_lengths(text, layout);
        let fp8 = match &weights.largest_inputs {
            Some(inputs) => {
                let rows = |width| E4m3Rows::new(stream, positions, width);
                let rows = [rows(text.dim)?, rows(text.dim + text.ff_dim)?];
                Some(E4m3Inputs::new(stream, inputs, rows)?)
            }
            None => None,
        };
        let layers: Vec<StepLayer<'_>> = weights.blocks.iter().map(step_layer).collect();
        Ok(Self {
            one_launch: OneLaunchDecoder::new(kernels, text, &layers, fp8.as_ref())?,
            image_tokens: config.image_tokens(),
            prefix_positions: config.prefix_positions(),
            images_max: limits.images,
            bos_id: config.tokenizer.bos_id as usize,
            weights,
            fp8,
            keys: Buffer::zeros(stream, text.n_layers * layer_values)?,
            values: Buffer::zeros(stream, text.n_layers * layer_values)?,
            layer_values,
            rope_cos_sin: Buffer::from_host(stream, &rope_cos_sin(config.context()))?,
            hidden: zeros(hidden)?,
            normed: zeros(normed)?,
            qkv: zeros(qkv)?,
            proj_fc2_in: zeros(proj_fc2_in)?,
            partial_values: floats(partial_values)?,
            partial_max_sums: floats(partial_max_sums)?,
            is_zombie: Buffer::zeros(stream, positions)?,
            config: text.clone(),
        })
    }

    /// Bytes that one takes beside its weights and the KV cache.
    pub fn scratch_bytes(config: &TextConfig, layout: &TableLayout, is_fp8: bool) -> usize {
        let rows: usize = row_lengths(config, layout).iter().sum();
        let partial: usize = partial_lengths(config, layout).iter().sum();
        let in_e4m3 = match is_fp8 {
            true => bucket(layout.positions) * (2 * config.dim + config.ff_dim),
            false => 0,
        };
        rows * size_of::<bf16>() + partial * size_of::<f32>() + in_e4m3
    }

    /// Bytes of a page of the KV cache.
    pub fn page_bytes(config: &TextConfig) -> usize {
        config.n_layers * 2 * page_values(config) * size_of::<bf16>()
    }

    /// The step's tables of decisions.
    pub fn picks(&self, tables: StepTables<'_>) -> PickTables {
        let layout = tables.layout;
        PickTables {
            pick: tables.at(layout.pick),
            is_zombie: self.is_zombie.start(),
            choice: tables.at(layout.choice),
            banned: tables.at(layout.banned),
        }
    }

    /// True when all blocks of the step are one launch.
    pub fn is_one_launch(&self, counts: &StepCounts) -> bool {
        self.one_launch.as_ref().is_some_and(|d| d.can_run(counts))
    }

    /// Queues the decoder over all positions of a step: its rows, then its images, which only write keys and values.
    pub fn forward(
        &self,
        runner: &LayerRunner,
        tables: StepTables<'_>,
        image_tokens: Pointer<bf16>,
        decided: Pointer<DecisionRecord>,
    ) -> Result<(), CudaError> {
        let (layout, counts) = (tables.layout, tables.counts);
        let (width, rows) = (self.config.dim, counts.row_positions);
        let wte = self.weights.wte.start();
        if rows > 0 {
            let inputs = EmbedInputs {
                kind: tables.at(layout.kind),
                values: [tables.at(layout.a), tables.at(layout.b)],
                decided,
                wte,
                coord: &self.weights.coord_encoder,
                size: &self.weights.size_encoder,
                hidden: self.hidden.start(),
                is_zombie: self.is_zombie.start(),
            };
            let shape = MatrixShape { rows, width };
            runner.kernels.embed(&inputs, shape)?;
        }
        if counts.images > 0 {
            let bos = wte.at(self.bos_id * width);
            let to = self.hidden.start().at(rows * width);
            let shape = ImageShape {
                images: counts.images,
                tokens: self.image_tokens,
                width,
            };
            runner.kernels.place_images(image_tokens, bos, to, shape)?;
        }
        if let Some(decoder) = self.one_launch.as_ref().filter(|d| d.can_run(counts)) {
            let (attention, kernels) = (self.attention(0, tables), &runner.kernels);
            let (hidden, proj_fc2_in) = (self.hidden.start(), self.proj_fc2_in.start());
            return decoder.run(kernels, &attention, hidden, proj_fc2_in);
        }
        for layer in 0..self.weights.blocks.len() {
            self.block(runner, layer, tables)?;
        }
        Ok(())
    }

    /// Products of most steps; rare steps plan theirs when they run. All blocks have the same shapes.
    pub fn expected_products(&self) -> Vec<Product> {
        let blocks = self.weights.distinct_blocks();
        let prefix = self.prefix_positions;
        let with_images = (1..=self.images_max)
            .flat_map(|images| images * prefix..=images * (prefix + POSITIONS_BESIDE_IMAGE));
        let positions = with_images.chain(PLANNED_ROWS_MIN..=ROWS_WITHOUT_IMAGE_MAX);
        positions
            .flat_map(|rows| blocks.iter().map(move |block| (*block, rows)))
            .flat_map(|(block, rows)| self.block_products(block, rows, rows))
            .collect()
    }

    /// True when products of many rows are in fp8.
    pub fn is_fp8(&self) -> bool {
        self.fp8.is_some()
    }

    /// What rows attend with in a layer.
    fn attention<'a>(&self, layer: usize, tables: StepTables<'a>) -> CachedAttention<'a> {
        let first = layer * self.layer_values;
        CachedAttention {
            tables,
            qkv: self.qkv.start(),
            rope_cos_sin: self.rope_cos_sin.start(),
            cache: LayerCache {
                keys: self.keys.start().at(first),
                values: self.values.start().at(first),
            },
            parts: AttentionParts {
                values: self.partial_values.start(),
                max_sums: self.partial_max_sums.start(),
                splits: splits(tables.counts.tiles),
            },
            heads: self.config.n_heads,
        }
    }

    /// One block: `hidden += attention(n) + mlp(n)` with `n = norm(hidden)`. In the last one, images need keys and
    /// values only.
    fn block(
        &self,
        runner: &LayerRunner,
        layer: usize,
        tables: StepTables<'_>,
    ) -> Result<(), CudaError> {
        let (counts, kernels) = (tables.counts, &runner.kernels);
        let (width, prefix) = (self.config.dim, self.prefix_positions);
        let rows = counts.row_positions;
        let all = rows + counts.images * prefix;
        let last = layer + 1 == self.weights.blocks.len();
        let output = if last { rows } else { all };
        let block = &self.weights.blocks[layer];
        let [qkv, fc1, out] = self.block_products(layer, all, output);
        let (hidden, proj_fc2_in) = (self.hidden.start(), out.x);
        let qkv = runner.norm(hidden, &block.ln, qkv)?;
        runner.product(&qkv)?;
        let attention = self.attention(layer, tables);
        kernels.rope_scatter(&attention, all)?;
        if output == 0 {
            return Ok(());
        }
        if output > rows {
            kernels.attend_dense(&DenseAttention {
                qkv: StridedRows::packed(self.qkv.start(), 3 * width).from(rows),
                out: proj_fc2_in.from(rows),
                sequences: counts.images,
                length: prefix,
                heads: self.config.n_heads,
                head_dim: TEXT_HEAD,
            })?;
        }
        if rows > 0 {
            // Rows to the cache: their images' prefixes, then themselves.
            if counts.tiles > 0 {
                kernels.attend_prefix(&attention)?;
            }
            kernels.attend_own(&attention, proj_fc2_in, rows)?;
        }
        // The same normed rows; of the last block's few ones, they may be in another format.
        let fc1 = match last {
            true => runner.norm(hidden, &block.ln, fc1)?,
            false => Product { x: qkv.x, ..fc1 },
        };
        runner.product(&fc1)?;
        runner.product(&out)
    }

    /// True when the kernel for products of few rows supports the layers of the blocks.
    fn has_skinny_layers(&self) -> bool {
        self.weights.blocks.iter().take(1).all(|block| {
            let layers = [block.qkv(), block.fc1(), block.proj_fc2.at()];
            layers.iter().all(|linear| Kernels::is_skinny(linear, 1))
        })
    }

    /// Inputs of a block in a step of `positions`: normed states, and attention's result beside the MLP's inner values.
    fn block_inputs(&self, block: usize, positions: usize) -> [Activations; 2] {
        match &self.fp8 {
            Some(fp8) if positions > POSITIONS_IN_BF16 || !self.has_skinny_layers() => {
                fp8.of_block(block)
            }
            _ => {
                let (width, inner) = (self.config.dim, self.config.ff_dim);
                let normed = Activations::bf16(self.normed.start(), width);
                let proj_fc2_in = Activations::bf16(self.proj_fc2_in.start(), width + inner);
                [normed, proj_fc2_in]
            }
        }
    }

    /// The products of a block: queries, keys and values of `all` positions, then, for the first `output` positions, the MLP's
    /// first layer, and attention's projection and the MLP's second layer as one.
    fn block_products(&self, layer: usize, all: usize, output: usize) -> [Product; 3] {
        let width = self.config.dim;
        let hidden = Activations::bf16(self.hidden.start(), width);
        let attention = Activations::bf16(self.qkv.start(), 3 * width);
        let [normed, proj_fc2_in] = self.block_inputs(layer, all);
        let block = &self.weights.blocks[layer];
        let inner = proj_fc2_in.behind(width);
        let proj_fc2 = block.proj_fc2.at();
        [
            block.qkv().product(normed, attention, all, Epilogue::Bias),
            block
                .fc1()
                .product(normed, inner, output, Epilogue::BiasGelu),
            proj_fc2.product(proj_fc2_in, hidden, output, Epilogue::BiasAdd),
        ]
    }
}

/// Values of a page: keys, or values, of a layer.
fn page_values(config: &TextConfig) -> usize {
    config.n_heads * PAGE * TEXT_HEAD
}

fn step_layer(block: &GpuTextBlock) -> StepLayer<'_> {
    StepLayer {
        norm: &block.ln,
        qkv_fc1: block.qkv_fc1.at(),
        proj_fc2: block.proj_fc2.at(),
    }
}

/// Values of the buffers of rows, in the order of the decoder's fields.
fn row_lengths(config: &TextConfig, layout: &TableLayout) -> [usize; 4] {
    let (positions, width) = (bucket(layout.positions), config.dim);
    [width, width, 3 * width, width + config.ff_dim].map(|width| positions * width)
}

/// Values of the buffers of partial results of attention, in the order of the decoder's fields.
fn partial_lengths(config: &TextConfig, layout: &TableLayout) -> [usize; 2] {
    let tile_parts = parts_max(layout.tiles) * config.n_heads * TILE;
    [tile_parts * TEXT_HEAD, tile_parts * 2]
}

/// `[context][16][2]`: cosine and sine of `position * theta^(-2j/32)` (docs/moondream.md section 6).
fn rope_cos_sin(context: usize) -> Vec<f32> {
    let pairs = ROTARY_DIM / 2;
    let angle = |position: usize, j: usize| {
        position as f32 * ROPE_THETA.powf(-2.0 * j as f32 / ROTARY_DIM as f32)
    };
    (0..context)
        .flat_map(|position| (0..pairs).map(move |j| angle(position, j)))
        .flat_map(|angle| [angle.cos(), angle.sin()])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::program::padded_tiles;

    #[test]
    fn tiles_of_padding_change_no_split() {
        for tiles in 0..300 {
            assert_eq!(splits(padded_tiles(tiles)), splits(tiles), "{tiles} tiles");
        }
    }
}
