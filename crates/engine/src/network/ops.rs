//! What a device does for the order of computation in [`super::forward`].
//!
//! Rows between layers are the device's own: vectors on a CPU, places in buffers on a GPU. A layer knows in which format it reads rows, so
//! what makes rows for it is given the layer. Operations on `rows` rows take the first ones.

use super::{Mlp, Norm};

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

    /// Layer norm of hidden states, for `reader`.
    fn normed(
        &mut self,
        hidden: &Self::Hidden,
        norm: &Norm<Self::Plain>,
        reader: &Self::Layer,
        rows: usize,
    ) -> Result<Self::Rows, Self::Error>;

    /// Queries, keys and values of normed rows.
    fn qkv(
        &mut self,
        x: &Self::Rows,
        layer: &Self::Layer,
        rows: usize,
    ) -> Result<Self::Rows, Self::Error>;

    /// The first layer of an MLP with its GELU, for the second.
    fn inner(
        &mut self,
        x: &Self::Rows,
        mlp: &Mlp<Self::Layer>,
        rows: usize,
    ) -> Result<Self::Rows, Self::Error>;

    /// Adds the products of some rows with their layers. A device may compute them as one.
    fn add<const N: usize>(
        &mut self,
        hidden: &mut Self::Hidden,
        terms: [(&Self::Rows, &Self::Layer); N],
        rows: usize,
    ) -> Result<(), Self::Error>;
}

/// Those of the vision encoder.
pub trait EncoderOps: Ops {
    /// Attention of all patches of a crop to each other, for `reader`.
    fn attend(&mut self, qkv: Self::Rows, reader: &Self::Layer) -> Result<Self::Rows, Self::Error>;
}

/// Those of the decoder.
pub trait DecoderOps: Ops {
    /// Rotates queries and keys by their positions, and writes keys and values to the cache of a block.
    fn store(&mut self, layer: usize, qkv: &mut Self::Rows) -> Result<(), Self::Error>;

    /// Attention of some rows to all that they see in the cache of a block, for `reader`.
    fn attend(
        &mut self,
        layer: usize,
        qkv: Self::Rows,
        reader: &Self::Layer,
        rows: usize,
    ) -> Result<Self::Rows, Self::Error>;
}
