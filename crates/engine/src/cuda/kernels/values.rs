//! Values between layers: rows in bf16, e4m3 or int8.

use half::bf16;

use super::Int8Rows;
use crate::cuda::memory::Pointer;

/// Shape of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixShape {
    pub rows: usize,
    /// Values of a row.
    pub width: usize,
}

/// Rows of values, `stride` apart.
#[derive(Clone, Copy, Debug)]
pub struct StridedRows<T = bf16> {
    pub start: Pointer<T>,
    /// Values from row to row.
    pub stride: usize,
}

impl<T: Copy> StridedRows<T> {
    /// Rows without gaps.
    pub fn packed(start: Pointer<T>, width: usize) -> Self {
        Self {
            start,
            stride: width,
        }
    }

    /// The rows from `row` on.
    pub fn from(self, row: usize) -> Self {
        self.behind(row * self.stride)
    }

    /// The values of each row behind its first `columns`.
    pub fn behind(self, columns: usize) -> Self {
        Self {
            start: self.start.at(columns),
            ..self
        }
    }

    /// True when the buffer has room for `rows` rows of `width` values.
    pub fn has_room_for(&self, rows: usize, width: usize) -> bool {
        rows == 0 || self.start.len() >= (rows - 1) * self.stride + width
    }
}

/// The factor of values in e4m3, a power of two.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub value: f32,
    /// `value` and its inverse, [`SCALE_STEP`] apart, where cuBLASLt reads them.
    pub at: Pointer<f32>,
}

/// Values from one scale to the next: cuBLASLt rejects products whose scales do not begin at multiples of 16 bytes.
pub const SCALE_STEP: usize = 4;

#[derive(Clone, Copy, Debug)]
pub enum Activations {
    Bf16(StridedRows),
    /// In e4m3; a value is the number times the scale.
    E4m3(StridedRows<u8>, Scale),
    /// Inputs of products whose weights are in int8.
    Int8(Int8Rows),
}

impl Activations {
    /// bf16 without gaps.
    pub fn bf16(start: Pointer<bf16>, width: usize) -> Self {
        Self::Bf16(StridedRows::packed(start, width))
    }

    /// The rows from `row` on.
    pub fn from(self, row: usize) -> Self {
        match self {
            Self::Bf16(rows) => Self::Bf16(rows.from(row)),
            Self::E4m3(rows, scale) => Self::E4m3(rows.from(row), scale),
            Self::Int8(rows) => Self::Int8(rows.from(row)),
        }
    }

    /// The values of each row behind its first `columns`.
    pub fn behind(self, columns: usize) -> Self {
        match self {
            Self::Bf16(rows) => Self::Bf16(rows.behind(columns)),
            Self::E4m3(rows, scale) => Self::E4m3(rows.behind(columns), scale),
            Self::Int8(rows) => Self::Int8(Int8Rows {
                values: rows.values.behind(columns),
                ..rows
            }),
        }
    }

    /// True when the buffer has room for `rows` rows of `width` values.
    pub fn has_room_for(&self, rows: usize, width: usize) -> bool {
        match self {
            Self::Bf16(to) => to.has_room_for(rows, width),
            Self::E4m3(to, _) => to.has_room_for(rows, width),
            Self::Int8(to) => to.has_room_for(rows, width),
        }
    }

    /// Values from row to row.
    pub fn stride(&self) -> usize {
        match self {
            Self::Bf16(rows) => rows.stride,
            Self::E4m3(rows, _) => rows.stride,
            Self::Int8(rows) => rows.values.stride,
        }
    }

    pub fn address(&self) -> u64 {
        match self {
            Self::Bf16(rows) => rows.start.address(),
            Self::E4m3(rows, _) => rows.start.address(),
            Self::Int8(rows) => rows.values.start.address(),
        }
    }

    /// The kernel that writes them, and what it multiplies values with, which kernels for bf16 do not read.
    pub(super) fn writer(&self, kernel: &str) -> (String, f32) {
        match self {
            Self::Bf16(_) => (kernel.into(), 1.0),
            Self::E4m3(_, scale) => (format!("{kernel}_e4m3"), scale.value.recip()),
            // The scale of each row is found by the kernel.
            Self::Int8(_) => (format!("{kernel}_int8"), 1.0),
        }
    }
}
