//! Pictures to image tokens: the vision encoder over crops, then combination with kept features, then the projection.

use std::{cell::RefCell, ops::Range};

use half::bf16;

use super::{
    blocks::{CropSequences, CudaOps, GpuHidden, InputPlace, Pass, e4m3_values},
    runner::{ExpectedProducts, LayerRunner},
    shared::{NetworkBase, SharedLengths},
};
use crate::{
    cuda::{
        error::CudaError,
        kernels::{CombineInputs, CombineShape},
        memory::{Buffer, Pointer, copy},
        program::StepTables,
        reuse::FeatureCopy,
        tensor::{Activations, Epilogue, MatrixShape, StridedRows, bucket},
        weights::{GpuVision, inner_in_e4m3},
    },
    model::{ModelConfig, VisionConfig},
    network::{Mlp, format::Number, forward, shard::Shard},
};

/// Sizes of the steps that a [`VisionEncoder`] has room for.
#[derive(Clone, Copy, Debug)]
pub struct VisionRoom {
    /// Crops in a step.
    pub crops: usize,
    /// Crops that go through the blocks together; a step with more runs them part by part, which takes less memory.
    pub crops_at_once: usize,
    pub images: usize,
}

impl VisionRoom {
    /// For steps of `images` images; one alone may have twice the crops that the model's rule aims at.
    pub fn new(config: &VisionConfig, images: usize, crops_at_once: usize) -> Self {
        let most = config.max_crops;
        let crops = (images * (most + 1)).max(most * 2);
        Self {
            crops,
            crops_at_once: crops_at_once.clamp(1, crops),
            images,
        }
    }

    /// Rows of buffers for all patches of a step: parts are rounded up to a bucket, the last one too.
    fn patch_rows(&self, image_tokens: usize) -> usize {
        let part = self.crops_at_once * image_tokens;
        bucket(self.crops * image_tokens + (part / 50).max(32))
    }

    /// Rows of buffers for the patches of a part.
    fn part_rows(&self, image_tokens: usize) -> usize {
        bucket(self.crops_at_once * image_tokens)
    }

    /// The crops of a step, part by part, in parts of about the same size.
    fn parts(&self, crops: usize) -> impl Iterator<Item = Range<usize>> {
        let count = crops.div_ceil(self.crops_at_once);
        (0..count).map(move |part| part * crops / count..(part + 1) * crops / count)
    }
}

/// The vision encoder and the projection: their weights, and the buffers between their layers. Rows are patches.
pub struct VisionEncoder {
    config: VisionConfig,
    /// Patches of a crop, which are also the tokens of an image.
    image_tokens: usize,
    pub weights: GpuVision,
    pub room: VisionRoom,
    /// Its part of a step's crops.
    shard: Shard,
    /// Of a part of the crops, as `qkv`, `attended` and `inner`.
    pub hidden: Buffer<bf16>,
    /// Of all crops: features, where the blocks of their part have run.
    pub normed: Buffer<bf16>,
    pub tokens: Buffer<bf16>,
    // Below: in the shared memory.
    patches: Pointer<bf16>,
    qkv: Pointer<bf16>,
    attended: Pointer<bf16>,
    pub inner: Pointer<bf16>,
    /// Of a part of the crops in e4m3, where layers read that.
    normed_e4m3: Pointer<u8>,
    attended_e4m3: Pointer<u8>,
    inner_e4m3: Pointer<u8>,
    combined: Pointer<bf16>,
    projected: Pointer<bf16>,
}

impl VisionEncoder {
    /// With its part of the weights.
    pub fn new(
        base: NetworkBase<'_>,
        config: &ModelConfig,
        weights: GpuVision,
        room: VisionRoom,
        shard: Shard,
    ) -> Result<Self, CudaError> {
        let NetworkBase { runner, shared } = base;
        let (stream, vision) = (&runner.kernels.stream, &config.vision);
        let blocks = &weights.blocks;
        let input = blocks.first().map_or(Number::Bf16, |b| b.qkv.number());
        let in_e4m3 = e4m3_lengths(config, &room, input);
        let [normed_e4m3, attended_e4m3, inner_e4m3] = shared.in_e4m3(in_e4m3);
        let [inner, patches, qkv, attended, combined, projected] =
            shared.in_bf16(shared_lengths(config, &room, input));
        let [hidden, normed, tokens] = own_lengths(config, &room);
        Ok(Self {
            image_tokens: config.image_tokens(),
            weights,
            room,
            shard,
            hidden: Buffer::zeros(stream, hidden)?,
            normed: Buffer::zeros(stream, normed)?,
            tokens: Buffer::zeros(stream, tokens)?,
            patches,
            qkv,
            attended,
            inner,
            normed_e4m3,
            attended_e4m3,
            inner_e4m3,
            combined,
            projected,
            config: vision.clone(),
        })
    }

    /// Bytes that one takes beside its weights and the shared memory.
    pub fn scratch_bytes(config: &ModelConfig, room: &VisionRoom) -> usize {
        own_lengths(config, room).iter().sum::<usize>() * size_of::<bf16>()
    }

    /// Of the shared memory; `input` is what the layers of its blocks read.
    pub fn shared_lengths(config: &ModelConfig, room: &VisionRoom, input: Number) -> SharedLengths {
        SharedLengths::of(
            &shared_lengths(config, room, input),
            &e4m3_lengths(config, room, input),
        )
    }

    /// Memory for patches, a row each.
    pub fn patch_rows(&self) -> StridedRows {
        let width = self.config.patch_values().next_multiple_of(8);
        StridedRows::packed(self.patches, width)
    }

    /// The crops of a step that this GPU encodes.
    pub fn own(&self, crops: usize) -> Range<usize> {
        self.shard.range(crops)
    }

    /// Queues the encoder over the patches of `crops` crops, at least one: over its own part of them where several GPUs divide them, and then
    /// the exchange after which all have all features.
    pub fn encode(&self, pass: Pass<'_>, crops: usize) -> Result<(), CudaError> {
        let own = self.own(crops);
        let mut parts = self.room.parts(own.len());
        parts.try_for_each(|part| {
            self.encode_part(pass, own.start + part.start..own.start + part.end)
        })?;
        if self.shard.is_whole() {
            return Ok(());
        }
        let ranks = self.shard.ranks;
        let of_crop = self.image_tokens * self.config.enc_dim;
        let parts = (0..ranks).map(|rank| Shard { rank, ranks }.range(crops));
        let counts: Vec<usize> = parts.map(|part| part.len() * of_crop).collect();
        pass.between_ranks(|peers, kernels| peers.share(kernels, self.normed.start(), &counts))
    }

    fn encode_part(&self, pass: Pass<'_>, crops: Range<usize>) -> Result<(), CudaError> {
        let (weights, tokens, width) = (&self.weights, self.image_tokens, self.config.enc_dim);
        let (first, rows) = (crops.start * tokens, crops.len() * tokens);
        let (start, shape) = (self.hidden.start(), MatrixShape { rows, width });
        let patches = Activations::Bf16(self.patch_rows().from(first));
        let embedded = Activations::bf16(start, width);
        let embedding = &weights.patch_emb;
        pass.product(embedding.product(patches, embedded, rows, Epilogue::Bias))?;
        let places = weights.pos_emb.start();
        pass.launch(|kernels| kernels.add_places(start, places, shape, tokens))?;
        let place = |in_bf16, in_e4m3, width| InputPlace {
            in_bf16: StridedRows::packed(in_bf16, width),
            in_e4m3: Some(in_e4m3),
            column: 0,
        };
        let mut normed = place(self.normed.start(), self.normed_e4m3, width);
        normed.in_bf16 = normed.in_bf16.from(first);
        let mut ops = CudaOps {
            pass,
            normed,
            qkv: StridedRows::packed(self.qkv, 3 * width),
            attended: place(self.attended, self.attended_e4m3, width),
            inner: place(self.inner, self.inner_e4m3, self.config.enc_ff_dim),
            has_adapters: false,
            unadded: None,
            partial: None,
            attention: CropSequences {
                crops: crops.len(),
                tokens,
                heads: self.config.enc_n_heads,
                head_dim: self.config.head_dim(),
            },
        };
        forward::encode(&mut ops, weights, &mut GpuHidden { start, rows }, rows)?;
        let (norm, out) = (weights.post_ln.at(), Activations::Bf16(normed.in_bf16));
        pass.launch(|kernels| kernels.layer_norm(start, norm, out, shape))
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
        runner.kernels.combine(&inputs, self.combined, shape)?;
        let crop = tokens * width;
        for keep in keeps {
            let (from, to) = (made.at(keep.place * crop), kept.at(keep.entry * crop));
            copy(&runner.kernels.stream, from, to, crop)?;
        }
        self.projection(Pass::Run(runner), images * tokens)
    }

    /// Adds the products of all steps with up to the largest number of crops and images.
    pub fn plan(&self, expected: &RefCell<ExpectedProducts>) -> Result<(), CudaError> {
        let (pass, tokens) = (Pass::Plan(expected), self.image_tokens);
        (1..=self.room.crops).try_for_each(|crops| self.encode(pass, crops))?;
        (1..=self.room.images).try_for_each(|images| self.projection(pass, images * tokens))
    }

    /// Features of `rows` cells to tokens.
    fn projection(&self, pass: Pass<'_>, rows: usize) -> Result<(), CudaError> {
        let config = &self.config;
        let combined = Activations::bf16(self.combined, 2 * config.enc_dim);
        let projected = Activations::bf16(self.projected, config.proj_inner_dim);
        let out = Activations::bf16(self.tokens.start(), config.proj_out_dim);
        let Mlp { fc1, fc2 } = &self.weights.proj;
        pass.product(fc1.product(combined, projected, rows, Epilogue::BiasGelu))?;
        pass.product(fc2.product(projected, out, rows, Epilogue::Bias))
    }
}

/// Values of the buffers of an encoder in e4m3; `input` is what the layers of its blocks read.
fn e4m3_lengths(config: &ModelConfig, room: &VisionRoom, input: Number) -> [usize; 3] {
    let width = config.vision.enc_dim;
    e4m3_values(
        input,
        room.part_rows(config.image_tokens()),
        [width, width, inner_values(config, input)],
    )
}

/// Values between the layers of an MLP.
fn inner_values(config: &ModelConfig, input: Number) -> usize {
    match input {
        Number::E4m3 => inner_in_e4m3(config.vision.enc_ff_dim),
        _ => config.vision.enc_ff_dim,
    }
}

/// The same of those in bf16 in the shared memory: inner, patches, qkv, attended, combined, projected.
fn shared_lengths(config: &ModelConfig, room: &VisionRoom, input: Number) -> [usize; 6] {
    let (vision, tokens) = (&config.vision, config.image_tokens());
    let (all, part) = (room.patch_rows(tokens), room.part_rows(tokens));
    let images = bucket(room.images * tokens);
    [
        part * inner_values(config, input),
        all * vision.patch_values().next_multiple_of(8),
        part * 3 * vision.enc_dim,
        part * vision.enc_dim,
        images * 2 * vision.enc_dim,
        images * vision.proj_inner_dim,
    ]
}

/// The same of those of its own, in the order of the fields.
fn own_lengths(config: &ModelConfig, room: &VisionRoom) -> [usize; 3] {
    let (width, tokens) = (config.vision.enc_dim, config.image_tokens());
    [
        room.part_rows(tokens) * width,
        room.patch_rows(tokens) * width,
        bucket(room.images * tokens) * config.text.dim,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_each_crop_once_and_about_one_size() {
        for (crops, at_once, sizes) in [
            (9, 5, vec![4, 5]),
            (13, 5, vec![4, 4, 5]),
            (1, 5, vec![1]),
            (5, 5, vec![5]),
            (24, 100, vec![24]),
        ] {
            let room = VisionRoom::new(&VisionConfig::default(), 1, at_once);
            let parts: Vec<_> = room.parts(crops).collect();
            assert!(parts.iter().cloned().flatten().eq(0..crops), "{parts:?}");
            let found: Vec<usize> = parts.iter().map(Range::len).collect();
            assert_eq!(found, sizes);
        }
    }

    #[test]
    fn buffers_have_room_for_the_bucket_of_each_part() {
        let tokens = ModelConfig::default().image_tokens();
        for (images, at_once) in [(1, 5), (2, 13), (4, 52), (8, 104), (1, 1), (3, 7)] {
            let room = VisionRoom::new(&VisionConfig::default(), images, at_once);
            for part in (1..=room.crops).flat_map(|crops| room.parts(crops)) {
                let rows = bucket(part.len() * tokens);
                assert!(
                    part.start * tokens + rows <= room.patch_rows(tokens),
                    "{part:?}"
                );
                assert!(rows <= room.part_rows(tokens), "{part:?}");
            }
        }
    }
}
