//! The daemon with cameras that stream and engines that fail; where nothing else is said, without a broker.
//!
//! Faults: C55, K11.

use std::{collections::BTreeSet, fs, future::pending, sync::Arc};

use tokio::sync::watch;

use super::*;
use crate::{
    app::{
        config_store::open_config,
        engine_slot::OpenedEngines,
        engine_supervisor::{EngineParts, EngineSupervisor, LAST_LOOK_LIMIT, OpenEngines},
        http_servers::HttpServers,
        logging::Logging,
        notice::FoundFile,
        stage::Stage as _,
        stages::PreparedStages,
        testing::{self, fragile_engines},
    },
    ops::{secret_list::SecretList, telemetry::Levels},
};
use spotter_cameras::{ingest, sampler::Sampler};
use spotter_config::{self as config, Environment};
use spotter_core::{Clock, SystemClock};
use spotter_engine::open::ModelDevice;
use spotter_mqtt::{AwayCause, BrokerState};
use spotter_page::Readiness;
use spotter_scripted::{
    broker::{BrokerScript, ScriptedBroker},
    rtsp::{
        script::CameraScript,
        server::Server,
        tape::{CameraTape, Recording, TapeCodec},
    },
};
use spotter_state::OpenedEvents;

/// Two cameras that deliver test pictures as fast as looks are taken.
const CONFIG: &str = r#"
mqtt.url = "mqtt://127.0.0.1:1"
http.listen = "off"
[defaults]
rate = 30
[camera.gate]
url = "test://"
prompt.person.detect = "person"
[camera.yard]
url = "test://"
prompt.person.detect = "person"
"#;

/// A daemon with one engine for each element of `steps`, whose device breaks after that number of steps.
async fn daemon_with(config: Config, steps: &[usize], open_engines: Arc<OpenEngines>) -> Daemon {
    ingest::start_gstreamer().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let sampler = Sampler::new(&config.cameras, Arc::clone(&clock));
    let mut slots = fragile_engines(steps, &sampler, &clock).await;
    for slot in &mut slots {
        slot.device = Some(ModelDevice::Cpu("simulated".into()));
    }
    let parts = EngineParts {
        sampler,
        clock: Arc::clone(&clock),
        open_engines: Arc::clone(&open_engines),
        costs: None,
        requests: None,
        readiness: Readiness::new(Arc::clone(&clock)),
    };
    let engines = EngineSupervisor::start(parts, slots, &config.cameras);
    let logging = Logging {
        secrets: SecretList::default(),
        levels: Levels::fixed(),
    };
    let path = config.node.state_dir.with_file_name("site.toml");
    let context = ProcessContext {
        clock: Arc::clone(&clock),
        open_engines,
        ..ProcessContext::new(&path, logging)
    };
    let state = testing::state();
    let prepared = PreparedStages {
        costs: None,
        events: OpenedEvents::of(&state),
        config: open_config(config, &state, &*clock),
        state,
        engines,
        card: testing::card(),
        fleet: None,
    };
    let started = prepared.begin(&mut HttpServers::default(), &context);
    Daemon::of(started.unwrap(), context)
}

/// Opens no engine.
fn never() -> Arc<OpenEngines> {
    Arc::new(|_| Box::pin(pending()))
}

#[tokio::test]
async fn cameras_move_until_the_last_engine_fails() {
    let mut daemon = daemon_with(testing::config(CONFIG), &[400, 8], never()).await;
    let mut signals = Signals::listen().unwrap();
    let error = loop {
        // Other tests of this process send it signals.
        if let Err(error) = daemon.run(&mut signals).await {
            break error;
        }
    };
    assert_eq!(
        format!("{error:#}"),
        "engine on cuda 0: device: it fell off the bus"
    );
    let troubles: Vec<String> = daemon.stages.engines.troubles().collect();
    let of = |device| {
        format!("engine on {device}: device: it fell off the bus; opened again automatically")
    };
    assert_eq!(troubles, [of("cuda 0"), of("cuda 1")]);
    assert_eq!(
        daemon.stages.cameras.troubles().count(),
        0,
        "the cameras are fine"
    );
    daemon.stages.engines.finish_looks(LAST_LOOK_LIMIT).await;
    let frame_counters = daemon.stages.engines.sampler().counters();
    let [(_, gate), (_, yard)] = &frame_counters[..] else {
        panic!("two cameras: {frame_counters:?}");
    };
    // A device that breaks after eight steps answers eight looks at most.
    assert!(gate.looked > 8 && yard.looked > 8, "{frame_counters:?}");
    for (camera, frame_counters) in &frame_counters {
        assert!(
            frame_counters.balanced() && frame_counters.in_flight == 0,
            "{camera}: {frame_counters:?}"
        );
    }
}

/// A scripted camera, and the configuration file of a daemon that watches it.
struct Site {
    folder: tempfile::TempDir,
    camera: Server,
    signals: Signals,
}

impl Site {
    async fn new() -> Self {
        let tape = Arc::new(CameraTape::record(&Recording::of(TapeCodec::H264)));
        let play = CameraScript::good(&tape);
        Self {
            folder: tempfile::tempdir().unwrap(),
            camera: Server::start(move |_| play.clone()).await,
            signals: Signals::listen().unwrap(),
        }
    }

    fn write(&self, broker: &ScriptedBroker, rate_hz: u32) -> Config {
        let (state, camera) = (self.folder.path().join("state"), self.camera.url());
        let text = format!(
            "mqtt.url = \"mqtt://127.0.0.1:{}\"\nnode = {{ name = \"edge1\", state_dir = {state:?} }}\nhttp.listen = \"off\"\n\
             [camera.gate]\nurl = \"{camera}\"\nfirst_frame = \"60s\"\nstall = \"60s\"\nrate = {rate_hz}\nprompt.person.detect = \"person\"\n",
            broker.port
        );
        let path = self.folder.path().join("site.toml");
        fs::write(&path, text).unwrap();
        config::load(&path, &Environment::process()).unwrap().config
    }

    /// Runs the daemon until `condition` is ready.
    async fn run_until(&mut self, daemon: &mut Daemon, condition: impl Future<Output = ()>) {
        let mut condition = pin!(condition);
        loop {
            tokio::select! {
                // Other tests of this process send it signals.
                end = daemon.run(&mut self.signals) => drop(end.unwrap()),
                () = &mut condition => return,
            }
        }
    }
}

/// Run and number of the detections that a broker has received.
fn detections(broker: &ScriptedBroker) -> Vec<(String, u64)> {
    let all = broker.messages().into_iter();
    let detections = all.filter(|message| message.topic == "spotter/edge1/cam/gate/det/person");
    let numbers = detections.map(|message| {
        let json: serde_json::Value = serde_json::from_slice(&message.payload).unwrap();
        let boot = json["boot"].as_str().unwrap().to_owned();
        (boot, json["seq"].as_u64().unwrap())
    });
    numbers.collect()
}

async fn another_detection(broker: &ScriptedBroker) {
    let before = detections(broker).len();
    let has_more = |broker: &ScriptedBroker| detections(broker).len() > before;
    broker.until("another detection", has_more).await;
}

/// Opens an engine as soon as `allowed` is true.
fn engines_when(allowed: watch::Receiver<bool>) -> Arc<OpenEngines> {
    Arc::new(move |plan| {
        let mut allowed = allowed.clone();
        Box::pin(async move {
            allowed.wait_for(|allowed| *allowed).await?;
            assert!(!plan.config.cameras.is_empty());
            let slots = fragile_engines(&[usize::MAX], &plan.sampler, &plan.clock).await;
            Ok(OpenedEngines {
                slots,
                card: testing::card(),
            })
        })
    })
}

// Faults: D10.
#[tokio::test]
async fn cameras_of_a_lost_engine_move_at_once_and_return() {
    let broker = ScriptedBroker::start(BrokerScript::default()).await;
    let mut site = Site::new().await;
    let (allow, allowed) = watch::channel(false);
    let config = site.write(&broker, 20);
    let gate = config.cameras[0].id.clone();
    let engine = |daemon: &Daemon| daemon.stages.engines.assignment()[&gate].clone();
    // The second engine has no camera at first.
    let mut daemon = daemon_with(config, &[30, usize::MAX], engines_when(allowed)).await;
    assert_eq!(engine(&daemon), "cuda 0");
    let sampler = Arc::clone(daemon.stages.engines.sampler());
    let frames = || sampler.counters()[0].1;
    let is_opening = async {
        // One receiver in `engines_when` and one in the future that opens, which begins 10 s after the loss. The first engine answers
        // at most once for each of its 30 steps; the other looks are of the second.
        while allow.receiver_count() < 2 || frames().looked <= 60 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    site.run_until(&mut daemon, is_opening).await;
    assert_eq!(engine(&daemon), "cuda 1");
    assert_eq!(daemon.stages.cameras.troubles().count(), 0);
    assert_eq!(daemon.stages.engines.troubles().count(), 1);
    let presence = || broker.retained("spotter/edge1/cam/gate/present/person");
    assert_eq!(presence().as_deref(), Some("OFF"), "known again");

    allow.send_replace(true);
    while engine(&daemon) != "cuda 0" {
        let looked = frames().looked;
        let more = async {
            while frames().looked < looked + 5 {
                sleep(Duration::from_millis(20)).await;
            }
        };
        site.run_until(&mut daemon, more).await;
    }
    site.run_until(&mut daemon, another_detection(&broker))
        .await;
    assert_eq!(daemon.stages.engines.troubles().count(), 0);
    assert_eq!(daemon.stages.engines.running().count, 2);
    let all = detections(&broker);
    let boots: BTreeSet<&String> = all.iter().map(|(boot, _)| boot).collect();
    assert_eq!(boots.len(), 1);
    let numbers: Vec<u64> = all.iter().map(|(_, number)| *number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    // The move back loses no look.
    assert!(
        frames().balanced() && frames().failed <= 2,
        "{:?}",
        frames()
    );
}

// Faults: B23.
#[tokio::test]
async fn reload_connects_at_once_to_a_broker_that_rejected_before() {
    const REJECTED: u8 = 0x86;
    let broker = ScriptedBroker::start(BrokerScript {
        connack: REJECTED,
        ..BrokerScript::default()
    })
    .await;
    let site = Site::new().await;
    let mut daemon = daemon_with(site.write(&broker, 20), &[usize::MAX], never()).await;
    let mut state = daemon.stages.broker.state();
    for rate_hz in [20, 10] {
        let is_rejected = |state: &BrokerState| {
            matches!(
                state,
                BrokerState::Away {
                    cause: AwayCause::Refused,
                    ..
                }
            )
        };
        let rejected = state.wait_for(is_rejected).await.unwrap().clone();
        broker.script(|script| script.connack = 0);
        site.write(&broker, rate_hz);
        daemon.deliver([StageNotice::ReloadAsked(None)]);
        let read = daemon.stages.reload.next().await;
        let is_unchanged = |notice: &StageNotice| {
            let StageNotice::FileRead(read) = notice else {
                return false;
            };
            matches!(read.found, FoundFile::Unchanged)
        };
        assert_eq!(is_unchanged(&read[0]), rate_hz == 20);
        assert!(daemon.deliver(read).is_none());
        state.wait_for(BrokerState::is_online).await.unwrap();
        let now = daemon.context.clock.now();
        assert!(Some(now) < rejected.retry_at(), "not by its own retry");
        broker.script(|script| script.connack = REJECTED);
        broker.cut();
    }
}
