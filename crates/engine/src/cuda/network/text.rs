//! Embedded inputs and image tokens to hidden states: the text decoder with its KV cache.

use half::bf16;

use super::runner::LayerRunner;
use crate::{
    cuda::{
        error::CudaError,
        kernels::{
            AttentionParts, CachedAttention, DenseAttention, EmbedInputs, ImageShape, Kernels,
            LayerCache, ONE_LAUNCH_ROWS_MAX, OneLaunchDecoder, PickTables,
        },
        memory::{Buffer, Pointer},
        program::{StepCounts, StepTables, TableLayout},
        record::DecisionRecord,
        tensor::{
            Activations, Epilogue, GpuEncoder, MatrixShape, PAGE, Product, StridedRows, TEXT_HEAD,
            TILE, bucket,
        },
        weights::GpuText,
    },
    model::{ModelConfig, ROPE_THETA, ROTARY_DIM, TextConfig},
    network::format::Number,
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
    pub weights: GpuText,
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
    /// The same as both in e4m3, where layers read that.
    normed_e4m3: Buffer<u8>,
    proj_fc2_in_e4m3: Buffer<u8>,
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
        weights: GpuText,
        layout: &TableLayout,
    ) -> Result<Self, CudaError> {
        let (stream, limits, text) = (&kernels.stream, &layout.limits, &config.text);
        let zeros = |values: usize| Buffer::<bf16>::zeros(stream, values);
        let floats = |values: usize| Buffer::<f32>::zeros(stream, values);
        let layer_values = limits.pages * page_values(text);
        let positions = layout.positions;
        let [hidden, normed, qkv, proj_fc2_in] = row_lengths(text, layout);
        let [partial_values, partial_max_sums] = partial_lengths(text, layout);
        let blocks = &weights.blocks;
        let input = blocks.first().map_or(Number::Bf16, |b| b.qkv_fc1.number());
        let [normed_e4m3, proj_fc2_in_e4m3] = e4m3_lengths(text, layout, input);
        Ok(Self {
            one_launch: OneLaunchDecoder::new(kernels, text, blocks)?,
            image_tokens: config.image_tokens(),
            prefix_positions: config.prefix_positions(),
            images_max: limits.images,
            bos_id: config.tokenizer.bos_id as usize,
            keys: Buffer::zeros(stream, text.n_layers * layer_values)?,
            values: Buffer::zeros(stream, text.n_layers * layer_values)?,
            layer_values,
            rope_cos_sin: Buffer::from_host(stream, &rope_cos_sin(config.context()))?,
            hidden: zeros(hidden)?,
            normed: zeros(normed)?,
            qkv: zeros(qkv)?,
            proj_fc2_in: zeros(proj_fc2_in)?,
            normed_e4m3: Buffer::zeros(stream, normed_e4m3)?,
            proj_fc2_in_e4m3: Buffer::zeros(stream, proj_fc2_in_e4m3)?,
            partial_values: floats(partial_values)?,
            partial_max_sums: floats(partial_max_sums)?,
            is_zombie: Buffer::zeros(stream, positions)?,
            config: text.clone(),
            weights,
        })
    }

    /// Bytes that one takes beside its weights and the KV cache; `input` is what its layers read.
    pub fn scratch_bytes(config: &TextConfig, layout: &TableLayout, input: Number) -> usize {
        let rows: usize = row_lengths(config, layout).iter().sum();
        let partial: usize = partial_lengths(config, layout).iter().sum();
        let in_e4m3: usize = e4m3_lengths(config, layout, input).iter().sum();
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
        let (wte, region) = (self.weights.wte.start(), &self.weights.region);
        if rows > 0 {
            let inputs = EmbedInputs {
                kind: tables.at(layout.kind),
                values: [tables.at(layout.a), tables.at(layout.b)],
                decided,
                wte,
                coord: GpuEncoder {
                    frequencies: region.coord_features.start(),
                    linear: region.coord_encoder.at,
                },
                size: GpuEncoder {
                    frequencies: region.size_features.start(),
                    linear: region.size_encoder.at,
                },
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

    /// Products of most steps; rare steps plan theirs when they run.
    pub fn expected_products(&self) -> Vec<Product> {
        let blocks = self.weights.blocks.len();
        let prefix = self.prefix_positions;
        let with_images = (1..=self.images_max)
            .flat_map(|images| images * prefix..=images * (prefix + POSITIONS_BESIDE_IMAGE));
        let positions = with_images.chain(PLANNED_ROWS_MIN..=ROWS_WITHOUT_IMAGE_MAX);
        positions
            .flat_map(|rows| (0..blocks).map(move |block| (block, rows)))
            .flat_map(|(block, rows)| self.block_products(block, rows, rows))
            .collect()
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
            let layers = [block.qkv(), block.fc1(), block.proj_fc2.at];
            layers.iter().all(|linear| Kernels::is_skinny(linear, 1))
        })
    }

    /// The products of a block: queries, keys and values of `all` positions, then, for the first `output` positions, the MLP's
    /// first layer, and attention's projection and the MLP's second layer as one.
    fn block_products(&self, layer: usize, all: usize, output: usize) -> [Product; 3] {
        let width = self.config.dim;
        let hidden = Activations::bf16(self.hidden.start(), width);
        let attention = Activations::bf16(self.qkv.start(), 3 * width);
        let block = &self.weights.blocks[layer];
        let proj_fc2 = block.proj_fc2.at;
        let normed = StridedRows::packed(self.normed.start(), width);
        let proj_fc2_in = StridedRows::packed(self.proj_fc2_in.start(), proj_fc2.inner);
        let [normed, proj_fc2_in] = match all > POSITIONS_IN_BF16 || !self.has_skinny_layers() {
            true => [
                block.qkv_fc1.inputs(normed, &self.normed_e4m3),
                proj_fc2.inputs(proj_fc2_in, &self.proj_fc2_in_e4m3),
            ],
            false => [normed, proj_fc2_in].map(Activations::Bf16),
        };
        let inner = proj_fc2_in.behind(width);
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

/// Values of the buffers of rows, in the order of the decoder's fields.
fn row_lengths(config: &TextConfig, layout: &TableLayout) -> [usize; 4] {
    let (positions, width) = (bucket(layout.positions), config.dim);
    [width, width, 3 * width, width + config.ff_dim].map(|width| positions * width)
}

/// The same of those in e4m3; `input` is what the layers read.
fn e4m3_lengths(config: &TextConfig, layout: &TableLayout, input: Number) -> [usize; 2] {
    match input {
        Number::E4m3 => [config.dim, config.dim + config.ff_dim],
        _ => [0; 2],
    }
    .map(|width| bucket(layout.positions) * width)
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
