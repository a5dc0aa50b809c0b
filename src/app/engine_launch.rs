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
    shutdown::Signals,
    telemetry::{self, SecretList, Sink},
};
use spotter_config as config;
use spotter_core::{Clock, Task};
use spotter_engine::{
    model,
    open::{ExpectedLook, ModelCard, ModelDevice, measured_look, warm_up},
    service::{
        Engine, LookRule,
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
    /// The longest look that the cameras can produce; the engine is measured with it.
    pub tasks: Vec<Task>,
    /// The looks of all cameras; the device is prepared for them.
    pub looks: Vec<ExpectedLook>,
}

/// The model of an engine that is ready, and its speed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasuredEngine {
    pub card: ModelCard,
    /// Time of the look of its order; `None` when the model cannot answer it.
    pub look: Option<Duration>,
}

impl EngineHost {
    pub fn for_engine_count(engines: usize) -> Self {
        match engines {
            0 | 1 => Self::Thread,
            _ => Self::Process,
        }
    }

    /// Opens an engine and waits until it is measured. The error says what the operator can do.
    pub async fn open(
        self,
        order: EngineOrder,
        clock: Arc<dyn Clock>,
    ) -> Result<(EngineHandle, EngineEnd, MeasuredEngine), EngineStopped> {
        match self {
            Self::Thread => handle::start_and_report(move || order.built(clock)).await,
            Self::Process => open_with(this_program(), order, clock).await,
        }
    }
}

/// Opens an engine in a process of its own; `program` runs `spotter engine`.
pub async fn open_with(
    program: Command,
    order: EngineOrder,
    clock: Arc<dyn Clock>,
) -> Result<(EngineHandle, EngineEnd, MeasuredEngine), EngineStopped> {
    outside::start(program, order, clock).await
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
            tasks,
            looks,
        } = self;
        let loaded = model::load_model(&settings.source).map_err(|e| e.to_string())?;
        let calibration = spotter_street::calibration_pictures;
        let (mut engine, card) =
            Engine::open_on(device, &settings, loaded, calibration, Arc::clone(&clock))?;
        let look = measured_look(&mut engine, &tasks, clock.as_ref())?;
        warm_up(&mut engine, &looks, clock.as_ref())?;
        let rule = card.look_rule(settings.budget);
        Ok((engine, rule, MeasuredEngine { card, look }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_engine::open::GpuId;

    #[test]
    fn one_engine_is_a_thread_several_are_processes() {
        assert_eq!(EngineHost::for_engine_count(1), EngineHost::Thread);
        assert_eq!(EngineHost::for_engine_count(2), EngineHost::Process);
    }

    #[test]
    fn order_survives_serialisation() {
        let order = EngineOrder {
            device: ModelDevice::Gpu {
                index: 1,
                gpu: GpuId {
                    name: "NVIDIA H200".into(),
                    uuid: "GPU-00112233".into(),
                },
            },
            settings: config::ModelSettings {
                gpus: vec![0, 1],
                reuse: config::ReuseMode::Exact,
                ..config::ModelSettings::of(config::ModelSource::Directory("/models/md2".into()))
            },
            tasks: vec![Task::Detect {
                object: "car".into(),
            }],
            looks: vec![ExpectedLook {
                width: 1280,
                tasks: Vec::new(),
            }],
        };
        let text = serde_json::to_string(&order).unwrap();
        let arrived: EngineOrder = serde_json::from_str(&text).unwrap();
        assert_eq!(arrived.settings, order.settings);
        assert_eq!((arrived.tasks, arrived.looks), (order.tasks, order.looks));
        assert_eq!(arrived.device.label(), "cuda 1, NVIDIA H200");
    }
}
