//! An engine with the smallest golden model, for the tests of this room.

use std::{path::Path, sync::Arc};

use crate::{
    config::ModelSource,
    cpu::{Capacity, CpuBackend},
    domain::{Clock, SystemClock},
    engine::{Options, sequence::Bounds},
    front::Engine,
    model::load_model,
};

pub(super) fn micro_engine() -> (Engine, Arc<dyn Clock>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let engine = micro_engine_with(Options::default(), &clock);
    (engine, clock)
}

pub(super) fn micro_engine_with(options: Options, clock: &Arc<dyn Clock>) -> Engine {
    let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/md2-micro");
    let model = load_model(&ModelSource::Directory(set)).expect("the golden model");
    let capacity = Capacity {
        slots: 2,
        rows: 8,
        images: 4,
        pages: 256,
        page_tokens: 16,
    };
    let backend = CpuBackend::new(&model.config, model.weights, capacity, Arc::clone(clock));
    let backend = Box::new(backend.expect("a backend"));
    let bounds = Bounds {
        max_objects: 2,
        max_tokens: 4,
    };
    let model = (model.config, model.tokenizer);
    Engine::new(backend, model, (bounds, options), Arc::clone(clock))
}
