//! Decisions for tests that play a backend by a script.

use crate::scheduler::backend::Picked;

/// No further object.
pub const END: Picked = Picked::End { probability: 0.8 };

pub fn coord(bin: u16) -> Picked {
    Picked::Coord {
        bin,
        probability: 0.9,
        sharpness: 1.0,
    }
}

pub fn size(width_bin: u16, height_bin: u16) -> Picked {
    Picked::Size {
        width_bin,
        height_bin,
        sharpness: 1.0,
    }
}

pub fn token(id: u32) -> Picked {
    Picked::Token {
        id,
        probability: 0.5,
    }
}
