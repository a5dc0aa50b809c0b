//! The life of the daemon: start the stages, run them on one loop, stop them; restart them inside the process when a reload changes more
//! than cameras.
//!
//! ```text
//!   start ──▶ run: a stage says something, a second passes, a signal ──▶ every stage hears it ──▶ finish, close
//!     ▲                                                                                              │
//!     └───────────────────────────────── another configuration ◀────────────────────────────────────┘
//! ```
//!
//! What the stages are is known to [`stages`](super::stages) alone.

use std::{pin::pin, time::Duration};

use anyhow::Context as _;
use futures_util::future::{join_all, select_all};
use tokio::time::{interval, sleep};

use super::{
    logging::remember_secrets,
    loop_turns::timed,
    notice::{RunEnd, StageNotice},
    reload::log_warnings,
    report::RunReport,
    stage::StageContext,
    stages::{ProcessContext, Stages, StartedStages},
};
use crate::ops::{
    notify,
    shutdown::{OperatorSignal, Signals},
};
use spotter_config::{Config, LoadedConfig};
use spotter_control::ConfigStore;
use spotter_state::StateStore;

/// Grace for loading a model; also the unit's `TimeoutStartSec`.
const START_LIMIT: Duration = Duration::from_secs(180);

/// Runs until a signal, the time limit (`seconds`), or a failure that only a restart of the process can repair.
pub async fn run(
    context: ProcessContext,
    mut loaded: LoadedConfig,
    seconds: Option<u64>,
) -> anyhow::Result<RunReport> {
    let mut signals = Signals::listen().context("cannot install signal handlers")?;
    let mut limit = pin!(time_limit(seconds));
    let mut previous: Option<Config> = None;
    loop {
        remember_secrets(&context.logging.secrets, &loaded.config);
        log_warnings(&loaded);
        let starting = start_or_return_to_previous(loaded.config, previous, &context);
        let mut daemon = tokio::select! {
            daemon = notify::alive_while(START_LIMIT, starting) => daemon?,
            _ = signals.next_stop() => return Ok(RunReport::default()),
            () = &mut limit => return Ok(RunReport::default()),
        };
        let end = tokio::select! {
            end = timed(&*context.clock, daemon.run(&mut signals)) => end,
            () = &mut limit => Ok(RunEnd::Stop),
        };
        match &end {
            // systemd would take STOPPING=1 for the end of the process.
            Ok(RunEnd::Restart(_)) => notify::status("restarting with a new configuration"),
            Ok(RunEnd::Stop) => notify::stopping("stopping"),
            Err(_) => notify::stopping("stopping after a failure"),
        }
        let config = daemon.config.file().clone();
        let is_restart = matches!(end, Ok(RunEnd::Restart(_)));
        let stopping = daemon.stop(&mut signals, is_restart);
        let report = notify::alive_while(START_LIMIT, stopping).await;
        match end? {
            RunEnd::Restart(next) if !signals.stop_asked() => {
                if !report.balanced() {
                    tracing::error!(
                        "the frame counters of the previous configuration do not balance; this is a bug in Spotter"
                    );
                }
                (loaded, previous) = (*next, Some(config));
            }
            RunEnd::Restart(_) | RunEnd::Stop => return Ok(report),
        }
    }
}

/// Some errors appear at the start only: a damaged model, an address that another program has taken meanwhile. Then the
/// previous configuration runs again.
async fn start_or_return_to_previous(
    config: Config,
    previous: Option<Config>,
    context: &ProcessContext,
) -> anyhow::Result<Daemon> {
    let Some(previous) = previous else {
        return Daemon::start(config, context.clone()).await;
    };
    let error = match Daemon::start(config, context.clone()).await {
        Ok(daemon) => return Ok(daemon),
        Err(error) => error,
    };
    tracing::error!(
        "the new configuration cannot be started; the previous configuration runs again: {error:#}"
    );
    let daemon = Daemon::start(previous, context.clone()).await;
    let mut daemon = daemon.with_context(|| {
        format!("neither the new configuration ({error:#}) nor the previous one can be started")
    })?;
    daemon.deliver([StageNotice::ConfigReported(vec![format!("{error:#}")])]);
    Ok(daemon)
}

async fn time_limit(seconds: Option<u64>) {
    match seconds {
        Some(seconds) => sleep(Duration::from_secs(seconds)).await,
        None => std::future::pending().await,
    }
}

pub struct Daemon {
    context: ProcessContext,
    config: ConfigStore,
    state: StateStore,
    stages: Stages,
    /// The stage that is asked first, so that none waits for another for ever.
    first: usize,
}

impl Daemon {
    async fn start(file: Config, context: ProcessContext) -> anyhow::Result<Self> {
        let StartedStages {
            stages,
            config,
            state,
        } = Stages::start(file, &context).await?;
        Ok(Self {
            context,
            config,
            state,
            stages,
            first: 0,
        })
    }

    /// Runs the stages until a signal, a reload that needs a restart, or a failure.
    async fn run(&mut self, signals: &mut Signals) -> anyhow::Result<RunEnd> {
        let mut second = interval(Duration::from_secs(1));
        let mut end = self.deliver([StageNotice::Started]);
        while end.is_none() {
            self.first += 1;
            end = tokio::select! {
                notices = first_notices(&mut self.stages, self.first) => self.deliver(notices),
                _ = second.tick() => self.tick(),
                wish = signals.next() => match wish {
                    OperatorSignal::Reload => self.deliver([StageNotice::ReloadAsked(None)]),
                    OperatorSignal::Stop if self.is_leaving() => None,
                    OperatorSignal::Stop | OperatorSignal::StopNow => Some(Ok(RunEnd::Stop)),
                },
            };
        }
        end.unwrap_or(Ok(RunEnd::Stop))
    }

    fn is_leaving(&mut self) -> bool {
        let now = self.context.clock.now();
        self.stages.all().into_iter().any(|stage| stage.leave(now))
    }

    fn tick(&mut self) -> Option<anyhow::Result<RunEnd>> {
        let (now, wall) = (self.context.clock.now(), self.context.clock.wall());
        let has_expired = self.config.tick(now, wall);
        let mut context = StageContext::new(&mut self.config, now, wall);
        if has_expired {
            context.cameras_changed();
        }
        for stage in self.stages.all() {
            stage.tick(&mut context);
        }
        settle(&mut self.stages, context)
    }

    /// Every stage hears these notices and what follows of them. `Some`: the run ends.
    fn deliver(
        &mut self,
        notices: impl IntoIterator<Item = StageNotice>,
    ) -> Option<anyhow::Result<RunEnd>> {
        let (now, wall) = (self.context.clock.now(), self.context.clock.wall());
        let mut context = StageContext::new(&mut self.config, now, wall);
        context.say_all(notices);
        settle(&mut self.stages, context)
    }

    /// No more frames, the last answers, the last messages. A second signal to stop cuts it short.
    async fn stop(mut self, signals: &mut Signals, is_restart: bool) -> RunReport {
        tokio::select! {
            () = self.stop_stages(is_restart) => {}
            () = signals.stop_now() => tracing::warn!("stopped at once by a second signal; camera sessions stay open and the last messages are lost"),
        }
        self.state.clone().close().await;
        self.stages.report()
    }

    async fn stop_stages(&mut self, is_restart: bool) {
        for index in 0..self.stages.all().len() {
            let last = self.stages.all()[index].finish().await;
            self.deliver(last);
        }
        let closing = self.stages.all();
        let closing = closing.into_iter().map(|stage| stage.close(is_restart));
        let last = join_all(closing).await;
        self.deliver(last.into_iter().flatten());
    }
}

/// What the first stage says that has something to say; they are asked from the stage `first` on.
async fn first_notices(stages: &mut Stages, first: usize) -> Vec<StageNotice> {
    let mut all = stages.all();
    let count = all.len();
    all.rotate_left(first % count);
    let (notices, ..) = select_all(all.into_iter().map(|stage| stage.next())).await;
    notices
}

/// Until nothing more is said, and no camera is another.
fn settle(stages: &mut Stages, mut context: StageContext<'_>) -> Option<anyhow::Result<RunEnd>> {
    loop {
        while let Some(mut notice) = context.next_notice() {
            for stage in stages.all() {
                stage.hear(&mut notice, &mut context);
            }
            if let StageNotice::End(end) = notice {
                return Some(end);
            }
        }
        if !context.take_cameras_changed() {
            return None;
        }
        let change = context.config.take_change();
        for stage in stages.all() {
            stage.apply(&change, &mut context);
        }
    }
}

#[cfg(test)]
mod testbed;
