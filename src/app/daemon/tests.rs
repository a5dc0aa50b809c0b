//! The daemon with cameras that stream and engines that fail; where nothing else is said, without a broker.

use std::{collections::BTreeSet, fs};

use tokio::sync::watch;

use super::*;
use crate::{
    app::test_support::{self, fragile_engines},
    ops::telemetry::{Levels, SecretList},
};
use spotter_cameras::ingest;
use spotter_core::{CameraId, RefusalCode, config::Environment};
use spotter_engine::open::ModelDevice;
use spotter_mqtt::BrokerState;
use spotter_scripted::{
    broker::{BrokerScript, ScriptedBroker},
    rtsp::{
        script::CameraScript,
        server::Server,
        tape::{CameraTape, Recording, TapeCodec},
    },
};

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
    let slots = fragile_engines(&config.cameras, steps, &sampler, &clock).await;
    let slots = slots.into_iter();
    let slots = slots.map(|slot| slot.on(ModelDevice::Cpu("simulated".into())));
    let context = ProcessContext {
        path: config.node.state_dir.with_file_name("site.toml"),
        logging: Logging {
            secrets: SecretList::default(),
            levels: Levels::fixed(),
        },
        console: false,
        lines: None,
        clock: Arc::clone(&clock),
        open_engines: Arc::clone(&open_engines),
    };
    let prepared = PreparedStages {
        page: BoundPage::bind(config.http.listen).await.unwrap(),
        config: ConfigStore::open(context.path.clone(), config, clock.now()),
        engines: EngineSupervisor::new(sampler, slots.collect(), clock, open_engines),
        card: test_support::card(),
    };
    Daemon::with(prepared, context).unwrap()
}

/// Opens no engine.
fn never() -> Arc<OpenEngines> {
    Arc::new(|_| Box::pin(pending()))
}

#[tokio::test]
async fn failed_engine_ends_its_cameras_and_the_last_the_daemon() {
    let mut daemon = daemon_with(test_support::config(CONFIG), &[400, 8], never()).await;
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
    let troubles: Vec<String> = daemon.cameras.troubles().collect();
    let of = |camera, device| {
        format!("camera {camera}: engine_lost: engine on {device}: device: it fell off the bus")
    };
    assert_eq!(troubles, [of("gate", "cuda 0"), of("yard", "cuda 1")]);
    assert!(daemon.cameras.online().all(|(_, online)| !online));
    let (_, context) = daemon.command_context();
    let gate = CameraId::new("gate").unwrap();
    let refused = context.require_active(&gate).unwrap_err();
    assert_eq!(
        (refused.code, refused.text.as_str()),
        (
            RefusalCode::Unavailable,
            "camera gate is off: engine on cuda 0: device: it fell off the bus; its engine is opened again automatically"
        )
    );
    let frame_counters = daemon.engines.sampler().counters();
    let [(_, gate), (_, yard)] = &frame_counters[..] else {
        panic!("two cameras: {frame_counters:?}");
    };
    assert!(
        gate.looked > yard.looked && yard.looked > 0,
        "{frame_counters:?}"
    );
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

async fn more_detections(broker: &ScriptedBroker) {
    let more = detections(broker).len() + 3;
    let has_more = |broker: &ScriptedBroker| detections(broker).len() >= more;
    broker.until("more detections", has_more).await;
}

fn has_lost_engine(broker: &ScriptedBroker) -> bool {
    let health = broker.retained("spotter/edge1/cam/gate/health");
    health.is_some_and(|health| health.contains("engine_lost"))
}

/// Opens an engine for the cameras of the plan as soon as `allowed` is true.
fn engines_when(allowed: watch::Receiver<bool>) -> Arc<OpenEngines> {
    Arc::new(move |plan| {
        let mut allowed = allowed.clone();
        Box::pin(async move {
            allowed.wait_for(|allowed| *allowed).await?;
            let cameras = &plan.config.cameras;
            let slots = fragile_engines(cameras, &[usize::MAX], &plan.sampler, &plan.clock).await;
            assert!(!slots[0].cameras().is_empty());
            Ok(OpenedEngines {
                slots,
                card: test_support::card(),
            })
        })
    })
}

#[tokio::test]
async fn lost_engine_is_opened_again_beside_the_others() {
    let broker = ScriptedBroker::start(BrokerScript::default()).await;
    let mut site = Site::new().await;
    let (allow, allowed) = watch::channel(false);
    let config = site.write(&broker, 20);
    // The second engine has no camera; it keeps the daemon running when the first fails.
    let mut daemon = daemon_with(config, &[30, usize::MAX], engines_when(allowed)).await;
    site.run_until(&mut daemon, broker.until("a lost engine", has_lost_engine))
        .await;
    let before = detections(&broker);
    let is_opening = async {
        // One receiver in `engines_when` and one in the future that opens.
        while allow.receiver_count() < 2 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    site.run_until(&mut daemon, is_opening).await;
    assert!(daemon.engines.is_reopening("cuda 0"));

    allow.send_replace(true);
    site.run_until(&mut daemon, more_detections(&broker)).await;
    assert!(!has_lost_engine(&broker));
    assert_eq!(daemon.cameras.troubles().count(), 0);
    assert!(daemon.engines.progress().all(|(_, count)| count.is_some()));
    let all = detections(&broker);
    let boots: BTreeSet<&String> = all.iter().map(|(boot, _)| boot).collect();
    assert_eq!(boots.len(), 1);
    let numbers: Vec<u64> = all.iter().map(|(_, number)| *number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b) && all.len() > before.len());
    let (_, frame_counters) = daemon.engines.sampler().counters()[0];
    assert!(frame_counters.balanced(), "{frame_counters:?}");
}

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
    let mut state = daemon.publisher.state();
    for rate_hz in [20, 10] {
        let is_rejected = |state: &BrokerState| matches!(state, BrokerState::Refused { .. });
        let rejected = state.wait_for(is_rejected).await.unwrap().clone();
        broker.script(|script| script.connack = 0);
        site.write(&broker, rate_hz);
        let reload = daemon.read_file().await;
        match rate_hz {
            20 => assert!(matches!(reload, Reload::Unchanged)),
            _ => assert!(matches!(reload, Reload::InPlace(_))),
        }
        assert!(daemon.carry_out(reload).await.is_none());
        state.wait_for(BrokerState::is_online).await.unwrap();
        let now = daemon.context.clock.now();
        assert!(Some(now) < rejected.retry_at(), "not by its own retry");
        broker.script(|script| script.connack = REJECTED);
        broker.cut();
    }
}
