//! `calibration.toml`: what the user's own pictures showed of a model's large layers. `spotter model calibrate` writes it into the model
//! directory, and the loader reads it.
//!
//! ```text
//!   pictures ─▶ the model in f32 (cpu::measure_layers) ─▶ calibration.toml ─┬─▶ fp8: the largest inputs, for the scales
//!                                                                           └─▶ int8: the errors, for the layers that stay wide
//! ```

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{family::ModelConfig, prompt::DecoderInput};
use crate::network::layers::LargeLayer;
use spotter_core::{FileReaders, read_short_file, write_file_for};

const HEAD: &str = "# Written by `spotter model calibrate`. Spotter reads it when it loads the model with these weights.\n\n";
/// No calibration is longer, in bytes.
const MAX_BYTES: u64 = 256 * 1024;
/// Layers whose error is larger are not computed in int8: it is what rounding to e4m3 adds to a product of any layer, so no layer in int8
/// is worse than in fp8. The largest error of the embedded model is 0.015, of weights of true widths made by a rule 0.013.
pub const INT8_ERROR_MAX: f32 = 0.04;
/// Tokens of a calibration's prompt, spread over the vocabulary.
const TOKENS: usize = 16;

/// What pictures showed of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerRange {
    /// The largest size of an input.
    pub largest_input: f32,
    /// Of the product in int8 against f32, without the bias: the error of a row of results relative to that row, as the root of the mean
    /// square over rows.
    pub int8_error: f32,
}

/// What pictures showed of all large layers of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelCalibration {
    /// Number of pictures.
    pub pictures: usize,
    /// Of every large layer.
    layers: BTreeMap<LargeLayer, LayerRange>,
}

/// What is known of a model's large layers.
#[derive(Clone, Debug, PartialEq)]
pub enum CalibrationState {
    /// There is no `calibration.toml`.
    Missing,
    /// It is damaged, or of other weights. The model runs as without it.
    Unusable(CalibrationError),
    Measured(ModelCalibration),
}

/// Why a `calibration.toml` is not used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct CalibrationError {
    path: PathBuf,
    reason: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CalibrationRecord {
    weights_sha256: String,
    pictures: usize,
    #[serde(rename = "layer")]
    layers: Vec<LayerRecord>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerRecord {
    name: String,
    largest_input: f32,
    int8_error: f32,
}

impl ModelCalibration {
    /// Name of the file in a model directory.
    pub const FILE: &str = "calibration.toml";

    /// `layers` are all large layers of the model.
    pub fn new(pictures: usize, layers: BTreeMap<LargeLayer, LayerRange>) -> Self {
        Self { pictures, layers }
    }

    /// The calibration in a model directory; `None` when it has none. An error when it is damaged or of other weights. Blocks on the
    /// disk.
    fn read(
        directory: &Path,
        weights_sha256: &str,
        config: &ModelConfig,
    ) -> Result<Option<Self>, CalibrationError> {
        let path = directory.join(Self::FILE);
        let parsed = match read_short_file(&path, MAX_BYTES) {
            Ok(None) => return Ok(None),
            Ok(Some(text)) => Self::parse(&text, weights_sha256, config),
            Err(error) => Err(format!("cannot be read: {error}")),
        };
        match parsed {
            Ok(calibration) => Ok(Some(calibration)),
            Err(reason) => Err(CalibrationError { path, reason }),
        }
    }

    /// Replaces the calibration of a model directory. Blocks on the disk.
    pub fn write(
        &self,
        directory: &Path,
        weights_sha256: &str,
        config: &ModelConfig,
    ) -> io::Result<()> {
        let layer = |layer: LargeLayer| {
            let range = self.layers.get(&layer)?;
            Some(LayerRecord {
                name: layer.to_string(),
                largest_input: range.largest_input,
                int8_error: range.int8_error,
            })
        };
        let record = CalibrationRecord {
            weights_sha256: weights_sha256.to_owned(),
            pictures: self.pictures,
            layers: config.large_layers().filter_map(layer).collect(),
        };
        let text = toml::to_string(&record).map_err(io::Error::other)?;
        let path = directory.join(Self::FILE);
        write_file_for(
            FileReaders::Everyone,
            &path,
            format!("{HEAD}{text}").as_bytes(),
        )
    }

    fn parse(text: &str, weights_sha256: &str, config: &ModelConfig) -> Result<Self, String> {
        let record: CalibrationRecord =
            toml::from_str(text).map_err(|error| format!("is no calibration: {error}"))?;
        if record.weights_sha256 != weights_sha256 {
            return Err("it was made with other weights".into());
        }
        let mut found: BTreeMap<String, LayerRecord> = BTreeMap::new();
        for layer in record.layers {
            found.insert(layer.name.clone(), layer);
        }
        let mut layers = BTreeMap::new();
        for layer in config.large_layers() {
            let name = layer.to_string();
            let found = found.remove(&name);
            let found = found.ok_or_else(|| format!("the layer {name} is missing"))?;
            let range = LayerRange {
                largest_input: found.largest_input,
                int8_error: found.int8_error,
            };
            let values = [range.largest_input, range.int8_error];
            if !values
                .iter()
                .all(|value| value.is_finite() && *value >= 0.0)
            {
                return Err(format!(
                    "the values of the layer {name} must be numbers from 0 on"
                ));
            }
            layers.insert(layer, range);
        }
        match found.keys().next() {
            Some(name) => Err(format!("the model has no layer {name}")),
            None => Ok(Self::new(record.pictures, layers)),
        }
    }

    /// The largest size of an input of a layer; 0 for a layer that was not measured.
    pub fn largest_input(&self, layer: LargeLayer) -> f32 {
        let range = self.layers.get(&layer);
        range.map_or(0.0, |range| range.largest_input)
    }

    /// True for a layer that is not computed in int8.
    pub fn is_wide(&self, layer: LargeLayer) -> bool {
        let range = self.layers.get(&layer);
        range.is_some_and(|range| range.int8_error > INT8_ERROR_MAX)
    }

    /// All layers with their errors in int8, the largest first.
    pub fn by_error(&self) -> Vec<(LargeLayer, f32)> {
        let errors = self.layers.iter();
        let mut errors: Vec<(LargeLayer, f32)> = errors
            .map(|(layer, range)| (*layer, range.int8_error))
            .collect();
        errors.sort_by(|a, b| b.1.total_cmp(&a.1));
        errors
    }

    /// The line about a model whose layers were measured.
    fn about_int8(&self, wide: &str) -> String {
        let errors = self.by_error();
        let kept = errors.iter().filter(|(layer, _)| self.is_wide(*layer));
        let kept: Vec<String> = kept.map(shown).collect();
        let (pictures, all, bound) = (self.pictures, errors.len(), 100.0 * INT8_ERROR_MAX);
        if kept.is_empty() {
            let largest = errors.first().map(shown).unwrap_or_default();
            return format!(
                "int8: all {all} large layers; the largest error on {pictures} pictures is that of {largest}, {bound:.0} % are allowed"
            );
        }
        format!(
            "int8: {} of {all} large layers stay in {wide}, because their error on {pictures} pictures is above {bound:.0} %: {}",
            kept.len(),
            kept.join(", ")
        )
    }
}

impl CalibrationState {
    /// Of a model directory. Blocks on the disk.
    pub fn of(directory: &Path, weights_sha256: &str, config: &ModelConfig) -> Self {
        match ModelCalibration::read(directory, weights_sha256, config) {
            Ok(Some(calibration)) => Self::Measured(calibration),
            Ok(None) => Self::Missing,
            Err(error) => Self::Unusable(error),
        }
    }

    pub fn measured(&self) -> Option<&ModelCalibration> {
        match self {
            Self::Measured(calibration) => Some(calibration),
            Self::Missing | Self::Unusable(_) => None,
        }
    }

    /// A line about the layers in int8; those that are not are in the format `wide`.
    pub fn about_int8(&self, wide: &str) -> String {
        match self {
            Self::Measured(measured) => measured.about_int8(wide),
            Self::Missing => format!(
                "int8: all large layers; their errors were not measured, which {REMEDY} does: layers with large errors then stay in {wide}"
            ),
            Self::Unusable(error) => {
                format!("int8: all large layers, because {error}; {REMEDY} replaces it")
            }
        }
    }

    /// A line about the scales of fp8, which are made from `drawn` scenes too.
    pub fn about_fp8(&self, drawn: usize) -> String {
        match self {
            Self::Measured(ModelCalibration { pictures, .. }) => {
                format!("fp8: scales of {pictures} pictures and of {drawn} drawn scenes")
            }
            Self::Missing => format!(
                "fp8: scales of {drawn} drawn scenes alone; {REMEDY} adds those of your pictures"
            ),
            Self::Unusable(error) => format!(
                "fp8: scales of {drawn} drawn scenes alone, because {error}; {REMEDY} replaces it"
            ),
        }
    }
}

/// What a calibration feeds behind the image of each picture: a prompt, and inputs of all other kinds.
pub fn calibration_inputs(config: &ModelConfig) -> Vec<DecoderInput> {
    let vocab = config.text.vocab_size;
    let words = (1..=TOKENS).map(|i| (i * vocab / (TOKENS + 1)) as u32);
    let words: Vec<u32> = words.collect();
    let mut inputs = config.family.object_prompt(&words, config);
    inputs.extend([
        DecoderInput::Coord(0.25),
        DecoderInput::Coord(0.75),
        DecoderInput::Size(0.1, 0.4),
    ]);
    inputs
}

const REMEDY: &str = "`spotter model calibrate PICTURES`";

/// A layer with its error.
fn shown(of_layer: &(LargeLayer, f32)) -> String {
    let (layer, error) = of_layer;
    format!("{layer} ({:.1} %)", 100.0 * error)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn config() -> ModelConfig {
        let mut config = ModelConfig::default();
        config.vision.enc_n_layers = 2;
        config.text.n_layers = 1;
        config
    }

    /// With these errors in the first layers.
    fn calibration(errors: &[f32]) -> ModelCalibration {
        let layers = config().large_layers().enumerate();
        let range = |nth: usize| LayerRange {
            largest_input: 0.1 + nth as f32,
            int8_error: errors.get(nth).copied().unwrap_or(0.01),
        };
        ModelCalibration::new(7, layers.map(|(nth, layer)| (layer, range(nth))).collect())
    }

    #[test]
    fn written_calibration_is_read_for_its_weights_alone() {
        let folder = tempfile::tempdir().unwrap();
        let read = |weights| ModelCalibration::read(folder.path(), weights, &config());
        assert_eq!(read("ab").unwrap(), None);
        let written = calibration(&[0.02, 0.3]);
        written.write(folder.path(), "ab", &config()).unwrap();
        assert_eq!(read("ab").unwrap(), Some(written));
        let error = read("cd").unwrap_err().to_string();
        assert!(
            error.ends_with("calibration.toml: it was made with other weights"),
            "{error}"
        );
    }

    #[test]
    fn damaged_calibration_is_an_error_that_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(ModelCalibration::FILE);
        calibration(&[])
            .write(folder.path(), "ab", &config())
            .unwrap();
        let good = fs::read_to_string(&path).unwrap();
        for (from, to, reason) in [
            ("pictures = 7", "pictures = -7", "is no calibration"),
            (
                "text.blocks.0.qkv_fc1",
                "text.blocks.9.qkv_fc1",
                "the layer text.blocks.0.qkv_fc1 is missing",
            ),
            (
                "[[layer]]",
                "[[layer]]\nname = \"x\"\nlargest_input = 1.0\nint8_error = 0.0\n[[layer]]",
                "the model has no layer x",
            ),
            (
                "int8_error = 0.0",
                "int8_error = nan#",
                "must be numbers from 0 on",
            ),
        ] {
            fs::write(&path, good.replacen(from, to, 1)).unwrap();
            let error = ModelCalibration::read(folder.path(), "ab", &config());
            let error = error.unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn layers_above_the_bound_are_wide_and_named() {
        let calibration = calibration(&[0.02, 0.061, INT8_ERROR_MAX, 0.2]);
        let wide: Vec<LargeLayer> = config()
            .large_layers()
            .filter(|layer| calibration.is_wide(*layer))
            .collect();
        assert_eq!(
            wide,
            [LargeLayer::EncoderProj(0), LargeLayer::EncoderFc2(0)]
        );
        assert_eq!(
            CalibrationState::Measured(calibration).about_int8("bf16"),
            "int8: 2 of 12 large layers stay in bf16, because their error on 7 pictures is above 4 %: \
             vision.blocks.0.mlp.fc2 (20.0 %), vision.blocks.0.attn.proj (6.1 %)"
        );
    }

    #[test]
    fn line_about_int8_says_what_was_measured() {
        let line = |errors: &[f32]| calibration(errors).about_int8("bf16");
        let all = line(&[0.021]);
        let expected = "the largest error on 7 pictures is that of vision.blocks.0.attn.qkv (2.1 %), 4 % are allowed";
        assert!(all.ends_with(expected), "{all}");
        let many = line(&[0.5; 12]);
        assert!(many.contains("12 of 12 large layers stay"), "{many}");
        let none = CalibrationState::Missing.about_int8("f32");
        assert!(none.contains("were not measured"), "{none}");
    }

    #[test]
    fn line_about_fp8_counts_pictures_and_drawn_scenes() {
        assert_eq!(
            CalibrationState::Measured(calibration(&[])).about_fp8(8),
            "fp8: scales of 7 pictures and of 8 drawn scenes"
        );
        let alone = CalibrationState::Missing.about_fp8(8);
        assert!(alone.contains("of 8 drawn scenes alone"), "{alone}");
    }

    #[test]
    fn lines_say_why_a_calibration_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let state = |weights| CalibrationState::of(folder.path(), weights, &config());
        assert_eq!(state("ab"), CalibrationState::Missing);
        let written = calibration(&[]);
        written.write(folder.path(), "ab", &config()).unwrap();
        assert_eq!(state("ab").measured(), Some(&written));
        assert_eq!(state("cd").measured(), None);
        for line in [state("cd").about_int8("bf16"), state("cd").about_fp8(8)] {
            let expected =
                "calibration.toml: it was made with other weights; `spotter model calibrate";
            assert!(line.contains(expected), "{line}");
        }
    }
}
