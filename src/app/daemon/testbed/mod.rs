//! The whole daemon between scripted cameras and a scripted broker, as `spotter run` runs it: a configuration file, pipelines
//! over RTSP, a connection over MQTT, a spool on disk, signals. Only the model is replaced: its device sees what a test sets.
//!
//! Signals, descriptors and memory belong to a process, so each of these tests runs in a child process of its own.

mod adapters;
mod added_prompt;
mod api;
mod consumer;
mod device;
mod engine_processes;
mod engines;
mod host;
mod outlines;
mod restart;
mod soak;
mod texts;
mod trial;
mod triggers;
mod verify;

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, OnceLock},
};

use consumer::Consumer;
use device::{Scene, SceneDevice};
use serde_json::Value;
use tempfile::TempDir;

use std::future::pending;

use tokio::{task::spawn_blocking, time::timeout};

use super::*;
use crate::app::{
    engine_slot::{EngineSlot, OpenedEngines},
    engine_supervisor::{EnginePlan, OpenEngines},
    logging::Logging,
    start_logging, testing,
};
use spotter_cameras::sampler::TimeLimits;
use spotter_config::{self as config, Environment};
use spotter_core::{CameraId, Clock, SystemClock};
use spotter_engine::{
    scheduler::backend::Backend,
    service::{Engine, handle},
    testing::simulated,
};
use spotter_scripted::{
    broker::{ScriptedBroker, codec::Publish},
    rtsp::{
        script::CameraScript,
        server::Server,
        tape::{CameraTape, Recording, TapeCodec},
    },
};

const CAMERAS: [&str; 4] = ["gate", "yard", "dock", "roof"];
/// Limit of every wait.
const PATIENCE: Duration = Duration::from_secs(90);
const ALONE: &str = "SPOTTER_TEST_ALONE";

/// True in the child process. In the parent: runs `test` in a child process with these variables too, gives its log to
/// `check_log` and returns false.
fn is_alone(test: &str, environment: &[(&str, &str)], check_log: impl FnOnce(&str)) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let logs = tempfile::NamedTempFile::new().unwrap();
    // With a mount namespace of its own, where that is allowed.
    let apart = ["unshare", "--map-root-user", "--mount"];
    let may = Command::new(apart[0])
        .args(&apart[1..])
        .arg("true")
        .status();
    let apart = match may.is_ok_and(|done| done.success()) {
        true => &apart[..],
        false => &["env"],
    };
    let mut child = Command::new(apart[0])
        .args(&apart[1..])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(ALONE, "1")
        // As the unit file sets it.
        .env("MALLOC_ARENA_MAX", "2")
        // As large as that of the main thread, on which the daemon runs: the compiler does not shrink what it does not optimise.
        .env("RUST_MIN_STACK", "8388608")
        .envs(environment.iter().copied())
        .env_remove("RUST_LOG")
        .stdout(Stdio::piped())
        .stderr(logs.reopen().unwrap())
        .spawn()
        .unwrap();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        println!("{}", line.unwrap());
    }
    let done = child.wait().unwrap();
    let log = String::from_utf8_lossy(&fs::read(logs.path()).unwrap()).into_owned();
    if !done.success() {
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(400)..];
        panic!("{test}: {done}, its log ended with\n{}", last.join("\n"));
    }
    check_log(&log);
    false
}

/// Runs `scenario` in a child process, whose log must have no error.
fn alone_without_an_error(test: &str, scenario: impl Future<Output = ()>) {
    alone_with_errors(test, &[], scenario);
}

/// The same, with errors that contain one of `expected`.
fn alone_with_errors(test: &str, expected: &[&str], scenario: impl Future<Output = ()>) {
    let check_log = |log: &str| assert_eq!(lines_but(log, " ERROR ", expected), [""; 0]);
    if is_alone(test, &[], check_log) {
        crate::app::runtime().unwrap().block_on(scenario);
    }
}

/// Log lines of a level without those that contain one of `expected`.
fn lines_but<'a>(log: &'a str, level: &str, expected: &[&str]) -> Vec<&'a str> {
    let is_new =
        |line: &&str| line.contains(level) && !expected.iter().any(|words| line.contains(words));
    log.lines().filter(is_new).collect()
}

/// A tape that all cameras play.
fn tape() -> Arc<CameraTape> {
    static TAPE: OnceLock<Arc<CameraTape>> = OnceLock::new();
    let record = || Arc::new(CameraTape::record(&Recording::of(TapeCodec::H264)));
    Arc::clone(TAPE.get_or_init(record))
}

/// A good H.264 camera.
fn good() -> CameraScript {
    CameraScript::good(&tape())
}

/// Sends a signal to this very process.
fn signal(name: &str) {
    kill(name, &std::process::id().to_string());
}

fn kill(signal: &str, process: &str) {
    let done = Command::new("kill").args([signal, process]).status();
    assert!(done.unwrap().success(), "kill {signal} {process}");
}

/// Status and body of the answer to an HTTP request; status 0 without one. `request` is its first line without the version, `headers` end
/// with a line break each. Blocks.
fn exchange(server: SocketAddr, request: &str, headers: &str, body: &str) -> (u16, String) {
    let ask = || {
        let mut stream = TcpStream::connect(server)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        write!(
            stream,
            "{request} HTTP/1.1\r\nHost: {server}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        )?;
        // The server may refuse a long body before it has read all of it.
        let _ = stream.write_all(body.as_bytes());
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        io::Result::Ok(answer)
    };
    let answer = ask().unwrap_or_default();
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    let body = answer.split_once("\r\n\r\n").unwrap_or_default().1;
    (status.unwrap_or_default(), body.to_owned())
}

/// Status and body of a page.
fn get(server: SocketAddr, path: &str) -> (u16, String) {
    exchange(server, &format!("GET {path}"), "", "")
}

fn free_address() -> SocketAddr {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap()
}

struct Testbed {
    directory: TempDir,
    broker: ScriptedBroker,
    page: SocketAddr,
    scene: Scene,
    urls: Vec<String>,
    patience: &'static str,
}

/// For tests in which no camera may be lost, also on a busy machine.
const PATIENT: &str = "first_frame = \"60s\"\nstall = \"60s\"";
/// For tests in which cameras fail repeatedly.
const QUICK: &str = "first_frame = \"5s\"\nstall = \"3s\"";

impl Testbed {
    /// Starts the broker and writes a configuration with cameras at `urls`.
    async fn new(urls: Vec<String>, patience: &'static str) -> Self {
        let broker = ScriptedBroker::start(spotter_scripted::broker::BrokerScript::default()).await;
        broker.consume();
        let testbed = Self {
            directory: tempfile::tempdir().unwrap(),
            broker,
            page: free_address(),
            scene: Scene::default(),
            urls,
            patience,
        };
        testbed.write(&testbed.text());
        testbed
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("site.toml")
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Writes the configuration. Not in place: a reload may read it at any moment.
    fn write(&self, text: &str) {
        let draft = self.directory.path().join("draft");
        fs::write(&draft, text).unwrap();
        fs::rename(draft, self.path()).unwrap();
    }

    /// Writes the configuration and asks the daemon to read it again.
    fn reload(&self, text: &str) {
        self.write(text);
        signal("-HUP");
    }

    fn text(&self) -> String {
        let (state, page, port) = (self.state(), self.page, self.broker.port);
        let patience = self.patience;
        let mut text = format!(
            "node = {{ name = \"edge1\", state_dir = {state:?} }}\nhttp.listen = \"{page}\"\nmodel.budget = \"5s\"\n\
             mqtt = {{ url = \"mqtt://127.0.0.1:{port}\", commands = \"all\" }}\n\
             [defaults]\nrate = 5\n{patience}\n\
             events = {{ confirm = \"2 of 3\", end_after = \"2s\", still_after = \"60s\" }}\n"
        );
        for (camera, url) in CAMERAS.iter().zip(&self.urls) {
            text += &format!(
                "[camera.{camera}]\nurl = \"{url}\"\nprompt.thing = {{ detect = \"thing\", snapshot = true }}\n\
                 prompt.dark = {{ query = \"Is it dark?\", choices = [\"yes\", \"no\"], rate = 1 }}\n"
            );
        }
        text
    }

    /// Runs the daemon as the program does, until a signal that `scenario` sends.
    async fn run_while<T>(
        &self,
        clock: Arc<dyn Clock>,
        scenario: impl Future<Output = T>,
    ) -> (RunReport, T) {
        self.run_with(clock, engines_of(&self.scene), scenario)
            .await
    }

    /// Runs the daemon as the program does, until it ends.
    async fn run(
        &self,
        clock: Arc<dyn Clock>,
        engines: Arc<OpenEngines>,
    ) -> anyhow::Result<RunReport> {
        static LOGGING: OnceLock<Logging> = OnceLock::new();
        let loaded = config::load(&self.path(), &Environment::process()).unwrap();
        let logging = LOGGING.get_or_init(|| start_logging(0, &loaded.config).unwrap());
        let context = ProcessContext {
            clock,
            open_engines: engines,
            ..ProcessContext::new(&self.path(), logging.clone())
        };
        run(context, loaded, None).await
    }

    async fn run_with<T>(
        &self,
        clock: Arc<dyn Clock>,
        engines: Arc<OpenEngines>,
        scenario: impl Future<Output = T>,
    ) -> (RunReport, T) {
        let (mut run, mut scenario) = (pin!(self.run(clock, engines)), pin!(scenario));
        let result = tokio::select! {
            // The daemon runs first, so that it gets the signal.
            biased;
            ended = &mut run => panic!("the daemon ended before the signal: {ended:?}"),
            result = &mut scenario => result,
        };
        (run.await.unwrap(), result)
    }

    /// Publishes to a topic below the node's.
    fn say(&self, topic: &str, payload: impl Into<Vec<u8>>) {
        self.broker.say(&Publish {
            topic: format!("spotter/edge1/{topic}"),
            payload: payload.into(),
            ..Publish::default()
        });
    }

    fn retained(&self, topic: &str) -> Option<String> {
        self.broker.retained(&format!("spotter/edge1/{topic}"))
    }

    /// `/status.json`; null while there is none.
    fn status(&self) -> Value {
        serde_json::from_str(&get(self.page, "/status.json").1).unwrap_or_default()
    }

    fn health_says(&self, words: &str) -> bool {
        get(self.page, "/healthz").1.contains(words)
    }

    fn metrics(&self) -> String {
        get(self.page, "/metrics").1
    }
}

/// Messages below the node's topic that are JSON, in their order.
#[derive(Default)]
struct ReceivedJson(Vec<(String, Value)>);

impl ReceivedJson {
    fn receive(&mut self, testbed: &Testbed) {
        let json = |one: Publish| {
            let topic = one.topic.strip_prefix("spotter/edge1/")?.to_owned();
            Some((topic, serde_json::from_slice(&one.payload).ok()?))
        };
        let messages = testbed.broker.consumed().into_iter();
        self.0.extend(messages.filter_map(json));
    }

    async fn until(&mut self, testbed: &Testbed, is_so: impl Fn(&Self) -> bool) {
        let search = async {
            self.receive(testbed);
            while !is_so(self) {
                sleep(Duration::from_millis(20)).await;
                self.receive(testbed);
            }
        };
        let came = timeout(PATIENCE, search).await;
        assert!(came.is_ok(), "{:?}", self.0);
    }

    /// The first one on a topic that `is_it`.
    async fn one(
        &mut self,
        testbed: &Testbed,
        topic: &str,
        is_it: impl Fn(&Value) -> bool,
    ) -> Value {
        self.until(testbed, |all| all.of(topic).any(&is_it)).await;
        self.of(topic).find(|json| is_it(json)).unwrap().clone()
    }

    fn of(&self, topic: &str) -> impl Iterator<Item = &Value> {
        let its = self.0.iter().filter(move |(of, _)| of == topic);
        its.map(|(_, message)| message)
    }
}

async fn testbed_with_good_cameras() -> (Vec<Server>, Testbed) {
    let mut servers = Vec::new();
    for _ in CAMERAS {
        servers.push(Server::start(|_| good()).await);
    }
    let testbed = Testbed::new(servers.iter().map(Server::url).collect(), PATIENT).await;
    (servers, testbed)
}

fn machine_clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

/// Polls a condition that has no notification.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let search = async {
        while !is_so() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(PATIENCE, search).await.is_ok(), "{what}");
}

/// Waits until the daemon has closed its connection to every camera.
async fn until_disconnected(servers: &[Server]) {
    let is_closed = |server: &Server| server.memory().open == 0;
    until("closed", || servers.iter().all(is_closed)).await;
}

/// One engine whose device sees `scene`.
fn engines_of(scene: &Scene) -> Arc<OpenEngines> {
    let scene = scene.clone();
    Arc::new(move |plan| Box::pin(engine(plan, scene.clone())))
}

async fn engine(plan: EnginePlan, scene: Scene) -> anyhow::Result<OpenedEngines> {
    Ok(OpenedEngines {
        slots: vec![slot(&plan, "cpu", || SceneDevice::new(scene)).await?],
        card: testing::card(),
    })
}

async fn slot<D: Backend + 'static>(
    plan: &EnginePlan,
    label: &str,
    device: impl FnOnce() -> D + Send + 'static,
) -> anyhow::Result<EngineSlot> {
    let clock = Arc::clone(&plan.clock);
    slot_of(plan, label, move || simulated::engine(device(), clock)).await
}

async fn slot_of(
    plan: &EnginePlan,
    label: &str,
    engine: impl FnOnce() -> Engine + Send + 'static,
) -> anyhow::Result<EngineSlot> {
    let build = move || Ok((engine(), 2));
    let started = handle::start(build).await?;
    let share = plan.sampler.share(time_limits(plan));
    Ok(EngineSlot::new(label.to_owned(), started, share))
}

fn time_limits(plan: &EnginePlan) -> TimeLimits {
    TimeLimits::new(plan.config.model.budget, None)
}
