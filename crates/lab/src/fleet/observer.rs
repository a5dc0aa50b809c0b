//! What a consumer sees of the cameras, and what follows from that. Pure: by what the broker delivered.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;
use spotter_core::Mono;

use super::{
    broker_lines::{CameraMessage, CameraMessageKind},
    fault::{FleetFault, PlannedFault},
};

/// A longer time without a message is a gap although the owner is the same.
const GAP: Duration = Duration::from_secs(3);
/// A fault has effects for so long after its end.
const AFTERMATH: Duration = Duration::from_secs(15);
/// So long after its return, a box gets cameras of others.
const RETURN: Duration = Duration::from_secs(45);
/// A box that is connected to the broker and sees a newer owner is silent within this time.
const SILENT_WITHIN: Duration = Duration::from_secs(1);

struct FaultRecord {
    kind: FleetFault,
    /// None: all.
    boxes: Vec<usize>,
    from: Mono,
    /// `None`: it goes on.
    until: Option<Mono>,
}

impl FaultRecord {
    fn goes_on_within(&self, from: Mono, to: Mono, after: Duration) -> bool {
        self.from <= to && self.until.is_none_or(|until| until.after(after) >= from)
    }
}

#[derive(Clone, Copy)]
struct FreshMessage {
    node: usize,
    at: Mono,
}

#[derive(Default)]
struct ObservedCamera {
    /// The newest epoch, and since when the broker has it.
    newest: u64,
    newest_at: Mono,
    /// Which box published with which epoch.
    nodes: BTreeMap<u64, usize>,
    last: Option<FreshMessage>,
}

/// Times without a message, in seconds.
#[derive(Clone, Debug, Default)]
pub struct CameraGaps {
    /// Until the first one of another box.
    pub moved_s: Vec<f64>,
    pub kept_s: Vec<f64>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct FleetMoves {
    pub all: usize,
    /// From boxes with a fault.
    pub of_failed: usize,
    /// Of the others: to boxes whose fault is over.
    pub to_returned: usize,
}

/// Messages with an older epoch, after one with a newer epoch.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct OlderEpochs {
    /// Events that say that they are delayed: history.
    pub delayed: usize,
    /// All others.
    pub fresh: usize,
    /// Of these, of a box whose own epoch was renewed: events, and states.
    pub events_of_same_box: usize,
    pub states_of_same_box: usize,
    /// Of these, of a box that was connected to the broker, and longer than a second after the newer `owner`.
    pub late: usize,
    /// The longest such time.
    pub latest_s: f64,
}

pub struct FleetObserver {
    cameras: BTreeMap<String, ObservedCamera>,
    /// Since when each box runs and is connected to the broker.
    able_since: Vec<Mono>,
    faults: Vec<FaultRecord>,
    is_counting: bool,
    pub gaps: BTreeMap<Option<FleetFault>, CameraGaps>,
    pub moves: FleetMoves,
    /// Also before counting.
    pub last_move: Mono,
    pub older: OlderEpochs,
    /// Times that two boxes published a camera with one epoch.
    pub doubled: usize,
    pub messages: u64,
    /// What a person has to look at.
    pub findings: Vec<String>,
}

impl FleetObserver {
    pub fn new(cameras: usize, boxes: usize) -> Self {
        let camera = |n| (format!("c{n}"), ObservedCamera::default());
        Self {
            cameras: (0..cameras).map(camera).collect(),
            able_since: vec![Mono::default(); boxes],
            faults: Vec::new(),
            is_counting: false,
            gaps: BTreeMap::new(),
            moves: FleetMoves::default(),
            last_move: Mono::default(),
            older: OlderEpochs::default(),
            doubled: 0,
            messages: 0,
            findings: Vec::new(),
        }
    }

    /// Counts gaps, moves and messages from now on.
    pub fn begin(&mut self) {
        self.is_counting = true;
        self.messages = 0;
    }

    pub fn fault(&mut self, fault: &PlannedFault, now: Mono) {
        self.faults.push(FaultRecord {
            kind: fault.kind,
            boxes: fault.boxes.clone(),
            from: now,
            until: None,
        });
    }

    pub fn fault_ended(&mut self, now: Mono) {
        if let Some(fault) = self.faults.last_mut() {
            fault.until = Some(now);
        }
    }

    pub fn faults(&self) -> impl Iterator<Item = FleetFault> {
        self.faults.iter().map(|fault| fault.kind)
    }

    /// The box runs and is connected to the broker since then, at the earliest.
    pub fn able(&mut self, number: usize, since: Mono) {
        let known = &mut self.able_since[number];
        *known = since.max(*known);
    }

    /// Cameras of which nothing arrived for a while.
    pub fn unwatched(&self, now: Mono) -> usize {
        let is_watched = |camera: &&ObservedCamera| {
            let last = camera.last;
            last.is_some_and(|last| now.since(last.at) <= GAP)
        };
        self.cameras.len() - self.cameras.values().filter(is_watched).count()
    }

    pub fn message(&mut self, message: &CameraMessage, at: Mono) {
        self.messages += 1;
        let Some(camera) = self.cameras.get_mut(&message.camera) else {
            return;
        };
        if message.epoch > camera.newest {
            camera.newest = message.epoch;
            camera.newest_at = at;
        }
        let Some(node) = message.node else {
            return;
        };
        let first = *camera.nodes.entry(message.epoch).or_insert(node);
        if first != node {
            self.doubled += 1;
            self.findings.push(format!(
                "boxes {first} and {node} published {} with epoch {}",
                message.camera, message.epoch
            ));
        }
        let is_delayed = message.kind == CameraMessageKind::Event { is_delayed: true };
        match message.epoch < camera.newest {
            _ if message.is_retained => {}
            true if is_delayed => self.older.delayed += 1,
            true => self.older_epoch(message, node, at),
            false if is_delayed || message.kind == CameraMessageKind::Owner => {}
            false => self.watched(&message.camera, FreshMessage { node, at }),
        }
    }

    fn older_epoch(&mut self, message: &CameraMessage, node: usize, at: Mono) {
        let Some(camera) = self.cameras.get(&message.camera) else {
            return;
        };
        self.older.fresh += 1;
        if camera.nodes.get(&camera.newest) == Some(&node) {
            let is_event = matches!(message.kind, CameraMessageKind::Event { .. });
            self.older.events_of_same_box += usize::from(is_event);
            self.older.states_of_same_box += usize::from(!is_event);
            return;
        }
        let late = at.since(camera.newest_at.max(self.able_since[node]));
        self.older.latest_s = late.as_secs_f64().max(self.older.latest_s);
        if late > SILENT_WITHIN {
            self.older.late += 1;
            self.findings.push(format!(
                "box {node} published {} ({:?}) with epoch {} {:.1} s after epoch {}",
                message.camera,
                message.kind,
                message.epoch,
                late.as_secs_f64(),
                camera.newest
            ));
        }
    }

    fn watched(&mut self, camera: &str, message: FreshMessage) {
        let Some(camera) = self.cameras.get_mut(camera) else {
            return;
        };
        let Some(before) = camera.last.replace(message) else {
            return;
        };
        let gap = message.at.since(before.at);
        let is_move = before.node != message.node;
        if is_move {
            self.last_move = message.at;
        }
        if !self.is_counting || !(is_move || gap > GAP) {
            return;
        }
        let own = self.fault_of(before, message.at, |fault| {
            fault.boxes.contains(&before.node)
        });
        let is_balance = is_move && own.is_none() && self.has_returned(message);
        let of_all = || self.fault_of(before, message.at, |fault| fault.boxes.is_empty());
        let kind = match is_balance {
            true => None,
            false => own.or_else(of_all),
        };
        if is_move {
            self.moves.all += 1;
            self.moves.of_failed += usize::from(own.is_some());
            self.moves.to_returned += usize::from(is_balance);
        }
        let gaps = self.gaps.entry(kind).or_default();
        match is_move {
            true => gaps.moved_s.push(gap.as_secs_f64()),
            false => gaps.kept_s.push(gap.as_secs_f64()),
        }
    }

    /// The last one between the last message of a box and the next one of the camera.
    fn fault_of(
        &self,
        before: FreshMessage,
        to: Mono,
        is_wanted: impl Fn(&FaultRecord) -> bool,
    ) -> Option<FleetFault> {
        let mut faults = self.faults.iter().rev();
        let fault = faults
            .find(|fault| is_wanted(fault) && fault.goes_on_within(before.at, to, AFTERMATH))?;
        Some(fault.kind)
    }

    fn has_returned(&self, message: FreshMessage) -> bool {
        self.faults.iter().any(|fault| {
            fault.boxes.contains(&message.node)
                && fault.goes_on_within(message.at, message.at, RETURN)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::link::LinkState;

    fn at(ms: u64) -> Mono {
        Mono::default().after(Duration::from_millis(ms))
    }

    fn state(epoch: u64, node: usize) -> CameraMessage {
        CameraMessage {
            camera: "c0".into(),
            is_retained: false,
            epoch,
            node: Some(node),
            kind: CameraMessageKind::State,
        }
    }

    #[test]
    fn camera_of_killed_box_is_a_move_with_its_gap() {
        let mut observer = FleetObserver::new(1, 2);
        observer.begin();
        observer.message(&state(5, 0), at(1000));
        let fault = PlannedFault {
            kind: FleetFault::Kill,
            boxes: vec![0],
            servers: Vec::new(),
            length: Duration::ZERO,
            pause: Duration::ZERO,
            link: LinkState::Silent,
        };
        observer.fault(&fault, at(1500));
        observer.message(&state(6, 1), at(12_000));
        assert_eq!((observer.moves.all, observer.moves.of_failed), (1, 1));
        assert_eq!(observer.gaps[&Some(FleetFault::Kill)].moved_s, [11.0]);
        assert_eq!((observer.unwatched(at(13_000)), observer.doubled), (0, 0));
    }

    #[test]
    fn older_and_doubled_epochs_are_found() {
        let mut observer = FleetObserver::new(1, 2);
        observer.message(&state(5, 0), at(0));
        observer.message(&state(6, 1), at(1000));
        observer.message(&state(5, 0), at(1500));
        assert_eq!((observer.older.fresh, observer.older.late), (1, 0));
        // It was cut off meanwhile.
        observer.able(0, at(9000));
        observer.message(&state(5, 0), at(9500));
        assert_eq!((observer.older.fresh, observer.older.late), (2, 0));
        observer.message(&state(5, 0), at(10_100));
        assert_eq!((observer.older.fresh, observer.older.late), (3, 1));
        observer.message(&state(6, 0), at(11_000));
        assert_eq!(observer.doubled, 1);
    }
}
