//! The life of the daemon: start the stages from right to left, run them, stop them from left to right; restart them inside the
//! process when a reload changes more than cameras.
//!
//! ```text
//!                     ┌─ EngineSupervisor ──▶ answers ──▶ CommandHandler (questions), AnswerRouter ──▶ Publisher
//!   Daemon::run ◀─────┼─ broker: commands ──▶ CommandHandler ──▶ ConfigStore ──▶ ConfigChange ──▶ all stages
//!   (select loop)     ├─ broker, ONVIF, API: signals; time ──▶ Triggers ──▶ Sampler, CameraSupervisor, AnswerRouter
//!                     ├─ every second ──▶ CameraSupervisor, AnswerRouter, NodeReporter, Housekeeping
//!                     └─ signals: stop, reload
//! ```
//!
//! Each component owns its state; `Daemon` calls them in turn and owns none of their fields.

use std::{future::pending, path::PathBuf, pin::pin, sync::Arc, time::Duration};

use anyhow::Context as _;
use tokio::{
    sync::{
        broadcast::{self, error::TryRecvError},
        mpsc,
    },
    task::{JoinHandle, spawn_blocking},
    time::{interval, sleep, timeout},
};

use super::{
    Logging,
    answer_router::{AnswerRouter, AnswerRouterParts},
    camera_supervisor::CameraSupervisor,
    command_handler::{CommandContext, CommandEffect, CommandHandler},
    config_store::{ConfigStore, adapters_fit, restart_reasons},
    console,
    costs::CostBasis,
    engine_slot::LostEngine,
    engine_supervisor::{EngineEvent, EnginePlan, EngineSupervisor, OpenEngines, OpenedEngines},
    event_poster::EventPoster,
    fleet_membership::{FleetContext, FleetMembership, FleetStart},
    housekeeping::{Housekeeping, TickInput, constant_figures},
    line_counts::LineCountStore,
    lines::Lines,
    loop_turns::LoopTurns,
    node_reporter::{NodeReporter, NodeReporterParts, expected_looks, longest_look, node_info},
    pending_confirmations::PendingConfirmations,
    remember_secrets,
    report::RunReport,
    snapshot,
    triggers::{LookSwitch, TriggerCall, Triggers},
    watchdogs::Watchdogs,
};
use crate::api::{RefusedCall, ServedApi, TriggerRequest};
use crate::ops::{
    notify,
    shutdown::{OperatorSignal, Signals},
};
use spotter_cameras::sampler::Sampler;
use spotter_config::{self as config, Config, ConfigProblems, LoadedConfig, Severity};
use spotter_control::{Refusal, RefusalCode};
use spotter_core::{CameraId, Clock, LookNews, SystemClock, TriggeredLooks};
use spotter_engine::{
    model::{ModelConfig, check_model, model_config},
    open::ModelCard,
    service::BrokenAdapter,
};
use spotter_http::HostNames;
use spotter_mqtt as publish;
use spotter_mqtt::{
    Identity, Inbound, Publisher, ReplyValue, SentDetection,
    discovery::{birth_topic, collisions},
};
use spotter_page::{Board, BoardParts, PromptCosts, Readiness, ServedPage};
use spotter_state::StateStore;

/// Grace for loading a model; also the unit's `TimeoutStartSec`.
const START_LIMIT: Duration = Duration::from_secs(180);
/// Grace for the looks in flight when the daemon stops.
const LAST_LOOK_LIMIT: Duration = Duration::from_secs(2);
/// Grace for closing the sessions of the cameras.
const CAMERAS_LIMIT: Duration = Duration::from_secs(6);
/// Grace for the last messages.
const BROKER_LIMIT: Duration = Duration::from_secs(5);

pub struct Start {
    /// The file, for reloads.
    pub path: PathBuf,
    pub loaded: LoadedConfig,
    /// The secrets of every configuration that is used are masked in this log.
    pub logging: Logging,
    /// Print detections for people.
    pub console: bool,
    /// Prints messages for programs.
    pub lines: Option<Lines>,
    /// Stops after this time.
    pub seconds: Option<u64>,
}

/// What belongs to the process and survives a restart inside it.
#[derive(Clone)]
struct ProcessContext {
    path: PathBuf,
    logging: Logging,
    console: bool,
    lines: Option<Lines>,
    clock: Arc<dyn Clock>,
    open_engines: Arc<OpenEngines>,
}

/// Runs until a signal, the time limit, or a failure that only a restart of the process can repair.
pub async fn run(start: Start) -> anyhow::Result<RunReport> {
    let open_engines: Arc<OpenEngines> = Arc::new(|plan| Box::pin(plan.open()));
    run_with(start, Arc::new(SystemClock::new()), open_engines).await
}

async fn run_with(
    start: Start,
    clock: Arc<dyn Clock>,
    open_engines: Arc<OpenEngines>,
) -> anyhow::Result<RunReport> {
    let mut signals = Signals::listen().context("cannot install signal handlers")?;
    let mut limit = pin!(time_limit(start.seconds));
    let context = ProcessContext {
        path: start.path,
        logging: start.logging,
        console: start.console,
        lines: start.lines,
        clock,
        open_engines,
    };
    let mut loaded = start.loaded;
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
        let turns = LoopTurns::new(&context.clock);
        let end = tokio::select! {
            end = turns.watch(daemon.run(&mut signals, &turns)) => end,
            () = &mut limit => Ok(RunEnd::Stop),
        };
        tracing::debug!("loop: {turns}");
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
        check_adapters(context, &config).await?;
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
    let errors = vec![format!("{error:#}")];
    daemon.reporter.report_config(&daemon.config, errors);
    Ok(daemon)
}

async fn time_limit(seconds: Option<u64>) {
    match seconds {
        Some(seconds) => sleep(Duration::from_secs(seconds)).await,
        None => pending().await,
    }
}

enum RunEnd {
    Stop,
    /// All stages have to start again with this configuration.
    Restart(Box<LoadedConfig>),
}

/// The result of reading the file again.
enum Reload {
    Unchanged,
    /// Only cameras, modes and webhooks changed: [`Daemon::apply_file`].
    InPlace(Box<LoadedConfig>),
    /// Other sections changed too: [`RunEnd::Restart`].
    Restart(Box<LoadedConfig>),
    /// The file has these errors; the running configuration stays active.
    Rejected(Vec<String>),
}

/// The connection to the broker, as far as the daemon itself reads from it.
struct BrokerLink {
    task: JoinHandle<()>,
    sent: broadcast::Receiver<SentDetection>,
    inbound: mpsc::Receiver<Inbound>,
}

struct Daemon {
    context: ProcessContext,
    config: ConfigStore,
    engines: EngineSupervisor,
    cameras: CameraSupervisor,
    triggers: Triggers,
    commands: CommandHandler,
    answers: AnswerRouter,
    line_counts: LineCountStore,
    state: StateStore,
    /// Commands whose change is applied and on its way to the disk.
    unconfirmed: PendingConfirmations,
    publisher: Publisher,
    broker: BrokerLink,
    poster: EventPoster,
    reporter: NodeReporter,
    housekeeping: Housekeeping,
    watchdogs: Watchdogs,
    board: Board,
    /// `None`: a box with its own cameras.
    fleet: Option<FleetMembership>,
    servers: HttpServers,
    /// Those that could not be read at the start.
    broken_adapters: Vec<BrokenAdapter>,
}

/// The HTTP servers, which answer from the beginning of the start on that the model is being opened.
#[derive(Default)]
struct HttpServers {
    /// `None`: off.
    page: Option<ServedPage>,
    /// `None`: off.
    api: Option<ServedApi>,
}

impl HttpServers {
    async fn start(
        file: &Config,
        readiness: Readiness,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let page = ServedPage::start(&file.http, readiness, clock).await?;
        let names = HostNames::of_this_machine(&file.http.names);
        match ServedApi::start(file.api.as_ref(), names, clock).await {
            Ok(api) => Ok(Self { page, api }),
            Err(error) => {
                Self { page, api: None }.close().await;
                Err(error)
            }
        }
    }

    /// Frees the addresses at once.
    async fn close(self) {
        let Self { page, api } = self;
        if let Some(api) = api {
            api.close().await;
        }
        if let Some(page) = page {
            page.close().await;
        }
    }

    /// The next call of the API that triggers a camera. Never ready without an API. Dropping the future loses nothing.
    async fn next_trigger(&mut self) -> TriggerRequest {
        match &mut self.api {
            Some(api) => api.next_trigger().await,
            None => pending().await,
        }
    }
}

impl Daemon {
    /// Starts all stages.
    async fn start(file: Config, context: ProcessContext) -> anyhow::Result<Self> {
        let readiness = Readiness::new(Arc::clone(&context.clock));
        let servers = HttpServers::start(&file, readiness.clone(), &context.clock).await?;
        let prepared = Self::prepare(file, &context).await;
        match prepared.and_then(|prepared| Self::with(prepared, readiness, context)) {
            Ok(mut daemon) => {
                daemon.open(servers);
                Ok(daemon)
            }
            Err(error) => {
                // The previous configuration may listen on the same addresses.
                servers.close().await;
                Err(error)
            }
        }
    }

    /// Does first what can fail: nothing is published and no camera is connected before the rest runs.
    async fn prepare(file: Config, context: &ProcessContext) -> anyhow::Result<PreparedStages> {
        EventPoster::check(&file.webhooks)?;
        let state = StateStore::open(&file.node.state_dir, Arc::clone(&context.clock))?;
        let fleet = match &file.fleet {
            Some(fleet) => Some(FleetStart::read(fleet, &file, state.clone()).await),
            None => None,
        };
        let path = context.path.clone();
        let mut config = ConfigStore::open(path, file, state.clone(), &*context.clock);
        if let Some(fleet) = &fleet {
            let cameras = fleet.cameras().into_iter().map(|shared| shared.camera);
            config.replace_list(cameras.collect(), context.clock.now());
        }
        let sampler = Sampler::new(config.cameras(), Arc::clone(&context.clock));
        let opening = (context.open_engines)(EnginePlan {
            config: config.effective(),
            sampler: Arc::clone(&sampler),
            clock: Arc::clone(&context.clock),
            only: None,
        });
        let OpenedEngines { slots, card } = opening.await?;
        let (clock, open) = (&context.clock, &context.open_engines);
        let mut engines =
            EngineSupervisor::new(sampler, slots, Arc::clone(clock), Arc::clone(open));
        let costs = costs(&config.effective(), &engines);
        engines.set_costs(costs.clone());
        engines.set_cameras(config.cameras());
        engines.log_assignment();
        log_advice(config.file());
        Ok(PreparedStages {
            config,
            state,
            engines,
            costs,
            card,
            fleet,
        })
    }

    /// Starts publishing and the cameras.
    fn with(
        prepared: PreparedStages,
        readiness: Readiness,
        context: ProcessContext,
    ) -> anyhow::Result<Self> {
        let PreparedStages {
            mut config,
            state,
            engines,
            costs,
            card,
            fleet,
        } = prepared;
        // The stages begin with these cameras.
        config.take_change();
        let (file, clock) = (config.file(), &context.clock);
        let mut identity = Identity::of_this_machine(file.node.name.clone());
        if let (Some(table), Some(start)) = (&file.fleet, &fleet) {
            identity = identity.in_fleet(table.name.clone(), start.rights());
        }
        let state_dir = Some(file.node.state_dir.as_path());
        let (publisher, task) =
            Publisher::start(&file.mqtt, state_dir, &identity, Arc::clone(clock))
                .context("mqtt")?;
        let inbound = publisher.take_inbound();
        let broker = BrokerLink {
            task,
            sent: publisher.sent(),
            inbound: inbound.context("mqtt: the messages of the broker are already read")?,
        };
        let events = publisher.take_events();
        let events = events.context("webhook: the events are already read")?;
        if let Some(lines) = &context.lines {
            lines.print(publisher.lines());
        }
        publisher.listen(subscriptions(&publisher, file));
        let shown = file.with_cameras(config.cameras().to_vec());
        let board = Board::new(BoardParts {
            cameras: config.cameras(),
            clock: Arc::clone(clock),
            draw: snapshot::thumbnail,
            costs: costs.clone().map(|costs| -> PromptCosts {
                Arc::new(move |camera, size| costs.prompts(camera, size))
            }),
        });
        let mut info = node_info(&shown, &identity, &card, clock.wall());
        info.gpus = engines.gpus();
        let mut reporter = NodeReporter::new(NodeReporterParts {
            publisher: publisher.clone(),
            state: state.clone(),
            identity: &identity,
            info,
            clock: Arc::clone(clock),
        });
        // Before the first states.
        reporter.announce(&config);
        // In a fleet, another node may have counted meanwhile.
        let is_alone = file.fleet.is_none();
        let line_counts = LineCountStore::new(is_alone.then(|| state.clone()));
        let answers = AnswerRouter::new(AnswerRouterParts {
            cameras: config.cameras(),
            line_counts: &line_counts.records(),
            retain_snapshots: file.mqtt.retain_snapshots,
            model: Arc::clone(&card.name),
            boot: Arc::clone(&identity.boot),
            sampler: Arc::clone(engines.sampler()),
            publisher: publisher.clone(),
            board: board.clone(),
            clock: Arc::clone(clock),
        });
        let cameras = CameraSupervisor::start(config.cameras(), &engines, clock);
        let triggers = Triggers::start(config.cameras(), publisher.clone(), clock);
        notify::ready(&format!(
            "watching {} cameras with {}",
            file.cameras.len(),
            card.name
        ));
        reporter.publish_settings(&config);
        reporter.report_config(&config, Vec::new());
        let fleet = fleet.zip(file.fleet.as_ref()).map(|(start, fleet)| {
            let costs = costs.unwrap_or_else(|| CostBasis::new(ModelConfig::default(), None, 0, 0));
            FleetMembership::start(start, fleet, &identity, costs, clock)
        });
        let poster = EventPoster::start(events, file, clock);
        let constant = constant_figures(file, &card);
        let watchdogs = Watchdogs::start(readiness, &engines, clock.now());
        let (logging, clock) = (context.logging.clone(), Arc::clone(clock));
        Ok(Self {
            fleet,
            commands: CommandHandler::new(publisher.clone(), Arc::clone(&clock), logging),
            housekeeping: Housekeeping::start(&engines, board.clone(), constant, clock),
            watchdogs,
            context,
            config,
            engines,
            cameras,
            triggers,
            answers,
            line_counts,
            state,
            unconfirmed: PendingConfirmations::default(),
            publisher,
            broker,
            poster,
            reporter,
            board,
            servers: HttpServers::default(),
            broken_adapters: card.broken_adapters,
        })
    }

    /// From now on the page shows the daemon, and the engines answer requests of the API.
    fn open(&mut self, servers: HttpServers) {
        if let Some(page) = &servers.page {
            page.open(Arc::new(self.board.clone()));
        }
        if let Some(api) = &servers.api {
            let model = self.reporter.info().model.as_ref();
            self.engines.answer_requests(api.queue());
            for broken in std::mem::take(&mut self.broken_adapters) {
                api.queue().adapter_is_broken(broken.id, broken.reason);
            }
            let adapters = &self.config.file().model.adapters;
            api.open(model.map_or("", |model| &model.name), adapters);
        }
        self.servers = servers;
    }

    /// Runs the stages until a signal, a reload that needs a restart, or a failure.
    async fn run(&mut self, signals: &mut Signals, turns: &LoopTurns) -> anyhow::Result<RunEnd> {
        let mut second = interval(Duration::from_secs(1));
        // That none is active yet.
        self.follow_triggers();
        loop {
            let restart = tokio::select! {
                event = self.engines.next() => {
                    self.on_engine_event(event)?;
                    None
                }
                Ok(sent) = self.broker.sent.recv() => {
                    self.on_sent(&sent);
                    None
                }
                Some(message) = self.broker.inbound.recv() => {
                    let _turn = turns.begin("message");
                    self.on_inbound(&message).await
                }
                picture = self.answers.next_snapshot() => {
                    if let Some(picture) = self.answers.on_snapshot(picture) {
                        self.poster.add_picture(&picture);
                    }
                    None
                }
                event = self.poster.next() => {
                    self.poster.post(&event);
                    None
                }
                call = self.triggers.next(self.context.clock.now()) => {
                    match call {
                        Some(call) => self.on_trigger(&call),
                        None => self.follow_triggers(),
                    }
                    None
                }
                reply = self.unconfirmed.next() => {
                    self.commands.confirm(reply);
                    None
                }
                request = self.servers.next_trigger() => {
                    self.on_called_trigger(request);
                    None
                }
                _ = second.tick() => {
                    let _turn = turns.begin("second");
                    self.on_second().await?;
                    None
                }
                () = fleet_ready(&mut self.fleet) => {
                    let _turn = turns.begin("fleet");
                    if self.on_fleet_events().await {
                        return Ok(RunEnd::Stop);
                    }
                    None
                }
                wish = signals.next() => match (wish, &mut self.fleet) {
                    (OperatorSignal::Reload, _) => {
                        let _turn = turns.begin("reload");
                        let reload = self.read_file().await;
                        self.carry_out(reload).await
                    }
                    // Other nodes take the cameras before this one stops.
                    (OperatorSignal::Stop, Some(fleet)) => {
                        notify::stopping("handing cameras over to other nodes");
                        fleet.leave(self.context.clock.now());
                        None
                    }
                    _ => return Ok(RunEnd::Stop),
                },
            };
            if self.is_leaving_overdue() {
                tracing::warn!("not all cameras could be handed over in time; stopping");
                return Ok(RunEnd::Stop);
            }
            if let Some(loaded) = restart {
                return Ok(RunEnd::Restart(loaded));
            }
        }
    }

    fn on_engine_event(&mut self, event: EngineEvent) -> anyhow::Result<()> {
        match event {
            EngineEvent::Looks(news) => self.on_looks(news),
            EngineEvent::Lost(lost) => self.on_lost_engine(lost)?,
            EngineEvent::Reopened(opened) => {
                if self.engines.on_reopened(*opened) {
                    self.housekeeping.engines_changed(&self.engines);
                    let now = self.context.clock.now();
                    self.watchdogs.engines_changed(&self.engines, now);
                    self.reporter.gpus_changed(self.engines.gpus());
                }
            }
        }
        Ok(())
    }

    fn on_looks(&mut self, news: Vec<LookNews>) {
        let mut has_ended = false;
        for news in news {
            self.commands.on_look(&news);
            has_ended |= self.triggers.on_look(&news);
            self.answers.news(news);
        }
        if has_ended {
            self.follow_triggers();
        }
    }

    /// The last lost engine ends the daemon. The cameras of another one have a new engine.
    fn on_lost_engine(&mut self, lost: LostEngine) -> anyhow::Result<()> {
        let loss = self.engines.on_lost(lost);
        self.commands.engine_lost(&loss.cameras, &loss.reason);
        anyhow::ensure!(!loss.is_last, "{}", loss.reason);
        self.answers.engine_lost(&loss.cameras);
        self.reporter.gpus_changed(self.engines.gpus());
        Ok(())
    }

    /// Carries out what the fleet decided. True when all cameras are handed over and the node has to stop.
    async fn on_fleet_events(&mut self) -> bool {
        let Some(fleet) = &mut self.fleet else {
            return false;
        };
        let context = FleetContext {
            config: &mut self.config,
            cameras: &mut self.cameras,
            answers: &mut self.answers,
            reporter: &mut self.reporter,
            publisher: &self.publisher,
            now: self.context.clock.now(),
        };
        let effect = fleet.handle(context);
        if effect.cameras_changed {
            remember_secrets(&self.context.logging.secrets, self.config.file());
            self.apply_changes().await;
        }
        effect.has_left
    }

    fn is_leaving_overdue(&self) -> bool {
        let now = self.context.clock.now();
        let fleet = self.fleet.as_ref();
        fleet.is_some_and(|fleet| fleet.is_leaving_overdue(now))
    }

    fn on_sent(&mut self, sent: &SentDetection) {
        self.housekeeping.on_sent(sent);
        if self.context.console {
            console::print(sent, self.context.clock.wall());
        }
    }

    /// Executes a message from the broker. Returns a configuration that needs a restart.
    async fn on_inbound(&mut self, message: &Inbound) -> Option<Box<LoadedConfig>> {
        if self.triggers.on_message(message, self.context.clock.now()) {
            self.follow_triggers();
        }
        let (commands, context) = self.command_context();
        match commands.receive(message, context).await {
            CommandEffect::Nothing => None,
            CommandEffect::LookRequested => {
                self.follow_triggers();
                None
            }
            CommandEffect::HomeAssistantStarted => {
                self.reporter.home_assistant_started();
                None
            }
            CommandEffect::CamerasChanged(change) => {
                if let Some(fleet) = &self.fleet {
                    fleet.store_settings(&mut self.config);
                }
                self.apply_changes().await;
                let (commands, context) = self.command_context();
                let reply = commands.applied(change, context);
                self.follow_triggers();
                self.unconfirmed.push(self.state.pending(), reply);
                None
            }
            CommandEffect::Reload(requester) => {
                let reload = self.read_file().await;
                let result = match &reload {
                    Reload::Rejected(errors) => {
                        Err(Refusal::new(RefusalCode::Failed, errors.join("; ")))
                    }
                    _ => Ok(ReplyValue::Done),
                };
                // Before the change: a restart may move to another broker.
                self.commands.reply(requester, result);
                self.carry_out(reload).await
            }
        }
    }

    /// A signal of a source beside this loop. Its trigger may have been removed meanwhile.
    fn on_trigger(&mut self, call: &TriggerCall) {
        match self.triggers.signal(call, self.context.clock.now()) {
            Ok(()) => self.follow_triggers(),
            Err(error) => tracing::debug!(%error, "signal of a trigger ignored"),
        }
    }

    /// A call of the API.
    fn on_called_trigger(&mut self, request: TriggerRequest) {
        let call = TriggerCall {
            camera: request.camera,
            trigger: request.trigger,
            signal: request.signal,
        };
        let fleet = self.fleet.as_ref();
        let result = match fleet.and_then(|fleet| fleet.call_refusal(&call.camera)) {
            Some(refusal) => Err(refusal),
            None => {
                let called = self.triggers.called(&call, self.context.clock.now());
                called.map_err(RefusedCall::from)
            }
        };
        if result.is_ok() {
            self.follow_triggers();
        }
        // The client may have disconnected.
        _ = request.reply.send(result);
    }

    /// Begins and ends the looks of cameras whose triggers became active or ended, or of which a command requests looks.
    fn follow_triggers(&mut self) {
        for LookSwitch { camera, looks } in self.triggers.follow(self.context.clock.now()) {
            let is_looked_at = looks != TriggeredLooks::None;
            if let Some(switched) = self.cameras.trigger(&camera, is_looked_at) {
                self.answers.switched(&switched);
            }
            self.engines.sampler().trigger(&camera, looks);
        }
    }

    fn command_context(&mut self) -> (&mut CommandHandler, CommandContext<'_>) {
        let context = CommandContext {
            config: &mut self.config,
            cameras: &self.cameras,
            engines: &self.engines,
            triggers: &mut self.triggers,
            answers: &mut self.answers,
            reporter: &self.reporter,
        };
        (&mut self.commands, context)
    }

    async fn on_second(&mut self) -> anyhow::Result<()> {
        let now = self.context.clock.now();
        self.commands.tick(now);
        if self.config.tick(now, self.context.clock.wall()) {
            self.apply_changes().await;
        }
        if let Some(fleet) = &mut self.fleet {
            let running = self.engines.running_count();
            fleet.tick(running, &self.publisher, now);
        }
        let clock = &self.context.clock;
        let shortages = self.engines.sampler().strip_shortages();
        self.cameras.set_shortages(&shortages, clock);
        for switched in self.cameras.tick(&self.publisher, clock).await {
            self.answers.switched(&switched);
        }
        self.answers.tick();
        self.line_counts.tick(self.answers.line_counts());
        self.reporter.tick(now);
        self.housekeeping.tick(TickInput {
            publisher: &self.publisher,
            engines: &self.engines,
            cameras: &self.cameras,
            triggers: &self.triggers,
            snapshots: self.answers.snapshot_counters(),
            lines_lost: self.context.lines.as_ref().map_or(0, Lines::lost),
            budget: self.config.file().model.budget,
            started_ms: self.reporter.info().started_ms,
            mode: self.config.mode(),
            config: self.reporter.config(),
            webhooks: self.poster.statuses(),
            fleet: self.fleet.as_ref(),
            state: &self.state,
            api: self.servers.api.as_ref(),
        });
        let progress = self.publisher.progress();
        for label in self.watchdogs.tick(&self.engines, progress, now) {
            if let Some(lost) = self.engines.give_up(&label) {
                self.on_lost_engine(lost)?;
            }
        }
        self.engines.reopen_due(|| self.config.effective());
        match self.cameras.too_many_abandoned() {
            Some(why) => anyhow::bail!(why),
            None => Ok(()),
        }
    }

    /// Reads the file again and validates it. Reports a rejected file; changes nothing else. Blocks on the disk.
    async fn read_file(&mut self) -> Reload {
        let loaded = match self.config.read_file() {
            Ok(loaded) => loaded,
            Err(problems) => return self.reject_file(&problems),
        };
        let (old, new) = (self.config.file(), &loaded.config);
        if old == new {
            return Reload::Unchanged;
        }
        if let Err(error) = EventPoster::check(&new.webhooks) {
            tracing::error!("{REJECTED}: {error:#}");
            return self.reject(vec![format!("{error:#}")]);
        }
        let mut reasons = restart_reasons(old, new);
        if reasons.is_empty() && self.engines.would_use_more_gpus(new) {
            reasons.push("a camera for another GPU of model.gpus");
        }
        if reasons.is_empty() {
            return Reload::InPlace(Box::new(loaded));
        }
        let checked = match check_adapters(&self.context, new).await {
            Ok(()) => validate(old, new).await,
            unfit => unfit,
        };
        if let Err(error) = checked {
            if let Some(problems) = error.downcast_ref() {
                return self.reject_file(problems);
            }
            tracing::error!("{REJECTED}: {error:#}");
            return self.reject(vec![format!("{error:#}")]);
        }
        let sections = reasons.join(", ");
        tracing::info!(sections, "configuration changed; restarting all stages");
        Reload::Restart(Box::new(loaded))
    }

    fn reject_file(&mut self, problems: &ConfigProblems) -> Reload {
        log_rejected(problems);
        self.reject(problems.iter().map(ToString::to_string).collect())
    }

    fn reject(&mut self, errors: Vec<String>) -> Reload {
        self.reporter.report_config(&self.config, errors.clone());
        Reload::Rejected(errors)
    }

    /// Applies what can be applied here; returns a configuration that needs a restart.
    async fn carry_out(&mut self, reload: Reload) -> Option<Box<LoadedConfig>> {
        match reload {
            Reload::Unchanged => {
                tracing::info!("configuration unchanged");
                // A certificate or the rights at the broker may have changed.
                self.publisher.try_again();
                self.poster.change(&self.config.file().webhooks).await;
                self.reporter.report_config(&self.config, Vec::new());
                None
            }
            Reload::InPlace(loaded) => {
                self.apply_file(*loaded).await;
                None
            }
            Reload::Restart(loaded) => Some(loaded),
            Reload::Rejected(_) => None,
        }
    }

    /// Applies a file that needs no restart.
    async fn apply_file(&mut self, loaded: LoadedConfig) {
        tracing::info!("configuration changed");
        remember_secrets(&self.context.logging.secrets, &loaded.config);
        log_warnings(&loaded);
        log_advice(&loaded.config);
        let (now, wall) = (self.context.clock.now(), self.context.clock.wall());
        self.config.replace_file(loaded.config, now, wall);
        // The first mode adds a topic.
        let topics = subscriptions(&self.publisher, self.config.file());
        self.publisher.listen(topics);
        self.apply_changes().await;
        self.poster.change(&self.config.file().webhooks).await;
        self.publisher.try_again();
        self.reporter.report_config(&self.config, Vec::new());
    }

    /// Applies what is different at the effective cameras: to the stages that take frames before those that deliver them.
    async fn apply_changes(&mut self) {
        let change = self.config.take_change();
        if !change.is_empty() {
            self.engines.set_cameras(self.config.cameras());
            self.cameras
                .apply(&change, &self.engines, &self.context.clock)
                .await;
            self.answers.apply(&change);
            self.triggers.apply(&change);
            self.board.change(self.config.cameras());
        }
        self.reporter.apply(&change, &self.config);
        // After their topics are known to be in use.
        self.follow_triggers();
    }

    /// Stops from left to right: no more frames, the last answers, the last messages. A second signal to stop cuts it short.
    /// Before a restart, an engine that is being opened has to leave its device.
    async fn stop(mut self, signals: &mut Signals, is_restart: bool) -> RunReport {
        tokio::select! {
            () = self.stop_stages(is_restart) => {}
            () = signals.stop_now() => tracing::warn!("stopped at once by a second signal; camera sessions stay open and the last messages are lost"),
        }
        std::mem::take(&mut self.servers).close().await;
        self.state.clone().close().await;
        // With the same client id it would compete with the connection of the next run.
        self.broker.task.abort();
        loop {
            match self.broker.sent.try_recv() {
                Ok(sent) => self.on_sent(&sent),
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        let (sampler, messages) = (self.engines.sampler(), self.publisher.counters());
        let (mut counters, removed) = (sampler.counters(), sampler.removed_counters());
        if let (true, Ok(name)) = (removed.arrived > 0, CameraId::new("removed-cameras")) {
            counters.push((name, removed));
        }
        self.housekeeping.end(counters, messages)
    }

    async fn stop_stages(&mut self, is_restart: bool) {
        if let Some(api) = &self.servers.api {
            api.refuse();
        }
        self.cameras.stop(CAMERAS_LIMIT).await;
        let last = self.engines.finish(LAST_LOOK_LIMIT).await;
        self.on_looks(last);
        self.answers.shutdown();
        self.line_counts.tick(self.answers.line_counts());
        while !self.unconfirmed.is_empty() {
            let reply = self.unconfirmed.next().await;
            self.commands.confirm(reply);
        }
        self.publisher.stop();
        let last_messages = timeout(BROKER_LIMIT, &mut self.broker.task);
        let _ = tokio::join!(last_messages, self.poster.stop(), self.triggers.stop());
        self.engines.close().await;
        if is_restart {
            self.engines.cancel_reopening(START_LIMIT).await;
        }
    }
}

/// The stages that can fail to start, running and not yet connected to anything outside.
struct PreparedStages {
    config: ConfigStore,
    state: StateStore,
    engines: EngineSupervisor,
    costs: Option<CostBasis>,
    card: ModelCard,
    fleet: Option<FleetStart>,
}

/// Fails when an adapter does not fit the model.
async fn check_adapters(context: &ProcessContext, config: &Config) -> anyhow::Result<()> {
    let (path, model) = (context.path.clone(), config.model.clone());
    Ok(spawn_blocking(move || adapters_fit(&path, &model)).await??)
}

/// Finds errors that are cheap to find before the running stages stop. What remains makes the previous configuration run again.
async fn validate(old: &Config, new: &Config) -> anyhow::Result<()> {
    if old.mqtt != new.mqtt {
        Publisher::check(&new.mqtt).context("mqtt")?;
    }
    if is_other_port(page_port(new), old) {
        ServedPage::check(&new.http).await?;
    }
    if is_other_port(api_port(new), old) {
        ServedApi::check(new.api.as_ref()).await?;
    }
    if old.model.source != new.model.source {
        let source = new.model.source.clone();
        let checked = spawn_blocking(move || check_model(&source)).await?;
        checked.context("model")?;
    }
    Ok(())
}

/// Never ready without a fleet. Dropping the future loses nothing.
async fn fleet_ready(fleet: &mut Option<FleetMembership>) {
    match fleet {
        Some(fleet) => fleet.ready().await,
        None => pending().await,
    }
}

fn page_port(config: &Config) -> Option<u16> {
    config.http.listen.map(|address| address.port())
}

fn api_port(config: &Config) -> Option<u16> {
    config.api.as_ref().map(|api| api.listen.port())
}

/// Whether neither page nor API runs at this port: theirs are free in the restart, so only another one is tried before.
fn is_other_port(port: Option<u16>, running: &Config) -> bool {
    port.is_some() && ![page_port(running), api_port(running)].contains(&port)
}

/// What looks cost on the engines; `None` when the model's configuration cannot be read.
fn costs(effective: &Config, engines: &EngineSupervisor) -> Option<CostBasis> {
    match model_config(&effective.model.source) {
        Ok(model) => {
            let measured = longest_look(&expected_looks(&effective.cameras)).len();
            let count = engines.progress().count();
            Some(CostBasis::new(model, engines.look(), measured, count))
        }
        Err(error) => {
            tracing::warn!("the status page does not show what prompts cost: {error}");
            None
        }
    }
}

/// The topic filters: commands that the configuration allows, and the start of Home Assistant.
fn subscriptions(publisher: &Publisher, file: &Config) -> Vec<String> {
    let commands = publish::filters(&publisher.topics(), file);
    let home_assistant = birth_topic(&file.mqtt.ha);
    commands.into_iter().chain(home_assistant).collect()
}

fn log_warnings(loaded: &LoadedConfig) {
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
}

/// Warns of valid settings that are probably not intended.
fn log_advice(file: &Config) {
    let no_model = config::advice::no_model(&file.model).into_iter();
    for warning in no_model.chain(collisions(file, true)) {
        tracing::warn!("{warning}");
    }
}

const REJECTED: &str = "new configuration rejected; the running configuration stays active";

/// Logs each problem as an event of its own, because a journal shows a second line without priority and name.
fn log_rejected(problems: &ConfigProblems) {
    let errors = problems.errors();
    tracing::error!(errors, "{REJECTED}");
    for problem in problems.iter() {
        match problem.severity {
            Severity::Error => tracing::error!("{problem}"),
            Severity::Warning => tracing::warn!("{problem}"),
        }
    }
}

#[cfg(test)]
mod testbed;
#[cfg(test)]
mod tests;
