//! Runs a Moondream-class vision-language model on a CPU or an NVIDIA GPU: looks in, answers out.

pub mod step_check;
pub mod cpu;
#[expect(
    unsafe_code,
    reason = "the GPU's module; each block argues why it is sound"
)]
pub mod cuda;
pub mod service;
pub mod gpu_stats;
pub mod model;
pub mod open;
pub mod scheduler;
pub mod sim;
#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test helpers panic with what is wrong"
)]
pub mod testing;
