//! Decisions from logits.

use half::bf16;

use super::launch::{Kernels, launch, require};
use crate::cuda::{
    error::CudaError,
    memory::Pointer,
    record::DecisionRecord,
    tensor::{GpuNorm, MatrixShape},
};

/// Tables of `decide` and `choose_token`.
#[derive(Clone, Copy, Debug)]
pub struct PickTables {
    /// `[picks, 4]`.
    pub pick: Pointer<i32>,
    /// `[positions]`: 1 where the row had ended before this step.
    pub is_zombie: Pointer<i32>,
    /// `[tokens, 8]`.
    pub choice: Pointer<i32>,
    /// `[tokens, 4]`.
    pub banned: Pointer<i32>,
}

/// Inputs of `decide` beside its tables.
#[derive(Clone, Copy)]
pub struct DecideInputs<'a> {
    /// `[positions, width]`, after the last block.
    pub hidden: Pointer<bf16>,
    /// The norm before the vocabulary's head.
    pub norm: &'a GpuNorm,
    /// `[2, width]`: the vocabulary's rows of the coordinate token and of the end token.
    pub on_end_weight: Pointer<bf16>,
    /// `[2]`.
    pub on_end_bias: Pointer<f32>,
    /// `[rows, 1024]`: logits of coordinates.
    pub coords: Pointer<f32>,
    /// `[rows, 2048]`: logits of widths, then of heights.
    pub sizes: Pointer<f32>,
}

/// Logits of the vocabulary, and which tokens are allowed.
#[derive(Clone, Copy, Debug)]
pub struct TokenLogits {
    /// `[rows, vocab]`.
    pub logits: Pointer<f32>,
    /// `[rows, vocab / 32 rounded up]`: packed bits.
    pub mask: Pointer<u32>,
    /// Of the values that tokens stand for, as in [`DecideInputs`].
    pub coords: Pointer<f32>,
    pub sizes: Pointer<f32>,
    pub rows: usize,
    pub vocab: usize,
}

/// Where the decisions of a step go.
#[derive(Clone, Copy, Debug)]
pub struct DecisionBuffers {
    /// `[picks]`: copied to the host.
    pub records: Pointer<DecisionRecord>,
    /// `[slots, rows]`: read by the next step on the GPU.
    pub carried: Pointer<DecisionRecord>,
}

impl Kernels {
    /// `decide.cu`: `shape.rows` decisions from hidden states of `shape.width` values.
    pub fn decide(
        &self,
        inputs: &DecideInputs<'_>,
        tables: &PickTables,
        out: DecisionBuffers,
        shape: MatrixShape,
    ) -> Result<(), CudaError> {
        let MatrixShape { rows: picks, width } = shape;
        require(
            out.records.len() >= picks && tables.pick.len() >= picks * 4,
            "decisions: a buffer is too small",
        )?;
        launch!(
            self,
            "decide",
            (picks, 1, 1),
            256,
            [
                inputs.hidden,
                tables.pick,
                tables.is_zombie,
                inputs.norm.weight.start(),
                inputs.norm.bias.start(),
                inputs.on_end_weight,
                inputs.on_end_bias,
                inputs.coords,
                inputs.sizes,
                out.records,
                out.carried,
                width,
            ]
        )
    }

    /// `choose_token.cu`.
    pub fn choose_token(
        &self,
        inputs: &TokenLogits,
        tables: &PickTables,
        out: DecisionBuffers,
    ) -> Result<(), CudaError> {
        let &TokenLogits {
            logits,
            mask,
            coords,
            sizes,
            rows,
            vocab,
        } = inputs;
        require(
            logits.len() >= rows * vocab && tables.choice.len() >= rows * 8,
            "tokens: a buffer is too small",
        )?;
        let mask_words = vocab.div_ceil(32);
        launch!(
            self,
            "choose_token",
            (rows, 1, 1),
            1024,
            [
                logits,
                tables.choice,
                tables.banned,
                mask,
                tables.is_zombie,
                coords,
                sizes,
                out.records,
                out.carried,
                vocab,
                mask_words,
            ]
        )
    }
}
