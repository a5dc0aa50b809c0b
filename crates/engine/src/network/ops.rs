//! What a device does for the order of computation in [`super::forward`].
//!
//! Rows between layers are the device's own: vectors on a CPU, places in buffers on a GPU. A layer knows in which format it reads rows, so
//! what makes rows for it is given the layer.

use super::{Experts, Mlp, Norm, TextBlock, VisionBlock};

/// What a block of the decoder computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderRun {
    /// The block's part of the cache.
    pub layer: usize,
    /// Of all rows, of which each makes keys and values, the first ones whose hidden states are read afterwards.
    pub outputs: usize,
}

/// The operations of all blocks.
pub trait Ops {
    /// Weights of a layer.
    type Layer;
    /// Values of another tensor.
    type Plain;
    /// `[rows, width]`: blocks add to them.
    type Hidden;
    /// Between two layers.
    type Rows;
    type Error;

    /// Layer norm of all hidden states, for `reader`.
    fn normed(
        &mut self,
        hidden: &Self::Hidden,
        norm: &Norm<Self::Plain>,
        reader: &Self::Layer,
    ) -> Result<Self::Rows, Self::Error>;

    /// The first layer of an MLP with its GELU, of the first `rows` rows, for the second.
    fn inner(
        &mut self,
        x: &Self::Rows,
        mlp: &Mlp<Self::Layer>,
        rows: usize,
    ) -> Result<Self::Rows, Self::Error>;

    /// Adds products of rows with their layers to the first hidden states. A device may compute them as one.
    fn add<const N: usize>(
        &mut self,
        hidden: &mut Self::Hidden,
        terms: [(&Self::Rows, &Self::Layer); N],
    ) -> Result<(), Self::Error>;
}

/// Those of the vision encoder.
pub trait EncoderOps: Ops {
    /// Attention of all patches of a crop to each other, for the block's projection.
    fn attend(
        &mut self,
        x: &Self::Rows,
        block: &VisionBlock<Self::Layer, Self::Plain>,
    ) -> Result<Self::Rows, Self::Error>;
}

/// Those of the decoder. What the adapters of rows add is a part of [`Self::qkv`], [`Self::adapted_inner`] and [`Self::add_experts`], and
/// [`Self::add_adapters`] adds the rest; a device without adapters leaves the defaults.
pub trait DecoderOps: Ops {
    /// Queries, keys and values, turned by their positions; keys and values are in the cache of the block `layer` afterwards.
    fn qkv(
        &mut self,
        x: &Self::Rows,
        layer: usize,
        block: &TextBlock<Self::Layer, Self::Plain>,
    ) -> Result<Self::Rows, Self::Error>;

    /// Attention of the first `rows` rows to what they see in that cache, for `reader`.
    fn attend(
        &mut self,
        qkv: Self::Rows,
        layer: usize,
        reader: &Self::Layer,
        rows: usize,
    ) -> Result<Self::Rows, Self::Error>;

    /// [`Ops::inner`] of the first `run.outputs` rows.
    fn adapted_inner(
        &mut self,
        x: &Self::Rows,
        mlp: &Mlp<Self::Layer>,
        run: DecoderRun,
    ) -> Result<Self::Rows, Self::Error> {
        self.inner(x, mlp, run.outputs)
    }

    /// Adds what adapters have for the block's projection and for the second layer of its MLP. The one of the projection reads what the
    /// block reads, `x`, and not what was attended: variants of Moondream 2 are trained so. The other one reads `inner`.
    fn add_adapters(
        &mut self,
        _hidden: &mut Self::Hidden,
        [_x, _inner]: [&Self::Rows; 2],
        _run: DecoderRun,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Adds what the experts of the first `run.outputs` rows make of them to the first hidden states, of which `x` is the layer norm. It comes
    /// before all else that is added in the block, so a device may norm them again in the format that experts read.
    fn add_experts(
        &mut self,
        hidden: &mut Self::Hidden,
        x: &Self::Rows,
        experts: &Experts<Self::Layer>,
        run: DecoderRun,
    ) -> Result<(), Self::Error>;

    /// At the end of a block: adds to the first `run.outputs` hidden states what all ranks have of it, so that all have the same bits. A device
    /// that has the whole network has added it already.
    fn sum_ranks(
        &mut self,
        _hidden: &mut Self::Hidden,
        _run: DecoderRun,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Behind the last block: adds what a device has left to the next layer norm.
    fn finish(&mut self, _hidden: &mut Self::Hidden) -> Result<(), Self::Error> {
        Ok(())
    }
}
