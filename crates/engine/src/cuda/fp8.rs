//! fp8: the largest values, the scales that follow from them, and buffers for values in e4m3.
//!
//! ```text
//!   pictures ─▶ steps in bf16, measured ─▶ largest input of each layer ─▶ scales ─▶ weights and inputs in e4m3
//! ```
//!
//! A scale is that of a whole tensor, is a power of two and is constant: e4m3 is a floating-point format, so a scale only moves its
//! range, and rounding it up costs a part of the range at most. A power of two also hides the last bits of the measurement, so that
//! equal pictures give equal scales. Magnitudes beyond the measured ones saturate.

use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::{
    arch::Capability,
    error::{CudaError, require_multiples},
    library::Gpu,
    memory::Buffer,
    tensor::{SCALE_STEP, Scale},
};
use crate::{
    model::{ModelConfig, calibration_inputs},
    scheduler::backend::{BackendLimits, Feed, ImageJob, KvTable, PageId, Pick, Row, Step},
};
use spotter_core::Picture;

/// The largest number in e4m3.
const LARGEST: f32 = 448.0;
/// How much larger inputs may be than in the calibration pictures.
pub const MARGIN: f32 = 1.25;

/// The least power of two that brings sizes up to `largest * margin` into the format; 1 where all is zero.
pub fn scale(largest: f32, margin: f32) -> Result<f32, CudaError> {
    if !largest.is_finite() {
        return Err(CudaError::Fp8(
            "some of its values are NaN or infinite".into(),
        ));
    }
    let exact = largest * margin / LARGEST;
    // Beyond these bounds a scale or its inverse would not be a normal number.
    let least = exact
        .max(f32::MIN_POSITIVE)
        .log2()
        .ceil()
        .clamp(-100.0, 100.0);
    Ok(if largest > 0.0 { least.exp2() } else { 1.0 })
}

/// Scales, here and on the GPU.
pub struct GpuScales {
    values: Vec<f32>,
    /// Each with its inverse.
    at: Buffer<f32>,
}

impl GpuScales {
    /// Copies them to the GPU.
    pub fn new(stream: &Arc<CudaStream>, scales: &[f32]) -> Result<Self, CudaError> {
        let apart = |value: f32| std::iter::once(value).chain([0.0; SCALE_STEP - 1]);
        let pairs: Vec<f32> = scales
            .iter()
            .flat_map(|s| apart(*s).chain(apart(s.recip())))
            .collect();
        Ok(Self {
            values: scales.to_vec(),
            at: Buffer::from_host(stream, &pairs)?,
        })
    }

    pub fn at(&self, index: usize) -> Scale {
        Scale {
            value: self.values[index],
            at: self.at.start().at(index * 2 * SCALE_STEP),
        }
    }
}

/// Checks the GPU and the shape of the model.
pub fn supported(config: &ModelConfig, gpu: &Gpu) -> Result<(), CudaError> {
    if !gpu.has_fp8() {
        return Err(CudaError::Fp8(format!(
            "the GPU {} has compute capability {}, {} or newer is needed",
            gpu.name,
            gpu.capability,
            Capability::FP8
        )));
    }
    wide_enough(config)
}

fn wide_enough(config: &ModelConfig) -> Result<(), CudaError> {
    let widths = [
        ("text.dim", config.text.dim),
        ("text.ff_dim", config.text.ff_dim),
        ("vision.enc_dim", config.vision.enc_dim),
        ("vision.enc_ff_dim", config.vision.enc_ff_dim),
    ];
    require_multiples(&widths, 16).map_err(CudaError::Fp8)
}

/// A step that runs a picture through all layers: its prefix, and a row with all kinds of inputs.
pub fn calibration_step(picture: &Picture, config: &ModelConfig, limits: &BackendLimits) -> Step {
    let inputs = calibration_inputs(config);
    let pages = |positions: usize| positions.div_ceil(limits.page_tokens) as u32;
    let prefix = pages(limits.prefix_positions);
    let own = prefix..prefix + pages(inputs.len());
    let prefix: Arc<[PageId]> = (0..prefix).map(PageId).collect();
    Step {
        images: vec![ImageJob {
            view: Default::default(),
            camera: None,
            picture: picture.clone(),
            pages: prefix.clone(),
            crops: Vec::new(),
            adapter: None,
        }],
        rows: vec![Row {
            inputs: Feed::Host(inputs),
            position: limits.prefix_positions,
            kv: KvTable {
                prefix,
                prefix_positions: limits.prefix_positions,
                own: own.map(PageId).collect(),
            },
            picks: vec![Pick::CoordOrEnd],
            adapter: None,
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_the_least_powers_of_two_that_fit() {
        for (largest, margin, want) in [
            (448.0, 1.0, 1.0),
            (449.0, 1.0, 2.0),
            (400.0, 1.25, 2.0),
            (3.5, 1.0, 1.0 / 128.0),
            (3.6, 1.0, 1.0 / 64.0),
            (0.0, 1.25, 1.0),
        ] {
            assert_eq!(scale(largest, margin).unwrap(), want, "{largest}");
        }
        for largest in [1e-45, 1e-20, 0.7, 12.5, 1e30] {
            let scale = scale(largest, MARGIN).unwrap();
            assert!(largest * MARGIN / scale <= LARGEST && scale.recip().is_normal());
        }
        assert!(scale(f32::INFINITY, 1.0).is_err() && scale(f32::NAN, 1.0).is_err());
    }

    #[test]
    fn widths_that_fp8_does_not_take_are_named() {
        assert!(wide_enough(&ModelConfig::default()).is_ok());
        let mut config = ModelConfig::default();
        config.vision.enc_ff_dim = 136;
        let message = wide_enough(&config).unwrap_err().to_string();
        assert!(message.contains("vision.enc_ff_dim is 136") && message.contains("bf16"));
    }
}
