//! Models, device independent: what any backend needs to run one, and what surrounds its forward pass.
//!
//! [`ModelFamily`] is the seam to what differs between families; `moondream` has those that exist. Shared by families: files,
//! safetensors, tokenizer, colours and scaling, the form of prompts, grammars and results.
//!
//! Not here: the structure of a network ([`crate::network`]), its arithmetic (the backends') and when a step runs (the scheduler's).

mod adapter;
mod bins;
mod calibration;
mod colour;
mod config;
mod endless;
mod families;
mod family;
mod files;
mod formats;
mod grammar;
mod moondream;
mod output;
mod pickle;
mod prompt;
mod random;
mod resize;
mod source;
mod tensor;
mod tokenizer;
mod weights;

pub use crate::network::layers::{LargeLayer, LayerShape};
pub use adapter::{ADAPTER_RANK_MAX, AdapterFile, AdapterWeights, LowRank, check_adapter};
pub use bins::{BINS, bin_from_coord, bin_from_size, coord_from_bin, size_from_bin};
pub use calibration::{
    CalibrationError, CalibrationState, INT8_ERROR_MAX, LayerRange, ModelCalibration,
    calibration_inputs,
};
pub use colour::{rgb_from_picture, yuv_coefficients};
pub use config::{
    CaptionTemplates, DecoderArch, LAYER_NORM_EPS, ModelConfigError, MoeConfig, ROPE_THETA,
    ROTARY_DIM, RegionConfig, Template, Templates, TextConfig, TokenizerConfig, VisionConfig,
};
pub use endless::without_ends;
pub use families::{FAMILIES, FamilyClues, parse_config, released_config};
pub use family::{ConfigFile, ModelConfig, ModelFamily, ModelFile};
pub use files::{LoadedModel, ModelError, check_model, load_model, model_config, model_tokenizer};
pub use formats::Formats;
pub use grammar::{AnswerGrammar, Skill, TextGrammar, ValueTokens};
pub use moondream::{Crops, Tiling, crops, cut_crops, normalise_table, tiling, view_tiling};
pub use output::{
    DrawnOutline, ObjectBins, OutputLength, OutputPiece, SequenceOutput, Thoughts, ValueBins,
    Vertex,
};
pub use pickle::{FileTensor, row_major, torch_tensors};
pub use prompt::{DecoderInput, ModelPrompt, PromptError, QueryWords};
pub use random::random_weights;
pub use resize::{ResizeTaps, is_down_first, taps};
pub use source::{TensorName, TensorSource, WeightsFile};
pub use tensor::{FileRange, StoredValues, Tensor, TensorBytes, TensorData, WeightsError};
pub use tokenizer::{Tokenizer, TokenizerError};
pub use weights::{LinearWeights, Weights};
