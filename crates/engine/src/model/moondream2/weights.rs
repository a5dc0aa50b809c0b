//! The tensors of a Moondream 2 by their place in the network, every shape checked against the configuration.
//! All linear weights are `[out, in]`, row-major (docs/moondream.md section 2).

use super::config::{ModelConfig, RegionConfig, TextConfig, VisionConfig};
use crate::model::{
    source::{TensorSource, WeightsError, listed},
    tensor::{Tensor, TensorData},
};

/// `y = x·Wᵀ + b`.
#[derive(Clone, Debug)]
pub struct LinearWeights {
    /// `[out, in]`.
    pub weight: Tensor,
    /// `[out]`.
    pub bias: Tensor,
}

/// Scale and shift of a layer norm.
#[derive(Clone, Debug)]
pub struct NormWeights {
    /// `[dim]`.
    pub weight: Tensor,
    /// `[dim]`.
    pub bias: Tensor,
}

#[derive(Clone, Debug)]
pub struct Weights {
    pub text: TextWeights,
    /// The vision encoder and its projection.
    pub vision: VisionWeights,
    pub region: RegionWeights,
}

/// The decoder; D is `text.dim`, F `text.ff_dim`, V `text.vocab_size`.
#[derive(Clone, Debug)]
pub struct TextWeights {
    /// Embedding table, `[V, D]`.
    pub wte: Tensor,
    /// One for each layer.
    pub blocks: Vec<TextBlock>,
    /// Before `lm_head`.
    pub post_ln: NormWeights,
    /// `[V, D]`.
    pub lm_head: LinearWeights,
}

/// A parallel block: attention and MLP read the same layer norm.
#[derive(Clone, Debug)]
pub struct TextBlock {
    /// `[D]`.
    pub ln: NormWeights,
    /// `[3D, D]`, rows of q, then k, then v, head by head in each.
    pub qkv: LinearWeights,
    /// `[D, D]`.
    pub proj: LinearWeights,
    /// `[F, D]`.
    pub fc1: LinearWeights,
    /// `[D, F]`.
    pub fc2: LinearWeights,
}

/// The vision encoder and its projection; E is `vision.enc_dim`, F `vision.enc_ff_dim`, P `vision.proj_inner_dim`,
/// T the image tokens.
#[derive(Clone, Debug)]
pub struct VisionWeights {
    /// `[E, 3·patch·patch]`; a patch is flattened channel, row, column.
    pub patch_emb: LinearWeights,
    /// `[1, T, E]`.
    pub pos_emb: Tensor,
    /// One for each layer.
    pub blocks: Vec<VisionBlock>,
    /// `[E]`.
    pub post_ln: NormWeights,
    /// `[P, 2E]`: global features, then pooled local ones.
    pub proj_fc1: LinearWeights,
    /// `[D, P]`.
    pub proj_fc2: LinearWeights,
}

/// A pre-norm transformer block.
#[derive(Clone, Debug)]
pub struct VisionBlock {
    /// Before attention, `[E]`.
    pub ln1: NormWeights,
    /// `[3E, E]`, rows of q, then k, then v, head by head in each.
    pub qkv: LinearWeights,
    /// `[E, E]`.
    pub proj: LinearWeights,
    /// Before the MLP, `[E]`.
    pub ln2: NormWeights,
    /// `[F, E]`.
    pub fc1: LinearWeights,
    /// `[E, F]`.
    pub fc2: LinearWeights,
}

/// Coordinates and sizes; C is `region.coord_feat_dim`, S `region.size_feat_dim`, R `region.inner_dim`.
#[derive(Clone, Debug)]
pub struct RegionWeights {
    /// Frequencies, `[1, C/2]`.
    pub coord_features: Tensor,
    /// Frequencies, `[2, S/2]`.
    pub size_features: Tensor,
    /// `[D, C]`.
    pub coord_encoder: LinearWeights,
    /// `[R, D]`.
    pub coord_fc1: LinearWeights,
    /// `[1024, R]`.
    pub coord_fc2: LinearWeights,
    /// `[D, S]`.
    pub size_encoder: LinearWeights,
    /// `[R, D]`.
    pub size_fc1: LinearWeights,
    /// `[2048, R]`: width bins, then height bins.
    pub size_fc2: LinearWeights,
}

impl Weights {
    /// Reads every tensor of `config` from `source`. Missing tensors are gathered into one error; the
    /// first wrong shape ends the load.
    pub fn load(config: &ModelConfig, source: &mut dyn TensorSource) -> Result<Self, WeightsError> {
        config.family.load_weights(config, source)
    }
}

pub(super) fn load(
    config: &ModelConfig,
    source: &mut dyn TensorSource,
) -> Result<Weights, WeightsError> {
    let mut loader = Loader {
        source,
        missing: Vec::new(),
    };
    let weights = Weights {
        text: text(&mut loader, &config.text)?,
        vision: vision(&mut loader, &config.vision, config.image_tokens())?,
        region: region(&mut loader, &config.region)?,
    };
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

    fn linear(
        &mut self,
        name: &str,
        out: usize,
        input: usize,
    ) -> Result<LinearWeights, WeightsError> {
        Ok(LinearWeights {
            weight: self.tensor(&format!("{name}.weight"), &[out, input])?,
            bias: self.tensor(&format!("{name}.bias"), &[out])?,
        })
    }

    fn norm(&mut self, name: &str, dim: usize) -> Result<NormWeights, WeightsError> {
        Ok(NormWeights {
            weight: self.tensor(&format!("{name}.weight"), &[dim])?,
            bias: self.tensor(&format!("{name}.bias"), &[dim])?,
        })
    }
}

fn text(loader: &mut Loader, config: &TextConfig) -> Result<TextWeights, WeightsError> {
    let (dim, ff, vocab) = (config.dim, config.ff_dim, config.vocab_size);
    let block = |loader: &mut Loader, i: usize| {
        let at = |part: &str| format!("text.blocks.{i}.{part}");
        Ok(TextBlock {
            ln: loader.norm(&at("ln"), dim)?,
            qkv: loader.linear(&at("attn.qkv"), 3 * dim, dim)?,
            proj: loader.linear(&at("attn.proj"), dim, dim)?,
            fc1: loader.linear(&at("mlp.fc1"), ff, dim)?,
            fc2: loader.linear(&at("mlp.fc2"), dim, ff)?,
        })
    };
    Ok(TextWeights {
        wte: loader.tensor("text.wte", &[vocab, dim])?,
        blocks: (0..config.n_layers)
            .map(|i| block(loader, i))
            .collect::<Result<_, WeightsError>>()?,
        post_ln: loader.norm("text.post_ln", dim)?,
        lm_head: loader.linear("text.lm_head", vocab, dim)?,
    })
}

fn vision(
    loader: &mut Loader,
    config: &VisionConfig,
    image_tokens: usize,
) -> Result<VisionWeights, WeightsError> {
    let (dim, ff, inner) = (config.enc_dim, config.enc_ff_dim, config.proj_inner_dim);
    let block = |loader: &mut Loader, i: usize| {
        let at = |part: &str| format!("vision.blocks.{i}.{part}");
        Ok(VisionBlock {
            ln1: loader.norm(&at("ln1"), dim)?,
            qkv: loader.linear(&at("attn.qkv"), 3 * dim, dim)?,
            proj: loader.linear(&at("attn.proj"), dim, dim)?,
            ln2: loader.norm(&at("ln2"), dim)?,
            fc1: loader.linear(&at("mlp.fc1"), ff, dim)?,
            fc2: loader.linear(&at("mlp.fc2"), dim, ff)?,
        })
    };
    Ok(VisionWeights {
        patch_emb: loader.linear("vision.patch_emb", dim, config.patch_values())?,
        pos_emb: loader.tensor("vision.pos_emb", &[1, image_tokens, dim])?,
        blocks: (0..config.enc_n_layers)
            .map(|i| block(loader, i))
            .collect::<Result<_, WeightsError>>()?,
        post_ln: loader.norm("vision.post_ln", dim)?,
        proj_fc1: loader.linear("vision.proj_mlp.fc1", inner, 2 * dim)?,
        proj_fc2: loader.linear("vision.proj_mlp.fc2", config.proj_out_dim, inner)?,
    })
}

fn region(loader: &mut Loader, config: &RegionConfig) -> Result<RegionWeights, WeightsError> {
    let (dim, inner) = (config.dim, config.inner_dim);
    let (coord, size) = (config.coord_feat_dim, config.size_feat_dim);
    Ok(RegionWeights {
        coord_features: loader.tensor("region.coord_features", &[1, coord / 2])?,
        size_features: loader.tensor("region.size_features", &[2, size / 2])?,
        coord_encoder: loader.linear("region.coord_encoder", dim, coord)?,
        coord_fc1: loader.linear("region.coord_decoder.fc1", inner, dim)?,
        coord_fc2: loader.linear("region.coord_decoder.fc2", config.coord_out_dim, inner)?,
        size_encoder: loader.linear("region.size_encoder", dim, size)?,
        size_fc1: loader.linear("region.size_decoder.fc1", inner, dim)?,
        size_fc2: loader.linear("region.size_decoder.fc2", config.size_out_dim, inner)?,
    })
}

#[cfg(test)]
mod tests;
