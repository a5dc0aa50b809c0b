//! The stages of the daemon: which there are, in which order, and how they start. The only file that names all of them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;

use super::{
    answer_router::AnswerRouter,
    broker_link::BrokerLink,
    camera_supervisor::CameraSupervisor,
    command_handler::CommandHandler,
    config_store::open_config,
    console::Console,
    costs::CostBasis,
    engine_launch::{expected_looks, longest_look},
    engine_slot::OpenedEngines,
    engine_supervisor::{EngineParts, EnginePlan, EngineSupervisor, OpenEngines},
    event_history::EventHistory,
    fleet_membership::{FleetMembership, FleetParts, FleetStart},
    housekeeping::{Housekeeping, named},
    http_servers::HttpServers,
    lines::Lines,
    logging::{Logging, remember_secrets},
    node_reporter::{NodeReporter, node_info},
    onvif_events::OnvifEvents,
    prompt_rule::{prompts_fit, read_prompt_rule},
    quality_reports::QualityReports,
    reload::{Reload, log_advice},
    report::RunReport,
    snapshot,
    stage::{Handles, Stage},
    trials::DaemonTrials,
    triggers::Triggers,
};
use crate::ops::notify;
use spotter_cameras::sampler::Sampler;
use spotter_config::Config;
use spotter_control::ConfigStore;
use spotter_core::{CameraId, Clock, SystemClock};
use spotter_engine::{model::model_config, open::ModelCard};
use spotter_history::{History, HistoryReader};
use spotter_mqtt::{Identity, Publisher};
use spotter_page::{Board, EventAnswers, JudgingAnswers, PromptCosts, Readiness, TrialParts};
use spotter_quality::AnsweringModel;
use spotter_state::{OpenedEvents, StateStore};
use spotter_webhook::Webhooks;

/// What belongs to the process and survives a restart inside it.
#[derive(Clone)]
pub struct ProcessContext {
    /// The file, for reloads.
    pub path: PathBuf,
    /// The secrets of every configuration that is used are masked in this log.
    pub logging: Logging,
    /// Print detections for people.
    pub console: bool,
    /// Prints messages for programs.
    pub lines: Option<Lines>,
    pub clock: Arc<dyn Clock>,
    pub open_engines: Arc<OpenEngines>,
}

impl ProcessContext {
    /// Without output on stdout.
    pub fn new(path: &Path, logging: Logging) -> Self {
        Self {
            path: path.to_owned(),
            logging,
            console: false,
            lines: None,
            clock: Arc::new(SystemClock::new()),
            open_engines: Arc::new(|plan| Box::pin(plan.open())),
        }
    }
}

/// Names of runs that are tried: there are 65,536, and a history has some hundred.
const IDENTITIES_MAX: usize = 100;

/// See the module's documentation.
pub struct Stages {
    pub servers: HttpServers,
    pub engines: EngineSupervisor,
    pub cameras: CameraSupervisor,
    pub answers: AnswerRouter,
    pub commands: CommandHandler,
    /// `None`: a box with its own cameras.
    pub fleet: Option<FleetMembership>,
    pub triggers: Triggers,
    pub onvif: OnvifEvents,
    pub broker: BrokerLink,
    pub webhooks: Webhooks,
    /// `None`: no events are stored.
    pub history: Option<EventHistory>,
    /// `None`: no events are stored.
    pub quality: Option<QualityReports>,
    pub reload: Reload,
    /// `None`: detections are not printed for people.
    pub console: Option<Console>,
    pub figures: Housekeeping,
}

/// The stages that can fail to start, running and not yet connected to anything outside.
struct PreparedStages {
    config: ConfigStore,
    state: StateStore,
    events: OpenedEvents,
    history: Option<History>,
    engines: EngineSupervisor,
    costs: CostBasis,
    card: ModelCard,
    fleet: Option<FleetStart>,
}

/// What a daemon runs with.
pub struct StartedStages {
    pub stages: Stages,
    pub config: ConfigStore,
    pub state: StateStore,
}

impl Stages {
    /// In the order in which they hear and apply: those that take frames before those that deliver answers, the figures at last.
    pub fn all(&mut self) -> Vec<&mut dyn Stage> {
        let mut all: Vec<&mut dyn Stage> = vec![
            &mut self.servers,
            &mut self.engines,
            &mut self.cameras,
            &mut self.answers,
            &mut self.commands,
        ];
        if let Some(fleet) = &mut self.fleet {
            all.push(fleet);
        }
        all.extend([
            &mut self.triggers as &mut dyn Stage,
            &mut self.onvif,
            &mut self.broker,
            &mut self.webhooks,
        ]);
        if let Some(history) = &mut self.history {
            all.push(history);
        }
        if let Some(quality) = &mut self.quality {
            all.push(quality);
        }
        all.extend([&mut self.reload as &mut dyn Stage, &mut self.figures]);
        if let Some(console) = &mut self.console {
            all.push(console);
        }
        all
    }

    pub async fn start(file: Config, context: &ProcessContext) -> anyhow::Result<StartedStages> {
        let readiness = Readiness::new(Arc::clone(&context.clock));
        let mut servers = HttpServers::start(&file, readiness.clone(), &context.clock).await?;
        let prepared = PreparedStages::prepare(file, readiness, &servers, context).await;
        let started = prepared.and_then(|prepared| prepared.begin(&mut servers, context));
        // The previous configuration may listen on the same addresses.
        servers.free().await;
        started
    }

    /// What the run did.
    pub fn report(&mut self) -> RunReport {
        let sampler = self.engines.sampler();
        let (mut counters, removed) = (sampler.counters(), sampler.removed_counters());
        if let (true, Ok(name)) = (removed.arrived > 0, CameraId::new("removed-cameras")) {
            counters.push((name, removed));
        }
        self.figures.report(counters)
    }
}

impl PreparedStages {
    /// Does first what can fail: nothing is published and no camera is connected before the rest runs.
    async fn prepare(
        file: Config,
        readiness: Readiness,
        servers: &HttpServers,
        context: &ProcessContext,
    ) -> anyhow::Result<Self> {
        Webhooks::check(&file.webhooks)?;
        let rule = read_prompt_rule(&file.model).await?;
        prompts_fit(&context.path, &file, &rule)?;
        let state = StateStore::open(&file.node.state_dir, Arc::clone(&context.clock))?;
        let mut events = OpenedEvents::of(&state);
        if let (Some(_), Some(page)) = (&file.history, &file.http.url) {
            let page = page.as_str().trim_end_matches('/');
            events.log.link(&format!("{page}/"));
        }
        let history = (file.history.as_ref())
            .map(|history| {
                let clock = Arc::clone(&context.clock);
                History::start(&state, history, snapshot::history_picture, clock)
            })
            .transpose()?;
        let fleet = match &file.fleet {
            Some(fleet) => Some(FleetStart::read(fleet, &file, rule.clone(), state.clone()).await),
            None => None,
        };
        let mut config = open_config(file, &state, &*context.clock);
        config.set_prompt_rule(rule, context.clock.now());
        if let Some(fleet) = &fleet {
            let cameras = fleet.cameras().into_iter().map(|shared| shared.camera);
            config.replace_list(cameras.collect(), context.clock.now());
            remember_secrets(&context.logging.secrets, config.file());
        }
        let sampler = Sampler::new(config.cameras(), Arc::clone(&context.clock));
        let adapter_slots = config.file().adapters.slots();
        let opening = (context.open_engines)(EnginePlan {
            config: config.effective(),
            adapter_slots,
            sampler: Arc::clone(&sampler),
            clock: Arc::clone(&context.clock),
            only: None,
        });
        let opened = opening.await?;
        let costs = costs(&config.effective(), &opened).context("model")?;
        let OpenedEngines { slots, card } = opened;
        let parts = EngineParts {
            sampler,
            clock: Arc::clone(&context.clock),
            open_engines: Arc::clone(&context.open_engines),
            costs: costs.clone(),
            adapter_slots,
            requests: Arc::clone(&servers.queue),
            readiness,
        };
        let engines = EngineSupervisor::start(parts, slots, config.cameras());
        log_advice(config.file());
        Ok(Self {
            config,
            state,
            events,
            history,
            engines,
            costs,
            card,
            fleet,
        })
    }

    /// Starts publishing and the cameras. From then on the page shows the daemon, and the engines answer requests of the API.
    fn begin(
        mut self,
        servers: &mut HttpServers,
        context: &ProcessContext,
    ) -> anyhow::Result<StartedStages> {
        // The stages begin with these cameras.
        self.config.take_change();
        let identity = self.identity();
        let (file, clock) = (self.config.file(), &context.clock);
        let (of_webhooks, shared) = (&file.webhooks, || Arc::clone(clock));
        // Before the publisher, which ends the tracks of an earlier run.
        let webhooks = Webhooks::start(of_webhooks, &self.events, shared());
        let started = Publisher::start(&file.mqtt, &self.events, &identity, shared());
        let (publisher, task) = started.context("mqtt")?;
        let broker = BrokerLink::new(publisher.clone(), task, file);
        let broker = broker.context("mqtt: the messages of the broker are already read")?;
        if let Some(lines) = &context.lines {
            lines.print(publisher.lines());
        }
        let handles = self.handles(publisher, shared());
        let shared = || handles.clone();
        let Self {
            config,
            engines,
            costs,
            card,
            fleet,
            ..
        } = self;
        let file = config.file();
        let shown = file.with_cameras(config.cameras().to_vec());
        let running = engines.running();
        let mut info = node_info(&shown, &identity, &card, handles.clock.wall());
        info.gpus.clone_from(&running.gpus);
        let figures =
            Housekeeping::start(&info, named(file, &card), context.lines.clone(), shared());
        let mut reporter = NodeReporter::new(&identity, info, shared());
        // Before the first states.
        reporter.announce(&config);
        let model = AnsweringModel {
            name: Arc::clone(&card.name),
            precision: Arc::clone(&card.precision),
        };
        let answers =
            AnswerRouter::new(&config, model.clone(), Arc::clone(&identity.boot), shared());
        let cameras = CameraSupervisor::start(config.cameras(), engines.device_map(), shared());
        let triggers = Triggers::start(config.cameras(), shared());
        let watching = file.cameras.len();
        notify::ready(&format!("watching {watching} cameras with {}", card.name));
        reporter.publish_settings(&config);
        reporter.report_config(&config, Vec::new());
        let parts = FleetParts {
            identity,
            costs: costs.clone(),
            secrets: context.logging.secrets.clone(),
            engines: running.count,
            handles: shared(),
        };
        let trials = DaemonTrials {
            board: handles.board.clone(),
            sampler: Arc::clone(&handles.sampler),
            rule: config.prompt_rule().clone(),
            costs,
        };
        let events = EventAnswers::new(handles.history.clone(), Arc::clone(&handles.clock));
        let judging = JudgingAnswers::new(handles.board.clone(), model.clone(), events.clone());
        open_events(servers, events, judging);
        serve(servers, trials, file, &card);
        let stages = Stages {
            servers: std::mem::take(servers),
            reload: Reload::new(
                context.path.clone(),
                context.logging.secrets.clone(),
                card.adapter_slots,
            ),
            engines,
            cameras,
            answers,
            commands: CommandHandler::new(reporter, context.logging.clone(), shared()),
            fleet: fleet.map(|start| FleetMembership::start(start, parts)),
            triggers,
            onvif: OnvifEvents::start(config.cameras(), Arc::clone(&handles.clock)),
            broker,
            webhooks,
            quality: (handles.history.clone())
                .map(|history| QualityReports::new(history, model, shared())),
            history: (handles.history.clone()).map(|history| {
                EventHistory::new(history, config.cameras(), Arc::clone(&handles.clock))
            }),
            console: context.console.then_some(Console),
            figures,
        };
        Ok(StartedStages {
            stages,
            config,
            state: handles.state,
        })
    }

    fn identity(&self) -> Identity {
        let identity = self.unused_identity();
        match &self.fleet {
            Some(fleet) => identity.in_fleet(fleet.config.name.clone(), fleet.rights()),
            None => identity,
        }
    }

    /// Its track ids are not those of an event that is stored.
    fn unused_identity(&self) -> Identity {
        let new = || Identity::of_this_machine(self.config.file().node.name.clone());
        let reader = HistoryReader::new(self.state.folder());
        let is_used = |identity: &Identity| reader.has_run(&identity.boot).unwrap_or(false);
        let mut found = std::iter::repeat_with(new).take(IDENTITIES_MAX);
        found
            .find(|identity| !is_used(identity))
            .unwrap_or_else(new)
    }

    fn handles(&self, publisher: Publisher, clock: Arc<dyn Clock>) -> Handles {
        let costs = self.costs.clone();
        let costs: PromptCosts = Arc::new(move |camera, size| costs.prompts(camera, size));
        Handles {
            publisher,
            sampler: Arc::clone(self.engines.sampler()),
            state: self.state.clone(),
            history: self.history.clone(),
            board: Board::new(
                self.config.cameras(),
                Arc::clone(&clock),
                snapshot::thumbnail,
                Some(costs),
            ),
            clock,
        }
    }
}

/// Page and API show stored events, once they are open.
fn open_events(servers: &HttpServers, events: EventAnswers, judging: JudgingAnswers) {
    if let Some(api) = &servers.api {
        api.open_events(events.clone());
    }
    if let Some(page) = &servers.page {
        page.open_events(events);
        page.open_judging(judging);
    }
}

/// The page shows the daemon, and the API accepts requests.
fn serve(servers: &HttpServers, trials: DaemonTrials, file: &Config, card: &ModelCard) {
    if let Some(page) = &servers.page {
        page.open(Arc::new(trials.board.clone()));
        page.open_trials(TrialParts {
            source: Arc::new(trials),
            queue: Arc::clone(&servers.queue),
        });
    }
    let Some(api) = &servers.api else {
        return;
    };
    api.open(&card.name);
    api.set_adapters(file.adapters.ids());
}

/// What looks cost on the engines.
fn costs(effective: &Config, engines: &OpenedEngines) -> anyhow::Result<CostBasis> {
    let model = model_config(&effective.model.source)?;
    let prompts = longest_look(&expected_looks(&effective.cameras)).len();
    let count = engines.slots.len();
    let basis = CostBasis::new(model, engines.look(), prompts, count);
    Ok(basis.with_reuse_of(&effective.model))
}
