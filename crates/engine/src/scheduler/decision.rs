//! How a decision is made, and what is fed for it.

use super::backend::{DecoderInput, Picked, Sampling};
use crate::model::{coord_from_bin, size_from_bin};

/// How the tokens of an answer are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choosing {
    /// The likeliest.
    Greedy,
    /// From the nucleus, with random numbers that depend on the seed and the token's index alone, so that an answer does
    /// not depend on what else runs.
    TopP {
        /// Divides the logits; above 0.
        temperature: f32,
        /// Kept probability mass, 0..1.
        top_p: f32,
        /// Of the random numbers.
        seed: u64,
    },
}

impl Choosing {
    /// Of the token with this index.
    pub(super) fn sampling(self, token_index: usize) -> Sampling {
        match self {
            Self::Greedy => Sampling::Greedy,
            Self::TopP {
                temperature,
                top_p,
                seed,
            } => {
                let hash = xxhash_rust::xxh3::xxh3_64_with_seed(&token_index.to_le_bytes(), seed);
                Sampling::TopP {
                    temperature,
                    top_p,
                    // 24 bits, as many as an f32 below 1 can hold.
                    uniform: (hash >> 40) as f32 / (1 << 24) as f32,
                }
            }
        }
    }
}

/// A decision as it is fed back: what a draft is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// A coordinate bin.
    Coord(u16),
    /// Width and height bins.
    Size(u16, u16),
    Token(u32),
}

impl Decision {
    /// What was decided; `None` for the end and for nothing.
    pub fn of(picked: Picked) -> Option<Self> {
        match picked {
            Picked::Coord { bin, .. } => Some(Self::Coord(bin)),
            Picked::Size {
                width_bin,
                height_bin,
                ..
            } => Some(Self::Size(width_bin, height_bin)),
            Picked::Token { id, .. } => Some(Self::Token(id)),
            Picked::End { .. } | Picked::Nothing => None,
        }
    }

    /// What is fed for it. Every value of a bin is exact in f32.
    pub fn input(self) -> DecoderInput {
        match self {
            Self::Coord(bin) => DecoderInput::Coord(coord_from_bin(bin) as f32),
            Self::Size(width, height) => {
                DecoderInput::Size(size_from_bin(width) as f32, size_from_bin(height) as f32)
            }
            Self::Token(id) => DecoderInput::Token(id),
        }
    }
}
