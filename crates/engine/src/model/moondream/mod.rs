//! The Moondream family (docs/moondream.md): the only code that knows its dimensions, tensor names, token ids, tiling, prompt templates and
//! answers. Backends compute with its typed configuration and weights.

mod adapter;
mod config;
mod config_check;
mod crops;
mod grammar;
mod md2;
mod md3;
mod names;
mod network;
mod path;
mod prompts;
mod thoughts;
mod tiling;

pub use crops::{Crops, crops, cut_crops, normalise_table};
pub use md2::Moondream2;
pub use md3::Moondream3;
pub use tiling::{Tiling, tiling, view_tiling};
