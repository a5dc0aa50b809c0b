//! The backend on an NVIDIA GPU: Moondream 2 in bf16 or fp8, kernels from `kernels/`, products by cuBLASLt.
//!
//! ```text
//!   Step ─▶ program ─▶ slot ─▶ frames ─▶ network ─▶ records ─▶ Committed
//!           tables     copies  patches   products, kernels
//! ```
//!
//! A row's numbers depend a little on its step. Steps of up to 2, 8, 16 and 32 positions have kernels of their own, larger ones run kernel by
//! kernel with an algorithm of cuBLASLt for each number of rows, and each adds up in another order: hidden states in bf16 differ by 0.22 %
//! of their norm (fp8 0.34 %). Equal steps give equal bits. But what else runs, drafts, evictions and the depth of the pipeline make other
//! steps, so where two choices are nearly equally likely, the answer may be the other one.
//!
//! Belongs here: everything that uses CUDA, and all `unsafe` of the crate; each block states why it is sound. [`foreign`] uses
//! GStreamer too, which has the address of a decoder's buffer. Not here: when a step runs (`scheduler`) and what is in it (`model`).
//! Nothing is linked: driver, NVRTC and cuBLASLt are found at run time, and [`library`] reports what is missing.
//!
//! | file | contents |
//! | --- | --- |
//! | [`arch`] | whose code paths and limits are used |
//! | [`library`], [`error`] | the driver, NVRTC and cuBLASLt on the machine; errors |
//! | [`compile`] | kernels to machine code, cached |
//! | [`memory`] | buffers of the GPU, pinned memory, copies |
//! | [`tensor`] | values that all of the below share: rows, layers, products |
//! | [`kernels`], [`products`] | one safe function for each kernel; products with weights |
//! | [`weights`], [`fp8`] | the model on the GPU; scales and buffers of fp8 |
//! | [`adapters`] | what adapters add, in slots |
//! | [`peers`] | what GPUs exchange that compute one model together |
//! | [`footprint`] | bytes that a backend allocates; pure |
//! | [`program`] | a step as tables; pure |
//! | [`reuse`] | crops that need not be encoded again; pure |
//! | [`stage`], [`foreign`] | frames to the GPU; frames that a decoder left there |
//! | [`frames`], [`network`] | frames to patches; the forward pass |
//! | [`graphs`] | CUDA graphs of steps that are not one launch |
//! | [`slot`], [`clock`], [`backend`] | steps in flight, their times, the backend |
//! | [`ceilings`] | speeds that the GPU sustains; for benchmarks |

mod adapters;
mod arch;
mod backend;
mod ceilings;
mod clock;
pub mod compile;
mod error;
mod footprint;
mod foreign;
mod fp8;
mod frames;
mod graphs;
mod kernels;
mod library;
mod memory;
mod network;
mod peers;
mod products;
mod program;
mod record;
mod reuse;
mod slot;
mod stage;
mod tensor;
mod weights;

pub use backend::{CudaBackend, CudaCapacity, CudaRank, CudaSettings, pages_min, supported};
pub use ceilings::{
    Ceilings, PrecisionSpeed, SustainedSpeed, measure_ceilings, measure_precisions,
};
pub use error::CudaError;
pub use footprint::{Footprint, crop_bytes, page_bytes};
pub use foreign::{FrameImport, take_frame};
pub use library::{Gpu, kernel_cache, open};

#[cfg(test)]
mod tests;
