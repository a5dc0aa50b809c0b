//! `spotter-lab fleet`: many boxes with a real nats-server and a real broker, with faults, and what a consumer notices of them.
//!
//! ```text
//!   nats-server ◀──BoxLink──┐                                        FaultPlan: kill, stop, leave, cut off, restart
//!                           ├── spotter-lab fleet-box (a process each)
//!   mosquitto   ◀──BoxLink──┘
//!        └──▶ mosquitto_sub ──▶ FleetObserver ──▶ FleetBenchReport
//! ```
//!
//! A box has the membership, the publisher, the spool and the disk of the daemon. Its cameras are not real: connecting takes a fixed time, then each
//! has one state and one event a second. A camera is watched while the broker delivers fresh messages with its newest epoch.

mod box_process;
mod broker_lines;
mod fault;
mod link;
mod member_box;
mod observer;
mod report;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    sync::Arc,
    thread::sleep,
    time::Duration,
};

use anyhow::{Context as _, bail};
use rustix::process::Signal;
use spotter::cli::out::remark;
use spotter_core::{Clock as _, Mono, SystemClock};
use spotter_fleet::testing::{NatsServer, NatsTraffic};
use spotter_street::broker::Mosquitto;
use tokio::runtime::{self, Runtime};

use self::{
    box_process::BoxProcess,
    broker_lines::{BrokerLines, CameraMessage},
    fault::{FaultPlan, FleetFault, PlannedFault},
    link::{BoxLink, LinkState},
    observer::FleetObserver,
    report::{FleetBenchReport, FleetTraffic},
};
use crate::args::FleetBoxArgs;

pub use self::member_box::fleet_box;

/// Of each camera: one state and one event.
const PUBLISH_PERIOD: Duration = Duration::from_secs(1);
/// Until every camera is watched and none moves, at the start and at the end.
const PATIENCE: Duration = Duration::from_secs(300);
/// Without a move, for so long.
const SETTLED: Duration = Duration::from_secs(15);
/// The longest time of a box that hands its cameras over.
const LEAVE_LIMIT: Duration = Duration::from_secs(20);
const PROGRESS_PERIOD: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);
/// A box's capacity, as a multiple of its share of the cameras.
const SPARE: f64 = 1.6;
/// Boxes do not share a disk, so what they write must not wait for this machine's.
const MEMORY_DISK: &str = "/dev/shm";
/// Nothing that a measurement publishes is dropped by the broker.
const BROKER: &str = "user root\nmax_queued_messages 0\nmax_inflight_messages 1000";

pub struct FleetBenchOptions {
    pub boxes: usize,
    pub cameras: usize,
    pub nats_servers: usize,
    /// Of the time with faults.
    pub length: Duration,
    pub seed: u64,
    /// Without faults.
    pub is_calm: bool,
}

pub fn measure(options: &FleetBenchOptions) -> anyhow::Result<FleetBenchReport> {
    let mut bench = FleetBench::start(options)?;
    bench.run_until_settled()?;
    bench.begin();
    let end = bench.clock.now().after(options.length);
    let mut plan = FaultPlan::new(options);
    while bench.clock.now() < end {
        match options.is_calm {
            true => bench.run_for(options.length)?,
            false => bench.inject(&plan.next())?,
        }
    }
    if !options.is_calm {
        remark("no more faults");
        bench.run_until_settled()?;
    }
    bench.report(options)
}

/// A box's connections.
struct BoxLinks {
    /// One for each server.
    nats: Vec<BoxLink>,
    broker: BoxLink,
}

struct FleetBench {
    boxes: Vec<BoxProcess>,
    links: Vec<BoxLinks>,
    /// How often each box was started.
    runs: Vec<u32>,
    observer: FleetObserver,
    lines: BrokerLines,
    broker: Option<Mosquitto>,
    address: SocketAddr,
    nats: Vec<NatsServer>,
    clock: Arc<SystemClock>,
    cameras: usize,
    traffic: FleetTraffic,
    /// Of each server, at the last count.
    counted: Vec<NatsTraffic>,
    began: Mono,
    reported: Mono,
    folder: tempfile::TempDir,
    _runtime: Runtime,
}

impl FleetBench {
    fn start(options: &FleetBenchOptions) -> anyhow::Result<Self> {
        let clock = Arc::new(SystemClock::new());
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let nats = match options.nats_servers {
            1 => vec![NatsServer::start()],
            servers => NatsServer::start_cluster(servers),
        };
        let address = free_address()?;
        let broker = Mosquitto::start(address, BROKER)?;
        let links = |_| -> anyhow::Result<BoxLinks> {
            let link = |port| BoxLink::start(runtime.handle(), port, Arc::clone(&clock));
            let servers = nats.iter().map(|server| link(server.port()));
            Ok(BoxLinks {
                nats: servers.collect::<Result<_, _>>()?,
                broker: link(address.port())?,
            })
        };
        let links = (0..options.boxes).map(links).collect::<Result<_, _>>()?;
        let mut bench = Self {
            boxes: Vec::new(),
            links,
            runs: vec![0; options.boxes],
            observer: FleetObserver::new(options.cameras, options.boxes),
            lines: BrokerLines::of(address, Arc::clone(&clock))?,
            broker: Some(broker),
            address,
            counted: vec![NatsTraffic::default(); nats.len()],
            nats,
            began: clock.now(),
            reported: clock.now(),
            clock,
            cameras: options.cameras,
            traffic: FleetTraffic::default(),
            folder: match Path::new(MEMORY_DISK).is_dir() {
                true => tempfile::tempdir_in(MEMORY_DISK)?,
                false => tempfile::tempdir()?,
            },
            _runtime: runtime,
        };
        for number in 0..options.boxes {
            let process = bench.start_box(number)?;
            bench.boxes.push(process);
        }
        Ok(bench)
    }

    fn start_box(&mut self, number: usize) -> anyhow::Result<BoxProcess> {
        let name = format!("b{number}");
        let folder = self.folder.path().join(&name);
        std::fs::create_dir_all(&folder)?;
        let (links, run) = (&self.links[number], &mut self.runs[number]);
        *run += 1;
        BoxProcess::start(&FleetBoxArgs {
            name,
            run: *run,
            nats: links.nats.iter().map(BoxLink::port).collect(),
            broker: links.broker.port(),
            cameras: self.cameras,
            capacity_hz: SPARE * self.cameras as f64 / self.runs.len() as f64,
            folder,
        })
    }

    /// Counts from now on.
    fn begin(&mut self) {
        self.count_nats();
        self.traffic = FleetTraffic::default();
        self.began = self.clock.now();
        self.observer.begin();
    }

    /// One fault, its end, and a pause.
    fn inject(&mut self, fault: &PlannedFault) -> anyhow::Result<()> {
        remark(fault);
        self.observer.fault(fault, self.clock.now());
        self.break_it(fault)?;
        self.run_for(fault.length)?;
        self.mend(fault)?;
        self.observer.fault_ended(self.clock.now());
        self.run_for(fault.pause)
    }

    fn break_it(&mut self, fault: &PlannedFault) -> anyhow::Result<()> {
        for number in &fault.boxes {
            let (process, links) = (&mut self.boxes[*number], &self.links[*number]);
            match fault.kind {
                FleetFault::Kill => process.kill()?,
                FleetFault::Stop => process.signal(Signal::STOP)?,
                FleetFault::Leave => process.signal(Signal::TERM)?,
                FleetFault::CutNats => set_all(&links.nats, fault.link),
                FleetFault::CutBroker => links.broker.set(fault.link),
                FleetFault::CutBoth => {
                    set_all(&links.nats, fault.link);
                    links.broker.set(fault.link);
                }
                _ => {}
            }
        }
        match fault.kind {
            FleetFault::NatsRestart
            | FleetFault::NatsDown
            | FleetFault::OneServerDown
            | FleetFault::NoQuorum => {
                self.count_nats();
                for number in &fault.servers {
                    self.nats[*number].end();
                    self.counted[*number] = NatsTraffic::default();
                }
            }
            FleetFault::BrokerRestart => self.broker = None,
            _ => {}
        }
        Ok(())
    }

    fn mend(&mut self, fault: &PlannedFault) -> anyhow::Result<()> {
        for number in fault.boxes.iter().copied() {
            match fault.kind {
                FleetFault::Stop => self.boxes[number].signal(Signal::CONT)?,
                FleetFault::Kill | FleetFault::Leave => self.return_box(number)?,
                _ => {
                    let links = &self.links[number];
                    set_all(&links.nats, LinkState::Open);
                    links.broker.set(LinkState::Open);
                }
            }
            self.observer.able(number, self.clock.now());
        }
        match fault.kind {
            FleetFault::NatsRestart
            | FleetFault::NatsDown
            | FleetFault::OneServerDown
            | FleetFault::NoQuorum => {
                for number in &fault.servers {
                    self.nats[*number].begin();
                }
            }
            FleetFault::BrokerRestart => {
                self.broker = Some(Mosquitto::start(self.address, BROKER)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Starts a box again, when its process has ended.
    fn return_box(&mut self, number: usize) -> anyhow::Result<()> {
        let limit = self.clock.now().after(LEAVE_LIMIT);
        while !self.boxes[number].has_ended()? {
            if self.clock.now() > limit {
                bail!("box {number} does not end");
            }
            self.run_for(POLL)?;
        }
        self.traffic.discarded += self.boxes[number].discarded();
        self.boxes[number] = self.start_box(number)?;
        Ok(())
    }

    /// Until all cameras are watched, and none has moved for a while: the first boxes have them all, until the others are there.
    fn run_until_settled(&mut self) -> anyhow::Result<()> {
        let start = self.clock.now();
        self.run_for(SETTLED)?;
        loop {
            let now = self.clock.now();
            let is_settled = now.since(self.observer.last_move) >= SETTLED;
            let is_watched = self.observer.unwatched(now) == 0;
            if (is_settled && is_watched) || now.since(start) > PATIENCE {
                return Ok(());
            }
            self.run_for(POLL)?;
        }
    }

    fn run_for(&mut self, length: Duration) -> anyhow::Result<()> {
        let end = self.clock.now().after(length);
        loop {
            for (number, links) in self.links.iter().enumerate() {
                self.observer.able(number, links.broker.connected_at());
            }
            for line in self.lines.new_ones() {
                if let Some(message) = CameraMessage::of(&line.text) {
                    self.observer.message(&message, line.at);
                }
            }
            let now = self.clock.now();
            if now.since(self.reported) >= PROGRESS_PERIOD {
                self.reported = now;
                self.remark_progress(now);
            }
            if now >= end {
                return Ok(());
            }
            sleep(POLL.min(end.since(now)));
        }
    }

    fn remark_progress(&mut self, now: Mono) {
        self.count_nats();
        let nats = self.traffic.nats_in;
        let observer = &self.observer;
        let seconds = now.since(self.began).as_secs_f64();
        remark(format_args!(
            "{seconds:.0} s: {} faults, {} moves, {:.0} messages a second, {:.0} in NATS, {} cameras silent; doubled {}, older epochs {} (late {})",
            observer.faults().count(),
            observer.moves.all,
            observer.messages as f64 / seconds,
            nats as f64 / seconds,
            observer.unwatched(now),
            observer.doubled,
            observer.older.fresh,
            observer.older.late
        ));
    }

    /// Adds what the servers have counted since the last call.
    fn count_nats(&mut self) {
        for (server, counted) in self.nats.iter().zip(&mut self.counted) {
            if let Some(now) = server.traffic() {
                self.traffic.nats_in += now.messages_in - counted.messages_in;
                self.traffic.nats_out += now.messages_out - counted.messages_out;
                *counted = now;
            }
        }
    }

    fn report(mut self, options: &FleetBenchOptions) -> anyhow::Result<FleetBenchReport> {
        self.count_nats();
        let now = self.clock.now();
        let memory = self.boxes.iter().filter_map(BoxProcess::memory_mib);
        let discarded = self.boxes.iter().map(BoxProcess::discarded).sum::<u64>();
        let traffic = FleetTraffic {
            seconds: now.since(self.began).as_secs_f64(),
            mqtt: self.observer.messages,
            discarded: self.traffic.discarded + discarded,
            memory_mib: memory.fold(0.0, f64::max),
            ..self.traffic
        };
        let unwatched = self.observer.unwatched(now);
        Ok(FleetBenchReport::new(
            options,
            self.observer,
            traffic,
            unwatched,
        ))
    }
}

fn set_all(links: &[BoxLink], state: LinkState) {
    for link in links {
        link.set(state);
    }
}

fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a free port")?;
    Ok(listener.local_addr()?)
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use spotter_core::{CameraId, Epoch};
    use spotter_fleet::{
        certainty::AcceptedRenewal,
        entries::{Heartbeat, HeartbeatEntry, Ownership},
        state::FleetState,
        testing::{listed, node},
    };

    use super::*;

    const BOXES: usize = 500;
    const CAMERAS: usize = 20_000;

    fn heartbeat_of(number: usize) -> HeartbeatEntry {
        let heartbeat = Heartbeat {
            version: env!("CARGO_PKG_VERSION").into(),
            machine: "0123abcd".into(),
            list_revision: Some(1),
            capacity_hz: SPARE * CAMERAS as f64 / BOXES as f64,
            ..Heartbeat::default()
        };
        HeartbeatEntry {
            node: node(&format!("b{number}")),
            heartbeat,
            revision: number as u64 + 1,
        }
    }

    /// Seen by `b0`.
    fn large_state(owned_cameras: usize, now: Mono) -> FleetState {
        let me = heartbeat_of(0).node;
        let mut state = FleetState::member(me);
        state.connected(now);
        state.cameras = listed(CAMERAS);
        for number in 0..BOXES {
            state.heartbeat(heartbeat_of(number), now);
        }
        for number in 0..owned_cameras {
            let owner = Some(node(&format!("b{}", number % BOXES)));
            let epoch = Epoch(number as u64 + 1);
            let camera = CameraId::new(&format!("c{number}")).unwrap();
            state.owned(camera, Ownership { owner, epoch });
        }
        state.current();
        state.certainty.accepted(AcceptedRenewal {
            sent: now,
            accepted: now,
            revision: 1,
        });
        state
    }

    #[test]
    #[ignore = "prints times for BENCHMARKS.md"]
    fn large_fleet_decides() {
        let clock = SystemClock::new();
        let now = clock.now();
        let time = |what: &str, count: &dyn Fn() -> usize| {
            let start = clock.now();
            let count = black_box(count());
            println!("{what}: {:?}, {count}", clock.now().since(start));
            count
        };
        let decide = |state: &FleetState| state.decide(now).unwrap().len();
        let text = serde_json::to_string(&heartbeat_of(499).heartbeat).unwrap();
        println!("heartbeat: {} bytes", text.len());
        let empty = large_state(0, now);
        assert!(time("first decision", &|| decide(&empty)) > 0);
        let mut state = large_state(CAMERAS, now);
        for _ in 0..3 {
            time("decision", &|| decide(&state));
        }
        time("view", &|| black_box(state.view(now)).owners.len());
        state.stopped(&node("b1"));
        assert!(time("decision after a loss", &|| decide(&state)) > 0);
        state.heartbeat(heartbeat_of(1), now);
        state.heartbeat(heartbeat_of(BOXES), now);
        assert!(time("decision after a box joined", &|| decide(&state)) > 0);
    }
}
