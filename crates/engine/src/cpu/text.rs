//! The decoder: image prefixes in both directions, then rows over the paged cache (docs/moondream.md section 6).

use std::ops::Range;

use super::{
    attention::{AttentionHeads, attend_past, attend_within},
    gemm::PackedLinear,
    kv::{KvCache, KvShape},
    ops::{LayerNorm, MakeLinear, gelu},
    rope::Rope,
};
use crate::{
    model::{self, LargeLayer, ModelConfig, TextConfig, TextWeights, WeightsError},
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
    /// Embedding table, `[vocab, width]`.
    wte: Vec<f32>,
    blocks: Vec<DecoderBlock>,
    post_ln: LayerNorm,
    lm_head: PackedLinear,
    /// The two rows of `lm_head` that structured answers compare: going on with a coordinate, and the end.
    on_or_end: PackedLinear,
}

#[derive(Debug)]
struct DecoderBlock {
    ln: LayerNorm,
    qkv: PackedLinear,
    proj: PackedLinear,
    fc1: PackedLinear,
    fc2: PackedLinear,
}

impl DecoderBlock {
    /// Block `nth`.
    fn new(
        nth: usize,
        weights: model::TextBlock,
        large: MakeLinear<'_>,
    ) -> Result<Self, WeightsError> {
        let [qkv_fc1, proj_fc2] = LargeLayer::of_decoder(nth);
        Ok(Self {
            ln: LayerNorm::new(weights.ln)?,
            qkv: large(qkv_fc1, weights.qkv)?,
            proj: large(proj_fc2, weights.proj)?,
            fc1: large(qkv_fc1, weights.fc1)?,
            fc2: large(proj_fc2, weights.fc2)?,
        })
    }
}

impl TextModel {
    /// Converts the weights, dropping each source as soon as it is converted; `large` makes the layers of the blocks.
    pub fn new(
        config: &ModelConfig,
        weights: TextWeights,
        large: MakeLinear<'_>,
    ) -> Result<Self, WeightsError> {
        let heads = heads(&config.text);
        let blocks = weights.blocks.into_iter().enumerate();
        let blocks: Result<_, WeightsError> = blocks
            .map(|(nth, block)| DecoderBlock::new(nth, block, large))
            .collect();
        let (lm_weight, lm_bias) = (
            weights.lm_head.weight.into_f32()?,
            weights.lm_head.bias.into_f32()?,
        );
        let ids = [config.tokenizer.coord_id, config.tokenizer.eos_id].map(|id| id as usize);
        let rows = ids.map(|id| &lm_weight[id * heads.width()..][..heads.width()]);
        Ok(Self {
            heads,
            rope: Rope::new(config.text.max_context),
            wte: weights.wte.into_f32()?,
            blocks: blocks?,
            post_ln: LayerNorm::new(weights.post_ln)?,
            on_or_end: PackedLinear::new(&rows.concat(), ids.map(|id| lm_bias[id]).to_vec()),
            lm_head: PackedLinear::new(&lm_weight, lm_bias),
        })
    }

    /// Replaces all blocks by this one, block `nth` of its model.
    pub fn set_block(
        &mut self,
        nth: usize,
        weights: model::TextBlock,
        large: MakeLinear<'_>,
    ) -> Result<(), WeightsError> {
        self.blocks = vec![DecoderBlock::new(nth, weights, large)?];
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

    pub fn layers(&self) -> usize {
        self.blocks.len()
    }

    /// The embedding of a token; the id is below the vocabulary's size.
    pub fn embedding(&self, id: u32) -> &[f32] {
        &self.wte[id as usize * self.width()..][..self.width()]
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
        for layer in 0..self.layers() {
            let last = layer + 1 == self.layers();
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
        let block = &self.blocks[layer];
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
        let mut inner = block.fc1.forward(&normed);
        gelu(&mut inner);
        block.fc2.add_to(hidden, &inner);
    }

    /// `[rows, width]` hidden states after the last block to `[rows, width]` inputs of the vocabulary head.
    pub fn head_inputs(&self, hidden: &[f32]) -> Vec<f32> {
        self.post_ln.forward(hidden)
    }

    /// Logits of the whole vocabulary, `[rows, vocab]`, from [`TextModel::head_inputs`].
    pub fn logits(&self, head_inputs: &[f32]) -> Vec<f32> {
        self.lm_head.forward(head_inputs)
    }

    /// Logits of the coordinate and of the end alone, `[rows, 2]`, from [`TextModel::head_inputs`].
    pub fn on_or_end_logits(&self, head_inputs: &[f32]) -> Vec<f32> {
        self.on_or_end.forward(head_inputs)
    }

    /// Size of the vocabulary.
    pub fn vocab(&self) -> usize {
        self.lm_head.outputs()
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
