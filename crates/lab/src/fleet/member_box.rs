//! One box of `spotter-lab fleet`: a process with a membership and a publisher, as the daemon has them (`FleetMembership`), and cameras of which
//! nothing but one state and one event a second is real.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use spotter::cli::out::say;
use spotter_config::{
    BrokerAccess, Commands, Discovery, HomeAssistantConfig, MqttConfig, MqttVersion, NatsAccess,
    NatsLogin, OverridePersistence, SpoolConfig,
};
use spotter_core::{
    CameraId, Clock, EndReason, Epoch, Event, EventStep, Location, Mono, NodeId, NormPoint,
    PromptId, PromptState, ScoreSource, SystemClock, TrackId, write_file_atomically,
};
use spotter_fleet::{
    member::{Member, MemberCommand, MemberEvent, MemberSettings},
    rights::PublishRights,
    store::FleetStore,
    testing::listed,
};
use spotter_mqtt::{Identity, Publisher, Update};
use spotter_state::{OpenedEvents, StateStore};
use tokio::{
    signal::unix,
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};

use super::PUBLISH_PERIOD;
use crate::args::FleetBoxArgs;

/// The name of the fleet.
pub const FLEET: &str = "lab";
/// The prompt of each camera.
const PROMPT: &str = "p";
/// A camera that connects.
const CONNECTING: Duration = Duration::from_millis(800);
/// How often cameras are looked at.
const STEP: Duration = Duration::from_millis(100);
/// How often the disk and the measurement get what they need.
const REPORT_PERIOD: Duration = Duration::from_secs(1);
/// As in the daemon.
const GIVE_UP_LIMIT: Duration = Duration::from_secs(5);
const LEAVE_LIMIT: Duration = Duration::from_secs(12);
const COMMANDS: usize = 4096;
const EVENTS: usize = 1024;

/// The process.
#[tokio::main(flavor = "current_thread")]
pub async fn fleet_box(args: &FleetBoxArgs) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let node = NodeId::new(&args.name)?;
    let kept = args.folder.join("own.json");
    let rights = Arc::new(PublishRights::default());
    let (commands, received) = mpsc::channel(COMMANDS);
    let (sender, mut events) = mpsc::channel(EVENTS);
    let settings = MemberSettings {
        node: node.clone(),
        labels: BTreeSet::new(),
        machine: args.name.clone(),
        resumed: read_own(&kept),
        rights: Arc::clone(&rights),
        version: env!("CARGO_PKG_VERSION").into(),
        url: None,
    };
    let store = Arc::new(store(args)?);
    let identity = Identity::of_this_machine(node.clone());
    let identity = identity.in_fleet(NodeId::new(FLEET)?, Arc::clone(&rights) as _);
    let mqtt = mqtt(args.broker);
    let state = StateStore::open(&args.folder, Arc::clone(&clock))?;
    let opened = OpenedEvents::of(&state);
    let (publisher, publishing) = Publisher::start(&mqtt, &opened, &identity, Arc::clone(&clock))?;
    let member = Member::new(settings, store, Arc::clone(&clock), sender);
    let member = tokio::spawn(member.run(received));
    let mut this = FleetBox {
        // The node, and which run of it: event ids are never used twice.
        run: format!("{}_{}", args.name, args.run),
        node,
        clock,
        rights,
        publisher,
        commands,
        prompt: PromptId::new(PROMPT)?,
        cameras: BTreeMap::new(),
        count: 0,
        kept,
        written: BTreeMap::new(),
        leaving_since: None,
    };
    this.begin(args);
    let mut terminate = unix::signal(unix::SignalKind::terminate())?;
    let mut steps = interval(STEP);
    steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut reports = interval(REPORT_PERIOD);
    reports.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            Some(event) = events.recv() => match event {
                MemberEvent::Left => break,
                event => this.on_event(event),
            },
            _ = steps.tick() => if this.step() {
                break;
            },
            _ = reports.tick() => this.report()?,
            _ = terminate.recv() => this.leave(),
        }
    }
    member.abort();
    this.report()?;
    this.publisher.stop();
    publishing.await?;
    state.close().await;
    Ok(())
}

fn store(args: &FleetBoxArgs) -> anyhow::Result<FleetStore> {
    let url = |port: &u16| format!("nats://127.0.0.1:{port}");
    let access = NatsAccess {
        urls: args.nats.iter().map(url).collect(),
        login: NatsLogin::None,
        ca: None,
        replicas: args.nats.len(),
    };
    Ok(FleetStore::new(NodeId::new(FLEET)?, access))
}

fn mqtt(port: u16) -> MqttConfig {
    MqttConfig {
        broker: BrokerAccess {
            host: "127.0.0.1".into(),
            port,
            tls: None,
            user: None,
            password: None,
            version: MqttVersion::Auto,
            max_qos: 1,
        },
        base: "spotter".into(),
        commands: Commands::Off,
        reply_topics: Vec::new(),
        overrides: OverridePersistence::Forget,
        retain_snapshots: false,
        spool: SpoolConfig {
            events: 100_000,
            max_age: Duration::from_secs(86_400),
            max_mb: 64,
        },
        ha: HomeAssistantConfig {
            discovery: Discovery::Off,
            prefix: "homeassistant".into(),
        },
    }
}

/// What an earlier run owned; nothing at the first.
fn read_own(path: &Path) -> BTreeMap<CameraId, Epoch> {
    let text = fs::read(path).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// This box's part in a camera.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CameraPart {
    Own(Epoch),
    /// Its last messages may take until then.
    GivingUp(Mono),
}

struct BoxCamera {
    part: CameraPart,
    connected_at: Mono,
    /// Of its next messages.
    next: Mono,
    /// The track whose event has begun: each second, one begins or ends.
    open: Option<TrackId>,
}

struct FleetBox {
    run: String,
    node: NodeId,
    clock: Arc<dyn Clock>,
    rights: Arc<PublishRights>,
    publisher: Publisher,
    commands: mpsc::Sender<MemberCommand>,
    prompt: PromptId,
    cameras: BTreeMap<CameraId, BoxCamera>,
    /// Messages and tracks so far.
    count: u64,
    kept: PathBuf,
    /// As on the disk.
    written: BTreeMap<CameraId, Epoch>,
    leaving_since: Option<Mono>,
}

impl FleetBox {
    fn begin(&self, args: &FleetBoxArgs) {
        self.send(MemberCommand::Cameras {
            revision: 1,
            cameras: listed(args.cameras),
            refused: BTreeMap::new(),
        });
        self.send(MemberCommand::Capacity(args.capacity_hz));
    }

    fn send(&self, command: MemberCommand) {
        // More than there are cameras; a loss would show in the measurement.
        _ = self.commands.try_send(command);
    }

    fn on_event(&mut self, event: MemberEvent) {
        match event {
            MemberEvent::Own(camera, epoch) => self.on_own(camera, epoch),
            MemberEvent::GiveUp(camera) => self.on_give_up(&camera),
            MemberEvent::HandedOver { camera, released } => {
                self.cameras.remove(&camera);
                if let Some(epoch) = released {
                    self.rights.grant(&camera, epoch);
                    self.publisher.publish(Update::Owner { camera, node: None });
                }
            }
            MemberEvent::Lost(camera) => drop(self.cameras.remove(&camera)),
            _ => {}
        }
    }

    /// One that connects from now on.
    fn camera(&self, part: CameraPart) -> BoxCamera {
        let connected_at = self.clock.now().after(CONNECTING);
        BoxCamera {
            part,
            connected_at,
            next: connected_at,
            open: None,
        }
    }

    fn on_own(&mut self, camera: CameraId, epoch: Epoch) {
        if !self.rights.grant(&camera, epoch) {
            return;
        }
        self.publish_owner(&camera);
        let connecting = self.camera(CameraPart::Own(epoch));
        let known = self.cameras.entry(camera).or_insert(connecting);
        known.part = CameraPart::Own(epoch);
        known.next = known.connected_at.max(self.clock.now());
        self.step();
    }

    fn publish_owner(&self, camera: &CameraId) {
        self.publisher.publish(Update::Owner {
            camera: camera.clone(),
            node: Some(self.node.clone()),
        });
    }

    fn on_give_up(&mut self, id: &CameraId) {
        self.end_event(id, EndReason::Moved);
        let until = self.clock.now().after(GIVE_UP_LIMIT);
        let giving_up = self.camera(CameraPart::GivingUp(until));
        self.cameras.insert(id.clone(), giving_up);
    }

    /// True when the box has to end without having handed all over.
    fn step(&mut self) -> bool {
        let now = self.clock.now();
        let ids: Vec<CameraId> = self.cameras.keys().cloned().collect();
        for id in ids {
            self.step_camera(&id, now);
        }
        let is_overdue = |since: Mono| now.since(since) >= LEAVE_LIMIT;
        self.leaving_since.is_some_and(is_overdue)
    }

    fn step_camera(&mut self, id: &CameraId, now: Mono) {
        let Some(camera) = self.cameras.get_mut(id) else {
            return;
        };
        match camera.part {
            CameraPart::Own(_) if camera.next <= now => {
                camera.next = now.after(PUBLISH_PERIOD);
                self.publish(id);
            }
            CameraPart::GivingUp(until) if until <= now || !self.publisher.has_waiting(id) => {
                self.cameras.remove(id);
                self.rights.withdraw(id);
                self.send(MemberCommand::GivenUp(id.clone()));
            }
            _ => {}
        }
    }

    fn publish(&mut self, id: &CameraId) {
        self.count += 1;
        self.publisher.publish(Update::State {
            camera: id.clone(),
            prompt: self.prompt.clone(),
            state: PromptState::Answer(Some(format!("{} {}", self.run, self.count))),
        });
        if self.end_event(id, EndReason::Left) {
            return;
        }
        let track = TrackId::new(&self.run, id, self.count);
        self.publish_event(id, track.clone(), EventStep::New);
        if let Some(camera) = self.cameras.get_mut(id) {
            camera.open = Some(track);
        }
    }

    /// False when none was open.
    fn end_event(&mut self, id: &CameraId, reason: EndReason) -> bool {
        let camera = self.cameras.get_mut(id);
        let Some(track) = camera.and_then(|camera| camera.open.take()) else {
            return false;
        };
        self.publish_event(id, track, EventStep::End(reason));
        true
    }

    fn publish_event(&self, id: &CameraId, track: TrackId, step: EventStep) {
        let wall = self.clock.wall();
        let event = Event {
            track,
            camera: id.clone(),
            prompt: self.prompt.clone(),
            revision: 1,
            step,
            started: wall,
            last_seen: wall,
            ended: matches!(step, EventStep::End(_)).then_some(wall),
            location: Location::Point(NormPoint::new(0.5, 0.5)),
            score: 0.5,
            top_score: 0.5,
            score_source: ScoreSource::TokenProb,
            looks: 1,
            zones: Vec::new(),
            entered_zones: Vec::new(),
            dwell: Vec::new(),
            still: false,
            snapshot: false,
            description: None,
            crossing: None,
            camera_size: (1280, 720),
        };
        self.publisher.publish(Update::Event(Box::new(event)));
    }

    /// Keeps its own cameras for the next run, and prints what it has discarded.
    fn report(&mut self) -> anyhow::Result<()> {
        let own = self.cameras.iter();
        let own = own.filter_map(|(id, camera)| match camera.part {
            CameraPart::Own(epoch) => Some((id.clone(), epoch)),
            _ => None,
        });
        let own: BTreeMap<CameraId, Epoch> = own.collect();
        if own != self.written {
            write_file_atomically(&self.kept, &serde_json::to_vec(&own)?)?;
            self.written = own;
        }
        say(self.publisher.counters().events_of_older_epoch)
    }

    fn leave(&mut self) {
        if self.leaving_since.is_none() {
            self.leaving_since = Some(self.clock.now());
            self.send(MemberCommand::Leave);
        }
    }
}
