//! What the layers of a network are stored and multiplied in. Pure.

use half::bf16;

/// Inputs that share a scale in int4.
pub const INT4_GROUP: usize = 128;

/// A format of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Number {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// 8 exponent bits, 7 of mantissa.
    Bf16,
    /// 4 exponent bits, 3 of mantissa; no infinity.
    E4m3,
    Int8,
    /// -8 to 7.
    Int4,
}

impl Number {
    pub fn bits(self) -> usize {
        match self {
            Self::F32 => 32,
            Self::F16 | Self::Bf16 => 16,
            Self::E4m3 | Self::Int8 => 8,
            Self::Int4 => 4,
        }
    }

    /// Bytes of a value alone.
    pub fn bytes(self) -> usize {
        self.bits().div_ceil(8)
    }
}

/// What the numbers of weights are multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scales {
    /// The numbers are the weights.
    None,
    /// One scale for all weights, a power of two.
    Tensor,
    /// One for the weights of each output.
    Output,
    /// One in bf16 for so many neighbouring inputs of an output.
    Group(usize),
}

impl Scales {
    /// Bytes of those of an output with `inner` inputs.
    pub fn output_bytes(self, inner: usize) -> usize {
        match self {
            Self::None | Self::Tensor => 0,
            Self::Output => size_of::<f32>(),
            Self::Group(inputs) => inner / inputs * size_of::<bf16>(),
        }
    }
}

/// Of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    pub weight: Number,
    pub scales: Scales,
    /// What inputs of many rows are rounded to. In int8 each row has a scale of its own, in e4m3 the layer has one, or each row where each
    /// output has one.
    pub input: Number,
}

impl Format {
    pub const F32: Self = Self::plain(Number::F32);
    pub const BF16: Self = Self::plain(Number::Bf16);
    pub const INT8: Self = Self {
        weight: Number::Int8,
        scales: Scales::Output,
        input: Number::Int8,
    };
    pub const E4M3: Self = Self {
        weight: Number::E4m3,
        scales: Scales::Tensor,
        input: Number::E4m3,
    };

    /// Of experts, whose inputs stay in bf16.
    pub const E4M3_BY_OUTPUT: Self = Self {
        weight: Number::E4m3,
        scales: Scales::Output,
        input: Number::Bf16,
    };

    /// Of experts, whose inputs stay in bf16.
    pub const INT4: Self = Self {
        weight: Number::Int4,
        scales: Scales::Group(INT4_GROUP),
        input: Number::Bf16,
    };

    const fn plain(number: Number) -> Self {
        Self {
            weight: number,
            scales: Scales::None,
            input: number,
        }
    }
}
