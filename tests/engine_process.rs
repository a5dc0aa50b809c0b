//! Engines in processes of their own, which are the real program with the embedded model on the CPU: they answer, die alone,
//! and end with the daemon that started them.
//!
//! Faults: D10.

use std::{
    fs,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use crate::support::{DONE, FAILED, PATIENCE, command, spotter, until};
use tokio::time::timeout;

use spotter::app::{EngineOrder, MeasuredEngine};
use spotter_config::{self as config, ModelSource};
use spotter_core::{Look, Outcome, Picture, SystemClock, Task, WholeLook};
use spotter_engine::{
    open::{ExpectedLook, ModelDevice},
    service::{
        handle::{EngineEnd, EngineHandle},
        outside,
    },
};

/// An engine with its process.
struct Apart {
    engine: EngineHandle,
    end: EngineEnd,
    measured: MeasuredEngine,
    pid: u32,
}

impl Apart {
    async fn open(directory: &Path, name: &str) -> Self {
        let pid_file = directory.join(name);
        // The shell that says its number becomes the program.
        let mut program = Command::new("sh");
        let script = "echo $$ > \"$0\" && exec \"$1\" engine";
        program.args(["-c", script]).arg(&pid_file);
        program.arg(env!("CARGO_BIN_EXE_spotter"));
        let (engine, end, measured) = within(outside::start(program, order(), clock()))
            .await
            .expect("an engine");
        let pid = fs::read_to_string(&pid_file).expect("the number of its process");
        let pid = pid.trim().parse().expect("a number");
        Self {
            engine,
            end,
            measured,
            pid,
        }
    }

    async fn ask(&self) -> WholeLook {
        let permit = within(self.engine.permit()).await;
        within(permit.whole_look(look())).await
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.pid.to_string()])
            .status();
        assert!(sent.expect("kill is there").success(), "{name}");
    }

    /// False when nothing is left of the process, not even how it ended.
    fn is_there(&self) -> bool {
        Path::new(&format!("/proc/{}", self.pid)).exists()
    }
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it takes too long")
}

fn clock() -> Arc<SystemClock> {
    Arc::new(SystemClock::new())
}

fn task() -> Task {
    let object = "car".to_owned();
    Task::Detect { object }
}

fn order() -> EngineOrder {
    EngineOrder {
        device: ModelDevice::Cpu("cpu, for a test".into()),
        settings: config::ModelSettings {
            device: config::DevicePreference::Cpu,
            ..config::ModelSettings::of(ModelSource::Embedded)
        },
        adapters: Vec::new(),
        adapter_slots: 0,
        looks: vec![ExpectedLook {
            width: 64,
            tasks: vec![task()],
        }],
    }
}

fn look() -> Look {
    let picture = Picture::from_rgb(64, 48, vec![90; 64 * 48 * 3]);
    Look::still(picture.expect("a picture"), [task()])
}

fn is_answered(look: &WholeLook) -> bool {
    matches!(look.outcome, Some(Outcome::Answered(_)))
}

#[tokio::test]
async fn killed_engine_process_leaves_the_other_running() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut first = Apart::open(directory.path(), "first").await;
    let second = Apart::open(directory.path(), "second").await;
    assert_eq!(first.measured.card.device, "cpu, for a test");
    assert!(first.measured.look > Some(Duration::ZERO));
    assert!(is_answered(&first.ask().await) && is_answered(&second.ask().await));

    first.signal("STOP");
    let permit = within(first.engine.permit()).await;
    let asked = tokio::spawn(permit.whole_look(look()));
    first.signal("KILL");
    let reason = within(first.end.reason()).await.to_string();
    assert!(reason.contains("killed by signal 9"), "{reason}");
    assert!(!first.is_there(), "it is waited for");
    let failed = within(asked).await.expect("an outcome");
    assert!(
        matches!(failed.outcome, Some(Outcome::Failed(..))),
        "{failed:?}"
    );
    let failed = first.ask().await;
    assert!(
        matches!(failed.outcome, Some(Outcome::Failed(..))),
        "{failed:?}"
    );
    within(first.end.over()).await;

    for _ in 0..3 {
        assert!(is_answered(&second.ask().await));
    }
}

#[tokio::test]
async fn engine_process_ignores_signals_and_ends_with_its_handles() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut apart = Apart::open(directory.path(), "engine").await;
    for name in ["TERM", "INT", "HUP", "TERM"] {
        apart.signal(name);
        let outcome = apart.ask().await;
        assert!(is_answered(&outcome), "{name}: {outcome:?}");
    }
    let (engine, pid) = (apart.engine, apart.pid);
    drop(engine);
    let reason = within(apart.end.reason()).await.to_string();
    assert_eq!(reason, "no caller is left");
    within(apart.end.over()).await;
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[tokio::test]
async fn engine_that_cannot_open_reports_why_and_leaves_no_process() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut no_model = order();
    no_model.settings.source = ModelSource::Directory(directory.path().to_owned());
    let absent = Command::new("/nowhere/spotter");
    let mut no_engine = Command::new("sh");
    no_engine.args(["-c", "exit 3"]);
    for (program, order, reason) in [
        (command(["engine"]), no_model, "config.json"),
        (
            absent,
            order(),
            "starting \"/nowhere/spotter\" as the engine's process: No such file",
        ),
        (no_engine, order(), "exit code 3"),
    ] {
        let started = within(outside::start::<_, MeasuredEngine>(program, order, clock())).await;
        let Err(stopped) = started else {
            panic!("opened in spite of {reason}")
        };
        assert!(stopped.to_string().contains(reason), "{stopped}");
    }
}

/// It ends by itself, and as one that has done its work, whether its daemon had asked for anything or not.
#[test]
fn engine_process_ends_when_its_connection_closes() {
    let (ours, theirs) = UnixStream::pair().expect("a connection");
    let mut program = command(["engine"]);
    program
        .stdin(OwnedFd::from(theirs))
        .stderr(Stdio::inherit());
    let mut child = program.spawn().expect("the program starts");
    // The program holds on to the other end, which it has got a copy of.
    drop((program, ours));
    let status = until("an end", || child.try_wait().expect("a child"));
    assert_eq!(status.code(), Some(DONE));
}

#[test]
fn engine_command_without_a_daemon_reports_its_purpose() {
    let ended = spotter(["engine"]).expect(FAILED);
    assert!(
        ended.stderr.contains("is started by the daemon"),
        "{ended:#?}"
    );
    let help = spotter(["--help"]).expect(DONE).stdout;
    assert!(!help.contains("engine in a process"), "{help}");
}
