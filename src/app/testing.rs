//! A configuration, a model, engines and frames, for the tests of `app`.

use std::{sync::Arc, time::Duration};

use super::{config_store::open_config, engine_slot::EngineSlot, snapshot, stage::Handles};
use spotter_cameras::sampler::{CameraShare, Sampler, TimeLimits};
use spotter_config::{self as config, Config, Environment, PromptConfig};
use spotter_control::ConfigStore;
use spotter_core::{
    AnswerBody, CameraId, Clock, Frame, Look, LookNews, Mono, Picture, Prompt, SkippedSinceLast,
    SystemClock, Task,
    testing::{answer_to, frame_at},
};
use spotter_engine::{
    open::ModelCard,
    service::handle,
    testing::simulated::{self, FragileDevice},
};
use spotter_mqtt::{Identity, Publisher};
use spotter_page::Board;
use spotter_state::{OpenedEvents, StateStore};

/// Parses `text`; the state directory does not exist, so nothing of an earlier run is found.
pub fn config(text: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.toml");
    std::fs::write(&path, text).unwrap();
    let mut config = config::load(&path, &Environment::process()).unwrap().config;
    config.node.state_dir = folder.path().to_owned();
    config
}

/// Values that no later run reads.
pub fn state() -> StateStore {
    let folder = tempfile::tempdir().unwrap();
    StateStore::open(folder.path(), Arc::new(SystemClock::new())).unwrap()
}

/// What stages share, without a broker.
pub fn handles(config: &Config, clock: &Arc<dyn Clock>) -> Handles {
    let identity = Identity::of_this_machine(config.node.name.clone());
    let started = Publisher::start(
        &config.mqtt,
        &OpenedEvents::default(),
        &identity,
        Arc::clone(clock),
    );
    Handles {
        publisher: started.unwrap().0,
        sampler: Sampler::new(&config.cameras, Arc::clone(clock)),
        state: state(),
        history: None,
        board: Board::new(
            &config.cameras,
            Arc::clone(clock),
            snapshot::thumbnail,
            None,
        ),
        clock: Arc::clone(clock),
    }
}

/// The values of `config`, and those that commands change.
pub fn config_store(config: &Config, clock: &dyn Clock) -> ConfigStore {
    open_config(config.clone(), &state(), clock)
}

pub fn card() -> ModelCard {
    ModelCard {
        name: "simulated".into(),
        family: "Moondream 2".into(),
        sha256: String::new(),
        precision: "bf16".into(),
        layers: None,
        device: String::new(),
        label: String::new(),
        gpus: Vec::new(),
        max_objects: 5,
        permits: 2,
        calibrated: Vec::new(),
        doubt: None,
        adapter_slots: 0,
    }
}

/// A prompt that asks for a free text.
pub fn scene() -> PromptConfig {
    PromptConfig {
        task: Task::question("What happens here?"),
        ..config::testing::prompt("scene")
    }
}

/// Looks are never late.
pub fn no_limits() -> TimeLimits {
    TimeLimits::new(Duration::from_secs(3600), None)
}

/// An engine for each element of `steps`, whose device breaks after that number of steps. They are called `cuda 0`, `cuda 1`
/// and so on.
pub async fn fragile_engines(
    steps: &[usize],
    sampler: &Arc<Sampler>,
    clock: &Arc<dyn Clock>,
) -> Vec<EngineSlot> {
    let mut slots = Vec::new();
    for (index, &steps) in steps.iter().enumerate() {
        let engine_clock = Arc::clone(clock);
        let build = move || {
            let device = FragileDevice::new(simulated::device(1), steps);
            Ok((simulated::engine(device, engine_clock), 2))
        };
        let started = handle::start(build).await.unwrap();
        let label = format!("cuda {index}");
        slots.push(EngineSlot::new(label, started, sampler.share(no_limits())));
    }
    slots
}

/// The look that an engine with these cameras gets now, if one is due.
pub fn look(share: &CameraShare) -> Option<Look> {
    std::iter::from_fn(|| share.try_due()).find_map(|due| due.take())
}

/// A prompt of a look at `frame` is answered.
pub fn answered(frame: &Frame, prompt: &Arc<Prompt>, body: AnswerBody) -> LookNews {
    LookNews::Answer {
        frame: frame.clone(),
        model_size: (2, 2),
        since_last: SkippedSinceLast::default(),
        answer: answer_to(prompt, body),
        follow_up: None,
    }
}

/// The frame `number` of a camera, received `now`.
pub fn frame(camera: &CameraId, number: u64, now: Mono) -> Frame {
    Frame {
        number,
        camera_size: (2, 2),
        picture: Picture::from_rgb(2, 2, vec![0; 12]).unwrap(),
        ..frame_at(camera, Duration::from_nanos(now.as_nanos()))
    }
}
