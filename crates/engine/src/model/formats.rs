//! Which format each layer of a model has.

use super::calibration::ModelCalibration;
use crate::network::{
    format::{Format, Number},
    layers::LargeLayer,
};
use spotter_core::GpuPrecision;

/// The formats of a model's layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Formats<'a> {
    /// Of the large layers, but for some.
    pub large: Format,
    /// Of these and all other layers.
    pub others: Format,
    pub experts: Format,
    pub lm_head: Format,
    /// What the user's pictures showed: layers whose errors are too large for int8, and the largest inputs for e4m3.
    pub measured: Option<&'a ModelCalibration>,
}

impl<'a> Formats<'a> {
    pub const F32: Self = Self::one(Format::F32);
    pub const BF16: Self = Self::one(Format::BF16);

    const fn one(format: Format) -> Self {
        Self {
            large: format,
            others: format,
            experts: format,
            lm_head: format,
            measured: None,
        }
    }

    /// Of a model whose file has experts in this format, if it has some.
    pub fn on_gpu(
        precision: GpuPrecision,
        measured: Option<&'a ModelCalibration>,
        experts: Option<Number>,
    ) -> Self {
        let (large, lm_head) = match precision {
            GpuPrecision::Bf16 => (Format::BF16, Format::BF16),
            GpuPrecision::Fp8 => (Format::E4M3, Format::BF16),
            GpuPrecision::Int8 => (Format::INT8, Format::BF16),
            GpuPrecision::Int4 => (Format::INT8, Format::INT8),
        };
        Self {
            lm_head,
            experts: experts.map_or(Format::BF16, |stored| experts_on_gpu(precision, stored)),
            ..Self::BF16.with_large(large, measured)
        }
    }

    /// With another format of the large layers.
    pub fn with_large(self, large: Format, measured: Option<&'a ModelCalibration>) -> Self {
        Self {
            large,
            measured,
            ..self
        }
    }

    /// Of a layer that is, or is a part of, a large one.
    pub fn of(&self, layer: Option<LargeLayer>) -> Format {
        let is_wide = |layer| match self.large.weight {
            Number::Int8 => self.measured.is_some_and(|m| m.is_wide(layer)),
            Number::E4m3 => matches!(layer, LargeLayer::ProjectionFc1 | LargeLayer::ProjectionFc2),
            Number::F32 | Number::F16 | Number::Bf16 | Number::Int4 => false,
        };
        match layer {
            Some(layer) if !is_wide(layer) => self.large,
            _ => self.others,
        }
    }

    /// The largest size of an input of that layer that the user's pictures showed; 0 where they showed none.
    pub fn largest_input(&self, layer: Option<LargeLayer>) -> f32 {
        let known = self.measured.zip(layer);
        known.map_or(0.0, |(measured, layer)| measured.largest_input(layer))
    }
}

/// What experts that a file has in `stored` are in on a GPU: in bf16 e4m3 stays.
fn experts_on_gpu(precision: GpuPrecision, stored: Number) -> Format {
    match (precision, stored) {
        (GpuPrecision::Fp8, _) => Format {
            input: Number::E4m3,
            ..Format::E4M3_BY_OUTPUT
        },
        (GpuPrecision::Int8, _) => Format::INT8,
        (GpuPrecision::Int4, _) => Format::INT4,
        (GpuPrecision::Bf16, Number::E4m3) => Format::E4M3_BY_OUTPUT,
        (GpuPrecision::Bf16, _) => Format::BF16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projection_is_in_int8_and_never_in_e4m3() {
        let projection = Some(LargeLayer::ProjectionFc1);
        for (precision, large, of_projection) in [
            (GpuPrecision::Bf16, Format::BF16, Format::BF16),
            (GpuPrecision::Fp8, Format::E4M3, Format::BF16),
            (GpuPrecision::Int8, Format::INT8, Format::INT8),
            (GpuPrecision::Int4, Format::INT8, Format::INT8),
        ] {
            let formats = Formats::on_gpu(precision, None, None);
            assert_eq!(formats.of(Some(LargeLayer::EncoderQkv(3))), large);
            assert_eq!(formats.of(projection), of_projection);
            assert_eq!(formats.of(None), Format::BF16);
        }
    }

    #[test]
    fn experts_stay_as_stored_in_bf16_alone() {
        let in_e4m3 = Format {
            input: Number::E4m3,
            ..Format::E4M3_BY_OUTPUT
        };
        for (precision, [from_bf16, from_e4m3]) in [
            (GpuPrecision::Bf16, [Format::BF16, Format::E4M3_BY_OUTPUT]),
            (GpuPrecision::Fp8, [in_e4m3; 2]),
            (GpuPrecision::Int8, [Format::INT8; 2]),
            (GpuPrecision::Int4, [Format::INT4; 2]),
        ] {
            let of = |stored| Formats::on_gpu(precision, None, Some(stored)).experts;
            assert_eq!(of(Number::Bf16), from_bf16);
            assert_eq!(of(Number::E4m3), from_e4m3);
        }
    }
}
