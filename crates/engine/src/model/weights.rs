//! The tensors of a model by their place in the network, every shape checked against the configuration.

use super::{
    family::ModelConfig,
    source::{TensorSource, listed},
    tensor::{Tensor, TensorData, WeightsError},
};
use crate::network::{
    Network, PartMap,
    layers::LargeLayer,
    spec::{LayerSpec, TensorSpec},
};

/// `y = x·Wᵀ + b`.
#[derive(Clone, Debug)]
pub struct LinearWeights {
    /// `[out, in]`, row-major.
    pub weight: Tensor,
    /// `[out]`.
    pub bias: Tensor,
    /// The large layer that it is, or is a part of.
    pub large: Option<LargeLayer>,
}

pub type Weights = Network<LinearWeights, Tensor>;

impl Weights {
    /// Reads every tensor of `config` from `source`. Missing tensors are gathered into one error; the
    /// first wrong shape ends the load.
    pub fn load(config: &ModelConfig, source: &mut dyn TensorSource) -> Result<Self, WeightsError> {
        let mut loader = Loader {
            source,
            missing: Vec::new(),
        };
        let weights = config.network().layers.try_map(&mut loader)?;
        if loader.missing.is_empty() {
            Ok(weights)
        } else {
            Err(WeightsError::Unusable(format!(
                "{} lacks {} tensors that its config.json needs: {}",
                loader.source.origin(),
                loader.missing.len(),
                listed(&loader.missing)
            )))
        }
    }
}

struct Loader<'a> {
    source: &'a mut dyn TensorSource,
    missing: Vec<String>,
}

impl Loader<'_> {
    /// A missing tensor is noted and replaced by an empty one, so that the error names all of them.
    fn tensor(&mut self, name: &str, expected: &[usize]) -> Result<Tensor, WeightsError> {
        let tensor = match self.source.tensor(name, expected) {
            Err(WeightsError::NotFound(name)) => {
                self.missing.push(name.clone());
                return Ok(Tensor {
                    name,
                    shape: vec![0],
                    data: TensorData::F32(Vec::new()),
                });
            }
            other => other?,
        };
        if tensor.shape != expected {
            return Err(WeightsError::Unusable(format!(
                "{}: tensor {} has shape {:?}, config.json needs {expected:?}; the two files belong to different models",
                self.source.origin(),
                tensor.name,
                tensor.shape
            )));
        }
        Ok(tensor)
    }
}

impl PartMap<LayerSpec, TensorSpec> for Loader<'_> {
    type Layer = LinearWeights;
    type Plain = Tensor;
    type Error = WeightsError;

    fn layer(&mut self, layer: LayerSpec) -> Result<LinearWeights, WeightsError> {
        let LayerSpec {
            name,
            outputs,
            inner,
            large,
        } = layer;
        Ok(LinearWeights {
            weight: self.tensor(&format!("{name}.weight"), &[outputs, inner])?,
            bias: self.tensor(&format!("{name}.bias"), &[outputs])?,
            large,
        })
    }

    fn plain(&mut self, tensor: TensorSpec) -> Result<Tensor, WeightsError> {
        self.tensor(&tensor.name, &tensor.shape)
    }
}

#[cfg(test)]
mod tests;
