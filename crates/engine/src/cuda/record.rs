//! A decision as the kernels write it (`kernels/decision.cuh`).

use cudarc::driver::{DeviceRepr, ValidAsZeroBits};

use crate::scheduler::backend::PickResult;

const END: i32 = 0;
const COORD: i32 = 1;
const SIZE: i32 = 2;
const TOKEN: i32 = 3;

/// See `struct Decision` there: the fields and their order are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct DecisionRecord {
    /// 0 the end, 1 a coordinate, 2 a size, 3 a token, 4 nothing.
    pub kind: i32,
    /// Coordinate bin, width bin or token id.
    pub first: i32,
    /// Height bin.
    pub second: i32,
    pub probability: f32,
    pub sharpness: f32,
    pub pad: [i32; 3],
}

// SAFETY: numbers in C layout, without padding of the compiler's.
unsafe impl DeviceRepr for DecisionRecord {}
// SAFETY: all fields are numbers, for which zero bits are a value.
unsafe impl ValidAsZeroBits for DecisionRecord {}

impl DecisionRecord {
    /// The decision; `None` when it was computed from NaN: a page was read before it was written, or the weights are damaged.
    pub fn picked(&self) -> Option<PickResult> {
        let (probability, sharpness) = (self.probability, self.sharpness);
        if probability.is_nan() || sharpness.is_nan() {
            return None;
        }
        Some(match self.kind {
            END => PickResult::End { probability },
            COORD => PickResult::Coord {
                bin: self.first as u16,
                probability,
                sharpness,
            },
            SIZE => PickResult::Size {
                width_bin: self.first as u16,
                height_bin: self.second as u16,
                probability,
                sharpness,
            },
            TOKEN => PickResult::Token {
                id: self.first as u32,
                probability,
            },
            _ => PickResult::Nothing,
        })
    }
}
