//! What a measurement of a fleet prints.

use std::{collections::BTreeSet, fmt};

use anyhow::bail;
use serde::Serialize;

use super::{
    FleetBenchOptions,
    fault::FleetFault,
    observer::{FleetMoves, FleetObserver, OlderEpochs},
};

/// Some of many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GapTimes {
    pub cameras: usize,
    pub median_s: f64,
    pub p99_s: f64,
    pub worst_s: f64,
}

impl GapTimes {
    fn of(mut gaps: Vec<f64>) -> Option<Self> {
        gaps.sort_by(f64::total_cmp);
        let last = gaps.len().checked_sub(1)?;
        let at = |share: f64| gaps[(last as f64 * share).round() as usize];
        Some(Self {
            cameras: gaps.len(),
            median_s: at(0.5),
            p99_s: at(0.99),
            worst_s: at(1.0),
        })
    }
}

/// What one kind of fault did.
#[derive(Clone, Debug, Serialize)]
pub struct FaultRow {
    /// `None`: moves without a fault.
    pub fault: Option<FleetFault>,
    pub faults: usize,
    /// From the last message of the owner before to the first of the next one.
    pub moved: Option<GapTimes>,
    /// Longer than 3 s without a message, with the same owner afterwards.
    pub kept: Option<GapTimes>,
}

/// What was used.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct FleetTraffic {
    pub seconds: f64,
    /// From clients, and between servers of a cluster.
    pub nats_in: u64,
    pub nats_out: u64,
    /// Of cameras, delivered by the broker.
    pub mqtt: u64,
    /// Events that boxes discarded (`older_epoch`).
    pub discarded: u64,
    /// Of the largest box.
    pub memory_mib: f64,
}

#[derive(Debug, Serialize)]
pub struct FleetBenchReport {
    pub boxes: usize,
    pub cameras: usize,
    pub nats_servers: usize,
    pub minutes: f64,
    pub seed: u64,
    pub faults: Vec<FaultRow>,
    pub moves: FleetMoves,
    /// Times that two boxes published one camera with one epoch.
    pub doubled: usize,
    pub older: OlderEpochs,
    pub unwatched_at_the_end: usize,
    pub traffic: FleetTraffic,
    pub findings: Vec<String>,
}

impl FleetBenchReport {
    pub fn new(
        options: &FleetBenchOptions,
        observer: FleetObserver,
        traffic: FleetTraffic,
        unwatched_at_the_end: usize,
    ) -> Self {
        let had: Vec<FleetFault> = observer.faults().collect();
        let kinds: BTreeSet<Option<FleetFault>> = had
            .iter()
            .copied()
            .map(Some)
            .chain(observer.gaps.keys().copied())
            .collect();
        let rows = kinds.into_iter().map(|kind| {
            let gaps = observer.gaps.get(&kind).cloned().unwrap_or_default();
            FaultRow {
                fault: kind,
                faults: had.iter().filter(|had| Some(**had) == kind).count(),
                moved: GapTimes::of(gaps.moved_s),
                kept: GapTimes::of(gaps.kept_s),
            }
        });
        Self {
            boxes: options.boxes,
            cameras: options.cameras,
            nats_servers: options.nats_servers,
            minutes: options.length.as_secs_f64() / 60.0,
            seed: options.seed,
            faults: rows.collect(),
            moves: observer.moves,
            doubled: observer.doubled,
            older: observer.older,
            unwatched_at_the_end,
            traffic,
            findings: observer.findings,
        }
    }

    /// An error when a promise was broken.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.doubled > 0 {
            bail!(
                "{} messages of a camera with the epoch of another box",
                self.doubled
            );
        }
        if self.older.late > 0 {
            bail!(
                "{} messages with an older epoch of boxes that could have known the newer owner for a second",
                self.older.late
            );
        }
        if self.unwatched_at_the_end > 0 {
            bail!("{} cameras without a box", self.unwatched_at_the_end);
        }
        Ok(())
    }
}

impl fmt::Display for FleetBenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: usize = self.faults.iter().map(|row| row.faults).sum();
        writeln!(
            f,
            "{} boxes, {} cameras, nats-servers: {}, {:.1} minutes, seed {}, {faults} faults",
            self.boxes, self.cameras, self.nats_servers, self.minutes, self.seed
        )?;
        writeln!(
            f,
            "{:<24} {:>6}   {:<32}   {:<32}",
            "", "faults", "moved: n, median, p99, worst s", "kept, silent: n, median, p99, worst s"
        )?;
        for row in &self.faults {
            let name = row
                .fault
                .map_or("no fault".into(), |fault| fault.to_string());
            let times = |times: Option<GapTimes>| match times {
                Some(of) => format!(
                    "{:>5} {:>7.1} {:>7.1} {:>7.1}",
                    of.cameras, of.median_s, of.p99_s, of.worst_s
                ),
                None => "    –".to_owned(),
            };
            writeln!(
                f,
                "{name:<24} {:>6}   {:<32}   {:<32}",
                row.faults,
                times(row.moved),
                times(row.kept)
            )?;
        }
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        self.print_counts(f)
    }
}

impl FleetBenchReport {
    fn print_counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (moves, older, traffic) = (&self.moves, &self.older, &self.traffic);
        writeln!(
            f,
            "moves: {}; of boxes with a fault {}, to boxes that returned {}, other {}",
            moves.all,
            moves.of_failed,
            moves.to_returned,
            moves.all - moves.of_failed - moves.to_returned
        )?;
        writeln!(
            f,
            "two boxes with one epoch: {}; cameras without a box at the end: {}",
            self.doubled, self.unwatched_at_the_end
        )?;
        writeln!(
            f,
            "older epochs: {} delayed events, {} others ({} events and {} states of the same box), the last {:.2} s after the newer owner; later than 1 s: {}",
            older.delayed,
            older.fresh,
            older.events_of_same_box,
            older.states_of_same_box,
            older.latest_s,
            older.late
        )?;
        let a_second = |count: u64| count as f64 / traffic.seconds;
        write!(
            f,
            "events discarded: {}; NATS messages a second: {:.0} in ({:.2} a box), {:.0} out; MQTT messages a second: {:.0}; largest box: {:.0} MiB",
            traffic.discarded,
            a_second(traffic.nats_in),
            a_second(traffic.nats_in) / self.boxes as f64,
            a_second(traffic.nats_out),
            a_second(traffic.mqtt),
            traffic.memory_mib
        )
    }
}
