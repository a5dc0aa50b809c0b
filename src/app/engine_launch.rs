//! Opens an engine on a thread of the daemon or in a process of its own, by the same steps.
//!
//! After a fault on one GPU (an illegal address, a trap) the driver fails every call of the process, on all its GPUs and in
//! all contexts. An engine that is to fail alone therefore needs a process. The only engine of a daemon runs on a thread: when
//! it fails, the daemon ends anyway, and a picture is not copied on its way to a thread.
//!
//! Belongs here: the order, its result, and the command that runs in the process. Not here: the connection between both
//! processes (`spotter_engine`).

use std::{iter, os::unix::process::CommandExt as _, process::Command, sync::Arc, time::Duration};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tracing::Instrument as _;

use crate::ops::{
    process::name_process,
    secret_list::SecretList,
    shutdown::Signals,
    telemetry::{self, Sink},
};
use spotter_config::{self as config, AdapterConfig, CameraConfig};
use spotter_core::{Clock, Task};
use spotter_engine::{
    model,
    open::{
        ExpectedLook, MEASURED_SIZE, ModelCard, ModelDevice, ModelOpening, measured_look, warm_up,
    },
    service::{
        BrokenAdapter, Engine, LookRule,
        handle::{self, EngineEnd, EngineHandle, EngineStopped},
        inside, outside,
    },
};

/// Where an engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineHost {
    /// On a thread of the daemon.
    Thread,
    /// In a process of its own.
    Process,
}

/// The description of an engine that is to be opened; sent to the process of the engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EngineOrder {
    pub device: ModelDevice,
    /// `[model]`
    pub settings: config::ModelSettings,
    pub adapters: Vec<AdapterConfig>,
    /// Adapters that a GPU is to have memory for.
    pub adapter_slots: usize,
    /// The looks of all cameras; the device is prepared for them, and measured with the longest.
    pub looks: Vec<ExpectedLook>,
}

/// The model of an engine that is ready, and its speed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasuredEngine {
    pub card: ModelCard,
    /// Time of the look of its order; `None` when the model cannot answer it.
    pub look: Option<Duration>,
    /// Adapters that cannot be used.
    pub broken_adapters: Vec<BrokenAdapter>,
}

impl EngineHost {
    /// Opens an engine and waits until it is measured. The error says what the operator can do.
    pub async fn open(
        self,
        order: EngineOrder,
        clock: Arc<dyn Clock>,
    ) -> Result<(EngineHandle, EngineEnd, MeasuredEngine), EngineStopped> {
        match self {
            Self::Thread => handle::start_and_report(move || order.built(clock)).await,
            Self::Process => outside::start(this_program(), order, clock).await,
        }
    }
}

/// The look with the most prompts: the longest one that an engine has to answer.
pub fn longest_look(looks: &[ExpectedLook]) -> Vec<Task> {
    let longest = looks.iter().max_by_key(|look| look.tasks.len());
    longest.map_or_else(Vec::new, |look| look.tasks.clone())
}

/// The different looks that these cameras can ask for, when all their prompts are due. Without cameras, a usual one: the list of a fleet may be
/// empty at first.
pub fn expected_looks(cameras: &[CameraConfig]) -> Vec<ExpectedLook> {
    let mut looks = Vec::new();
    for camera in cameras {
        let tasks = camera.prompts.iter().map(|prompt| prompt.task.clone());
        let look = ExpectedLook {
            width: camera.width,
            tasks: tasks.collect(),
        };
        if !looks.contains(&look) {
            looks.push(look);
        }
    }
    if looks.is_empty() {
        looks.push(ExpectedLook {
            width: MEASURED_SIZE.0 as u32,
            tasks: vec![Task::Detect {
                object: "person".into(),
            }],
        });
    }
    looks
}

/// `spotter engine` of the running program, even after an update has replaced the file on the disk.
fn this_program() -> Command {
    let mut program = Command::new("/proc/self/exe");
    let verbose = iter::repeat_n("--verbose", telemetry::verbosity().into());
    program.arg0("spotter").arg("engine").args(verbose);
    program
}

/// `spotter engine`: the process of an engine, started by the daemon. Blocks until the daemon closes the connection or the
/// engine has failed; the daemon logs the failure.
pub fn serve(verbose: u8) -> anyhow::Result<()> {
    let daemon = inside::daemon()?;
    telemetry::init(Sink::of_stderr(), verbose, SecretList::default())?;
    name_process("spotter-engine");
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build()?.block_on(async {
        // Signals to stop or to reload may reach the whole process group. Only the daemon acts on them: it still needs the
        // last answers, and this process ends with the connection.
        let _signals = Signals::listen().context("cannot install signal handlers")?;
        let Some((order, clock)) = daemon.order::<EngineOrder>()? else {
            return Ok(());
        };
        // At the level that is always shown, so that every line names its engine.
        let span = tracing::error_span!("engine", device = order.device.label());
        let served = daemon.serve(move || order.built(clock));
        served.instrument(span).await.map_err(Into::into)
    })
}

impl EngineOrder {
    /// Loads the model, puts it on the device and measures it. Blocks. Returns also how many looks may be inside.
    fn built(self, clock: Arc<dyn Clock>) -> Result<(Engine, LookRule, MeasuredEngine), String> {
        let Self {
            device,
            settings,
            adapters,
            adapter_slots,
            looks,
        } = self;
        let tasks = longest_look(&looks);
        let loaded = model::load_model(&settings.source).map_err(|e| e.to_string())?;
        let (mut engine, card) = Engine::open_on(ModelOpening {
            device,
            settings: &settings,
            adapter_slots,
            loaded,
            calibration: spotter_street::calibration_pictures,
            clock: Arc::clone(&clock),
        })?;
        let broken_adapters = engine.set_adapters(&adapters);
        let look = measured_look(&mut engine, &tasks, clock.as_ref())?;
        warm_up(&mut engine, &looks, clock.as_ref())?;
        let rule = card.look_rule(settings.budget);
        let measured = MeasuredEngine {
            card,
            look,
            broken_adapters,
        };
        Ok((engine, rule, measured))
    }
}
