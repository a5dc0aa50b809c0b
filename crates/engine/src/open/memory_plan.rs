//! How much of a GPU's memory a model takes, and for what, decided before the first allocation. Pure.
//!
//! The plan takes the most images a step that fit, with a KV cache for their looks. What is left goes to kept crops
//! and more of the cache, up to what a GPU can use; the rest stays free.

use std::fmt;

use crate::{
    cuda::{self, CudaCapacity, Footprint},
    model::{Formats, ModelCalibration, ModelConfig},
    network::format::Number,
    scheduler::sequence::Bounds,
};
use spotter_core::GpuPrecision;

/// KV positions of a page.
pub(super) const PAGE_TOKENS: usize = 16;

/// Longest prompt in tokens that memory is reserved for: 200 characters and the template around them. Plain words need
/// a quarter of it; where every character is several tokens (byte pairs know few scripts well), a full group of such
/// prompts may not fit.
const PROMPT_MAX_TOKENS: usize = 216;

/// Steps in flight: one runs while the host settles the one before.
pub(super) const SLOTS: usize = 2;

/// Pages of an image's prefix, and of the longest row behind it.
pub(super) fn pages(config: &ModelConfig, bounds: Bounds) -> (usize, usize) {
    let objects = bounds.max_objects * 3;
    let own = PROMPT_MAX_TOKENS + objects.max(bounds.max_tokens);
    let own = own.min(config.context() - config.prefix_positions());
    let prefix = config.prefix_positions().div_ceil(PAGE_TOKENS);
    (prefix, own.div_ceil(PAGE_TOKENS))
}

/// Crops of a picture: its tiles and the whole.
pub(super) fn crops_max(config: &ModelConfig) -> usize {
    config.vision.max_crops + 1
}

/// Steps from the beginning of a look with one object to its answer's commit; it has rows in three of them.
const STEPS_PER_LOOK: usize = 4;

/// Looks that may be inside an engine on a GPU whose steps have room for so many images, if its cache has room for them: each step may be
/// full of new ones.
pub fn gpu_permits(images: usize) -> usize {
    STEPS_PER_LOOK * images
}

/// The same on a GPU whose cache has room for few: each step in flight may be full of new ones.
fn least_permits(images: usize) -> usize {
    SLOTS * images
}

/// Sizes of a step: many crops fill a large GPU; few take little memory.
struct StepSize {
    images: usize,
    /// Prompts that are decoded together; a row more costs a GPU next to nothing.
    rows: usize,
    /// Crops that the encoder computes together, of up to 13 an image.
    crops_at_once: usize,
}

/// From the largest to the smallest.
const STEP_SIZES: [StepSize; 4] = [
    StepSize {
        images: 8,
        rows: 32,
        crops_at_once: 104,
    },
    StepSize {
        images: 4,
        rows: 32,
        crops_at_once: 52,
    },
    StepSize {
        images: 2,
        rows: 16,
        crops_at_once: 13,
    },
    StepSize {
        images: 1,
        rows: 8,
        crops_at_once: 5,
    },
];
/// The most images a step of a GPU with less than [`LARGE_BYTES`] of memory: its multiprocessors are few enough to be filled by them. (An
/// H200's products of one crop each: four images 503 TFLOP/s.)
const IMAGES_UNLESS_LARGE: usize = 4;
const LARGE_BYTES: usize = 40 << 30;
/// Prefixes that a GPU has room for, at most, for each image of a step: those that are read, those that are made, and those of pictures
/// that did not change.
const PREFIXES_PER_IMAGE: usize = 6;
/// The same where a step has few images.
const LEAST_PREFIXES_MAX: usize = 24;
/// Rows of each look in flight, as long as they can get, that the cache has room for, at least.
const ROWS_PER_LOOK: usize = 2;
/// Cameras whose crops are kept, at most; with Moondream 2 some 20 MB each. More than a GPU can serve at useful rates.
const CAMERAS_MAX: usize = 32;
/// Share of what is left that kept crops may take.
const KEPT_SHARE: usize = 4;
/// What the driver takes: 523 MiB for the context of an H100, 20 for kernels of ours and cuBLASLt's and for recorded launches, and 24 because it
/// rounds allocations (driver 580.159.04, bf16 within 6 GiB). Smaller GPUs have smaller contexts.
const DRIVER_BYTES: usize = 600 << 20;
/// Share of a GPU's memory that is left to other users, decoders first, unless the configuration has a limit.
const OTHERS_SHARE: usize = 16;

/// The memory of a GPU, bytes.
#[derive(Clone, Copy, Debug)]
pub struct GpuMemory {
    pub total: usize,
    pub free: usize,
    /// `model.memory`.
    pub limit: Option<usize>,
}

impl GpuMemory {
    /// What an engine may take.
    fn usable(&self) -> usize {
        match self.limit {
            Some(limit) => limit.min(self.free),
            None => self.free.saturating_sub(self.total / OTHERS_SHARE),
        }
    }
}

/// What a plan is made from.
#[derive(Clone, Copy)]
pub struct PlanInputs<'a> {
    /// Of a shard, where GPUs work as one.
    pub config: &'a ModelConfig,
    pub bounds: Bounds,
    pub precision: GpuPrecision,
    /// Says which layers are not in int8.
    pub measured: Option<&'a ModelCalibration>,
    /// What the file has experts in, if it has some.
    pub experts: Option<Number>,
    /// Adapters that it is to have room for.
    pub adapters: usize,
    /// The GPU's tensor cores support fp8.
    pub has_fp8: bool,
    /// Of each GPU.
    pub memory: GpuMemory,
}

/// What is allocated on a GPU, and on each of those that work as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    pub capacity: CudaCapacity,
    pub footprint: Footprint,
    /// Looks that may be inside the engine at once.
    pub permits: usize,
    ranks: usize,
}

impl MemoryPlan {
    /// The plan with the most images a step. The error says what is needed, what there is, and what would fit.
    pub fn new(inputs: PlanInputs<'_>) -> Result<Self, String> {
        let is_large = inputs.memory.total >= LARGE_BYTES;
        let images_max = if is_large {
            usize::MAX
        } else {
            IMAGES_UNLESS_LARGE
        };
        let sizes = STEP_SIZES.iter().filter(|size| size.images <= images_max);
        for size in sizes {
            let least = Self::least(&inputs, size)?;
            let usable = inputs.memory.usable();
            if least.total() <= usable {
                let left = usable - DRIVER_BYTES - least.footprint.running();
                return least.with_more(&inputs, left);
            }
        }
        Err(does_not_fit(&inputs))
    }

    /// With as much as steps of that size need.
    fn least(inputs: &PlanInputs<'_>, size: &StepSize) -> Result<Self, String> {
        let (prefix, own) = pages(inputs.config, inputs.bounds);
        let pages = least_permits(size.images) * (prefix + ROWS_PER_LOOK * own);
        Self::of(
            inputs,
            CudaCapacity {
                slots: SLOTS,
                rows: size.rows,
                images: size.images,
                crops_at_once: size.crops_at_once,
                pages: pages.max(cuda::pages_min(inputs.config)),
                kept_crops: crops_max(inputs.config),
                adapters: inputs.adapters,
            },
        )
    }

    fn of(inputs: &PlanInputs<'_>, capacity: CudaCapacity) -> Result<Self, String> {
        let formats = Formats::on_gpu(inputs.precision, inputs.measured, inputs.experts);
        let footprint = Footprint::of(inputs.config, formats, capacity);
        let (prefix, own) = pages(inputs.config, inputs.bounds);
        let room = capacity.pages / (prefix + ROWS_PER_LOOK * own);
        let images = capacity.images;
        Ok(Self {
            capacity,
            permits: room.clamp(least_permits(images), gpu_permits(images)),
            footprint: footprint.map_err(|error| error.to_string())?,
            ranks: inputs.config.text.shard.ranks,
        })
    }

    /// With more kept crops and more of the cache, for up to `left` bytes.
    fn with_more(self, inputs: &PlanInputs<'_>, left: usize) -> Result<Self, String> {
        let (prefix, own) = pages(inputs.config, inputs.bounds);
        let crop_bytes = cuda::crop_bytes(inputs.config);
        let mut capacity = self.capacity;
        let crops = left / KEPT_SHARE / crop_bytes;
        let crops_max = CAMERAS_MAX * crops_max(inputs.config);
        let more_crops = crops.min(crops_max.saturating_sub(capacity.kept_crops));
        capacity.kept_crops += more_crops;
        let left = left - more_crops * crop_bytes;
        let prefixes_max = LEAST_PREFIXES_MAX.max(PREFIXES_PER_IMAGE * capacity.images);
        let pages_max = prefixes_max * prefix + capacity.rows * own;
        let more_pages = pages_max.saturating_sub(capacity.pages);
        capacity.pages += more_pages.min(left / cuda::page_bytes(inputs.config));
        Self::of(inputs, capacity)
    }

    /// The most that the engine takes at a time, the driver included.
    pub fn total(&self) -> usize {
        let part = &self.footprint;
        part.running().max(part.calibration) + DRIVER_BYTES
    }
}

impl fmt::Display for MemoryPlan {
    /// One line for the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (part, capacity) = (&self.footprint, &self.capacity);
        write!(
            f,
            "GPU memory{}: {}, buffers {}, KV cache {}, kept crops {}, driver about {}; images a step: {}, looks in flight: {}",
            match self.ranks {
                1 => String::new(),
                ranks => format!(" on each of {ranks} GPUs"),
            },
            shown_weights(part),
            shown(part.scratch),
            shown(part.cache),
            shown(part.kept),
            shown(DRIVER_BYTES),
            capacity.images,
            self.permits,
        )
    }
}

/// The message about a model that does not fit.
fn does_not_fit(inputs: &PlanInputs<'_>) -> String {
    let least = match smallest(inputs, inputs.precision) {
        Ok(least) => least,
        Err(error) => return error,
    };
    let needed = least.total();
    let wanted = inputs.precision.name();
    let part = &least.footprint;
    let parts = match part.calibration > part.running() {
        true => "its weights are in bf16 while fp8 is calibrated".to_owned(),
        false => format!(
            "{}, buffers {}, KV cache {}, driver about {}",
            shown_weights(part),
            shown(part.scratch),
            shown(part.cache),
            shown(DRIVER_BYTES)
        ),
    };
    let memory = &inputs.memory;
    let (free, usable) = (gib_down(memory.free), gib_down(memory.usable()));
    let room = match memory.limit {
        Some(limit) if limit <= memory.free => format!("model.memory allows {usable}"),
        Some(_) => format!("{free} are free"),
        None => format!(
            "{free} are free, of which {usable} can be used beside decoders and other programs"
        ),
    };
    let others = [
        GpuPrecision::Bf16,
        GpuPrecision::Fp8,
        GpuPrecision::Int8,
        GpuPrecision::Int4,
    ];
    let mut remedies: Vec<String> = others
        .into_iter()
        .filter_map(|precision| remedy(inputs, precision))
        .collect();
    let without = PlanInputs {
        adapters: 0,
        ..*inputs
    };
    let fits_without = smallest(&without, inputs.precision)
        .is_ok_and(|plan| plan.total() <= inputs.memory.usable());
    if inputs.adapters > 0 && fits_without {
        remedies.push("remove [adapter] tables".to_owned());
    }
    remedies.push(match memory.limit {
        Some(limit) if limit < needed && needed <= memory.free => {
            format!(
                "raise model.memory to \"{}\" or more",
                gib_up(needed).replace(' ', "")
            )
        }
        _ => "end other programs that use the GPU".to_owned(),
    });
    let of_whom = match inputs.config.text.shard.ranks {
        1 => "the GPU's memory".to_owned(),
        ranks => format!("the memory of each of {ranks} GPUs"),
    };
    format!(
        "the model needs {} of {of_whom} in {wanted} with one image a step, the fewest ({parts}); {room}; {}, or use device = \"cpu\"",
        gib_up(needed),
        remedies.join(", or ")
    )
}

/// The smallest plan in that precision.
fn smallest(inputs: &PlanInputs<'_>, precision: GpuPrecision) -> Result<MemoryPlan, String> {
    let [.., size] = &STEP_SIZES;
    let inputs = PlanInputs {
        precision,
        ..*inputs
    };
    MemoryPlan::least(&inputs, size)
}

/// What to write for a precision in which the model fits.
fn remedy(inputs: &PlanInputs<'_>, precision: GpuPrecision) -> Option<String> {
    let is_supported = match precision {
        GpuPrecision::Bf16 | GpuPrecision::Int8 => true,
        GpuPrecision::Fp8 => inputs.has_fp8,
        GpuPrecision::Int4 => inputs.experts.is_some(),
    };
    let needed = smallest(inputs, precision).ok()?.total();
    let name = precision.name();
    (is_supported && needed <= inputs.memory.usable()).then(|| {
        format!(
            "set model.precision = \"{name}\", which needs {}",
            gib_up(needed)
        )
    })
}

const GIB: f64 = (1 << 30) as f64;

fn shown(bytes: usize) -> String {
    match bytes as f64 / GIB {
        gib if gib < 1.0 => format!("{} MiB", bytes >> 20),
        gib => format!("{gib:.1} GiB"),
    }
}

fn shown_weights(part: &Footprint) -> String {
    let weights = shown(part.weights);
    match part.adapters {
        0 => format!("weights {weights}"),
        adapters => format!("weights {weights}, adapters {}", shown(adapters)),
    }
}

/// What is needed, not less.
fn gib_up(bytes: usize) -> String {
    format!("{:.1} GiB", (bytes as f64 / GIB * 10.0).ceil() / 10.0)
}

/// What there is, not more.
fn gib_down(bytes: usize) -> String {
    format!("{:.1} GiB", (bytes as f64 / GIB * 10.0).floor() / 10.0)
}

#[cfg(test)]
pub(super) mod tests;
