//! The backend on the CPU: plain, readable, f32. The oracle of every kernel, and what runs the embedded model. In int8 the large products
//! are in 8 bits, and all else is the same.
//!
//! Belongs here: the arithmetic of a step and the memory of its cache. Not here: what the numbers mean outside of the
//! network (`model`) and which step runs when (`engine`).
//!
//! ```text
//!   the caller's thread                      the stream's thread
//!   backend   every call: checked, sent      stream  commands in, results out, in order
//!   contract  is the step sound, is it       device  a step: crops, images, rows, decisions
//!             the call's turn                tiles   crops that need not be encoded again
//!
//!   vision    crops to image tokens          text    positions to keys, values and hidden states
//!   region    coordinates and sizes          decide  hidden states to decisions
//!   blocks, attention, tau, rope, experts      kv      the paged cache
//!   ops, gemm, int8                             rank    partial sums of backends that work as one
//!   measure   pictures to a calibration        samples inputs of large layers
//! ```
//!
//! All values are row-major f32; shapes are written `[outermost, .., innermost]`. Rotated keys keep the two halves of a
//! head apart (dimension j turns with j + 16), while the reference stores them interleaved; scores are the same.

mod adapter;
mod attention;
mod backend;
mod blocks;
mod ceiling;
mod decide;
mod device;
mod experts;
mod gemm;
mod int8;
mod kv;
mod measure;
mod ops;
mod rank;
mod region;
mod rope;
mod samples;
mod span;
mod stream;
mod tau;
mod text;
mod tiles;
mod vision;

#[cfg(test)]
mod tests;

pub use backend::{CpuBackend, CpuSettings};
pub use ceiling::product_gflop_per_s;
pub use measure::{MeasuredBlocks, measure_layers};
pub use rank::CpuRank;
