//! Which faults a measurement has, and when. Pure: by a seed.

use std::{fmt, time::Duration};

use rand::{
    RngExt as _, SeedableRng as _,
    seq::{SliceRandom as _, index},
};
use rand_pcg::Pcg32;
use serde::Serialize;

use super::{FleetBenchOptions, link::LinkState};
use spotter_core::duration_from_secs;

/// One of so many boxes has a fault at a time.
const BOXES_PER_FAULT: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetFault {
    /// SIGKILL, and a start some seconds later.
    Kill,
    /// SIGSTOP, later SIGCONT.
    Stop,
    /// SIGTERM: it hands its cameras over. Later it starts again.
    Leave,
    /// From NATS.
    CutNats,
    CutBroker,
    CutBoth,
    /// All servers, at once.
    NatsRestart,
    NatsDown,
    BrokerRestart,
    /// Of a cluster.
    OneServerDown,
    /// All servers of a cluster but one are down.
    NoQuorum,
}

impl FleetFault {
    const OF_ALL: [Self; 9] = [
        Self::Kill,
        Self::Stop,
        Self::Leave,
        Self::CutNats,
        Self::CutBroker,
        Self::CutBoth,
        Self::NatsRestart,
        Self::NatsDown,
        Self::BrokerRestart,
    ];
    /// Twice: these are what a cluster is for.
    const OF_CLUSTERS: [Self; 4] = [
        Self::OneServerDown,
        Self::NoQuorum,
        Self::OneServerDown,
        Self::NoQuorum,
    ];

    /// The shortest and the longest, in seconds.
    fn seconds(self) -> [f64; 2] {
        match self {
            Self::Kill => [2.0, 25.0],
            Self::Leave => [5.0, 25.0],
            Self::Stop | Self::CutNats | Self::CutBroker | Self::CutBoth => [5.0, 40.0],
            Self::NatsRestart => [0.0, 0.0],
            Self::BrokerRestart => [0.0, 10.0],
            Self::OneServerDown => [10.0, 40.0],
            Self::NatsDown | Self::NoQuorum => [20.0, 60.0],
        }
    }

    /// Of some boxes; else all have it.
    fn is_of_boxes(self) -> bool {
        matches!(
            self,
            Self::Kill | Self::Stop | Self::Leave | Self::CutNats | Self::CutBroker | Self::CutBoth
        )
    }
}

impl fmt::Display for FleetFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kill => "killed",
            Self::Stop => "stopped, continued",
            Self::Leave => "left",
            Self::CutNats => "cut off from NATS",
            Self::CutBroker => "cut off from the broker",
            Self::CutBoth => "cut off from both",
            Self::NatsRestart => "NATS restarted",
            Self::NatsDown => "NATS down",
            Self::BrokerRestart => "broker restarted",
            Self::OneServerDown => "one NATS server down",
            Self::NoQuorum => "NATS without quorum",
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedFault {
    pub kind: FleetFault,
    /// None: all have it.
    pub boxes: Vec<usize>,
    /// Of NATS, in a cluster.
    pub servers: Vec<usize>,
    pub length: Duration,
    /// After it.
    pub pause: Duration,
    /// Of boxes that are cut off.
    pub link: LinkState,
}

impl fmt::Display for PlannedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {:.1} s, boxes {:?}",
            self.kind,
            self.length.as_secs_f64(),
            self.boxes
        )?;
        match self.kind {
            FleetFault::CutNats | FleetFault::CutBroker | FleetFault::CutBoth => {
                write!(f, ", {:?}", self.link)
            }
            _ => Ok(()),
        }
    }
}

/// All kinds in random order, again and again.
pub struct FaultPlan {
    random: Pcg32,
    deck: Vec<FleetFault>,
    boxes: usize,
    servers: usize,
    longest: Duration,
    pauses_s: [f64; 2],
}

impl FaultPlan {
    pub fn new(options: &FleetBenchOptions) -> Self {
        let short = options.length.as_secs_f64();
        Self {
            random: Pcg32::seed_from_u64(options.seed),
            deck: Vec::new(),
            boxes: options.boxes,
            servers: options.nats_servers,
            longest: options.length / 3,
            pauses_s: [(short / 12.0).min(8.0), (short / 6.0).min(15.0)],
        }
    }

    pub fn next(&mut self) -> PlannedFault {
        let kind = self.kind();
        let boxes = match kind.is_of_boxes() {
            true => self.some(self.boxes, self.boxes.div_ceil(BOXES_PER_FAULT)),
            false => Vec::new(),
        };
        let down = match kind {
            FleetFault::OneServerDown => 1,
            FleetFault::NoQuorum => self.servers - 1,
            _ => self.servers,
        };
        let length = self.seconds(kind.seconds());
        let pauses = self.pauses_s;
        PlannedFault {
            kind,
            boxes,
            servers: self.some(self.servers, down),
            length: length.min(self.longest),
            pause: self.seconds(pauses),
            link: match self.random.random_range(0..2) {
                0 => LinkState::Refusing,
                _ => LinkState::Silent,
            },
        }
    }

    fn kind(&mut self) -> FleetFault {
        if self.deck.is_empty() {
            self.deck.extend(FleetFault::OF_ALL);
            if self.servers > 1 {
                self.deck.extend(FleetFault::OF_CLUSTERS);
            }
            self.deck.shuffle(&mut self.random);
        }
        self.deck.pop().unwrap_or(FleetFault::Kill)
    }

    fn some(&mut self, of: usize, count: usize) -> Vec<usize> {
        index::sample(&mut self.random, of, count).into_vec()
    }

    fn seconds(&mut self, [shortest, longest]: [f64; 2]) -> Duration {
        let seconds = self.random.random_range(shortest..=longest);
        duration_from_secs(seconds)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn plan_of_one_seed_has_each_kind_and_repeats() {
        let options = FleetBenchOptions {
            boxes: 10,
            cameras: 20,
            nats_servers: 1,
            length: Duration::from_secs(600),
            seed: 3,
            is_calm: false,
        };
        let faults = || {
            let mut plan = FaultPlan::new(&options);
            (0..9).map(|_| plan.next()).collect::<Vec<_>>()
        };
        let first = faults();
        let kinds: BTreeSet<FleetFault> = first.iter().map(|fault| fault.kind).collect();
        assert_eq!(kinds.len(), 9);
        assert_eq!(first, faults());
    }
}
