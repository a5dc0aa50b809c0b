//! The order of computation, once for all devices (docs/moondream.md sections 5 and 6).
//!
//! Not here: what is in front of the blocks (patches, embeddings) and behind them (norms, heads, decisions), which are a few operations of
//! a device each.

use super::{
    Text, TextBlock, TextMlp, Vision, VisionBlock,
    ops::{DecoderOps, DecoderRun, EncoderOps},
};

/// Runs the blocks of the encoder over `rows` patches.
pub fn encode<O: EncoderOps>(
    ops: &mut O,
    vision: &Vision<O::Layer, O::Plain>,
    hidden: &mut O::Hidden,
    rows: usize,
) -> Result<(), O::Error> {
    let mut blocks = vision.blocks.iter();
    blocks.try_for_each(|block| vision_block(ops, block, hidden, rows))
}

/// `x += attention(norm1(x))`, then `x += mlp(norm2(x))`.
pub fn vision_block<O: EncoderOps>(
    ops: &mut O,
    block: &VisionBlock<O::Layer, O::Plain>,
    hidden: &mut O::Hidden,
    rows: usize,
) -> Result<(), O::Error> {
    let normed = ops.normed(hidden, &block.ln1, &block.qkv)?;
    let attended = ops.attend(&normed, block)?;
    ops.add(hidden, [(&attended, &block.proj)])?;
    let normed = ops.normed(hidden, &block.ln2, &block.mlp.fc1)?;
    let inner = ops.inner(&normed, &block.mlp, rows)?;
    ops.add(hidden, [(&inner, &block.mlp.fc2)])
}

/// Runs the blocks of the decoder over `positions` rows. Behind the last block, the hidden states of the first `outputs` are valid.
pub fn decode<O: DecoderOps>(
    ops: &mut O,
    text: &Text<O::Layer, O::Plain>,
    hidden: &mut O::Hidden,
    [positions, outputs]: [usize; 2],
) -> Result<(), O::Error> {
    let last = text.blocks.len().saturating_sub(1);
    for (layer, block) in text.blocks.iter().enumerate() {
        let run = DecoderRun {
            layer,
            outputs: if layer == last { outputs } else { positions },
        };
        text_block(ops, block, hidden, run)?;
    }
    ops.finish(hidden)
}

/// `x += attention(n) + mlp(n)` with `n = norm(x)`.
pub fn text_block<O: DecoderOps>(
    ops: &mut O,
    block: &TextBlock<O::Layer, O::Plain>,
    hidden: &mut O::Hidden,
    run: DecoderRun,
) -> Result<(), O::Error> {
    let normed = ops.normed(hidden, &block.ln, &block.qkv)?;
    let qkv = ops.qkv(&normed, run.layer, block)?;
    if run.outputs == 0 {
        return Ok(());
    }
    let attended = ops.attend(qkv, run.layer, &block.proj, run.outputs)?;
    match &block.mlp {
        TextMlp::Dense(mlp) => {
            let inner = ops.adapted_inner(&normed, mlp, run)?;
            ops.add(hidden, [(&attended, &block.proj), (&inner, &mlp.fc2)])?;
            ops.add_adapters(hidden, [&normed, &inner], run)?;
        }
        TextMlp::Experts(experts) => {
            ops.add_experts(hidden, &normed, experts, run)?;
            ops.add(hidden, [(&attended, &block.proj)])?;
        }
    }
    ops.sum_ranks(hidden, run)
}
