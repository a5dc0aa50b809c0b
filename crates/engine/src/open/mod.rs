//! From the `[model]` section to an engine: the files, the device, and what is known of both.

mod adapter_check;
mod device;
mod engine;
mod gpus;
pub(crate) mod known_picture;
mod memory_plan;
mod placement;
mod precision;
mod prompt_check;
mod warm_up;

pub use adapter_check::check_adapters;
pub use device::{ModelDevice, choose, choose_one, frames_on, is_tegra};
pub use engine::{
    Bare, MEASURED_SIZE, ModelCard, ModelOpening, build_backend, build_endless_engine,
    measured_look,
};
pub use memory_plan::gpu_permits;
#[cfg(test)]
pub use memory_plan::{GpuMemory, MemoryPlan, tests::inputs as plan_inputs};
pub use placement::{CalibrationPictures, GpuId, LoadedDevice, ModelToPlace};
pub use prompt_check::PromptCheck;
pub use warm_up::{ExpectedLook, warm_up};
