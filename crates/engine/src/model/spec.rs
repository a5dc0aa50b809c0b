//! What a network is made of, before its weights: names and shapes of its tensors.

use super::moondream2::LargeLayer;
use crate::network::Network;

pub type NetworkSpec = Network<LayerSpec, TensorSpec>;

/// A layer that multiplies: a weight `[outputs, inner]` and a bias `[outputs]`.
#[derive(Clone, Debug)]
pub struct LayerSpec {
    /// Of its tensors, without `.weight` and `.bias`.
    pub name: String,
    pub outputs: usize,
    pub inner: usize,
    /// The large layer that it is, or is a part of.
    pub large: Option<LargeLayer>,
}

/// A tensor that is not multiplied as a layer.
#[derive(Clone, Debug)]
pub struct TensorSpec {
    pub name: String,
    pub shape: Vec<usize>,
}

impl LayerSpec {
    pub(super) fn large(self, layer: LargeLayer) -> Self {
        Self {
            large: Some(layer),
            ..self
        }
    }

    /// Number of its weights.
    pub fn values(&self) -> usize {
        self.outputs * self.inner
    }
}

impl TensorSpec {
    /// Number of its values.
    pub fn values(&self) -> usize {
        self.shape.iter().product()
    }
}
