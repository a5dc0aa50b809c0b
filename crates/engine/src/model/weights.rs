//! The tensors of a model by their place in the network, every shape checked against the configuration.

use std::convert::Infallible;

use super::{
    family::ModelConfig,
    source::{TensorSource, listed},
    tensor::{Tensor, TensorData, WeightsError},
};
use crate::network::{
    Network, PartMap, TextMlp,
    format::Number,
    layers::LargeLayer,
    shard::{Cut, Divided, Shard},
    spec::{LayerSpec, TensorSpec},
};

/// `y = x·Wᵀ + b`.
#[derive(Clone, Debug)]
pub struct LinearWeights {
    /// `[out, in]`, row-major; of experts `[experts, out, in]`.
    pub weight: Tensor,
    /// Factors of the weight's rows, `[experts, out]`: of weights in [`Number::E4m3`] alone.
    pub row_scales: Option<Tensor>,
    /// `[out]`; empty for experts, which have none.
    pub bias: Tensor,
    /// The large layer that it is, or is a part of.
    pub large: Option<LargeLayer>,
}

impl LinearWeights {
    /// True for the weights of several experts.
    pub fn is_experts(&self) -> bool {
        self.weight.shape.len() == 3
    }

    /// What a shard has of it.
    fn of_shard(self, cut: Cut, shard: Shard) -> Self {
        match cut {
            Cut::Whole => self,
            // A scale and a bias belong to each output.
            Cut::Outputs(parts) => Self {
                weight: self.weight.of_shard(shard, 1, parts),
                row_scales: self.row_scales.map(|s| s.of_shard(shard, 0, parts)),
                bias: self.bias.of_shard(shard, 0, parts),
                large: self.large,
            },
            Cut::Inner(parts) => Self {
                weight: self.weight.of_shard(shard, 0, parts),
                bias: match shard.is_first() {
                    true => self.bias,
                    false => self.bias.zeroed(),
                },
                ..self
            },
        }
    }

    /// Outputs of the layer, or of one of its experts.
    pub fn outputs(&self) -> usize {
        self.weight.shape.iter().rev().nth(1).copied().unwrap_or(0)
    }
}

pub type Weights = Network<LinearWeights, Tensor>;

impl Weights {
    /// Reads every tensor of `config` from `source`. All that are missing or odd are named in one error.
    pub fn load(config: &ModelConfig, source: &mut dyn TensorSource) -> Result<Self, WeightsError> {
        let mut loader = Loader {
            source,
            missing: Vec::new(),
            odd: Vec::new(),
            other_shapes: Vec::new(),
        };
        let weights = config.network().layers.try_map(&mut loader)?;
        match loader.problem() {
            None => Ok(weights),
            Some(problem) => Err(WeightsError::Unusable(problem)),
        }
    }

    /// What a shard has of them.
    pub fn of_shard(mut self, shard: Shard) -> Self {
        if !shard.is_whole() {
            let blocks = self.text.blocks.into_iter();
            let blocks = blocks.map(|block| {
                let Ok(block) = block.with_cuts().try_map(&mut CutWeights(shard));
                block
            });
            self.text.blocks = blocks.collect();
        }
        self
    }

    /// True for a Moondream 3.
    pub fn has_experts(&self) -> bool {
        self.number_of_experts().is_some()
    }

    /// What the weights of experts are stored in, where there are some.
    pub fn number_of_experts(&self) -> Option<Number> {
        self.text.blocks.iter().find_map(|block| match &block.mlp {
            TextMlp::Experts(experts) => Some(experts.up.weight.number()),
            TextMlp::Dense(_) => None,
        })
    }
}

struct CutWeights(Shard);

impl PartMap<Divided<LinearWeights>, Divided<Tensor>> for CutWeights {
    type Layer = LinearWeights;
    type Plain = Tensor;
    type Error = Infallible;

    fn layer(&mut self, layer: Divided<LinearWeights>) -> Result<LinearWeights, Infallible> {
        Ok(layer.part.of_shard(layer.cut, self.0))
    }

    fn plain(&mut self, tensor: Divided<Tensor>) -> Result<Tensor, Infallible> {
        let whole = tensor.part;
        Ok(match tensor.cut {
            Cut::Whole => whole,
            Cut::Outputs(parts) => whole.of_shard(self.0, 1, parts),
            Cut::Inner(parts) => whole.of_shard(self.0, 0, parts),
        })
    }
}

/// Loads all tensors. One that cannot be used is noted and replaced by an empty one, so that the error names all of them.
struct Loader<'a> {
    source: &'a mut dyn TensorSource,
    missing: Vec<String>,
    /// Sentences about tensors of other formats or in wrong places.
    odd: Vec<String>,
    /// The same about other shapes.
    other_shapes: Vec<String>,
}

impl Loader<'_> {
    fn tensor(&mut self, name: &str, expected: &[usize]) -> Result<Tensor, WeightsError> {
        let tensor = self.tensor_or_experts(name, expected)?;
        if let TensorData::Encoded {
            format: Number::E4m3,
            ..
        } = tensor.data
        {
            self.odd.push(format!(
                "tensor {name} holds F8_E4M3, which only experts may; use another file of the model"
            ));
        }
        Ok(tensor)
    }

    /// It may be in 8 bits.
    fn tensor_or_experts(
        &mut self,
        name: &str,
        expected: &[usize],
    ) -> Result<Tensor, WeightsError> {
        let tensor = match self.source.tensor(name, expected) {
            Ok(tensor) => tensor,
            Err(WeightsError::NotFound(name)) => {
                self.missing.push(name.clone());
                return Ok(Tensor::empty(name));
            }
            Err(WeightsError::Odd(text)) => {
                self.odd.push(text);
                return Ok(Tensor::empty(name.to_owned()));
            }
            Err(error) => return Err(error),
        };
        if tensor.shape != expected {
            self.other_shapes.push(format!(
                "tensor {} has shape {:?}, config.json needs {expected:?}",
                tensor.name, tensor.shape
            ));
        }
        Ok(tensor)
    }

    /// The tensor from its halves, where the file has no whole one.
    fn joined(&mut self, whole: &TensorSpec, halves: &[String; 2]) -> Result<Tensor, WeightsError> {
        let TensorSpec { name, shape, .. } = whole;
        let found = self.source.tensor(name, shape);
        let is_missing = matches!(&found, Err(WeightsError::NotFound(_)));
        let mut half_shape = shape.clone();
        half_shape[0] /= 2;
        let mut half = |name: &String| self.source.tensor(name, &half_shape);
        let has_half = is_missing && halves.iter().any(|name| half(name).is_ok());
        if !has_half {
            return self.tensor(name, shape);
        }
        let mut values = Vec::with_capacity(whole.values());
        for name in halves {
            let half = self.tensor(name, &half_shape)?;
            if half.shape == half_shape {
                values.extend(half.into_f32()?);
            }
        }
        Ok(Tensor {
            name: name.clone(),
            shape: shape.clone(),
            data: TensorData::F32(values),
        })
    }

    /// What is wrong with all tensors together.
    fn problem(&self) -> Option<String> {
        let origin = self.source.origin();
        let mut problems = Vec::new();
        if !self.missing.is_empty() {
            problems.push(format!(
                "{origin} lacks {} tensors that its config.json needs: {}",
                self.missing.len(),
                listed(&self.missing, ", ")
            ));
        }
        if !self.odd.is_empty() {
            problems.push(format!("{origin}: {}", listed(&self.odd, "; ")));
        }
        if !self.other_shapes.is_empty() {
            problems.push(format!(
                "{origin}: {}; the two files belong to different models",
                listed(&self.other_shapes, "; ")
            ));
        }
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

impl PartMap<LayerSpec, TensorSpec> for Loader<'_> {
    type Layer = LinearWeights;
    type Plain = Tensor;
    type Error = WeightsError;

    fn layer(&mut self, layer: LayerSpec) -> Result<LinearWeights, WeightsError> {
        let name = &layer.name;
        let weight = format!("{name}.weight");
        let weight = match layer.count {
            1 => self.tensor(&weight, &layer.shape())?,
            _ => self.tensor_or_experts(&weight, &layer.shape())?,
        };
        let row_scales = match weight.data {
            TensorData::Encoded {
                format: Number::E4m3,
                ..
            } if layer.count > 1 => {
                let shape = [layer.count, layer.outputs];
                Some(self.tensor(&format!("{name}.row_scales"), &shape)?)
            }
            _ => None,
        };
        let bias = format!("{name}.bias");
        let bias = match layer.has_bias {
            true => self.tensor(&bias, &[layer.outputs])?,
            false => Tensor::empty(bias),
        };
        Ok(LinearWeights {
            weight,
            row_scales,
            bias,
            large: layer.large,
        })
    }

    fn plain(&mut self, tensor: TensorSpec) -> Result<Tensor, WeightsError> {
        match &tensor.halves {
            Some(halves) => self.joined(&tensor, halves),
            None => self.tensor(&tensor.name, &tensor.shape),
        }
    }
}

#[cfg(test)]
mod tests;
