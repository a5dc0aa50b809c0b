//! Embedded inputs and image tokens to hidden states: the text decoder with its KV cache.

use std::{cell::RefCell, collections::BTreeSet};

use half::bf16;

use super::{
    blocks::{CudaOps, DecoderStep, GpuHidden, InputPlace, PartialStates, Pass, e4m3_values},
    experts::{ExpertBuffers, ExpertRoom},
    runner::{ExpectedProducts, LayerRunner},
    shared::{NetworkBase, SharedLengths},
};
use crate::{
    cuda::{
        adapters::AdapterSlots,
        error::CudaError,
        kernels::{
            AttentionParts, CachedAttention, EmbedInputs, ExpertShape, ImageShape, Kernels,
            LayerCache, ONE_LAUNCH_ROWS_MAX, OneLaunchDecoder, PickTables, tau_values,
        },
        memory::{Buffer, Pointer},
        peers::Peers,
        program::{StepCounts, StepTables, TableLayout},
        record::DecisionRecord,
        tensor::{GpuEncoder, GpuLinear, MatrixShape, PAGE, StridedRows, TEXT_HEAD, TILE, bucket},
        weights::GpuText,
    },
    model::{Formats, ModelConfig, TextConfig},
    network::{format::Number, forward, spec::RopeSpec},
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
    /// Cosine and sine of each position's angles, `[context][16][2]`.
    rope_cos_sin: Buffer<f32>,
    /// `[positions, width]`: after the last block, before `post_ln`, where all blocks have run.
    pub hidden: Buffer<bf16>,
    partial_values: Buffer<f32>,
    partial_max_sums: Buffer<f32>,
    /// Of models with tau; empty otherwise.
    tau: Buffer<f32>,
    experts: Option<ExpertBuffers>,
    /// Of a rank: where its part of a block is before it is summed.
    partial: Option<Pointer<bf16>>,
    /// `None`: there are none.
    pub adapters: Option<AdapterSlots>,
    /// `[positions]`: 1 where the row had ended before this step.
    is_zombie: Buffer<i32>,
    // Below: in the shared memory.
    /// `[positions, width]`: free for the heads, because the decoder has read it.
    pub normed: Pointer<bf16>,
    qkv: Pointer<bf16>,
    /// Attention's result beside the MLP's inner values.
    pub proj_fc2_in: Pointer<bf16>,
    /// The same as both in e4m3, where layers read that.
    normed_e4m3: Pointer<u8>,
    proj_fc2_in_e4m3: Pointer<u8>,
}

impl TextDecoder {
    /// With its part of the weights, for steps within the layout.
    pub fn new(
        base: NetworkBase<'_>,
        config: &ModelConfig,
        weights: GpuText,
        layout: &TableLayout,
    ) -> Result<Self, CudaError> {
        let NetworkBase { runner, shared } = base;
        let kernels = &runner.kernels;
        let (stream, limits, text) = (&kernels.stream, &layout.limits, &config.text);
        let floats = |values: usize| Buffer::<f32>::zeros(stream, values);
        let layer_values = limits.pages * page_values(text);
        let positions = layout.positions;
        let [proj_fc2_in, qkv, normed] = shared.in_bf16(shared_lengths(text, layout));
        let [partial_values, partial_max_sums, tau] = partial_lengths(text, layout);
        let blocks = &weights.layers.blocks;
        let input = blocks.first().map_or(Number::Bf16, |b| b.qkv.number());
        let [normed_e4m3, proj_fc2_in_e4m3] = shared.in_e4m3(e4m3_lengths(text, layout, input));
        let experts = expert_room(text, layout, weights.expert_input)
            .map(|room| ExpertBuffers::new(kernels, room))
            .transpose()?;
        let words = runner.peers.as_ref().and_then(Peers::decoder_words);
        let rope = rope_cos_sin(config.network().rope, config.context());
        Ok(Self {
            one_launch: OneLaunchDecoder::new(kernels, text, blocks, words)?,
            image_tokens: config.image_tokens(),
            prefix_positions: config.prefix_positions(),
            images_max: limits.images,
            bos_id: config.tokenizer.bos_id as usize,
            keys: Buffer::zeros(stream, text.n_layers * layer_values)?,
            values: Buffer::zeros(stream, text.n_layers * layer_values)?,
            rope_cos_sin: Buffer::from_host(stream, &rope)?,
            hidden: Buffer::zeros(stream, hidden_values(text, layout))?,
            normed,
            qkv,
            proj_fc2_in,
            normed_e4m3,
            proj_fc2_in_e4m3,
            partial_values: floats(partial_values)?,
            partial_max_sums: floats(partial_max_sums)?,
            tau: floats(tau)?,
            experts,
            partial: runner.peers.as_ref().map(Peers::partial),
            adapters: AdapterSlots::new(stream, config, layout)?,
            is_zombie: Buffer::zeros(stream, positions)?,
            config: text.clone(),
            weights,
        })
    }

    /// Bytes that one takes beside its weights, the KV cache and the shared memory.
    pub fn scratch_bytes(config: &TextConfig, layout: &TableLayout, formats: Formats<'_>) -> usize {
        let hidden = hidden_values(config, layout);
        let partial: usize = partial_lengths(config, layout).iter().sum();
        let experts = expert_room(config, layout, formats.experts.input);
        let experts = experts.map_or(0, |room| room.bytes());
        hidden * size_of::<bf16>() + partial * size_of::<f32>() + experts
    }

    /// Of the shared memory; `input` is what the layers of its blocks read.
    pub fn shared_lengths(
        config: &TextConfig,
        layout: &TableLayout,
        input: Number,
    ) -> SharedLengths {
        SharedLengths::of(
            &shared_lengths(config, layout),
            &e4m3_lengths(config, layout, input),
        )
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

    /// Where all blocks of the step are one launch, what launches it.
    pub fn one_launch_of(&self, counts: &StepCounts) -> Option<&OneLaunchDecoder> {
        self.one_launch.as_ref().filter(|d| d.can_run(counts))
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
        let (wte, region) = (self.weights.layers.wte.start(), &self.weights.region);
        let encoder = |frequencies: &Buffer<f32>, layer: &GpuLinear| GpuEncoder {
            frequencies: frequencies.start(),
            linear: layer.at,
        };
        if rows > 0 {
            let inputs = EmbedInputs {
                kind: tables.at(layout.kind),
                values: [tables.at(layout.a), tables.at(layout.b)],
                decided,
                wte,
                coord: encoder(&region.coord_features, &region.coord_encoder),
                size: encoder(&region.size_features, &region.size_encoder),
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
        if let Some(decoder) = self.one_launch_of(counts) {
            let (attention, kernels) = (self.attention(tables), &runner.kernels);
            let (hidden, proj_fc2_in) = (self.hidden.start(), self.proj_fc2_in);
            return decoder.run(kernels, &attention, hidden, proj_fc2_in);
        }
        let positions = rows + counts.images * self.prefix_positions;
        // Of the last block, images need keys and values only.
        let of_step = Some(self.attention(tables));
        let adapters = self.adapters.as_ref().filter(|_| counts.has_adapters);
        self.blocks(Pass::Run(runner), of_step, adapters, [positions, rows])
    }

    /// Adds the products of most steps; rare steps plan theirs when they run.
    pub fn plan(&self, expected: &RefCell<ExpectedProducts>) -> Result<(), CudaError> {
        let prefix = self.prefix_positions;
        let with_images = (1..=self.images_max)
            .flat_map(|images| images * prefix..=images * (prefix + POSITIONS_BESIDE_IMAGE));
        let positions = with_images.chain(PLANNED_ROWS_MIN..=ROWS_WITHOUT_IMAGE_MAX);
        // Products are planned for buckets of rows, of which there are a tenth as many.
        let positions: BTreeSet<usize> = positions.map(bucket).collect();
        let with_adapters = self.adapters.as_ref().map(Some);
        positions.into_iter().try_for_each(|rows| {
            let mut steps = [None].into_iter().chain(with_adapters);
            steps.try_for_each(|slots| self.blocks(Pass::Plan(expected), None, slots, [rows; 2]))
        })
    }

    /// All blocks over `positions`, of which the states of the first `outputs` are read afterwards.
    fn blocks(
        &self,
        pass: Pass<'_>,
        attention: Option<CachedAttention<'_>>,
        adapters: Option<&AdapterSlots>,
        [positions, outputs]: [usize; 2],
    ) -> Result<(), CudaError> {
        let is_in_bf16 = positions <= POSITIONS_IN_BF16 && self.has_skinny_layers();
        let (start, width) = (self.hidden.start(), self.config.dim);
        let of_heads = self.config.attended_width();
        let place = |in_bf16, in_e4m3, width| InputPlace {
            in_bf16: StridedRows::packed(in_bf16, width),
            in_e4m3: (!is_in_bf16).then_some(in_e4m3),
            column: 0,
        };
        let inputs = of_heads + self.config.ff_dim;
        let attended = place(self.proj_fc2_in, self.proj_fc2_in_e4m3, inputs);
        let mut ops = CudaOps {
            pass,
            normed: place(self.normed, self.normed_e4m3, width),
            qkv: StridedRows::packed(self.qkv, 3 * of_heads),
            attended,
            inner: InputPlace {
                column: of_heads,
                ..attended
            },
            has_adapters: adapters.is_some(),
            unadded: None,
            partial: self.partial.map(PartialStates::at),
            attention: DecoderStep {
                attention,
                adapters,
                experts: self.experts.as_ref(),
                normed: None,
                is_zombie: self.is_zombie.start(),
                width,
            },
        };
        let (text, rows) = (&self.weights.layers, positions);
        let mut hidden = GpuHidden { start, rows };
        forward::decode(&mut ops, text, &mut hidden, [positions, outputs])
    }

    /// What rows attend with in the first layer.
    fn attention<'a>(&self, tables: StepTables<'a>) -> CachedAttention<'a> {
        CachedAttention {
            tables,
            qkv: self.qkv,
            rope_cos_sin: self.rope_cos_sin.start(),
            cache: LayerCache {
                keys: self.keys.start(),
                values: self.values.start(),
            },
            parts: AttentionParts {
                values: self.partial_values.start(),
                max_sums: self.partial_max_sums.start(),
                splits: splits(tables.counts.tiles),
            },
            tau: self.tau.start(),
            heads: self.config.n_heads,
            all_heads: self.config.all_heads(),
            first_head: self.config.shard.range(self.config.all_heads()).start,
        }
    }

    /// True when the kernel for products of few rows supports the layers of the blocks.
    fn has_skinny_layers(&self) -> bool {
        let mut blocks = self.weights.layers.blocks.iter().take(1);
        blocks.all(|block| {
            let mut layers = block.layers();
            layers.all(|layer| Kernels::is_skinny(layer, 1))
        })
    }
}

/// Values of a page: keys, or values, of a layer.
fn page_values(config: &TextConfig) -> usize {
    config.n_heads * PAGE * TEXT_HEAD
}

/// Values of the hidden states of a step.
pub fn hidden_values(config: &TextConfig, layout: &TableLayout) -> usize {
    bucket(layout.positions) * config.dim
}

/// Values of the buffers of rows in the shared memory: of the inputs of proj and fc2, qkv, normed.
fn shared_lengths(config: &TextConfig, layout: &TableLayout) -> [usize; 3] {
    let (positions, width) = (bucket(layout.positions), config.dim);
    let of_heads = config.attended_width();
    [of_heads + config.ff_dim, 3 * of_heads, width].map(|width| positions * width)
}

/// The same of those in e4m3; `input` is what the layers read.
fn e4m3_lengths(config: &TextConfig, layout: &TableLayout, input: Number) -> [usize; 2] {
    let widths = [config.dim, config.attended_width() + config.ff_dim];
    e4m3_values(input, bucket(layout.positions), widths)
}

/// For a step's images with short prompts together: the weights of experts are read once for them.
fn expert_room(config: &TextConfig, layout: &TableLayout, input: Number) -> Option<ExpertRoom> {
    let limits = &layout.limits;
    let images = limits.images * (limits.prefix_positions + POSITIONS_BESIDE_IMAGE);
    ExpertShape::of(config).map(|shape| ExpertRoom {
        shape,
        rows: layout.positions,
        rows_at_once: images.max(ROWS_WITHOUT_IMAGE_MAX).min(layout.positions),
        input,
        has_adapters: limits.adapters > 0,
    })
}

/// Values of the buffers of partial results of attention and tau, in the order of the decoder's fields.
fn partial_lengths(config: &TextConfig, layout: &TableLayout) -> [usize; 3] {
    let tile_parts = parts_max(layout.tiles) * config.n_heads * TILE;
    let tau = match config.tau_attn {
        true => tau_values(bucket(layout.positions), config.all_heads()),
        false => 0,
    };
    [tile_parts * TEXT_HEAD, tile_parts * 2, tau]
}

/// `[context][16][2]`: cosine and sine of `position * theta^(-2j/32)` (docs/moondream.md section 6).
fn rope_cos_sin(rope: RopeSpec, context: usize) -> Vec<f32> {
    let angle = |position: usize, j: usize| {
        position as f32 * rope.theta.powf(-2.0 * j as f32 / rope.dims as f32)
    };
    (0..context)
        .flat_map(|position| (0..rope.dims / 2).map(move |j| angle(position, j)))
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
