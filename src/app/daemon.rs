//! The daemon's life: start the stages from right to left, watch them, stop them from left to right.

use std::{
    future::pending,
    path::{Path, PathBuf},
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use in_place::{announce, filters};
use loss::{Losses, Reopening};
use swap::Swap;
use tokio::{
    sync::{
        broadcast::{self, error::TryRecvError},
        mpsc,
    },
    task::JoinHandle,
    time::{interval, sleep, timeout},
};

use super::{
    Logging,
    answer_router::{AnswerRouter, AnswerRouterParts},
    birth,
    board::Board,
    cameras::Cameras,
    console::Console,
    control::{Asks, Force},
    engines::{Engines, News, Opened, Plan},
    housekeeping::{BoundPage, Housekeeping},
    lines::Lines,
    remember_secrets,
    report::Report,
    seats::Seats,
};
use crate::ops::{
    notify,
    shutdown::{Signals, Wish},
};
use spotter_cameras::sampler::Sampler;
use spotter_core::{
    CameraId, Clock, Mono, Repeats, SystemClock,
    config::{self, Config, Loaded, Problems, Severity},
};
use spotter_engine::open::ModelCard;
use spotter_events::control::Repeated;
use spotter_mqtt as publish;
use spotter_mqtt::{
    Announcer, Identity, Inbound, Info, Publisher, Reply, ReplyTo, Sent, discovery::collisions,
};

/// Loading a model may take so long; also the unit's `TimeoutStartSec`.
const START_LIMIT: Duration = Duration::from_secs(180);
/// Grace for the looks under way when the daemon stops.
const LAST_LOOK_LIMIT: Duration = Duration::from_secs(2);
/// Grace for goodbyes to the cameras.
const CAMERAS_LIMIT: Duration = Duration::from_secs(6);
/// Grace for the last messages.
const BROKER_LIMIT: Duration = Duration::from_secs(5);

/// The broker may hold retained commands on topics without end; so many are named in a minute, all are counted.
const OLD_TOPICS_MAX: usize = 64;

/// What to run.
pub struct Start {
    /// Where the configuration came from, to read it again.
    pub path: PathBuf,
    /// What it said.
    pub loaded: Loaded,
    /// The log; the secrets of every configuration that is used are kept out of it.
    pub logging: Logging,
    /// Detections go there too.
    pub console: Option<Console>,
    /// Messages go there too.
    pub lines: Option<Lines>,
    /// Stop by itself after so long.
    pub seconds: Option<u64>,
}

/// Opens the engines of a plan. Tests have other devices than a machine.
type OpenEngines = dyn Fn(Plan) -> Opening + Send + Sync;
type Opening = Pin<Box<dyn Future<Output = anyhow::Result<Opened>>>>;

/// Runs until a signal, the time, or a failure that only a restart can mend.
pub async fn run(start: Start) -> anyhow::Result<Report> {
    let engines: Arc<OpenEngines> = Arc::new(|plan| Box::pin(plan.open()));
    run_with(start, Arc::new(SystemClock::new()), engines).await
}

async fn run_with(
    start: Start,
    clock: Arc<dyn Clock>,
    engines: Arc<OpenEngines>,
) -> anyhow::Result<Report> {
    let mut signals = Signals::listen().context("listening to signals")?;
    let mut limit = pin!(time_limit(start.seconds));
    let mut loaded = start.loaded;
    let mut before: Option<Config> = None;
    let around = Around {
        logging: start.logging.clone(),
        console: start.console,
        lines: start.lines,
        engines,
    };
    let mut seats = Seats::new();
    loop {
        remember_secrets(&start.logging.secrets, &loaded.config);
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        let wanted = Wanted {
            config: loaded.config.clone(),
            instead_of: before.take(),
            seats,
        };
        let mut daemon = tokio::select! {
            daemon = notify::alive_while(START_LIMIT, wanted.start(&clock, around.clone())) => daemon?,
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
        let running = daemon.file.clone();
        seats = daemon.engines.seats();
        let report = daemon.stop(&mut signals).await;
        match end? {
            End::Reload(next) if !signals.stop_asked() => {
                if !report.balanced() {
                    tracing::error!(
                        "the books of the old configuration do not balance: this is a bug"
                    );
                }
                (loaded, before) = (*next, Some(running));
            }
            End::Reload(_) | End::Stop => return Ok(report),
        }
    }
}

/// What is to run, and what ran until now, when there was something, and where its cameras were.
struct Wanted {
    config: Config,
    instead_of: Option<Config>,
    seats: Seats,
}

impl Wanted {
    /// Some mistakes show at the start only: a damaged model, an address in use. Then what ran before runs again.
    async fn start(self, clock: &Arc<dyn Clock>, around: Around) -> anyhow::Result<Daemon> {
        let started = Daemon::start(self.config, &self.seats, clock, around.clone()).await;
        let (error, before) = match (started, self.instead_of) {
            (Err(error), Some(before)) => (error, before),
            (started, _) => return started,
        };
        tracing::error!("{OLD_AGAIN}: {error:#}");
        let daemon = Daemon::start(before, &self.seats, clock, around).await?;
        daemon.refuse(vec![format!("{error:#}")]);
        Ok(daemon)
    }
}

/// What belongs to the process, and to every daemon that it runs.
#[derive(Clone)]
struct Around {
    logging: Logging,
    console: Option<Console>,
    lines: Option<Lines>,
    engines: Arc<OpenEngines>,
}

/// Who waits for an answer, and where.
#[derive(Clone, Debug)]
struct Asker {
    head: publish::Head,
    to: Option<ReplyTo>,
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
    /// As the file says; what holds is `force`'s to know.
    file: Config,
    force: Force,
    /// Who we are on the broker.
    identity: Identity,
    clock: Arc<dyn Clock>,
    publisher: Publisher,
    broker_task: JoinHandle<()>,
    sent: broadcast::Receiver<Sent>,
    inbound: mpsc::Receiver<Inbound>,
    announcer: Announcer,
    /// Another model is being opened.
    swap: Option<Swap>,
    /// Engines that were lost.
    losses: Losses,
    /// One of them is being opened.
    reopening: Option<Reopening>,
    /// Questions that wait for a look.
    asks: Asks<Asker>,
    /// Requests of the last minutes.
    repeated: Repeated<Reply>,
    /// Topics of retained commands, each told once a minute.
    old_requests: Repeats<String>,
    /// The log shows another level until then.
    log_until: Option<Mono>,
    info: Info,
    engines: Engines,
    cameras: Cameras,
    answers: AnswerRouter,
    housekeeping: Housekeeping,
    board: Board,
    around: Around,
}

impl Daemon {
    /// What can fail comes first: the broker and the cameras hear of us when everything else is there.
    async fn start(
        file: Config,
        seats: &Seats,
        clock: &Arc<dyn Clock>,
        around: Around,
    ) -> anyhow::Result<Self> {
        let page = BoundPage::bind(&file.http).await?;
        let force = Force::open(&file, clock.now());
        let in_force = file.with_cameras(force.cameras().to_vec());
        let sampler = Sampler::new(force.cameras(), Arc::clone(clock));
        let opened = (around.engines)(Plan {
            config: in_force,
            before: seats.clone(),
            sampler: Arc::clone(&sampler),
            clock: Arc::clone(clock),
            only: None,
        });
        let Opened { stations, card } = opened.await?;
        let engines = Engines::new(sampler, stations);
        advise(&file);
        Self::with(
            file,
            (page, force),
            (engines, card),
            Arc::clone(clock),
            around,
        )
    }

    /// Around engines that run already.
    fn with(
        file: Config,
        (page, force): (BoundPage, Force),
        (engines, card): (Engines, ModelCard),
        clock: Arc<dyn Clock>,
        around: Around,
    ) -> anyhow::Result<Self> {
        let identity = Identity::of_this_machine(file.node.name.clone());
        let (publisher, broker_task) = Publisher::start(
            &file.mqtt,
            Some(&file.node.state_dir),
            &identity,
            Arc::clone(&clock),
        )
        .context("mqtt")?;
        let (sent, inbound) = (publisher.sent(), publisher.take_inbound());
        if let Some(lines) = &around.lines {
            lines.print(publisher.lines());
        }
        let inbound = inbound.context("mqtt: somebody else reads the commands")?;
        publisher.listen(filters(&publisher, &file));
        let mut announcer = Announcer::open(&file.node.state_dir, &identity);
        announce(&mut announcer, &publisher, (&file, &force), &engines.gpus());
        let in_force = file.with_cameras(force.cameras().to_vec());
        let info = birth::info(&in_force, &identity, (&card, engines.gpus()), clock.wall());
        let board = Board::new(&in_force, &card, &engines.seats(), Arc::clone(&clock));
        let answers = AnswerRouter::new(AnswerRouterParts {
            cameras: force.cameras(),
            retain_snapshots: file.mqtt.retain_snapshots,
            model: Arc::clone(&card.name),
            boot: Arc::clone(&identity.boot),
            sampler: Arc::clone(engines.sampler()),
            publisher: publisher.clone(),
            board: board.clone(),
            clock: Arc::clone(&clock),
        });
        let cameras = Cameras::start(force.cameras(), &engines, &clock);
        notify::ready(&format!(
            "watching {} cameras with {}",
            file.cameras.len(),
            card.name
        ));
        let mut daemon = Self {
            file,
            force,
            identity,
            publisher,
            broker_task,
            sent,
            inbound,
            announcer,
            swap: None,
            losses: Losses::default(),
            reopening: None,
            asks: Asks::default(),
            repeated: Repeated::default(),
            old_requests: Repeats::of_at_most(OLD_TOPICS_MAX),
            log_until: None,
            info,
            cameras,
            answers,
            housekeeping: Housekeeping::start(page, &engines, board.clone(), Arc::clone(&clock)),
            board,
            engines,
            clock,
            around,
        };
        daemon.tell_settings();
        daemon.accept();
        Ok(daemon)
    }

    /// Turns looks into messages until something ends it.
    async fn watch(&mut self, signals: &mut Signals, path: &Path) -> anyhow::Result<End> {
        let mut second = interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                news = self.engines.next() => match news {
                    News::Outcomes(outcomes) => self.on_outcomes(outcomes),
                    News::Lost(loss) => self.on_lost(loss).await?,
                },
                Ok(sent) = self.sent.recv() => self.on_sent(&sent),
                Some(message) = self.inbound.recv() => if let Some(next) = self.on_inbound(message, path).await
                    && let Some(again) = self.go_on_with(*next).await
                {
                    return Ok(End::Reload(again));
                },
                opened = loss::ready(&mut self.reopening) => self.on_reopened(opened),
                ready = swap::ready(&mut self.swap) => if self.on_ready(ready?).await
                    && let Some(again) = self.read_again(path).await
                {
                    return Ok(End::Reload(again));
                },
                picture = self.answers.next_snapshot() => self.answers.on_snapshot(picture),
                _ = second.tick() => self.on_second().await?,
                wish = signals.next() => match wish {
                    Wish::Reload => if !self.reload_later()
                        && let Some(again) = self.read_again(path).await
                    {
                        return Ok(End::Reload(again));
                    },
                    Wish::Stop | Wish::StopNow => return Ok(End::Stop),
                },
            }
        }
    }

    fn on_sent(&mut self, sent: &Sent) {
        self.housekeeping.on_sent(sent);
        if let Some(console) = self.around.console {
            console.detection(sent, self.clock.wall());
        }
    }

    async fn on_second(&mut self) -> anyhow::Result<()> {
        self.on_time().await;
        for switched in self.cameras.tick(&self.publisher, &self.clock).await {
            self.answers.switched(&switched);
        }
        self.answers.tick();
        self.announcer.tick(&self.publisher, self.clock.now());
        let stages = (&self.engines, &self.cameras);
        if let Some(lines) = &self.around.lines {
            self.housekeeping.lines_lost(lines.lost());
        }
        let (snapshots, budget) = (self.answers.snapshot_counters(), self.file.model.budget);
        let stuck = self
            .housekeeping
            .tick(&self.publisher, stages, snapshots, budget);
        self.give_up(stuck).await?;
        self.reopen();
        match self.cameras.too_many_abandoned() {
            Some(why) => anyhow::bail!(why),
            None => Ok(()),
        }
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
        let (sampler, messages) = (self.engines.sampler(), self.publisher.tally());
        let (mut books, gone) = (sampler.books(), sampler.books_of_gone());
        if let (true, Ok(name)) = (gone.arrived > 0, CameraId::new("taken-away")) {
            books.push((name, gone));
        }
        self.housekeeping.end(books, messages).await
    }

    async fn wind_up(&mut self) {
        self.cameras.stop(CAMERAS_LIMIT).await;
        let last = self.engines.finish(LAST_LOOK_LIMIT).await;
        self.on_outcomes(last);
        self.answers.shutdown();
        self.publisher.stop();
        let _ = timeout(BROKER_LIMIT, &mut self.broker_task).await;
        self.engines.let_go().await;
    }
}

/// Warns of what is allowed and hardly meant.
fn advise(file: &Config) {
    let idle = config::advice::idle_gpus(file).into_iter();
    let without_effect = config::advice::without_effect(file);
    for warning in idle.chain(without_effect).chain(collisions(file, true)) {
        tracing::warn!("{warning}");
    }
}

/// What is said when only trying a configuration showed that it cannot be used.
const OLD_AGAIN: &str = "the new configuration cannot be used, the old one runs again";
/// What is said of a configuration that cannot be used.
const REFUSED: &str = "the new configuration is refused, the old one keeps running";

/// An event each, because a journal shows a second line without priority and name.
fn log_refused(problems: &Problems) {
    let errors = problems.errors();
    tracing::error!(errors, "{REFUSED}");
    for problem in problems.iter() {
        match problem.severity {
            Severity::Error => tracing::error!("{problem}"),
            Severity::Warning => tracing::warn!("{problem}"),
        }
    }
}

#[cfg(test)]
mod field;
mod in_place;
mod loss;
mod reload;
mod requests;
mod swap;
#[cfg(test)]
mod tests;
