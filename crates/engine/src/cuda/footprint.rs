//! Bytes of GPU memory that a backend allocates, known before the first allocation. Pure.
//!
//! The parts of the network count their own buffers (`scratch_bytes`), from the same lengths that they allocate. A test on a GPU compares
//! the sum with what is allocated.

use half::bf16;

use super::{
    adapters::AdapterSlots,
    backend::{CudaCapacity, FRAME_PIXELS, crop_values, frame_bytes, limits},
    error::CudaError,
    frames::FramePreprocessor,
    network::{GpuNetwork, hidden_values},
    peers::Peers,
    products::WORKSPACE_BYTES,
    program::TableLayout,
    slot::GpuSlot,
    tensor::Int8Rows,
    weights::inner_in_e4m3,
};
use crate::{
    model::{Formats, LargeLayer, LayerShape, ModelConfig},
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
    /// Slots of adapters.
    pub adapters: usize,
    /// All that is allocated while fp8 is calibrated in bf16, before the rest; 0 otherwise.
    pub calibration: usize,
    /// What the driver keeps of the bf16 weights that are freed after fp8 was calibrated; 0 otherwise.
    pub unreturned: usize,
}

/// Share of the bf16 weights of layers that are converted that the driver keeps: of Moondream 2 on an H100 727 to 960 MiB of 3.6 GiB.
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
                // Experts are in their format from the beginning.
                let freed = weight_bytes(config, in_bf16) - expert_bytes(config, in_bf16);
                let in_bf16 = Self::of(config, in_bf16, capacity)?;
                (in_bf16.steady(), freed / UNRETURNED_SHARE)
            }
            _ => (0, 0),
        };
        let layout = TableLayout::new(&limits(config, capacity)?);
        Ok(Self {
            weights: weight_bytes(config, formats),
            scratch: scratch_bytes(config, formats, capacity, &layout),
            cache: capacity.pages * page_bytes(config),
            kept: capacity.kept_crops * crop_bytes(config),
            adapters: AdapterSlots::bytes(config, &layout),
            calibration,
            unreturned,
        })
    }

    /// What stays allocated.
    pub fn steady(&self) -> usize {
        self.weights + self.scratch + self.cache + self.kept + self.adapters
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
    layout: &TableLayout,
) -> usize {
    let network = GpuNetwork::scratch_bytes(config, layout, capacity.crops_at_once, formats);
    let slot = GpuSlot::gpu_bytes(layout, config.text.vocab_size, frame_bytes(capacity));
    let frames = FramePreprocessor::scratch_bytes(FRAME_PIXELS);
    let shard = config.text.shard;
    let peers = match shard.is_whole() {
        true => 0,
        false => Peers::bytes(shard.ranks, hidden_values(&config.text, layout)),
    };
    network + capacity.slots * slot + frames + WORKSPACE_BYTES + peers
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

/// Of a layer of this shape on the GPU.
fn stored_shape(layer: LargeLayer, format: Format, shape: LayerShape) -> LayerShape {
    let LayerShape { outputs, inner } = shape;
    match (layer, format.weight) {
        (LargeLayer::EncoderFc1(_), Number::E4m3) => LayerShape {
            outputs: inner_in_e4m3(outputs),
            inner,
        },
        (LargeLayer::EncoderFc2(_), Number::E4m3) => LayerShape {
            outputs,
            inner: inner_in_e4m3(inner),
        },
        _ => shape,
    }
}

fn expert_bytes(config: &ModelConfig, formats: Formats<'_>) -> usize {
    let (layers, _) = config.network().layers.into_parts();
    let experts = layers.iter().filter(|layer| layer.count > 1);
    let bytes = experts.map(|layer| {
        let shape = LayerShape {
            outputs: layer.count * layer.outputs,
            inner: layer.inner,
        };
        layer_bytes(formats.experts, shape)
    });
    bytes.sum()
}

fn weight_bytes(config: &ModelConfig, formats: Formats<'_>) -> usize {
    let network = config.network();
    let large = network.large_layers().into_iter();
    let large = large.map(|(layer, shape)| {
        let format = formats.of(Some(layer));
        let shape = stored_shape(layer, format, shape);
        layer_bytes(format, shape) + shape.outputs * BIAS_BYTES
    });
    let lm_head = network.layers.text.lm_head.name.clone();
    let (layers, plain) = network.layers.into_parts();
    let others = layers.iter().filter(|layer| layer.large.is_none());
    let others = others.filter(|layer| layer.count == 1).map(|layer| {
        let shape = LayerShape {
            outputs: layer.outputs,
            inner: layer.inner.next_multiple_of(8),
        };
        let format = match layer.name == lm_head {
            true => formats.lm_head,
            false => formats.others,
        };
        layer_bytes(format, shape) + shape.outputs * BIAS_BYTES
    });
    let plain = plain
        .iter()
        .map(|tensor| tensor.values() * size_of::<bf16>());
    expert_bytes(config, formats) + large.chain(others).chain(plain).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cuda::pages_min, model::released_config};
    use spotter_core::GpuPrecision;

    #[test]
    fn weights_of_moondream_2_take_known_bytes() {
        let bytes = |precision| {
            let formats = Formats::on_gpu(precision, None, None);
            weight_bytes(&ModelConfig::default(), formats)
        };
        let precisions = [GpuPrecision::Bf16, GpuPrecision::Fp8, GpuPrecision::Int8];
        assert_eq!(
            precisions.map(bytes),
            [3_857_389_472, 2_241_353_216, 2_206_901_600]
        );
    }

    #[test]
    fn weights_of_moondream_3_take_known_bytes() {
        let config = released_config("moondream3.1").unwrap();
        let of = |precision| {
            let formats = Formats::on_gpu(precision, None, Some(Number::E4m3));
            (
                expert_bytes(&config, formats),
                weight_bytes(&config, formats),
            )
        };
        // 20 layers of 64 experts, each of three matrices of 2048 x 1024.
        let values = 20 * 64 * 3 * 2048 * 1024;
        let scales = 20 * 64 * (2 * 1024 + 2048) * size_of::<f32>();
        assert_eq!(of(GpuPrecision::Bf16), (values + scales, 10_507_443_104));
        assert_eq!(of(GpuPrecision::Fp8), (values + scales, 9_562_495_488));
        assert_eq!(of(GpuPrecision::Int8), (values + scales, 9_527_388_512));
        let in_int4 = values / 2 + values / 128 * 2;
        assert_eq!(of(GpuPrecision::Int4), (in_int4, 5_501_061_472));
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
