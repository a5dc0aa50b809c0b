//! One box of `spotter-lab fleet`: a process with a membership, which prints what it would watch.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::{Arc, mpsc as std_mpsc},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use spotter::cli::out::say;
use spotter_core::{
    NodeId, SystemClock,
    config::{NatsAccess, NatsLogin},
};
use spotter_fleet::{
    member::{Member, MemberCommand, MemberEvent, MemberSettings},
    store::{FleetStore, StoreSettings},
    testing::listed,
};
use tokio::{signal::unix, sync::mpsc, time::sleep};

use crate::args::FleetBoxArgs;

/// A camera that connects.
const CONNECTING: Duration = Duration::from_millis(800);

/// The process.
#[tokio::main(flavor = "current_thread")]
pub async fn fleet_box(args: &FleetBoxArgs) -> anyhow::Result<()> {
    let store = FleetStore::new(StoreSettings {
        fleet: NodeId::new("lab")?,
        access: NatsAccess {
            urls: vec![format!("nats://127.0.0.1:{}", args.port)],
            login: NatsLogin::None,
            ca: None,
            replicas: 1,
        },
    });
    let (commands, received) = mpsc::channel(256);
    let (sender, mut events) = mpsc::channel(4096);
    let settings = MemberSettings {
        node: NodeId::new(&args.name)?,
        labels: BTreeSet::new(),
        machine: args.name.clone(),
        resumed: BTreeMap::new(),
        version: env!("CARGO_PKG_VERSION").into(),
    };
    let member = Member::new(
        settings,
        Arc::new(store),
        Arc::new(SystemClock::new()),
        sender,
    );
    let cameras = listed(args.cameras);
    let refused = BTreeMap::new();
    for command in [
        MemberCommand::Cameras {
            revision: 1,
            cameras,
            refused,
        },
        MemberCommand::Capacity(args.capacity_hz),
    ] {
        commands.send(command).await?;
    }
    let mut terminate = unix::signal(unix::SignalKind::terminate())?;
    let leaving = commands.clone();
    tokio::spawn(async move {
        if terminate.recv().await.is_some() {
            _ = leaving.send(MemberCommand::Leave).await;
        }
    });
    let member = tokio::spawn(member.run(received));
    while let Some(event) = events.recv().await {
        match event {
            MemberEvent::Own(camera, epoch) => say(format_args!("own {camera} {}", epoch.0))?,
            MemberEvent::Lost { camera, .. } => say(format_args!("lost {camera}"))?,
            MemberEvent::GiveUp(camera) => {
                say(format_args!("silent {camera}"))?;
                commands.send(MemberCommand::GivenUp(camera)).await?;
            }
            MemberEvent::Prepare(camera) => {
                let commands = commands.clone();
                tokio::spawn(async move {
                    sleep(CONNECTING).await;
                    _ = commands.send(MemberCommand::Prepared(camera)).await;
                });
            }
            MemberEvent::Left => break,
            _ => {}
        }
    }
    member.abort();
    Ok(())
}

/// The process, seen from the measurement. It is killed at the end.
pub struct BoxProcess {
    child: Child,
    lines: std_mpsc::Receiver<String>,
}

impl BoxProcess {
    pub fn start(
        number: usize,
        port: u16,
        cameras: usize,
        capacity_hz: f64,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["fleet-box", "--name", &format!("b{number}")]);
        command.args(["--port", &port.to_string()]);
        command.args(["--cameras", &cameras.to_string()]);
        command.args(["--capacity-hz", &capacity_hz.to_string()]);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a box")?;
        let output = child.stdout.take().context("a box without output")?;
        let (sender, lines) = std_mpsc::channel();
        let reader = move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name(format!("box {number}"));
        thread.spawn(reader)?;
        Ok(Self { child, lines })
    }

    /// What it has printed since the last call.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.lines.try_iter()
    }

    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    pub fn stop(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    pub fn leave(&self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = Pid::from_child(&self.child);
        kill_process(id, signal).context("signalling a box")
    }

    pub fn memory_mib(&self) -> Option<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kib / 1024.0)
    }
}

impl Drop for BoxProcess {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
