//! Values between layers: rows in bf16 or in e4m3.

use half::bf16;

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
    /// The first row.
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

    /// From row `row` on.
    pub fn from(self, row: usize) -> Self {
        self.skip(row * self.stride)
    }

    /// Of each row what lies behind its first `columns` values.
    pub fn behind(self, columns: usize) -> Self {
        self.skip(columns)
    }

    fn skip(self, values: usize) -> Self {
        Self {
            start: self.start.at(values),
            ..self
        }
    }

    /// True when `rows` rows of `width` values lie in the buffer.
    pub fn hold(&self, rows: usize, width: usize) -> bool {
        rows == 0 || self.start.len() >= (rows - 1) * self.stride + width
    }
}

/// What numbers in e4m3 are to be multiplied with, a power of two.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// It.
    pub value: f32,
    /// It and its inverse, [`SCALE_STEP`] apart, where cuBLASLt reads them.
    pub at: Pointer<f32>,
}

/// Values from one scale to the next: cuBLASLt refuses products whose scales do not begin at multiples of 16 bytes.
pub const SCALE_STEP: usize = 4;

/// Values between layers.
#[derive(Clone, Copy, Debug)]
pub enum Activations {
    /// In bf16.
    Bf16(StridedRows),
    /// In e4m3, each to be multiplied with the scale.
    E4m3(StridedRows<u8>, Scale),
}

impl Activations {
    /// bf16 without gaps.
    pub fn bf16(start: Pointer<bf16>, width: usize) -> Self {
        Self::Bf16(StridedRows::packed(start, width))
    }

    /// From row `row` on.
    pub fn from(self, row: usize) -> Self {
        match self {
            Self::Bf16(rows) => Self::Bf16(rows.from(row)),
            Self::E4m3(rows, scale) => Self::E4m3(rows.from(row), scale),
        }
    }

    /// Of each row what lies behind its first `columns` values.
    pub fn behind(self, columns: usize) -> Self {
        match self {
            Self::Bf16(rows) => Self::Bf16(rows.behind(columns)),
            Self::E4m3(rows, scale) => Self::E4m3(rows.behind(columns), scale),
        }
    }

    /// True when `rows` rows of `width` values lie in the buffer.
    pub fn hold(&self, rows: usize, width: usize) -> bool {
        match self {
            Self::Bf16(to) => to.hold(rows, width),
            Self::E4m3(to, _) => to.hold(rows, width),
        }
    }

    /// Values from row to row.
    pub fn stride(&self) -> usize {
        match self {
            Self::Bf16(rows) => rows.stride,
            Self::E4m3(rows, _) => rows.stride,
        }
    }

    /// Where they begin.
    pub fn address(&self) -> u64 {
        match self {
            Self::Bf16(rows) => rows.start.address(),
            Self::E4m3(rows, _) => rows.start.address(),
        }
    }
}
