//! A decision, and what is fed for it.

use super::backend::{DecoderInput, PickResult};
use crate::model::{coord_from_bin, size_from_bin};

/// A decision as it is fed back: what a draft is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    Coord(u16),
    /// Width and height bins.
    Size(u16, u16),
    Token(u32),
}

impl Decision {
    /// What was decided; `None` for the end and for nothing.
    pub fn of(picked: PickResult) -> Option<Self> {
        match picked {
            PickResult::Coord { bin, .. } => Some(Self::Coord(bin)),
            PickResult::Size {
                width_bin,
                height_bin,
                ..
            } => Some(Self::Size(width_bin, height_bin)),
            PickResult::Token { id, .. } => Some(Self::Token(id)),
            PickResult::End { .. } | PickResult::Nothing => None,
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
