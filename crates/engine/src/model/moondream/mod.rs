//! The Moondream family (docs/moondream.md): the only code that knows its dimensions, tensor names, token ids, tiling, prompt templates and
//! answers. Backends compute with its typed configuration and weights.

mod config;
mod config_check;
mod crops;
mod grammar;
mod md2;
mod network;
mod prompts;
mod tiling;

pub use crops::{Crops, crops, cut_crops, normalise_table};
pub use md2::Moondream2;
pub use prompts::prompt_tokens;
pub use tiling::{Tiling, tiling, view_tiling};
