//! Models, device independent: what any backend needs to run one, and what surrounds its forward pass.
//!
//! [`ModelFamily`] is the seam to what differs between families; `moondream2` is the one that exists. Shared by families: files,
//! safetensors, tokenizer, colours and scaling, the form of prompts, grammars and results.
//!
//! Not here: arithmetic of the network (the backends') and when a step runs (the scheduler's).

mod calibration;
mod colour;
mod families;
mod family;
mod files;
mod grammar;
mod moondream2;
mod output;
mod pickle;
mod prompt;
mod resize;
mod source;
mod spec;
mod tensor;
mod tokenizer;
mod weights;

pub use calibration::{
    CalibrationError, CalibrationState, INT8_ERROR_MAX, LayerRange, ModelCalibration,
    calibration_inputs,
};
pub use colour::{rgb_from_picture, yuv_coefficients};
pub use families::{FAMILIES, parse_config};
pub use family::{ModelFamily, ModelFile};
pub use files::{LoadedModel, ModelError, check_model, load_model, model_config, model_tokenizer};
pub use grammar::{AnswerGrammar, Skill, TextGrammar};
pub use moondream2::{
    BINS, CaptionTemplates, Crops, DetectWork, LAYER_NORM_EPS, LargeLayer, LayerShape, LookWork,
    ModelConfig, ModelConfigError, ModelWork, ROPE_THETA, ROTARY_DIM, RegionConfig, Template,
    Templates, TextConfig, Tiling, TokenizerConfig, VisionConfig, bin_from_coord, bin_from_size,
    coord_from_bin, crops, cut_crops, decoder_mb, kv_mb, normalise_table, prompt_tokens,
    random_weights, size_from_bin, tiling, view_tiling, vision_mb, without_ends,
};
pub use output::{ObjectBins, SequenceOutput};
pub use pickle::{FileTensor, row_major, torch_tensors};
pub use prompt::{DecoderInput, ModelPrompt, PromptError};
pub use resize::{ResizeTaps, is_down_first, taps};
pub use source::{TensorSource, WeightsError, WeightsFile};
pub use spec::{LayerSpec, NetworkSpec, TensorSpec};
pub use tensor::{FileRange, FloatFormat, Tensor, TensorBytes, TensorData};
pub use tokenizer::{Tokenizer, TokenizerError};
pub use weights::{LinearWeights, Weights};
