//! From the `[model]` section to an engine: the files, the device, and the card that describes both.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    device::{self, ModelDevice},
    known_picture,
    placement::{CalibrationPictures, GpuId, LoadedDevice, ModelToPlace},
};
use crate::{
    model::{self, CalibrationState, LoadedModel, ModelConfig, Tokenizer},
    scheduler::{
        Options,
        sequence::Bounds,
        still::{PictureDetail, ReuseRule},
    },
    service::{Engine, EngineError, EngineModel, InFlight, LookRule},
};
use spotter_config as config;
use spotter_core::{Clock, GpuPrecision, Look, Outcome, Picture, ScoredKind, Task};

/// Tokens of an answer or caption. A camera's answer is short; a model that does not stop is stopped here.
const ANSWER_MAX_TOKENS: usize = 128;
/// Size of the picture that the engine is measured with: what most cameras are scaled to.
pub const MEASURED_SIZE: (usize, usize) = (1280, 720);
/// A look that takes longer is not repeated to know it better.
const SLOW_LOOK: Duration = Duration::from_secs(2);

/// A loaded model, for messages and logs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelCard {
    /// Name with the first digits of the weights' hash.
    pub name: Arc<str>,
    /// Like `Moondream 2`.
    pub family: Arc<str>,
    /// Hash of the weights, hex.
    pub sha256: String,
    /// `f32`, `bf16`, `fp8`, `int8` or `int4`.
    pub precision: Arc<str>,
    /// Which layers are in 8 bits, and with which scales; `None` when none are.
    pub layers: Option<String>,
    /// Where it runs and why there.
    pub device: String,
    /// The same in short, different for each device.
    pub label: String,
    /// The GPUs that work as one; none on the CPU.
    pub gpus: Vec<GpuId>,
    /// Objects a prompt may return.
    pub max_objects: u32,
    /// Looks that may be inside the engine at once, at most.
    pub permits: usize,
    /// The answers whose scores are calibrated.
    pub calibrated: Vec<ScoredKind>,
    /// Why its answers are probably nonsense: files that no `model.toml` vouches for failed a look at a known picture.
    pub doubt: Option<String>,
    /// Adapters that the engine has room for; one on the CPU for any number.
    pub adapter_slots: usize,
}

impl ModelCard {
    /// A warning with what to do when the answers are probably nonsense.
    pub fn warning(&self) -> Option<String> {
        let doubt = self.doubt.as_ref()?;
        Some(format!(
            "the answers of model {} are probably nonsense ({doubt}); weights and tokenizer may be of different revisions; \
             `spotter model get NAME` fetches files that fit together, `spotter model list` lists the names",
            self.name
        ))
    }

    /// The precision that the maps of its scores must be of: f32 answers as bf16 does.
    pub fn score_precision(&self) -> GpuPrecision {
        match &*self.precision {
            "fp8" => GpuPrecision::Fp8,
            "int8" => GpuPrecision::Int8,
            "int4" => GpuPrecision::Int4,
            _ => GpuPrecision::Bf16,
        }
    }

    /// How many looks the engine takes at once: as many as give the highest rate at which answers keep to `budget`, learned
    /// while it runs.
    pub fn look_rule(&self, budget: Duration) -> LookRule {
        LookRule {
            in_flight: InFlight::Learned(self.permits),
            budget,
        }
    }
}

/// A loaded model that is to be put on a device.
pub struct ModelOpening<'a> {
    pub device: ModelDevice,
    pub settings: &'a config::ModelSettings,
    /// Adapters that a GPU is to have memory for.
    pub adapter_slots: usize,
    pub loaded: LoadedModel,
    pub calibration: CalibrationPictures,
    pub clock: Arc<dyn Clock>,
}

impl Engine {
    /// Loads the model and puts it on its device; blocks meanwhile. `device = "auto"` takes the first listed GPUs, or the
    /// CPU without them. The error says what to do.
    pub fn open(
        settings: &config::ModelSettings,
        calibration: CalibrationPictures,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, ModelCard), String> {
        Self::open_for_adapters(settings, 0, calibration, clock)
    }

    /// The same with room for adapters.
    pub fn open_for_adapters(
        settings: &config::ModelSettings,
        adapter_slots: usize,
        calibration: CalibrationPictures,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, ModelCard), String> {
        Self::open_on(ModelOpening {
            device: device::choose_one(settings)?,
            loaded: model::load_model(&settings.source).map_err(|e| e.to_string())?,
            settings,
            adapter_slots,
            calibration,
            clock,
        })
    }

    /// Puts a loaded model on a device. Blocks while the weights are converted or copied, and for one look if nothing says which
    /// files they should be.
    pub fn open_on(opening: ModelOpening<'_>) -> Result<(Self, ModelCard), String> {
        let ModelOpening {
            device,
            settings,
            adapter_slots,
            loaded,
            calibration,
            clock,
        } = opening;
        let bounds = bounds(settings);
        let model = ModelToPlace {
            settings,
            adapter_slots,
            config: &loaded.config,
            weights: loaded.weights,
            measured: &loaded.calibration,
            bounds,
            calibration,
            clock: Arc::clone(&clock),
        };
        let placed = device.place(model)?;
        let mut card = ModelCard {
            name: loaded.name.into(),
            family: loaded.config.family.name().into(),
            sha256: loaded.weights_sha256,
            precision: placed.precision.into(),
            layers: placed.layers,
            device: placed.device,
            label: placed.label,
            gpus: placed.gpus,
            max_objects: settings.max_objects,
            permits: placed.permits,
            calibrated: Vec::new(),
            doubt: None,
            adapter_slots: placed.backend.limits().adapters,
        };
        let model = EngineModel {
            config: loaded.config,
            tokenizer: loaded.tokenizer,
            explains_strips: !loaded.is_embedded,
        };
        let mut engine = Self::new(placed.backend, model, bounds, clock);
        let reuse = reuse_rule(settings);
        engine.restart(
            bounds,
            Options {
                reuse,
                ..Options::default()
            },
        );
        if loaded.is_unknown {
            card.doubt = known_picture::nonsense(&mut engine)?;
        }
        if let Some(record) = loaded.record {
            let maps = record.score_maps(&card.sha256, card.score_precision());
            card.calibrated = maps.keys().copied().collect();
            engine.set_score_maps(maps);
        }
        Ok((engine, card))
    }
}

/// A device alone, with what is on it.
pub struct Bare {
    pub placed: LoadedDevice,
    /// Dimensions of the model.
    pub config: ModelConfig,
    /// `None` for noise.
    pub tokenizer: Option<Tokenizer>,
    /// Its name; says when it is noise.
    pub name: String,
}

/// A device alone, with the configured model or with noise in the shape of this one. Blocks as
/// [`Engine::open`] does.
pub fn build_backend(
    settings: &config::ModelSettings,
    noise: Option<ModelConfig>,
    calibration: CalibrationPictures,
    clock: Arc<dyn Clock>,
) -> Result<Bare, String> {
    let device = device::choose_one(settings)?;
    let is_noise = noise.is_some();
    let loaded = model_or_noise(settings, noise)?;
    let model = ModelToPlace {
        settings,
        adapter_slots: 0,
        config: &loaded.config,
        weights: loaded.weights,
        measured: &loaded.calibration,
        bounds: bounds(settings),
        calibration,
        clock,
    };
    let placed = device.place(model)?;
    Ok(Bare {
        placed,
        config: loaded.config,
        tokenizer: (!is_noise).then_some(loaded.tokenizer),
        name: loaded.name,
    })
}

/// An engine whose answers end at their bounds and never before, so that what a look costs is known: for measurements of
/// speed. With the configured model or with noise in the shape of this one. Blocks as [`Engine::open`] does.
pub fn build_endless_engine(
    settings: &config::ModelSettings,
    noise: Option<ModelConfig>,
    calibration: CalibrationPictures,
    clock: Arc<dyn Clock>,
) -> Result<(Engine, ModelCard), String> {
    let device = device::choose_one(settings)?;
    let mut loaded = model_or_noise(settings, noise)?;
    model::without_ends(&mut loaded.weights, &loaded.config).map_err(|e| e.to_string())?;
    // Endless answers are nonsense on purpose.
    loaded.is_unknown = false;
    Engine::open_on(ModelOpening {
        device,
        settings,
        adapter_slots: 0,
        loaded,
        calibration,
        clock,
    })
}

fn model_or_noise(
    settings: &config::ModelSettings,
    noise: Option<ModelConfig>,
) -> Result<LoadedModel, String> {
    let Some(config) = noise else {
        return model::load_model(&settings.source).map_err(|e| e.to_string());
    };
    // Noise has no vocabulary of its own, so any tokenizer is right; its ids are in every vocabulary of that size.
    let embedded = model::load_model(&config::ModelSource::Embedded).map_err(|e| e.to_string())?;
    Ok(LoadedModel {
        name: format!("random weights of {}'s shape", config.family.name()),
        weights_sha256: String::new(),
        weights: model::random_weights(&config).map_err(|e| e.to_string())?,
        config,
        tokenizer: embedded.tokenizer,
        calibration: CalibrationState::Missing,
        record: None,
        is_unknown: false,
        is_embedded: false,
    })
}

/// What is used again of earlier looks, as it is configured.
pub fn reuse_rule(settings: &config::ModelSettings) -> Option<ReuseRule> {
    let detail = match settings.reuse {
        config::ReuseMode::Auto => PictureDetail::Cells,
        config::ReuseMode::Exact => PictureDetail::Bytes,
        config::ReuseMode::Off => return None,
    };
    Some(ReuseRule {
        detail,
        max_age: settings.reuse_max_age,
    })
}

pub(super) fn bounds(settings: &config::ModelSettings) -> Bounds {
    Bounds {
        max_objects: settings.max_objects as usize,
        max_tokens: ANSWER_MAX_TOKENS,
    }
}

/// How long the engine takes for a look with `tasks`; `None` when it cannot answer them. Blocks for one or two looks,
/// the first of which also wakes the machine up. An error means that the device does not work.
pub fn measured_look(
    engine: &mut Engine,
    tasks: &[Task],
    clock: &dyn Clock,
) -> Result<Option<Duration>, String> {
    let (width, height) = MEASURED_SIZE;
    let Ok(picture) = Picture::from_rgb(width, height, vec![128; width * height * 3]) else {
        return Ok(None);
    };
    // No other look waits for a free text.
    let mut measured: Vec<Task> = tasks.to_vec();
    measured.retain(|task| !task.is_free_text());
    if measured.is_empty() {
        measured = tasks.to_vec();
    }
    let mut looked = || {
        let began = clock.now();
        let look = Look::still(picture.clone(), measured.iter().cloned());
        match engine.look(look) {
            Ok(look) if matches!(look.outcome, Some(Outcome::Answered(_))) => {
                Ok(Some(clock.now().since(began)))
            }
            Err(EngineError::Device(error)) => Err(error.to_string()),
            Ok(_) | Err(_) => Ok(None),
        }
    };
    match looked()? {
        Some(first) if first < SLOW_LOOK => looked(),
        first => Ok(first),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::{ahead::micro_picture, golden_set};
    use spotter_core::{AdapterId, AnswerBody, CameraId, ManualClock, ScoreMap, ScoreSource};

    /// The outcomes of two looks at grey pictures that differ by `step`, the second `after` the first: prompts that were unchanged.
    fn unchanged(reuse: config::ReuseMode, step: u8, after: Duration) -> u64 {
        let settings = config::ModelSettings {
            reuse,
            ..config::ModelSettings::of(config::ModelSource::Embedded)
        };
        let clock = ManualClock::default();
        let (mut engine, _) = Engine::open(&settings, Vec::new, Arc::new(clock.clone())).unwrap();
        for grey in [100, 100 + step] {
            let picture = Picture::from_rgb(64, 48, vec![grey; 64 * 48 * 3]).unwrap();
            let object = "car".to_owned();
            let mut look = Look::still(picture, [Task::Point { object }]);
            look.frame.camera = CameraId::new("gate").unwrap();
            engine.submit(look).unwrap();
            while !engine.is_idle() {
                engine.turn().unwrap();
            }
            clock.advance(after);
        }
        engine.worker().work().unchanged
    }

    #[test]
    fn configured_reuse_decides_whether_a_look_is_unchanged() {
        use config::ReuseMode::{Auto, Exact, Off};
        let soon = Duration::from_secs(1);
        assert_eq!(
            [Auto, Exact, Off].map(|mode| unchanged(mode, 0, soon)),
            [1, 1, 0]
        );
        assert_eq!(
            [Auto, Exact, Off].map(|mode| unchanged(mode, 1, soon)),
            [1, 0, 0]
        );
        assert_eq!([Auto, Exact].map(|mode| unchanged(mode, 20, soon)), [0, 0]);
        let late = Duration::from_secs(11);
        assert_eq!([Auto, Exact].map(|mode| unchanged(mode, 0, late)), [0, 0]);
    }

    /// The answers of a look whose prompts all look for a square, with these adapters.
    fn squares(engine: &mut Engine, adapters: &[&str]) -> Result<Vec<AnswerBody>, EngineError> {
        let object = || "red square".to_owned();
        let tasks = adapters.iter().map(|_| Task::Detect { object: object() });
        let mut look = Look::still(micro_picture("gray_200x200"), tasks);
        for (prompt, name) in look.prompts.iter_mut().zip(adapters) {
            Arc::make_mut(prompt).adapter = AdapterId::new(name).ok();
        }
        let answers = engine.look(look)?.into_answers().unwrap();
        Ok(answers.into_iter().map(|answer| answer.body).collect())
    }

    fn micro_engine() -> Engine {
        let settings = config::ModelSettings {
            device: config::DevicePreference::Cpu,
            ..config::ModelSettings::of(config::ModelSource::Directory(golden_set("md2-micro")))
        };
        let clock = Arc::new(ManualClock::default());
        Engine::open(&settings, Vec::new, clock).unwrap().0
    }

    fn plates() -> config::AdapterConfig {
        config::AdapterConfig {
            id: AdapterId::new("plates").unwrap(),
            path: golden_set("md2-lora-micro").join("variant.safetensors"),
        }
    }

    #[test]
    fn score_map_leaves_the_scores_of_an_adapter() {
        let mut engine = micro_engine();
        assert_eq!(engine.set_adapters(&[plates()]), []);
        let map = ScoreMap::try_from(vec![[0.0, 0.25], [1.0, 0.25]]).unwrap();
        engine.set_score_maps([(ScoredKind::Detect, map)].into());
        let answers = squares(&mut engine, &["", "plates"]).unwrap();
        let sources = answers.iter().map(|answer| match answer {
            AnswerBody::Boxes(found) => found[0].source,
            other => panic!("{other:?}"),
        });
        let expected = [ScoreSource::Calibrated, ScoreSource::TokenProb];
        assert_eq!(Vec::from_iter(sources), expected);
    }

    /// As costs are counted.
    #[test]
    fn prompts_of_two_adapters_share_the_encoding_of_a_picture() {
        let (mut engine, adapter) = (micro_engine(), plates());
        assert_eq!(engine.set_adapters(std::slice::from_ref(&adapter)), []);
        let tasks = ["car", "plate"].map(|object| Task::Detect {
            object: object.into(),
        });
        let mut look = Look::still(micro_picture("gray_200x200"), tasks);
        look.frame.camera = CameraId::new("gate").unwrap();
        Arc::make_mut(&mut look.prompts[1]).adapter = Some(adapter.id);
        let before = engine.worker().work();
        engine.submit(look).unwrap();
        while !engine.is_idle() {
            engine.turn().unwrap();
        }
        let after = engine.worker().work();
        let [encoded, reused] = [
            after.crops_encoded - before.crops_encoded,
            after.crops_reused - before.crops_reused,
        ];
        assert_eq!((after.images - before.images, encoded), (2, reused));
        assert!(encoded > 0);
    }

    #[test]
    fn broken_adapter_fails_its_looks_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = fs::read(plates().path).unwrap();
        // Its header is that of the variant; its last values are no numbers.
        let end = bytes.len();
        bytes[end - 64..].fill(0xff);
        let broken = config::AdapterConfig {
            id: AdapterId::new("broken").unwrap(),
            path: folder.path().join("broken.safetensors"),
        };
        fs::write(&broken.path, &bytes).unwrap();
        let adapters = [plates(), broken];
        let source = config::ModelSource::Directory(golden_set("md2-micro"));
        assert_eq!(crate::open::check_adapters(&source, &adapters), []);
        let mut engine = micro_engine();
        let broken = engine.set_adapters(&adapters);
        let [found] = &broken[..] else {
            panic!("{broken:?}");
        };
        assert_eq!(found.id.as_str(), "broken");
        assert!(found.reason.contains("no numbers"), "{found:?}");

        // An empty name is no adapter.
        let plain = squares(&mut engine, &[""]).unwrap();
        let adapted = squares(&mut engine, &["plates"]).unwrap();
        assert_ne!(plain, adapted);
        let error = squares(&mut engine, &["broken"]).unwrap_err().to_string();
        assert!(error.starts_with("adapter broken: "), "{error}");
        // Prompts of one look, each with its own.
        let both = squares(&mut engine, &["plates", ""]).unwrap();
        assert_eq!(both, [adapted, plain].concat());
    }
}
