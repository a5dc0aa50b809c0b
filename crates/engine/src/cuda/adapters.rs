//! Adapters in the GPU's memory. Each has a slot with room for the highest rank in every layer that adapters may add to, so a row's adapter is
//! a number in the tables of a step, and rows of different adapters are one launch.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use half::bf16;

use super::{
    error::CudaError,
    kernels::{LowRankWeights, slot_rank},
    memory::{Buffer, PinnedBuffer, upload, wait_for_stream},
    program::{HeldAdapters, TableLayout},
    tensor::bucket,
    weights::put_pairs_together,
};
use crate::{
    model::{ADAPTER_RANK_MAX, AdapterWeights, LowRank, ModelConfig},
    network::{
        PartMap, TextBlock,
        shard::Shard,
        spec::{LayerSpec, TensorSpec},
    },
    scheduler::backend::{AdapterNumber, LoadedAdapter, Step},
};

/// What adapters have for the layers of a block.
pub type BlockSlots = TextBlock<Option<LayerSlots>, ()>;

pub struct AdapterSlots {
    shard: Shard,
    pub blocks: Vec<BlockSlots>,
    pub held: HeldAdapters,
    /// `[positions, rank]`: between the two products of an adapter.
    pub narrow: Buffer<f32>,
    /// A matrix on its way.
    piece: PinnedBuffer<bf16>,
}

/// The low-rank weights of a layer in all slots.
pub struct LayerSlots {
    shape: SlotShape,
    /// Outputs of q and k, whose pairs are together as those of the layer are; 0 elsewhere.
    rotated: usize,
    a: Buffer<bf16>,
    b: Buffer<bf16>,
}

/// Of a layer in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotShape {
    experts: usize,
    /// Of each expert.
    rank: usize,
    inner: usize,
    outputs: usize,
}

impl SlotShape {
    /// `active`: experts of a row. `None` where adapters add nothing.
    fn of(layer: &LayerSpec, active: usize) -> Option<Self> {
        let together = if layer.count > 1 { active } else { 1 };
        layer.adapter.as_ref().map(|_| Self {
            experts: layer.count,
            rank: slot_rank(ADAPTER_RANK_MAX / together),
            inner: layer.inner,
            outputs: layer.outputs,
        })
    }

    /// Values of A, `[experts, rank, inner]`, and of B, `[experts, outputs, rank]`.
    fn lengths(&self) -> [usize; 2] {
        [self.inner, self.outputs].map(|width| self.experts * self.rank * width)
    }

    /// A with zeros behind the adapter's own rank; all zeros where it has nothing for the layer.
    fn write_a(&self, of: Option<&LowRank>, to: &mut [bf16]) {
        to.fill(bf16::ZERO);
        let Some(LowRank { rank, a, inner, .. }) = of else {
            return;
        };
        let slots = to.chunks_exact_mut(self.rank * self.inner);
        for (to, from) in slots.zip(a.chunks_exact(rank * inner)) {
            to[..from.len()].copy_from_slice(from);
        }
    }

    /// The same of B.
    fn write_b(&self, of: Option<&LowRank>, to: &mut [bf16]) {
        to.fill(bf16::ZERO);
        let Some(LowRank { rank, b, .. }) = of else {
            return;
        };
        for (to, from) in to.chunks_exact_mut(self.rank).zip(b.chunks_exact(*rank)) {
            to[..from.len()].copy_from_slice(from);
        }
    }
}

impl LayerSlots {
    pub fn weights(&self) -> LowRankWeights {
        LowRankWeights {
            a: self.a.start(),
            b: self.b.start(),
            rank: self.shape.rank,
            inner: self.shape.inner,
            outputs: self.shape.outputs,
        }
    }

    /// Copies what an adapter has for the layer into `slot`, behind all work on the stream. Waits for it.
    fn load(
        &self,
        stream: &CudaStream,
        slot: usize,
        of: Option<&LowRank>,
        piece: &mut PinnedBuffer<bf16>,
    ) -> Result<(), CudaError> {
        let [of_a, of_b] = self.shape.lengths();
        self.shape.write_a(of, &mut piece.as_mut_slice()[..of_a]);
        upload(stream, piece, 0..of_a, self.a.start().at(slot * of_a))?;
        wait_for_stream(stream, "copying an adapter to the GPU")?;
        let b = &mut piece.as_mut_slice()[..of_b];
        self.shape.write_b(of, b);
        let rank = self.shape.rank;
        put_pairs_together(&mut b[..self.rotated * rank], rank);
        upload(stream, piece, 0..of_b, self.b.start().at(slot * of_b))?;
        wait_for_stream(stream, "copying an adapter to the GPU")
    }
}

impl AdapterSlots {
    /// `None` without room for one.
    pub fn new(
        stream: &Arc<CudaStream>,
        config: &ModelConfig,
        layout: &TableLayout,
    ) -> Result<Option<Self>, CudaError> {
        let slots = layout.limits.adapters;
        if slots == 0 {
            return Ok(None);
        }
        let mut allocate = AllocateSlots {
            stream,
            slots,
            active: active(config),
        };
        let block = |spec: TextBlock<LayerSpec, TensorSpec>| {
            let mut block = spec.try_map(&mut allocate)?;
            if let Some(qkv) = &mut block.qkv {
                qkv.rotated = qkv.shape.outputs / 3 * 2;
            }
            Ok::<_, CudaError>(block)
        };
        let blocks = adapted_blocks(config).map(block);
        Ok(Some(Self {
            shard: config.text.shard,
            blocks: blocks.collect::<Result<_, _>>()?,
            held: HeldAdapters::empty(slots),
            narrow: Buffer::zeros(stream, narrow_values(layout))?,
            piece: PinnedBuffer::zeros(lengths(config).into_iter().flatten().max().unwrap_or(0))?,
        }))
    }

    /// Bytes of GPU memory that they take.
    pub fn bytes(config: &ModelConfig, layout: &TableLayout) -> usize {
        let slots = layout.limits.adapters;
        if slots == 0 {
            return 0;
        }
        let of_slot: usize = lengths(config).into_iter().flatten().sum();
        slots * of_slot * size_of::<bf16>() + narrow_values(layout) * size_of::<f32>()
    }

    /// Copies the adapters of a step that are in no slot yet, behind all work on the stream: steps in flight use what they were launched
    /// with. Waits for the stream when there are some.
    pub fn load(&mut self, stream: &CudaStream, step: &Step) -> Result<(), CudaError> {
        let of_images = step
            .images
            .iter()
            .filter_map(|image| image.adapter.as_ref());
        let of_rows = step.rows.iter().filter_map(|row| row.adapter.as_ref());
        let wanted: Vec<&Arc<LoadedAdapter>> = of_images.chain(of_rows).collect();
        let numbers: Vec<AdapterNumber> = wanted.iter().map(|adapter| adapter.number).collect();
        for adapter in wanted {
            if self.held.slot_of(adapter.number).is_some() {
                continue;
            }
            let slot = self.held.take_slot(&numbers).ok_or_else(|| {
                CudaError::Shape("a step has more adapters than the GPU has slots".into())
            })?;
            self.load_into(stream, slot, &adapter.weights.of_shard(self.shard))?;
            self.held.put(slot, adapter.number);
        }
        Ok(())
    }

    fn load_into(
        &mut self,
        stream: &CudaStream,
        slot: usize,
        weights: &AdapterWeights,
    ) -> Result<(), CudaError> {
        for (block, of) in self.blocks.iter().zip(&weights.blocks) {
            for (layer, of) in block.layers().zip(of.layers()) {
                if let Some(layer) = layer {
                    layer.load(stream, slot, of.as_ref(), &mut self.piece)?;
                }
            }
        }
        Ok(())
    }
}

struct AllocateSlots<'a> {
    stream: &'a Arc<CudaStream>,
    slots: usize,
    active: usize,
}

impl PartMap<LayerSpec, TensorSpec> for AllocateSlots<'_> {
    type Layer = Option<LayerSlots>;
    type Plain = ();
    type Error = CudaError;

    fn layer(&mut self, layer: LayerSpec) -> Result<Option<LayerSlots>, CudaError> {
        let Some(shape) = SlotShape::of(&layer, self.active) else {
            return Ok(None);
        };
        let [a, b] = shape.lengths().map(|len| self.slots * len);
        Ok(Some(LayerSlots {
            shape,
            rotated: 0,
            a: Buffer::zeros(self.stream, a)?,
            b: Buffer::zeros(self.stream, b)?,
        }))
    }

    fn plain(&mut self, _: TensorSpec) -> Result<(), CudaError> {
        Ok(())
    }
}

/// The decoder's blocks with what adapters add to. What they add to a block's projection reads what the block reads: the first of several GPUs that
/// work as one adds all of it.
fn adapted_blocks(
    config: &ModelConfig,
) -> impl Iterator<Item = TextBlock<LayerSpec, TensorSpec>> + use<> {
    let (width, shard) = (config.text.dim, config.text.shard);
    let blocks = config.network().layers.text.blocks.into_iter();
    blocks.map(move |mut block| {
        block.proj.inner = width;
        if !shard.is_first() {
            block.proj.adapter = None;
        }
        block
    })
}

/// Values of A and B of each layer in a slot.
fn lengths(config: &ModelConfig) -> Vec<[usize; 2]> {
    let mut lengths = Vec::new();
    for block in adapted_blocks(config) {
        let shapes = block
            .layers()
            .filter_map(|layer| SlotShape::of(layer, active(config)));
        lengths.extend(shapes.map(|shape| shape.lengths()));
    }
    lengths
}

/// Experts of a row.
fn active(config: &ModelConfig) -> usize {
    config.text.moe.map_or(1, |moe| moe.experts_per_token)
}

fn narrow_values(layout: &TableLayout) -> usize {
    bucket(layout.positions) * ADAPTER_RANK_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::released_config;

    fn layer(rank: usize, [experts, inner, outputs]: [usize; 3]) -> LowRank {
        let values = |count: usize| (0..count).map(|i| bf16::from_f32((1 + i % 100) as f32));
        LowRank {
            rank,
            a: values(experts * rank * inner).collect(),
            b: values(experts * outputs * rank).collect(),
            inner,
            outputs,
        }
    }

    #[test]
    fn lower_ranks_have_zeros_behind_their_own() {
        let shape = SlotShape {
            experts: 2,
            rank: 4,
            inner: 3,
            outputs: 2,
        };
        let low = layer(1, [2, 3, 2]);
        let [of_a, of_b] = shape.lengths();
        let f32s = |values: &[bf16]| values.iter().map(|x| x.to_f32()).collect::<Vec<_>>();
        let stale = |len| vec![bf16::from_f32(77.0); len];
        let (mut a, mut b) = (stale(of_a), stale(of_b));
        shape.write_a(Some(&low), &mut a);
        shape.write_b(Some(&low), &mut b);
        let mut wanted_a = [0.0; 24];
        wanted_a[..3].copy_from_slice(&[1.0, 2.0, 3.0]);
        wanted_a[12..15].copy_from_slice(&[4.0, 5.0, 6.0]);
        assert_eq!(f32s(&a), wanted_a);
        let mut wanted_b = [0.0; 16];
        for (output, value) in [1.0, 2.0, 3.0, 4.0].into_iter().enumerate() {
            wanted_b[output * 4] = value;
        }
        assert_eq!(f32s(&b), wanted_b);
        shape.write_a(None, &mut a);
        assert_eq!(f32s(&a), [0.0; 24]);
    }

    #[test]
    fn slots_of_released_models_take_known_bytes() {
        let of_slot = |config: &ModelConfig| {
            let values: usize = lengths(config).into_iter().flatten().sum();
            values * size_of::<bf16>()
        };
        assert_eq!(of_slot(&ModelConfig::default()), 50_331_648);
        let moondream3 = released_config("moondream3.1").unwrap();
        assert_eq!(of_slot(&moondream3), 78_643_200);
    }
}
