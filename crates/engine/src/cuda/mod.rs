//! The backend on an NVIDIA GPU: Moondream 2 in bf16 or fp8, kernels from `kernels/`, products by cuBLASLt.
//!
//! ```text
//!   Step ─▶ program ─▶ slot ─▶ frames ─▶ network ─▶ records ─▶ Committed
//!           tables     copies  patches   products, kernels
//! ```
//!
//! Belongs here: everything that knows CUDA, and all `unsafe` of the crate; each block of it argues why it is sound. So
//! [`foreign`] knows GStreamer too, to ask a decoder's buffer for its address. Not here: when a step runs (`engine`), what
//! stands in it (`model`). Nothing is linked: driver, NVRTC and cuBLASLt are found
//! at run time, and what is missing is said ([`library`]).
//!
//! | file | what it is |
//! | --- | --- |
//! | [`library`], [`error`] | what has to be on the machine |
//! | [`compile`] | kernels to machine code, cached |
//! | [`memory`] | buffers of the GPU, pinned memory, copies |
//! | [`kernels`], [`products`] | one safe function for each kernel; products with weights |
//! | [`weights`], [`fp8`] | the model on the GPU; what fp8 needs beside bf16 |
//! | [`program`] | a step as tables; pure |
//! | [`reuse`] | crops that need not be encoded again; pure |
//! | [`stage`], [`foreign`] | frames to the GPU; frames that a decoder left there |
//! | [`frames`], [`network`] | frames to patches; the forward pass |
//! | [`decode`], [`graphs`] | steps of few positions in one launch; what is recorded of others |
//! | [`slot`], [`clock`], [`backend`] | steps in flight, and when they ran |
//! | [`ceilings`] | what the GPU sustains; for benchmarks |

mod backend;
mod cache_file;
mod ceilings;
mod clock;
pub mod compile;
mod decode;
mod error;
mod foreign;
mod fp8;
mod frames;
mod graphs;
mod kernels;
mod library;
mod memory;
mod network;
mod products;
mod program;
mod record;
mod reuse;
mod slot;
mod stage;
mod weights;

pub use backend::{CudaBackend, CudaCapacity, CudaSettings, Precision};
pub use ceilings::{Ceilings, SustainedSpeed, measure_ceilings};
pub use error::CudaError;
pub use foreign::{TakeFrame, take_frame};
pub use library::{Gpu, open};

#[cfg(test)]
mod tests;
