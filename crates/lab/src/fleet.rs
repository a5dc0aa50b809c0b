//! `spotter-lab fleet`: many boxes on one real nats-server, with faults, and what cameras notice of them.
//!
//! ```text
//!   nats-server ◀── spotter-lab fleet-box (a process each) ──"own", "silent", "lost"──▶ FleetObserver ─▶ FleetBenchReport
//!                      ▲ kill, stop and continue, leave, restart of nats-server: at random
//! ```
//!
//! A box has a membership and no camera: connecting takes a fixed time, giving up takes none. Its owner watches a camera from `own` to `silent` or
//! `lost`, to a kill or while it is stopped. What is not in it: the broker, and a box that cannot reach NATS but its cameras.

mod box_process;
mod observer;

use std::{thread::sleep, time::Duration};

use rand::{RngExt as _, SeedableRng as _, seq::IndexedRandom as _};
use rand_pcg::Pcg32;
use spotter::cli::out::remark;
use spotter_core::{Clock as _, SystemClock};
use spotter_fleet::testing::NatsServer;

use self::{
    box_process::BoxProcess,
    observer::{FleetFault, FleetObserver},
};
pub use self::{box_process::fleet_box, observer::FleetBenchReport};

/// Without faults at the end, until every camera is watched again.
const QUIET: Duration = Duration::from_secs(40);
/// Until all cameras have an owner at the start.
const START: Duration = Duration::from_secs(30);
/// From one fault to the next.
const FAULT_PERIOD: Duration = Duration::from_secs(25);
/// How long a box is stopped, and how long a box that ended stays away: longer than a heartbeat lives.
const STOPPED: Duration = Duration::from_secs(18);
const POLL: Duration = Duration::from_millis(10);
/// A box's capacity, as a multiple of its share of the cameras.
const SPARE: f64 = 1.6;

pub struct FleetBenchOptions {
    pub boxes: usize,
    pub cameras: usize,
    pub length: Duration,
    pub seed: u64,
}

pub fn measure(options: &FleetBenchOptions) -> anyhow::Result<FleetBenchReport> {
    let mut bench = FleetBench::start(options)?;
    bench.run_for(START)?;
    bench.observer.begin();
    let end = bench.clock.now().after(options.length);
    while bench.clock.now() < end {
        bench.inject()?;
        bench.run_for(FAULT_PERIOD - STOPPED)?;
    }
    remark("no more faults");
    bench.run_for(QUIET)?;
    let memory_mib = bench.memory_mib();
    let messages = bench.server.messages();
    Ok(bench.observer.report(options, memory_mib, messages))
}

struct FleetBench {
    server: NatsServer,
    boxes: Vec<BoxProcess>,
    observer: FleetObserver,
    clock: SystemClock,
    random: Pcg32,
    capacity_hz: f64,
    cameras: usize,
}

impl FleetBench {
    fn start(options: &FleetBenchOptions) -> anyhow::Result<Self> {
        let mut bench = Self {
            server: NatsServer::start(),
            boxes: Vec::new(),
            observer: FleetObserver::new(options.cameras),
            clock: SystemClock::new(),
            random: Pcg32::seed_from_u64(options.seed),
            capacity_hz: SPARE * options.cameras as f64 / options.boxes as f64,
            cameras: options.cameras,
        };
        for number in 0..options.boxes {
            let process = bench.start_box(number)?;
            bench.boxes.push(process);
        }
        Ok(bench)
    }

    fn start_box(&self, number: usize) -> anyhow::Result<BoxProcess> {
        BoxProcess::start(number, self.server.port(), self.cameras, self.capacity_hz)
    }

    /// One fault, and its end.
    fn inject(&mut self) -> anyhow::Result<()> {
        let kinds = [
            FleetFault::Kill,
            FleetFault::Kill,
            FleetFault::Stop,
            FleetFault::Leave,
            FleetFault::NatsRestart,
        ];
        let fault = *kinds.choose(&mut self.random).unwrap_or(&FleetFault::Kill);
        let number = self.random.random_range(0..self.boxes.len());
        remark(format_args!("{fault:?}, box {number}"));
        let now = self.clock.now();
        match fault {
            FleetFault::NatsRestart => {
                self.observer.fault(fault);
                self.server.restart();
                return self.run_for(STOPPED);
            }
            FleetFault::Kill => {
                self.boxes[number].kill()?;
                self.observer.unwatched_by(number, fault, now);
            }
            FleetFault::Stop => {
                self.boxes[number].stop()?;
                self.observer.unwatched_by(number, fault, now);
            }
            FleetFault::Leave => {
                self.observer.fault(fault);
                self.boxes[number].leave()?;
            }
        }
        self.run_for(STOPPED)?;
        match fault {
            FleetFault::Stop => {
                self.observer.watched_by(number, self.clock.now());
                self.boxes[number].resume()?;
            }
            _ => {
                self.boxes[number].kill()?;
                self.observer.gone(number, self.clock.now());
                self.boxes[number] = self.start_box(number)?;
            }
        }
        Ok(())
    }

    fn run_for(&mut self, length: Duration) -> anyhow::Result<()> {
        let end = self.clock.now().after(length);
        while self.clock.now() < end {
            let now = self.clock.now();
            for (number, process) in self.boxes.iter().enumerate() {
                for line in process.lines() {
                    self.observer.line(number, &line, now)?;
                }
            }
            sleep(POLL);
        }
        Ok(())
    }

    /// Of the largest box.
    fn memory_mib(&self) -> f64 {
        let all = self.boxes.iter().filter_map(BoxProcess::memory_mib);
        all.fold(0.0, f64::max)
    }
}
