//! The whole daemon in a field of scripted cameras and a scripted broker, as `spotter run` runs it: a configuration file,
//! pipelines over RTSP, a connection over MQTT, a spool on disk, signals. Only the model is not there: its device sees what
//! a test says.
//!
//! Signals, descriptors and memory are a process's, so each of these tests runs itself again, alone.

mod device;
mod doubt;
mod host;
mod judge;
mod restart;
mod soak;

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use device::{Seeing, Stage};
use judge::Judge;
use tempfile::TempDir;

use super::*;
use crate::app::{engine_slot::EngineSlot, start_logging, test_support};
use spotter_cameras::sampler::TimeLimits;
use spotter_core::config::Environment;
use spotter_engine::{service::handle, testing};
use spotter_scripted::{
    broker::{Broker, codec::Publish},
    rtsp::{
        script::Script,
        server::Server,
        tape::{Codec, Recording, Tape},
    },
};

/// The cameras that a field begins with.
const CAMERAS: [&str; 4] = ["gate", "yard", "dock", "roof"];
/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(90);
const ALONE: &str = "SPOTTER_TEST_ALONE";

/// True in the process that is to do it. Else it was done in one: what that printed and logged is given to `judge`.
fn is_alone(test: &str, judge: impl FnOnce(&str)) -> bool {
    is_alone_with(test, &[], judge)
}

/// The same, in an environment with more in it.
fn is_alone_with(test: &str, environment: &[(&str, &str)], judge: impl FnOnce(&str)) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let logs = tempfile::NamedTempFile::new().unwrap();
    // With a view of the disks of its own, where that is allowed.
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
    judge(&log);
    false
}

/// Does it in a process of its own, which logs no error.
fn alone_without_an_error(test: &str, story: impl Future<Output = ()>) {
    let judge = |log: &str| assert_eq!(lines_but(log, " ERROR ", &[]), [""; 0]);
    if is_alone(test, judge) {
        crate::app::runtime().unwrap().block_on(story);
    }
}

/// Lines of the log of a level, but those that hold one of `expected`.
fn lines_but<'a>(log: &'a str, level: &str, expected: &[&str]) -> Vec<&'a str> {
    let is_new =
        |line: &&str| line.contains(level) && !expected.iter().any(|words| line.contains(words));
    log.lines().filter(is_new).collect()
}

/// A tape that all cameras play.
fn tape() -> Arc<Tape> {
    static TAPE: OnceLock<Arc<Tape>> = OnceLock::new();
    let record = || Arc::new(Tape::record(&Recording::of(Codec::H264)));
    Arc::clone(TAPE.get_or_init(record))
}

/// A good H.264 camera.
fn good() -> Script {
    Script::good(&tape())
}

/// Sends a signal to this very process.
fn signal(name: &str) {
    let process = std::process::id().to_string();
    let done = Command::new("kill").args([name, &process]).status();
    assert!(done.unwrap().success(), "kill {name}");
}

/// The answer of the status page; empty while there is none. Blocks.
fn get(page: SocketAddr, path: &str) -> String {
    let ask = || {
        let mut stream = TcpStream::connect(page)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {page}\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        io::Result::Ok(answer)
    };
    ask().unwrap_or_default()
}

/// See the module.
struct Field {
    directory: TempDir,
    broker: Broker,
    page: SocketAddr,
    stage: Stage,
    /// Where the cameras are.
    urls: Vec<String>,
    patience: &'static str,
}

/// Of a daemon whose cameras are never to be lost, also on a machine that is busy with other tests.
const PATIENT: &str = "first_frame = \"60s\"\nstall = \"60s\"";
/// Of one whose cameras fail again and again.
const QUICK: &str = "first_frame = \"5s\"\nstall = \"3s\"";

impl Field {
    /// The broker and the configuration of a daemon that watches cameras there with that patience.
    async fn new(urls: Vec<String>, patience: &'static str) -> Self {
        let broker = Broker::start(spotter_scripted::broker::Script::default()).await;
        broker.consume();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let field = Self {
            directory: tempfile::tempdir().unwrap(),
            broker,
            page: free.local_addr().unwrap(),
            stage: Stage::default(),
            urls,
            patience,
        };
        field.write(&field.text());
        field
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

    /// The configuration that the field begins with.
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

    /// Runs the daemon as the program does, until a signal that `story` sends.
    async fn run_while<T>(
        &self,
        clock: Arc<dyn Clock>,
        story: impl Future<Output = T>,
    ) -> (RunReport, T) {
        self.run_with(clock, engines_of(&self.stage), story).await
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
        let start = Start {
            path: self.path(),
            loaded,
            logging: logging.clone(),
            console: None,
            lines: None,
            seconds: None,
        };
        run_with(start, clock, engines).await
    }

    async fn run_with<T>(
        &self,
        clock: Arc<dyn Clock>,
        engines: Arc<OpenEngines>,
        story: impl Future<Output = T>,
    ) -> (RunReport, T) {
        let (mut run, mut story) = (pin!(self.run(clock, engines)), pin!(story));
        let told = tokio::select! {
            ended = &mut run => panic!("it ended before it was asked to: {ended:?}"),
            told = &mut story => told,
        };
        (run.await.unwrap(), told)
    }

    /// Says something at a topic below the node's.
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
}

/// Good cameras and the field with them.
async fn field_of_good() -> (Vec<Server>, Field) {
    let mut servers = Vec::new();
    for _ in CAMERAS {
        servers.push(Server::start(|_| good()).await);
    }
    let field = Field::new(servers.iter().map(Server::url).collect(), PATIENT).await;
    (servers, field)
}

fn machine_clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

/// Looks again and again, for what tells nobody when it changes.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let search = async {
        while !is_so() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(PATIENCE, search).await.is_ok(), "{what}");
}

/// One engine, whose device sees what is on the stage.
fn engines_of(stage: &Stage) -> Arc<OpenEngines> {
    let stage = stage.clone();
    Arc::new(move |plan| Box::pin(engine(plan, stage.clone())))
}

async fn engine(plan: EnginePlan, stage: Stage) -> anyhow::Result<OpenedEngines> {
    let engine_clock = plan.clock;
    let build = move || {
        Ok((
            testing::simulated::engine(Seeing::new(stage), engine_clock),
            2,
        ))
    };
    let started = handle::start(build).await?;
    let limits = TimeLimits::new(plan.config.model.budget, None);
    let cameras = plan.config.cameras.iter();
    let cameras = cameras.map(|camera| camera.id.clone()).collect();
    let slot = EngineSlot::new("cpu".into(), started, cameras, plan.sampler.share(limits));
    Ok(OpenedEngines {
        slots: vec![slot],
        card: test_support::card(),
    })
}
