//! Decisions from logits.

use half::bf16;

use super::{Kernels, NormAt, launch, need};
use crate::cuda::{error::CudaError, memory::Pointer, record::DecisionRecord};

/// Tables of `decide` and `choose_token`.
#[derive(Clone, Copy, Debug)]
pub struct PickTables {
    /// `[picks, 4]`.
    pub pick: Pointer<i32>,
    /// Zombies, by position.
    pub is_zombie: Pointer<i32>,
    /// `[tokens, 8]`.
    pub choice: Pointer<i32>,
    /// `[tokens, 4]`.
    pub banned: Pointer<i32>,
}

impl Kernels {
    /// `decide.cu`.
    #[expect(
        clippy::too_many_arguments,
        reason = "the kernel's own, grouped where they belong together"
    )]
    pub fn decide(
        &self,
        hidden: Pointer<bf16>,
        tables: &PickTables,
        norm: NormAt,
        (on_end_weight, on_end_bias): (Pointer<bf16>, Pointer<f32>),
        (coords, sizes): (Pointer<f32>, Pointer<f32>),
        (out, carried): (Pointer<DecisionRecord>, Pointer<DecisionRecord>),
        (picks, width): (usize, usize),
    ) -> Result<(), CudaError> {
        need(
            out.len() >= picks && tables.pick.len() >= picks * 4,
            "decisions: beyond a buffer",
        )?;
        launch!(
            self,
            decide,
            (picks, 1, 1),
            256,
            0,
            [
                hidden.address(),
                tables.pick.address(),
                tables.is_zombie.address(),
                norm.weight.address(),
                norm.bias.address(),
                on_end_weight.address(),
                on_end_bias.address(),
                coords.address(),
                sizes.address(),
                out.address(),
                carried.address(),
                width as i32,
            ]
        )
    }

    /// `choose_token.cu`.
    pub fn choose_token(
        &self,
        logits: Pointer<f32>,
        tables: &PickTables,
        mask: Pointer<u32>,
        (out, carried): (Pointer<DecisionRecord>, Pointer<DecisionRecord>),
        (rows, vocab): (usize, usize),
    ) -> Result<(), CudaError> {
        need(logits.len() >= rows * vocab, "tokens: beyond a buffer")?;
        launch!(
            self,
            choose_token,
            (rows, 1, 1),
            1024,
            0,
            [
                logits.address(),
                tables.choice.address(),
                tables.banned.address(),
                mask.address(),
                tables.is_zombie.address(),
                out.address(),
                carried.address(),
                vocab as i32,
                vocab.div_ceil(32) as i32,
            ]
        )
    }
}
