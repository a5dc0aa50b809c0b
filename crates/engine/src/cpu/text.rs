//! The decoder: image prefixes in both directions, then rows over the paged cache (docs/moondream.md section 6).

use std::ops::Range;

use super::{
    attention::{AttentionHeads, attend_past, attend_within},
    gemm::PackedLinear,
    kv::{KvCache, KvShape},
    ops::{IntoF32, MakeLinear, gelu},
    rope::Rope,
};
use crate::{
    model::{LinearWeights, ModelConfig, Tensor, TextConfig, WeightsError},
    network::{Text, TextBlock},
    scheduler::backend::KvTable,
};

/// Consecutive positions of one sequence inside of a batch.
#[derive(Clone, Debug)]
pub(super) struct PositionSpan<'a> {
    /// The positions; everything before them is in the cache.
    pub positions: Range<usize>,
    /// Where their keys and values lie.
    pub kv: &'a KvTable,
    /// What they attend to.
    pub sees: Sees,
}

/// What the positions of a span attend to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sees {
    /// Each other, in both directions: an image prefix, which has no past.
    EachOther,
    /// Themselves and all before them.
    Past,
}

/// What happens to the hidden states of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockOutputs {
    /// The next block or a decision reads them.
    Hidden,
    /// They are discarded: only keys and values are made.
    KvOnly,
}

/// The decoder's weights in f32.
#[derive(Debug)]
pub(super) struct TextModel {
    heads: AttentionHeads,
    rope: Rope,
    layers: Text<PackedLinear, Vec<f32>>,
    /// The two rows of `lm_head` that structured answers compare: going on with a coordinate, and the end.
    on_or_end: PackedLinear,
}

impl TextModel {
    /// Converts the weights, dropping each source as soon as it is converted; `linear` makes the layers.
    pub fn new(
        config: &ModelConfig,
        weights: Text<LinearWeights, Tensor>,
        linear: MakeLinear<'_>,
    ) -> Result<Self, WeightsError> {
        let ids = [config.tokenizer.coord_id, config.tokenizer.eos_id].map(|id| id as usize);
        let on_or_end = rows_of(&weights.lm_head, &ids)?;
        Ok(Self {
            heads: heads(&config.text),
            rope: Rope::new(config.text.max_context),
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
    pub fn kv_shape(config: &TextConfig, pages: usize, page_tokens: usize) -> KvShape {
        KvShape {
            pages,
            page_tokens,
            layers: config.n_layers,
            heads: heads(config),
        }
    }

    pub fn blocks(&self) -> usize {
        self.layers.blocks.len()
    }

    /// The embedding of a token; the id is below the vocabulary's size.
    pub fn embedding(&self, id: u32) -> &[f32] {
        &self.layers.wte[id as usize * self.width()..][..self.width()]
    }

    /// Runs all blocks over `hidden`, `[positions of all spans, width]`, in place, and writes the positions' keys and
    /// values. With [`BlockOutputs::KvOnly`] `hidden` is meaningless afterwards.
    pub fn forward(
        &self,
        hidden: &mut [f32],
        spans: &[PositionSpan<'_>],
        cache: &mut KvCache,
        want: BlockOutputs,
    ) {
        for layer in 0..self.blocks() {
            let last = layer + 1 == self.blocks();
            let want = if last { want } else { BlockOutputs::Hidden };
            self.block(layer, hidden, spans, cache, want);
        }
    }

    /// Runs one block: `hidden + attention(n) + mlp(n)` with `n = norm(hidden)`.
    pub fn block(
        &self,
        layer: usize,
        hidden: &mut [f32],
        spans: &[PositionSpan<'_>],
        cache: &mut KvCache,
        want: BlockOutputs,
    ) {
        let block = &self.layers.blocks[layer];
        let normed = block.ln.forward(hidden);
        let mut qkv = block.qkv.forward(&normed);
        let positions: Vec<usize> = spans
            .iter()
            .flat_map(|span| span.positions.clone())
            .collect();
        self.rope.turn(&mut qkv, &positions, self.heads.dim);
        for (span, qkv) in spans.iter().zip(self.split(&qkv, spans)) {
            let width = self.width();
            let rows = qkv.chunks_exact(3 * width);
            let rows = rows.map(|row| (&row[width..2 * width], &row[2 * width..]));
            cache.write(layer, span.kv, span.positions.start, rows);
        }
        if want == BlockOutputs::KvOnly {
            return;
        }

        let mut attended = Vec::with_capacity(hidden.len());
        for (span, qkv) in spans.iter().zip(self.split(&qkv, spans)) {
            attended.extend(self.attend(layer, qkv, span, cache));
        }
        drop(qkv);
        block.proj.add_to(hidden, &attended);
        let mut inner = block.mlp.fc1.forward(&normed);
        gelu(&mut inner);
        block.mlp.fc2.add_to(hidden, &inner);
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
        self.heads.width()
    }

    fn attend(
        &self,
        layer: usize,
        qkv: &[f32],
        span: &PositionSpan<'_>,
        cache: &KvCache,
    ) -> Vec<f32> {
        match span.sees {
            Sees::EachOther => attend_within(qkv, span.positions.len(), self.heads),
            Sees::Past => {
                let width = self.width();
                let mut queries = Vec::with_capacity(qkv.len() / 3);
                for row in qkv.chunks_exact(3 * width) {
                    queries.extend_from_slice(&row[..width]);
                }
                let seen = span.positions.end;
                let past = |head| cache.segments(layer, head, span.kv, seen);
                attend_past(&queries, seen, self.heads, past)
            }
        }
    }

    /// The rows of `qkv` that belong to each span.
    fn split<'a>(&self, qkv: &'a [f32], spans: &[PositionSpan<'_>]) -> Vec<&'a [f32]> {
        let mut rest = qkv;
        let mut parts = Vec::with_capacity(spans.len());
        for span in spans {
            let (part, behind) = rest.split_at(span.positions.len() * 3 * self.width());
            parts.push(part);
            rest = behind;
        }
        parts
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
