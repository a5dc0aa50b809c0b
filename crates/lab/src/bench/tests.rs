//! An engine with the smallest golden model.

use std::{path::Path, sync::Arc};

use spotter_core::{Clock, SystemClock, config::ModelSource};
use spotter_engine::{
    cpu::{CpuBackend, CpuCapacity},
    model::{LoadedModel, ModelConfig, Tokenizer, load_model, without_ends},
    scheduler::{Options, backend::Backend, sequence::Bounds},
    service::{Engine, EngineModel},
};

pub(super) fn micro_engine() -> (Engine, Arc<dyn Clock>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let engine = micro_engine_with(Options::default(), &clock);
    (engine, clock)
}

/// The smallest golden model on the CPU.
pub(super) fn micro_backend(clock: Arc<dyn Clock>) -> (Box<dyn Backend>, ModelConfig) {
    let (backend, config, _) = micro_parts(clock);
    (backend, config)
}

fn micro_model() -> LoadedModel {
    let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/md2-micro");
    load_model(&ModelSource::Directory(set)).expect("the golden model")
}

/// The same with its tokenizer.
pub(super) fn micro_parts(clock: Arc<dyn Clock>) -> (Box<dyn Backend>, ModelConfig, Tokenizer) {
    placed(micro_model(), clock)
}

fn placed(model: LoadedModel, clock: Arc<dyn Clock>) -> (Box<dyn Backend>, ModelConfig, Tokenizer) {
    let capacity = CpuCapacity {
        slots: 2,
        rows: 8,
        images: 4,
        pages: 256,
        page_tokens: 16,
        tile_difference: 0.0,
    };
    let backend = CpuBackend::new(&model.config, model.weights, capacity, clock);
    let backend = Box::new(backend.expect("a backend"));
    (backend, model.config, model.tokenizer)
}

pub(super) fn micro_engine_with(options: Options, clock: &Arc<dyn Clock>) -> Engine {
    engine(micro_parts(Arc::clone(clock)), options, clock)
}

/// Its answers end at their bounds and never before.
pub(super) fn micro_endless_engine(clock: &Arc<dyn Clock>) -> Engine {
    let mut model = micro_model();
    without_ends(&mut model.weights, &model.config);
    let parts = placed(model, Arc::clone(clock));
    engine(parts, Options::default(), clock)
}

fn engine(
    (backend, config, tokenizer): (Box<dyn Backend>, ModelConfig, Tokenizer),
    options: Options,
    clock: &Arc<dyn Clock>,
) -> Engine {
    let bounds = Bounds {
        max_objects: 2,
        max_tokens: 4,
    };
    let model = EngineModel { config, tokenizer };
    let mut engine = Engine::new(backend, model, bounds, Arc::clone(clock));
    engine.restart(bounds, options);
    engine
}
