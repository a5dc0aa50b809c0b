//! The daemon's life: start the stages from right to left, watch them, stop them from left to right.

use std::{
    future::pending,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use tokio::{
    sync::{
        broadcast::{self, error::TryRecvError},
        oneshot,
    },
    task::JoinHandle,
    time::{interval, sleep, timeout},
};

use super::{
    ModelCard, birth, build_engine,
    cameras::Cameras,
    console::Console,
    desk::Desk,
    engine::{measured_look, permits},
    housekeeping::{BoundPage, Housekeeping},
    looks::Looks,
    remember_secrets,
    report::Report,
};
use crate::{
    config::{self, Config, Environment, Loaded, Problems, Severity},
    domain::{Clock, SystemClock},
    front::handle::{self, EngineStopped, Handle},
    ops::{
        notify,
        shutdown::{Signals, Wish},
        telemetry::SecretList,
    },
    publish::{ConfigReport, Identity, Publisher, Sent, Update},
    sampler::{Sampler, TimeLimits},
};

/// Loading a model may take so long; also the unit's `TimeoutStartSec`.
const START_LIMIT: Duration = Duration::from_secs(180);
/// Grace for the looks under way when the daemon stops.
const LAST_LOOK_LIMIT: Duration = Duration::from_secs(2);
/// Grace for goodbyes to the cameras.
const CAMERAS_LIMIT: Duration = Duration::from_secs(6);
/// Grace for the last messages.
const BROKER_LIMIT: Duration = Duration::from_secs(5);

/// What to run.
pub struct Start {
    /// Where the configuration came from, to read it again.
    pub path: PathBuf,
    /// What it said.
    pub loaded: Loaded,
    /// What the log must not show; the secrets of every configuration that is used are added.
    pub secrets: SecretList,
    /// Detections go there too.
    pub console: Option<Console>,
    /// Stop by itself after so long.
    pub seconds: Option<u64>,
}

/// Runs until a signal, the time, or a failure that only a restart can mend.
pub async fn run(start: Start) -> anyhow::Result<Report> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut signals = Signals::listen().context("listening to signals")?;
    let mut limit = pin!(time_limit(start.seconds));
    let mut loaded = start.loaded;
    let mut before: Option<Config> = None;
    loop {
        remember_secrets(&start.secrets, &loaded.config);
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        let wanted = Wanted {
            config: loaded.config.clone(),
            instead_of: before.take(),
        };
        let mut daemon = tokio::select! {
            daemon = notify::alive_while(START_LIMIT, wanted.start(&clock, start.console)) => daemon?,
            _ = signals.next_stop() => return Ok(Report::default()),
            () = &mut limit => return Ok(Report::default()),
        };
        let end = tokio::select! {
            end = daemon.watch(&mut signals, &start.path) => end,
            () = &mut limit => Ok(End::Stop),
        };
        match &end {
            // Not told to systemd as a stop, which it would take for the end of the process.
            Ok(End::Reload(_)) => notify::status("starting again with a new configuration"),
            Ok(End::Stop) => notify::stopping("stopping"),
            Err(_) => notify::stopping("stopping after a failure"),
        }
        let running = daemon.config.clone();
        let report = daemon.stop(&mut signals).await;
        match end? {
            End::Reload(next) if !signals.stop_asked() => {
                (loaded, before) = (*next, Some(running));
            }
            End::Reload(_) | End::Stop => return Ok(report),
        }
    }
}

/// What is to run, and what ran until now, when there was something.
struct Wanted {
    config: Config,
    instead_of: Option<Config>,
}

impl Wanted {
    /// Some mistakes show at the start only: a damaged model, an address in use. Then what ran before runs again.
    async fn start(
        self,
        clock: &Arc<dyn Clock>,
        console: Option<Console>,
    ) -> anyhow::Result<Daemon> {
        let started = Daemon::start(self.config, Arc::clone(clock), console).await;
        let (error, before) = match (started, self.instead_of) {
            (Err(error), Some(before)) => (error, before),
            (started, _) => return started,
        };
        tracing::error!("the new configuration cannot be used, the old one runs again: {error:#}");
        let daemon = Daemon::start(before, Arc::clone(clock), console).await?;
        daemon.refuse(vec![format!("{error:#}")]);
        Ok(daemon)
    }
}

async fn time_limit(seconds: Option<u64>) {
    match seconds {
        Some(seconds) => sleep(Duration::from_secs(seconds)).await,
        None => pending().await,
    }
}

/// Why watching ended.
enum End {
    Stop,
    Reload(Box<Loaded>),
}

/// All stages, running.
struct Daemon {
    config: Config,
    clock: Arc<dyn Clock>,
    publisher: Publisher,
    broker_task: JoinHandle<()>,
    sent: broadcast::Receiver<Sent>,
    engine: Handle,
    engine_end: oneshot::Receiver<Result<(), EngineStopped>>,
    sampler: Arc<Sampler>,
    looks: Looks,
    cameras: Cameras,
    desk: Desk,
    housekeeping: Housekeeping,
    console: Option<Console>,
}

impl Daemon {
    /// What can fail comes first: the broker and the cameras hear of us when everything else is there.
    async fn start(
        config: Config,
        clock: Arc<dyn Clock>,
        console: Option<Console>,
    ) -> anyhow::Result<Self> {
        let page = BoundPage::bind(&config.http).await?;
        let (engine, engine_end, card, look) = start_engine(&config, &clock).await?;
        let identity = Identity::of_this_machine(config.node.name.clone());
        let (publisher, broker_task) =
            Publisher::start(&config.mqtt, &identity, Arc::clone(&clock)).context("mqtt")?;
        let sent = publisher.sent();
        let info = birth::info(&config, &identity, &card, clock.wall());
        publisher.publish(Update::Info(info));
        let accepted = ConfigReport::new(config.hash.clone(), clock.wall(), Vec::new());
        publisher.publish(Update::Config(accepted));
        let limits = TimeLimits::new(config.model.budget, look);
        let sampler = Sampler::new(&config.cameras, limits, Arc::clone(&clock));
        let desk = Desk::new(
            &config.cameras,
            Arc::clone(&sampler),
            publisher.clone(),
            Arc::clone(&card.name),
            Arc::clone(&clock),
        );
        let cameras = Cameras::start(&config.cameras, &sampler, &clock);
        notify::ready(&format!(
            "watching {} cameras with {}",
            config.cameras.len(),
            card.name
        ));
        Ok(Self {
            looks: Looks::new(engine.clone(), Arc::clone(&sampler)),
            config,
            publisher,
            broker_task,
            sent,
            engine,
            engine_end,
            sampler,
            cameras,
            desk,
            housekeeping: Housekeeping::start(page, look, Arc::clone(&clock)),
            clock,
            console,
        })
    }

    /// Turns looks into messages until something ends it.
    async fn watch(&mut self, signals: &mut Signals, path: &Path) -> anyhow::Result<End> {
        let mut second = interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                outcomes = self.looks.outcomes() => {
                    for outcome in outcomes.context("engine")? {
                        self.desk.outcome(outcome);
                    }
                }
                Ok(sent) = self.sent.recv() => self.on_sent(&sent),
                _ = second.tick() => self.on_second().await,
                end = &mut self.engine_end => {
                    end.context("engine")?.context("engine")?;
                    anyhow::bail!("the engine ended without a reason");
                }
                wish = signals.next() => match wish {
                    Wish::Reload => if let Some(next) = self.reload(path) {
                        return Ok(End::Reload(Box::new(next)));
                    },
                    Wish::Stop | Wish::StopNow => return Ok(End::Stop),
                },
            }
        }
    }

    fn on_sent(&mut self, sent: &Sent) {
        self.housekeeping.on_sent(sent);
        if let Some(console) = self.console {
            console.detection(sent, self.clock.wall());
        }
    }

    async fn on_second(&mut self) {
        for switched in self.cameras.tick(&self.publisher, &self.clock).await {
            self.desk.switched(&switched);
        }
        self.desk.tick();
        let loops = [self.engine.beats(), self.publisher.progress()];
        self.housekeeping.tick(
            &self.publisher,
            &self.sampler.books(),
            &self.cameras,
            &loops,
        );
    }

    /// Reads the configuration again. A bad one is told and changes nothing.
    fn reload(&self, path: &Path) -> Option<Loaded> {
        match config::load(path, &Environment::process()) {
            Ok(loaded) if loaded.config == self.config => {
                tracing::info!("configuration unchanged");
                None
            }
            Ok(loaded) => {
                tracing::info!("configuration changed, starting again with it");
                Some(loaded)
            }
            Err(problems) => {
                log_refused(&problems);
                self.refuse(problems.iter().map(ToString::to_string).collect());
                None
            }
        }
    }

    /// Tells that another configuration than the running one was tried and is not used.
    fn refuse(&self, errors: Vec<String>) {
        let report = ConfigReport::new(self.config.hash.clone(), self.clock.wall(), errors);
        self.publisher.publish(Update::Config(report));
    }

    /// Stops from left to right: no more frames, the last answers, the last messages. The second wish to stop cuts it
    /// short.
    async fn stop(mut self, signals: &mut Signals) -> Report {
        tokio::select! {
            () = self.wind_up() => {}
            () = signals.stop_now() => tracing::warn!("stopped at once: goodbyes and last messages are lost"),
        }
        // With our id, it would fight the connection of the daemon that comes after a reload.
        self.broker_task.abort();
        loop {
            match self.sent.try_recv() {
                Ok(sent) => self.on_sent(&sent),
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        let (books, messages) = (self.sampler.books(), self.publisher.tally());
        self.housekeeping.end(books, messages).await
    }

    async fn wind_up(&mut self) {
        self.cameras.stop(CAMERAS_LIMIT).await;
        for outcome in self.looks.finish(LAST_LOOK_LIMIT).await {
            self.desk.outcome(outcome);
        }
        self.publisher.stop();
        let _ = timeout(BROKER_LIMIT, &mut self.broker_task).await;
    }
}

/// An event each, because a journal shows a second line without priority and name.
fn log_refused(problems: &Problems) {
    let errors = problems.errors();
    tracing::error!(
        errors,
        "the new configuration is refused, the old one keeps running"
    );
    for problem in problems.iter() {
        match problem.severity {
            Severity::Error => tracing::error!("{problem}"),
            Severity::Warning => tracing::warn!("{problem}"),
        }
    }
}

/// Loads the model on the engine's thread, measures it, and says what it is and what it is not good for.
async fn start_engine(
    config: &Config,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<(
    Handle,
    oneshot::Receiver<Result<(), EngineStopped>>,
    ModelCard,
    Option<Duration>,
)> {
    let (card_out, card) = oneshot::channel();
    let (model, engine_clock) = (config.model.clone(), Arc::clone(clock));
    let tasks = birth::longest_look(config);
    let build = move || {
        let (mut engine, card) = build_engine(&model, Arc::clone(&engine_clock))?;
        let look = measured_look(&mut engine, &tasks, engine_clock.as_ref());
        let permits = permits(&card, look, model.budget);
        // The receiver waits below.
        let _ = card_out.send((card, look.map(|took| (took, tasks.len()))));
        Ok((engine, permits))
    };
    let (engine, engine_end) = handle::start(build).await.context("model")?;
    let (card, measured) = card.await.context("model")?;
    let prompts_hz = measured.map(|(took, prompts)| prompts as f64 / took.as_secs_f64().max(1e-6));
    tracing::info!(
        model = &*card.name,
        device = card.device,
        prompts_per_s = prompts_hz.map(f64::round),
        "model loaded"
    );
    for warning in birth::advice(config, prompts_hz) {
        tracing::warn!("{warning}");
    }
    Ok((engine, engine_end, card, measured.map(|(took, _)| took)))
}
