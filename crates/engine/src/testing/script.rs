//! Decisions for tests that play a backend by a script.

use crate::scheduler::backend::PickResult;

/// No further object.
pub const END: PickResult = PickResult::End { probability: 0.8 };

pub fn coord(bin: u16) -> PickResult {
    PickResult::Coord {
        bin,
        probability: 0.9,
        sharpness: 1.0,
    }
}

pub fn size(width_bin: u16, height_bin: u16) -> PickResult {
    PickResult::Size {
        width_bin,
        height_bin,
        probability: 0.5,
        sharpness: 1.0,
    }
}

pub fn token(id: u32) -> PickResult {
    PickResult::Token {
        id,
        probability: 0.5,
    }
}
