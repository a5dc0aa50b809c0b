//! A box's process, seen from the measurement.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::args::FleetBoxArgs;

/// It is killed at the end.
pub struct BoxProcess {
    child: Child,
    discarded: Arc<AtomicU64>,
}

impl BoxProcess {
    pub fn start(args: &FleetBoxArgs) -> anyhow::Result<Self> {
        let ports: Vec<String> = args.nats.iter().map(u16::to_string).collect();
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["fleet-box", "--name", &args.name])
            .args(["--run", &args.run.to_string()])
            .args(["--nats", &ports.join(",")])
            .args(["--broker", &args.broker.to_string()])
            .args(["--cameras", &args.cameras.to_string()])
            .args(["--capacity-hz", &args.capacity_hz.to_string()])
            .arg("--folder")
            .arg(&args.folder);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a box")?;
        let output = child.stdout.take().context("a box without output")?;
        let discarded = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&discarded);
        let reader = move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Ok(count) = line.parse() {
                    counter.store(count, Ordering::Relaxed);
                }
            }
        };
        let thread = thread::Builder::new().name(args.name.clone());
        thread.spawn(reader)?;
        Ok(Self { child, discarded })
    }

    /// Events that it has discarded because another box became the owner.
    pub fn discarded(&self) -> u64 {
        self.discarded.load(Ordering::Relaxed)
    }

    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = Pid::from_child(&self.child);
        kill_process(id, signal).context("signalling a box")
    }

    pub fn memory_mib(&self) -> Option<f64> {
        let process = Path::new("/proc").join(self.child.id().to_string());
        let status = fs::read_to_string(process.join("status")).ok()?;
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
