//! Which box watches which camera at each moment, and what follows from that.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use anyhow::{Context as _, bail};
use serde::Serialize;
use spotter_core::Mono;
use spotter_fleet::entries::HEARTBEAT_LIFETIME;

use super::FleetBenchOptions;

/// How long a camera of a killed box is unwatched at most.
const PROMISED: Duration = HEARTBEAT_LIFETIME.saturating_add(Duration::from_secs(5));
/// Lines of different boxes are read one box after the other: of a shorter gap it is not known whether there was one.
const UNORDERED: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetFault {
    Kill,
    /// SIGSTOP, later SIGCONT.
    Stop,
    Leave,
    NatsRestart,
}

/// Which boxes watch a camera, with their epochs.
#[derive(Default)]
struct WatchedCamera {
    by: BTreeMap<usize, u64>,
    /// Since when no box does, and why.
    unwatched: Option<(Mono, FleetFault)>,
}

pub struct FleetObserver {
    cameras: BTreeMap<String, WatchedCamera>,
    /// Boxes that are stopped: what they own, they do not watch.
    stopped: BTreeSet<usize>,
    last_fault: FleetFault,
    is_counting: bool,
    gaps_s: BTreeMap<FleetFault, Vec<f64>>,
    faults: usize,
    moves: usize,
    /// Moves that a fault requires: cameras of the box.
    required_moves: usize,
    doubled: usize,
}

impl FleetObserver {
    pub fn new(cameras: usize) -> Self {
        let camera = |n| (format!("c{n}"), WatchedCamera::default());
        Self {
            cameras: (0..cameras).map(camera).collect(),
            stopped: BTreeSet::new(),
            last_fault: FleetFault::Kill,
            is_counting: false,
            gaps_s: BTreeMap::new(),
            faults: 0,
            moves: 0,
            required_moves: 0,
            doubled: 0,
        }
    }

    /// Counts from now on.
    pub fn begin(&mut self) {
        self.is_counting = true;
    }

    /// A line that a box has printed.
    pub fn line(&mut self, number: usize, line: &str, now: Mono) -> anyhow::Result<()> {
        let mut words = line.split(' ');
        let (what, camera) = (
            words.next(),
            words.next().context("a line without a camera")?,
        );
        let epoch = words.next().and_then(|word| word.parse().ok());
        let watched = self.cameras.get_mut(camera).context("an unknown camera")?;
        match (what, epoch) {
            (Some("own"), Some(epoch)) => {
                let is_doubled = watched
                    .by
                    .iter()
                    .any(|(by, seen)| *by != number && *seen == epoch);
                self.doubled += usize::from(is_doubled);
                // An owner writes itself again after a gap between its heartbeats: a new epoch, but no move.
                let is_move = watched.by.insert(number, epoch).is_none();
                self.moves += usize::from(is_move && self.is_counting);
            }
            (Some("lost" | "silent"), _) => drop(watched.by.remove(&number)),
            _ => bail!("a box printed {line:?}"),
        }
        let camera = camera.to_owned();
        self.update(&camera, now);
        Ok(())
    }

    pub fn fault(&mut self, fault: FleetFault) {
        self.last_fault = fault;
        self.faults += 1;
    }

    /// A box has ended or is stopped.
    pub fn unwatched_by(&mut self, number: usize, fault: FleetFault, now: Mono) {
        self.fault(fault);
        self.stopped.insert(number);
        for camera in self.of(number) {
            self.required_moves += 1;
            self.update(&camera, now);
        }
    }

    /// A stopped box continues.
    pub fn watched_by(&mut self, number: usize, now: Mono) {
        self.stopped.remove(&number);
        for camera in self.of(number) {
            self.update(&camera, now);
        }
    }

    /// A box has ended and starts again with nothing.
    pub fn gone(&mut self, number: usize, now: Mono) {
        for camera in self.of(number) {
            if let Some(watched) = self.cameras.get_mut(&camera) {
                watched.by.remove(&number);
            }
            self.update(&camera, now);
        }
        self.stopped.remove(&number);
    }

    fn of(&self, number: usize) -> Vec<String> {
        let own = self
            .cameras
            .iter()
            .filter(|(_, watched)| watched.by.contains_key(&number));
        own.map(|(camera, _)| camera.clone()).collect()
    }

    fn update(&mut self, camera: &str, now: Mono) {
        let Some(watched) = self.cameras.get_mut(camera) else {
            return;
        };
        let is_watched = watched
            .by
            .keys()
            .any(|number| !self.stopped.contains(number));
        match (is_watched, watched.unwatched) {
            (true, Some((since, fault))) => {
                watched.unwatched = None;
                let gap = now.since(since);
                if gap > UNORDERED {
                    let gaps = self.gaps_s.entry(fault).or_default();
                    gaps.push(gap.as_secs_f64());
                }
            }
            (false, None) if self.is_counting => watched.unwatched = Some((now, self.last_fault)),
            _ => {}
        }
    }

    pub fn report(
        self,
        options: &FleetBenchOptions,
        memory_mib: f64,
        messages: u64,
    ) -> FleetBenchReport {
        let gaps = self.gaps_s.into_iter().map(|(fault, mut gaps)| {
            gaps.sort_by(f64::total_cmp);
            let at = |share: f64| gaps[((gaps.len() - 1) as f64 * share).round() as usize];
            UnwatchedTimes {
                fault,
                cameras: gaps.len(),
                median_s: at(0.5),
                p99_s: at(0.99),
                worst_s: at(1.0),
            }
        });
        let watched = self.cameras.values();
        FleetBenchReport {
            boxes: options.boxes,
            cameras: options.cameras,
            minutes: options.length.as_secs_f64() / 60.0,
            faults: self.faults,
            unwatched: gaps.collect(),
            unwatched_at_the_end: watched.filter(|camera| camera.by.is_empty()).count(),
            moves: self.moves,
            required_moves: self.required_moves,
            doubled: self.doubled,
            nats_messages: messages,
            memory_mib,
        }
    }
}

/// How long cameras were without a box, after one kind of fault.
#[derive(Debug, Serialize)]
pub struct UnwatchedTimes {
    pub fault: FleetFault,
    pub cameras: usize,
    pub median_s: f64,
    pub p99_s: f64,
    pub worst_s: f64,
}

#[derive(Debug, Serialize)]
pub struct FleetBenchReport {
    pub boxes: usize,
    pub cameras: usize,
    pub minutes: f64,
    pub faults: usize,
    pub unwatched: Vec<UnwatchedTimes>,
    pub unwatched_at_the_end: usize,
    pub moves: usize,
    /// Cameras of boxes that were killed or stopped.
    pub required_moves: usize,
    /// Times that two boxes had one camera with one epoch.
    pub doubled: usize,
    /// To nats-server since its last start.
    pub nats_messages: u64,
    /// Of the largest box.
    pub memory_mib: f64,
}

impl FleetBenchReport {
    /// An error when a promise was broken.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.doubled > 0 {
            bail!(
                "{} times, two boxes had one camera with one epoch",
                self.doubled
            );
        }
        if self.unwatched_at_the_end > 0 {
            bail!(
                "{} cameras have no box at the end",
                self.unwatched_at_the_end
            );
        }
        let of_lost = |times: &&UnwatchedTimes| times.fault == FleetFault::Kill;
        if let Some(times) = self.unwatched.iter().find(of_lost)
            && times.worst_s > PROMISED.as_secs_f64()
        {
            bail!(
                "a camera of a killed box was unwatched for {:.1} s; promised are {} s",
                times.worst_s,
                PROMISED.as_secs()
            );
        }
        Ok(())
    }
}

impl fmt::Display for FleetBenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} boxes, {} cameras, {:.0} minutes, {} faults",
            self.boxes, self.cameras, self.minutes, self.faults
        )?;
        for times in &self.unwatched {
            writeln!(
                f,
                "unwatched after {:?}: {} cameras, median {:.1} s, p99 {:.1} s, worst {:.1} s",
                times.fault, times.cameras, times.median_s, times.p99_s, times.worst_s
            )?;
        }
        write!(
            f,
            "{} moves, {} of them of killed or stopped boxes; {} with one epoch at two boxes; {} without a box at the end\n\
             {} messages to nats-server since its last start; {:.0} MiB in the largest box",
            self.moves,
            self.required_moves,
            self.doubled,
            self.unwatched_at_the_end,
            self.nats_messages,
            self.memory_mib
        )
    }
}
