//! Moondream 2, device independent: what any backend needs to run it, and what surrounds its forward pass.
//!
//! Belongs here: dimensions, weights with checked shapes, pictures to crops, prompts to token ids, bins to values.
//! Not here: arithmetic of the network (the backends') and when a step runs (the engine's).

mod colour;
mod config;
mod config_check;
mod crops;
mod embedded;
mod endless;
mod files;
mod found;
mod ids;
mod prompt;
mod random;
mod region;
mod resize;
mod source;
mod tensor;
mod tiling;
mod tokenizer;
mod weights;

pub use colour::{picture_from_image, rgb_from_picture, yuv_coefficients};
pub use config::{
    CaptionTemplates, LAYER_NORM_EPS, ModelConfig, ModelConfigError, ROPE_THETA, ROTARY_DIM,
    RegionConfig, Template, Templates, TextConfig, TokenizerConfig, VisionConfig,
};
pub use crops::{Crops, crops, normalise_table};
pub use endless::without_ends;
pub use files::{LoadedModel, ModelError, check_model, load_model};
pub use found::{ObjectBins, SequenceOutput, Thought};
pub use ids::TokenIds;
pub use prompt::{
    DecoderInput, PromptError, SpatialRef, prompt_tokens, query_tokens, text_only_tokens,
};
pub use random::random_weights;
pub use region::{BINS, bin_from_coord, bin_from_size, coord_from_bin, size_from_bin};
pub use resize::{ResizeTaps, is_down_first, taps};
pub use source::{TensorSource, WeightsError, WeightsFile};
pub use tensor::{FloatFormat, Tensor, TensorBytes, TensorData};
pub use tiling::{Tiling, tiling};
pub use tokenizer::{TextStream, Tokenizer, TokenizerError};
pub use weights::{
    LinearWeights, NormWeights, RegionWeights, TextBlock, TextWeights, VisionBlock, VisionWeights,
    Weights,
};
