//! Bytes of GPU memory that a backend allocates, known before the first allocation. Pure.
//!
//! The parts of the network count their own buffers (`scratch_bytes`), from the same lengths that they allocate. A test on a GPU compares
//! the sum with what is allocated.

use half::bf16;

use super::{
    backend::{CudaCapacity, FRAME_PIXELS, crop_values, frame_bytes, limits},
    error::CudaError,
    frames::FramePreprocessor,
    kernels::Int8Rows,
    network::Network,
    products::WORKSPACE_BYTES,
    program::TableLayout,
    slot::GpuSlot,
};
use crate::model::ModelConfig;
use spotter_core::config::GpuPrecision;

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
        precision: GpuPrecision,
        capacity: CudaCapacity,
    ) -> Result<Self, CudaError> {
        let (calibration, unreturned) = match precision {
            GpuPrecision::Fp8 => {
                let capacity = CudaCapacity::for_calibration(config);
                let in_bf16 = Self::of(config, GpuPrecision::Bf16, capacity)?;
                (in_bf16.steady(), in_bf16.weights / UNRETURNED_SHARE)
            }
            GpuPrecision::Bf16 | GpuPrecision::Int8 => (0, 0),
        };
        Ok(Self {
            weights: weight_bytes(config, precision),
            scratch: scratch_bytes(config, precision, capacity)?,
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

    /// The most that is held at a time.
    pub fn total(&self) -> usize {
        self.running().max(self.calibration)
    }
}

/// Of a page of the KV cache.
pub fn page_bytes(config: &ModelConfig) -> usize {
    Network::page_bytes(config)
}

/// Of the features of a kept crop.
pub fn crop_bytes(config: &ModelConfig) -> usize {
    crop_values(config) * size_of::<bf16>()
}

fn scratch_bytes(
    config: &ModelConfig,
    precision: GpuPrecision,
    capacity: CudaCapacity,
) -> Result<usize, CudaError> {
    let layout = TableLayout::new(&limits(config, capacity)?);
    let network = Network::scratch_bytes(config, &layout, capacity.crops_at_once, precision);
    let slot = GpuSlot::gpu_bytes(&layout, config.text.vocab_size, frame_bytes(capacity));
    let frames = FramePreprocessor::scratch_bytes(FRAME_PIXELS);
    Ok(network + capacity.slots * slot + frames + WORKSPACE_BYTES)
}

/// Of layers with these outputs and inputs, and two biases for each output, in bf16 and in f32.
fn layer_bytes(precision: GpuPrecision, layers: &[(usize, usize)]) -> usize {
    let bias = size_of::<bf16>() + size_of::<f32>();
    let output = |inner| match precision {
        GpuPrecision::Bf16 => inner * size_of::<bf16>(),
        GpuPrecision::Fp8 => inner,
        GpuPrecision::Int8 => Int8Rows::stride_of(inner) + size_of::<f32>(),
    };
    let bytes = layers
        .iter()
        .map(|&(outputs, inner)| outputs * (output(inner) + bias));
    bytes.sum()
}

fn weight_bytes(config: &ModelConfig, precision: GpuPrecision) -> usize {
    let (text, vision, region) = (&config.text, &config.vision, &config.region);
    let (d, ff, e, f) = (text.dim, text.ff_dim, vision.enc_dim, vision.enc_ff_dim);
    let inner = vision.proj_inner_dim;
    let of_projection = match precision {
        GpuPrecision::Fp8 => GpuPrecision::Bf16,
        same => same,
    };
    // Norms, which are small, are left out.
    let others = [
        (e, vision.patch_values().next_multiple_of(8)),
        (e, config.image_tokens()),
        (text.vocab_size, 2 * d),
        (d, region.coord_feat_dim + region.size_feat_dim),
        (region.inner_dim, 2 * d),
        (region.coord_out_dim + region.size_out_dim, region.inner_dim),
    ];
    vision.enc_n_layers * layer_bytes(precision, &[(3 * e, e), (e, e), (f, e), (e, f)])
        + text.n_layers * layer_bytes(precision, &[(3 * d + ff, d), (d, d + ff)])
        + layer_bytes(of_projection, &[(inner, 2 * e), (d, inner)])
        + layer_bytes(GpuPrecision::Bf16, &others)
}
