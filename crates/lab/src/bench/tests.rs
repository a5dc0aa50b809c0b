//! An engine with the smallest golden model, and answers as a model gives them.

use std::{path::Path, sync::Arc};

use spotter_config::{ModelSource, PromptConfig};
use spotter_core::{
    Answer, AnswerBody, Clock, FoundObject, NormBox, Picture, Prompt, ScoreSource, StageTimes,
};
use spotter_engine::{
    cpu::{CpuBackend, CpuSettings},
    model::{Formats, LoadedModel, ModelConfig, Tokenizer, load_model, without_ends},
    scheduler::{Options, backend::Backend, sequence::Bounds},
    service::{Engine, EngineModel},
};

fn micro_model() -> LoadedModel {
    let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/md2-micro");
    load_model(&ModelSource::Directory(set)).expect("the golden model")
}

/// The smallest golden model on the CPU.
pub(super) fn micro_parts(clock: Arc<dyn Clock>) -> (Box<dyn Backend>, ModelConfig, Tokenizer) {
    placed(micro_model(), clock)
}

fn placed(model: LoadedModel, clock: Arc<dyn Clock>) -> (Box<dyn Backend>, ModelConfig, Tokenizer) {
    let capacity = CpuSettings {
        formats: Formats::F32,
        slots: 2,
        rows: 8,
        images: 4,
        pages: 256,
        page_tokens: 16,
        kept_crops: 0,
    };
    let backend = CpuBackend::new(&model.config, model.weights, capacity, clock);
    let backend = Box::new(backend.expect("a backend"));
    (backend, model.config, model.tokenizer)
}

pub(super) fn micro_engine(clock: &Arc<dyn Clock>) -> Engine {
    engine(micro_model(), clock)
}

/// Its answers end at their bounds and never before.
pub(super) fn micro_endless_engine(clock: &Arc<dyn Clock>) -> Engine {
    let mut model = micro_model();
    without_ends(&mut model.weights, &model.config).unwrap();
    engine(model, clock)
}

fn engine(model: LoadedModel, clock: &Arc<dyn Clock>) -> Engine {
    let (backend, config, tokenizer) = placed(model, Arc::clone(clock));
    let options = Options::default();
    let bounds = Bounds {
        max_objects: 2,
        max_tokens: 4,
    };
    let model = EngineModel {
        config,
        tokenizer,
        explains_strips: true,
    };
    let mut engine = Engine::new(backend, model, bounds, Arc::clone(clock));
    engine.restart(bounds, options);
    engine
}

/// What a model finds at `place`, and is rather sure of.
pub(super) fn found<T>(place: T) -> FoundObject<T> {
    FoundObject {
        place,
        score: 0.9,
        source: ScoreSource::TokenProb,
        sharpness: 0.9,
    }
}

pub(super) fn boxes_answer(prompt: &PromptConfig, boxes: Vec<FoundObject<NormBox>>) -> Answer {
    Answer {
        region: None,
        prompt: Arc::new(Prompt::new(prompt.id.clone(), 1, prompt.task.clone())),
        body: AnswerBody::Boxes(boxes),
        truncated: false,
        unchanged: false,
        reasoning: None,
        tokens: spotter_core::TokenCounts::default(),
        marks: StageTimes::default(),
    }
}

/// The pictures show the same moment, one of them through H.264.
#[track_caller]
pub(super) fn assert_compressed(plain: &Picture, coded: &Picture) {
    let pixels = plain.row(0, 200).iter().zip(coded.row(0, 200));
    let differences: Vec<f64> = pixels.map(|(a, b)| a.abs_diff(*b).into()).collect();
    let mean = differences.iter().sum::<f64>() / differences.len() as f64;
    assert!(mean > 0.0, "compression loses something");
    assert!(mean < 12.0, "another moment: {mean}");
}
