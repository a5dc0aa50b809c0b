//! The decoder: image prefixes in both directions, then rows over the paged cache (docs/moondream.md section 6).

use std::mem;

use super::{
    adapter::RowAdapters,
    attention::AttentionHeads,
    blocks::{CpuOps, SpanAttention},
    gemm::PackedLinear,
    kv::{KvCache, KvShape},
    ops::{IntoF32, MakeLinear},
    rope::Rope,
    span::PositionSpan,
};
use crate::{
    model::{LinearWeights, ModelConfig, StoredValues, Tensor, TextConfig, WeightsError},
    network::{Text, TextBlock, forward},
    ranks::RankLeft,
};

/// The decoder's weights.
#[derive(Debug)]
pub(super) struct TextModel {
    /// Those of the shard.
    heads: AttentionHeads,
    /// Values of a hidden state.
    width: usize,
    rope: Rope,
    /// As the file has it.
    wte: StoredValues,
    /// Without `wte`.
    pub layers: Text<PackedLinear, Vec<f32>>,
    /// The two rows of `lm_head` that structured answers compare: going on with a coordinate, and the end.
    on_or_end: PackedLinear,
}

impl TextModel {
    /// Converts the weights of the shard that `config` describes, dropping each source as soon as it is converted; `linear` makes the layers.
    pub fn new(
        config: &ModelConfig,
        mut weights: Text<LinearWeights, Tensor>,
        linear: MakeLinear<'_>,
    ) -> Result<Self, WeightsError> {
        let wte = mem::replace(&mut weights.wte, Tensor::empty(String::new()));
        let ids = [config.tokenizer.coord_id, config.tokenizer.eos_id].map(|id| id as usize);
        let on_or_end = rows_of(&weights.lm_head, &ids)?;
        Ok(Self {
            heads: heads(&config.text),
            width: config.text.dim,
            rope: Rope::new(config.network().rope, config.context()),
            wte: wte.into_stored()?,
            layers: weights.try_map(&mut IntoF32(linear))?,
            on_or_end,
        })
    }

    /// Replaces all blocks by this one.
    pub fn set_block(
        &mut self,
        block: TextBlock<LinearWeights, Tensor>,
        linear: MakeLinear<'_>,
    ) -> Result<(), WeightsError> {
        self.layers.blocks = vec![block.try_map(&mut IntoF32(linear))?];
        Ok(())
    }

    /// Shape of a cache for this decoder.
    pub fn kv_shape(&self, pages: usize, page_tokens: usize) -> KvShape {
        KvShape {
            pages,
            page_tokens,
            layers: self.layers.blocks.len(),
            heads: self.heads,
        }
    }

    #[cfg(test)]
    pub fn blocks(&self) -> usize {
        self.layers.blocks.len()
    }

    /// The embedding of a token; the id is below the vocabulary's size.
    pub fn embedding(&self, id: u32) -> Vec<f32> {
        let mut values = vec![0.0; self.width()];
        self.wte.read_f32(id as usize * self.width(), &mut values);
        values
    }

    /// Runs all blocks over `hidden`, `[positions of all spans, width]`, in place, and writes the positions' keys and values. Behind them,
    /// the states of the first `outputs` positions are valid. A rank waits for the others.
    pub fn forward(
        &self,
        hidden: &mut Vec<f32>,
        mut ops: CpuOps<'_, SpanAttention<'_>>,
        outputs: usize,
    ) -> Result<(), RankLeft> {
        let positions = hidden.len() / self.width();
        forward::decode(&mut ops, &self.layers, hidden, [positions, outputs])
    }

    /// What its blocks run with.
    pub fn ops<'a>(
        &'a self,
        spans: &'a [PositionSpan<'a>],
        cache: &'a mut KvCache,
    ) -> CpuOps<'a, SpanAttention<'a>> {
        CpuOps {
            heads: self.heads,
            part: None,
            attention: SpanAttention {
                rope: &self.rope,
                spans,
                cache,
                adapters: RowAdapters::of(spans),
                width: self.width,
            },
            samples: None,
        }
    }

    /// `[rows, width]` hidden states after the last block to `[rows, width]` inputs of the vocabulary head.
    pub fn head_inputs(&self, hidden: &[f32]) -> Vec<f32> {
        self.layers.post_ln.forward(hidden)
    }

    /// Logits of the whole vocabulary, `[rows, vocab]`, from [`TextModel::head_inputs`].
    pub fn logits(&self, head_inputs: &[f32]) -> Vec<f32> {
        self.layers.lm_head.forward(head_inputs)
    }

    /// Logits of the coordinate and of the end alone, `[rows, 2]`, from [`TextModel::head_inputs`].
    pub fn on_or_end_logits(&self, head_inputs: &[f32]) -> Vec<f32> {
        self.on_or_end.forward(head_inputs)
    }

    /// Size of the vocabulary.
    pub fn vocab(&self) -> usize {
        self.layers.lm_head.outputs()
    }

    /// Width of a hidden state.
    pub fn width(&self) -> usize {
        self.width
    }
}

fn heads(config: &TextConfig) -> AttentionHeads {
    AttentionHeads {
        count: config.n_heads,
        dim: config.head_dim(),
    }
}

/// Some outputs of a layer.
fn rows_of(layer: &LinearWeights, outputs: &[usize]) -> Result<PackedLinear, WeightsError> {
    let (weight, bias) = (&layer.weight, layer.bias.to_f32()?);
    let width = weight.len() / bias.len();
    let mut rows = vec![0.0; outputs.len() * width];
    for (row, output) in rows.chunks_exact_mut(width).zip(outputs) {
        weight.read_f32(output * width, row)?;
    }
    let bias = outputs.iter().map(|&output| bias[output]).collect();
    Ok(PackedLinear::new(&rows, bias))
}
