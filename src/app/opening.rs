//! How an engine is opened: on a thread of the daemon, or in a process of its own, by the same steps.
//!
//! After a fault on one GPU (an illegal address, a trap) the driver fails every call of the process, on all its GPUs and in
//! all contexts. An engine that is to fail alone therefore needs a process. The only engine of a daemon needs none: without
//! it there is nothing left to do, and a picture is not copied on its way to a thread.
//!
//! Belongs here: what is ordered and told, and the command that runs in the process. Not here: the connection
//! (`service::outside`, `service::inside`).

use std::{
    fs, iter, os::unix::process::CommandExt as _, process::Command, sync::Arc, time::Duration,
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tracing::Instrument as _;

use crate::ops::{
    shutdown::Signals,
    telemetry::{self, SecretList, Sink},
};
use spotter_core::{Clock, Task, config};
use spotter_engine::{
    model,
    open::{Device, ModelCard, OpenOptions, measured_look, permits},
    service::{
        Engine,
        handle::{self, End, EngineStopped, Handle},
        inside, outside,
    },
};

/// Where an engine lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// On a thread of the daemon.
    Thread,
    /// In a process of its own.
    Process,
}

/// An engine that is wanted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// What it runs on.
    pub device: Device,
    /// Which model, and how.
    pub settings: config::Model,
    /// What it is measured with: the longest look that it will be asked for.
    pub tasks: Vec<Task>,
}

/// What is known of an engine that is ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// The model on its device.
    pub card: ModelCard,
    /// How long it takes for the look of its order; `None` when it cannot answer that.
    pub look: Option<Duration>,
}

impl Home {
    /// That of each engine where there are so many.
    pub fn of_each(engines: usize) -> Self {
        match engines {
            0 | 1 => Self::Thread,
            _ => Self::Process,
        }
    }

    /// Opens an engine there and waits until it is measured. The error says what to do.
    pub async fn open(
        self,
        order: Order,
        clock: Arc<dyn Clock>,
    ) -> Result<(Handle, End, Measured), EngineStopped> {
        match self {
            Self::Thread => handle::start_and_tell(move || order.built(clock)).await,
            Self::Process => open_with(this_program(), order, clock).await,
        }
    }
}

/// Opens an engine in a process of its own, which is that of a `program` that runs `spotter engine`.
pub async fn open_with(
    program: Command,
    order: Order,
    clock: Arc<dyn Clock>,
) -> Result<(Handle, End, Measured), EngineStopped> {
    outside::start(program, order, clock).await
}

/// `spotter engine` of the very program that runs, which an update may have replaced on the disk meanwhile.
fn this_program() -> Command {
    let mut program = Command::new("/proc/self/exe");
    let verbose = iter::repeat_n("--verbose", telemetry::verbosity().into());
    program.arg0("spotter").arg("engine").args(verbose);
    program
}

/// `spotter engine`: the process of an engine, started by the daemon. Blocks until that needs it no more, or the engine has
/// failed, which the daemon tells.
pub fn serve(verbose: u8) -> anyhow::Result<()> {
    let daemon = inside::daemon()?;
    telemetry::init(Sink::of_stderr(), verbose, SecretList::default())?;
    // For `top`, which would show the name of the link that it was started by. Where that is not allowed, it does no harm.
    let _ = fs::write("/proc/self/comm", "spotter-engine");
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build()?.block_on(async {
        // Signals to stop or to reload may come to the whole group of processes. They are meant for the daemon: it still
        // needs the last answers, and this process ends with the connection.
        let _signals = Signals::listen().context("listening to signals")?;
        let Some((order, clock)) = daemon.order::<Order>()? else {
            return Ok(());
        };
        // Of the level that is always shown: every line says which engine it is of.
        let span = tracing::error_span!("engine", device = order.device.label());
        let served = daemon.serve(move || order.built(clock));
        served.instrument(span).await.map_err(Into::into)
    })
}

impl Order {
    /// Loads the model, puts it on the device and measures it. Blocks. Gives also how many looks may be inside.
    fn built(self, clock: Arc<dyn Clock>) -> Result<(Engine, usize, Measured), String> {
        let Self {
            device,
            settings,
            tasks,
        } = self;
        let loaded = model::load_model(&settings.source).map_err(|e| e.to_string())?;
        let options = OpenOptions::calibrated_by(spotter_street::calibration_pictures);
        let (mut engine, card) =
            Engine::open_on(device, &settings, loaded, options, Arc::clone(&clock))?;
        let look = measured_look(&mut engine, &tasks, clock.as_ref())?;
        let permits = permits(&card, look, settings.budget);
        Ok((engine, permits, Measured { card, look }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_engine::open::GpuId;

    #[test]
    fn the_only_engine_is_a_thread_and_several_are_processes() {
        assert_eq!(Home::of_each(1), Home::Thread);
        assert_eq!(Home::of_each(2), Home::Process);
    }

    #[test]
    fn an_order_arrives_as_it_was_given() {
        let order = Order {
            device: Device::Gpu {
                index: 1,
                gpu: GpuId {
                    name: "NVIDIA H200".into(),
                    uuid: "GPU-00112233".into(),
                },
                memory_bytes: 150_754_820_096,
            },
            settings: config::Model {
                gpus: vec![0, 1],
                tile_difference: 2.5,
                ..config::Model::of(config::ModelSource::Directory("/models/md2".into()))
            },
            tasks: vec![Task::Detect {
                object: "car".into(),
            }],
        };
        let text = serde_json::to_string(&order).unwrap();
        let arrived: Order = serde_json::from_str(&text).unwrap();
        assert_eq!(arrived.settings, order.settings);
        assert_eq!(arrived.tasks, order.tasks);
        assert_eq!(arrived.device.label(), "cuda 1, NVIDIA H200");
    }
}
