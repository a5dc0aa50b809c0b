//! Bytes of GPU memory that a backend allocates, known before the first allocation. Pure.
//!
//! The parts of the network count their own buffers (`scratch_bytes`), from the same lengths that they allocate. A test on a GPU compares
//! the sum with what is allocated.

use half::bf16;

use super::{
    backend::{CudaCapacity, FRAME_PIXELS, crop_values, frame_bytes, limits},
    error::CudaError,
    frames::FramePreprocessor,
    network::GpuNetwork,
    products::WORKSPACE_BYTES,
    program::TableLayout,
    slot::GpuSlot,
    tensor::Int8Rows,
};
use crate::{
    model::{Formats, LayerShape, ModelConfig},
    network::format::{Format, Number},
};

/// What takes the memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    pub weights: usize,
    /// Buffers of a step: between layers, frames, tables.
    pub scratch: usize,
    /// The KV cache.
    pub cache: usize,
    /// Features of kept crops.
    pub kept: usize,
    /// All that is allocated while fp8 is calibrated in bf16, before the rest; 0 otherwise.
    pub calibration: usize,
    /// What the driver keeps of the freed bf16 weights after fp8 was calibrated; 0 otherwise.
    pub unreturned: usize,
}

/// Share of the bf16 weights that the driver keeps: of Moondream 2 on an H100 727 to 960 MiB of 3.6 GiB.
const UNRETURNED_SHARE: usize = 3;

impl Footprint {
    /// Of a backend of that capacity. An error when the capacity is too small for one row.
    pub fn of(
        config: &ModelConfig,
        formats: Formats<'_>,
        capacity: CudaCapacity,
    ) -> Result<Self, CudaError> {
        let (calibration, unreturned) = match formats.large.input {
            Number::E4m3 => {
                let capacity = CudaCapacity::for_calibration(config);
                let in_bf16 = Formats {
                    experts: formats.experts,
                    ..Formats::BF16
                };
                let in_bf16 = Self::of(config, in_bf16, capacity)?;
                (in_bf16.steady(), in_bf16.weights / UNRETURNED_SHARE)
            }
            _ => (0, 0),
        };
        Ok(Self {
            weights: weight_bytes(config, formats),
            scratch: scratch_bytes(config, formats, capacity)?,
            cache: capacity.pages * page_bytes(config),
            kept: capacity.kept_crops * crop_bytes(config),
            calibration,
            unreturned,
        })
    }

    /// What stays allocated.
    pub fn steady(&self) -> usize {
        self.weights + self.scratch + self.cache + self.kept
    }

    /// What a running engine holds.
    pub fn running(&self) -> usize {
        self.steady() + self.unreturned
    }
}

/// Of a page of the KV cache.
pub fn page_bytes(config: &ModelConfig) -> usize {
    GpuNetwork::page_bytes(config)
}

/// Of the features of a kept crop.
pub fn crop_bytes(config: &ModelConfig) -> usize {
    crop_values(config) * size_of::<bf16>()
}

fn scratch_bytes(
    config: &ModelConfig,
    formats: Formats<'_>,
    capacity: CudaCapacity,
) -> Result<usize, CudaError> {
    let layout = TableLayout::new(&limits(config, capacity)?);
    let network = GpuNetwork::scratch_bytes(config, &layout, capacity.crops_at_once, formats);
    let slot = GpuSlot::gpu_bytes(&layout, config.text.vocab_size, frame_bytes(capacity));
    let frames = FramePreprocessor::scratch_bytes(FRAME_PIXELS);
    Ok(network + capacity.slots * slot + frames + WORKSPACE_BYTES)
}

/// Bytes of the bias of an output, which is there in bf16 and in f32.
const BIAS_BYTES: usize = size_of::<bf16>() + size_of::<f32>();

/// Of a layer without its bias.
fn layer_bytes(format: Format, shape: LayerShape) -> usize {
    let LayerShape { outputs, inner } = shape;
    let stride = match format.weight {
        Number::Int8 => Int8Rows::stride_of(inner),
        _ => inner,
    };
    outputs * (stride * format.weight.bits() / 8 + format.scales.output_bytes(inner))
}

fn weight_bytes(config: &ModelConfig, formats: Formats<'_>) -> usize {
    let network = config.network();
    let large = network.large_layers().into_iter();
    let large = large.map(|(layer, shape)| {
        layer_bytes(formats.of(Some(layer)), shape) + shape.outputs * BIAS_BYTES
    });
    let lm_head = network.layers.text.lm_head.name.clone();
    let (layers, plain) = network.layers.into_parts();
    let others = layers.iter().filter(|layer| layer.large.is_none());
    let others = others.map(|layer| {
        let shape = LayerShape {
            outputs: layer.count * layer.outputs,
            inner: layer.inner.next_multiple_of(8),
        };
        let bias = if layer.has_bias {
            shape.outputs * BIAS_BYTES
        } else {
            0
        };
        let format = match layer.name == lm_head {
            true => formats.lm_head,
            false => formats.of_spec(layer),
        };
        layer_bytes(format, shape) + bias
    });
    let plain = plain
        .iter()
        .map(|tensor| tensor.values() * size_of::<bf16>());
    large.chain(others).chain(plain).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::pages_min;
    use spotter_core::config::GpuPrecision;

    #[test]
    fn weights_of_moondream_2_take_known_bytes() {
        let bytes = |precision| {
            let formats = Formats::on_gpu(precision, None, None);
            weight_bytes(&ModelConfig::default(), formats)
        };
        let precisions = [GpuPrecision::Bf16, GpuPrecision::Fp8, GpuPrecision::Int8];
        assert_eq!(
            precisions.map(bytes),
            [3_857_389_472, 2_238_359_456, 2_206_901_600]
        );
    }

    #[test]
    fn longer_context_of_the_model_changes_no_limit() {
        let limits_of = |config: &ModelConfig| {
            let capacity = CudaCapacity::for_calibration(config);
            (pages_min(config), limits(config, capacity).unwrap())
        };
        let mut long = ModelConfig::default();
        long.text.max_context = 32_768;
        let (pages, limits) = limits_of(&long);
        assert_eq!((pages, limits), limits_of(&ModelConfig::default()));
        assert_eq!((pages, limits.context, limits.positions), (129, 2048, 2048));
    }
}
