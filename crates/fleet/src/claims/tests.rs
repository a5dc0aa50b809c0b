//! Nodes on a simulated store, in steps of half a second, with faults.
//!
//! Faults: F19.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use proptest::prelude::*;
use spotter_core::{
    CameraRights as _, Epoch, MayPublish, Mono, duration_from_secs, testing::cases,
};
use xxhash_rust::xxh3::xxh3_64;

use super::*;
use crate::{
    assignment::CameraNeed,
    certainty::AcceptedRenewal,
    entries::{HEARTBEAT_LIFETIME, Heartbeat, HeartbeatEntry, Ownership, StoreEvent},
    rights::PublishRights,
    state::{GIVE_UP_LIMIT, LEAVE_LIMIT_WITHOUT_STORE},
    testing::{camera, listed, node},
};

const STEP: Duration = Duration::from_millis(500);
/// After a fault: the lifetime of a heartbeat, until it is noticed, and a claim that takes its time.
const PROMISED_S: f64 = 15.0;
/// The longest time that a claim is on its way.
const MOST_CLAIM_DELAY_S: f64 = 3.0;

/// The compare-and-swap of an owner's key.
#[derive(Clone)]
struct Swap {
    camera: CameraId,
    expected: Option<Epoch>,
    owner: Option<NodeId>,
    writer: NodeId,
}

#[derive(Default)]
struct Store {
    now_s: f64,
    revision: u64,
    owners: BTreeMap<CameraId, Ownership>,
    /// With the time at which they expire.
    heartbeats: BTreeMap<NodeId, f64>,
    heartbeat_revision: u64,
    /// What watches report.
    entries: Vec<StoreEvent>,
    /// Claims of other nodes' cameras that are on their way, with the time at which they arrive.
    claims: Vec<(f64, Swap)>,
    /// Which node gave a camera to another node or to none, with the epoch.
    handed_over: BTreeMap<(NodeId, CameraId), Epoch>,
    moves: usize,
    random: u64,
}

impl Store {
    fn put_heartbeat(&mut self, node: &NodeId, heartbeat: &Heartbeat) -> u64 {
        let expires = self.now_s + HEARTBEAT_LIFETIME.as_secs_f64();
        self.heartbeats.insert(node.clone(), expires);
        self.heartbeat_revision += 1;
        self.entries.push(StoreEvent::Heartbeat(HeartbeatEntry {
            node: node.clone(),
            heartbeat: heartbeat.clone(),
            revision: self.heartbeat_revision,
        }));
        self.heartbeat_revision
    }

    fn is_absent(&self, node: &NodeId) -> bool {
        self.heartbeats
            .get(node)
            .is_none_or(|expires| *expires <= self.now_s)
    }

    fn uniform(&mut self) -> f64 {
        self.random += 1;
        (xxh3_64(&self.random.to_le_bytes()) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A claim whose owner's heartbeat was absent a moment ago.
    fn send(&mut self, swap: Swap) {
        let arrives_s = self.now_s + self.uniform() * MOST_CLAIM_DELAY_S;
        self.claims.push((arrives_s, swap));
    }

    fn deliver(&mut self) {
        let now_s = self.now_s;
        let arrived: Vec<_> = self.claims.extract_if(.., |(at, _)| *at <= now_s).collect();
        for (_, swap) in arrived {
            self.swap(swap);
        }
    }

    fn swap(&mut self, swap: Swap) -> Option<Ownership> {
        let known = self.owners.get(&swap.camera);
        if known.map(|known| known.epoch) != swap.expected {
            return None;
        }
        let before = known.and_then(|known| known.owner.clone());
        self.revision += 1;
        let epoch = Epoch(self.revision);
        if swap.owner.is_some() && swap.owner != before {
            self.moves += 1;
        }
        if swap.owner.as_ref() != Some(&swap.writer) {
            let key = (swap.writer, swap.camera.clone());
            self.handed_over.insert(key, epoch);
        }
        let owner = swap.owner;
        let ownership = Ownership { owner, epoch };
        self.owners.insert(swap.camera.clone(), ownership.clone());
        self.entries
            .push(StoreEvent::Owned(swap.camera, ownership.clone()));
        Some(ownership)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Running {
    Runs,
    /// Neither reads nor writes; its clock goes on.
    Frozen,
    Ended,
}

struct SimNode {
    id: NodeId,
    state: FleetState,
    heartbeat: Heartbeat,
    /// The last heartbeat that the store accepted.
    renewed: Option<Heartbeat>,
    /// Entries so far, since it connected.
    read: usize,
    rights: PublishRights,
    /// Cameras whose messages are gone at that time.
    giving_up: BTreeMap<CameraId, f64>,
    /// Hours of difference between the clocks of machines.
    clock_ahead: Duration,
    running: Running,
    /// Cannot reach the store.
    is_cut: bool,
    /// Until then it reads, and no leader accepts what it writes.
    refused_until_s: f64,
}

impl SimNode {
    fn new(n: usize) -> Self {
        let id = node(&format!("n{n}"));
        let heartbeat = Heartbeat {
            list_revision: Some(1),
            capacity_hz: 20.0,
            ..Heartbeat::default()
        };
        Self {
            state: FleetState::member(id.clone()),
            id,
            heartbeat,
            renewed: None,
            read: 0,
            rights: PublishRights::default(),
            giving_up: BTreeMap::new(),
            clock_ahead: Duration::from_secs(3600 * n as u64),
            running: Running::Runs,
            is_cut: false,
            refused_until_s: 0.0,
        }
    }

    fn now(&self, store: &Store) -> Mono {
        Mono::default().after(duration_from_secs(store.now_s) + self.clock_ahead)
    }

    fn step(&mut self, store: &mut Store) {
        if self.running != Running::Runs || self.is_cut {
            return;
        }
        let now = self.now(store);
        self.read(store, now);
        if let Some(look) = self.state.certainty.look(now) {
            self.rights.looked(look);
        }
        let now_s = store.now_s;
        for (camera, _) in self.giving_up.extract_if(.., |_, at| *at <= now_s) {
            self.rights.withdraw(&camera);
            self.state.set_hand_over(&camera, HandOverState::GivenUp);
        }
        self.state.certainty.tick(now);
        let has_changed = self.renewed.as_ref() != Some(&self.heartbeat);
        if self.state.certainty.is_renewal_due(now) || (has_changed && self.state.can_write()) {
            self.renew(store, now);
        }
        if let Some(actions) = self.state.decide(now) {
            self.follow(actions, store);
        }
        self.grant();
        if self.state.has_left(now) {
            self.running = Running::Ended;
            store.heartbeats.remove(&self.id);
            store.entries.push(StoreEvent::Stopped(self.id.clone()));
        }
    }

    /// As the daemon does when the membership reports an own camera.
    fn grant(&self) {
        for (camera, epoch) in self.state.own() {
            if self.state.hand_over(camera) != Some(HandOverState::GivenUp) {
                self.rights.grant(camera, epoch);
            }
        }
    }

    fn owned(&mut self, camera: CameraId, ownership: Ownership) {
        self.rights.stored(&camera, ownership.epoch);
        self.state.owned(camera, ownership);
    }

    fn renew(&mut self, store: &mut Store, now: Mono) {
        if store.now_s < self.refused_until_s {
            return self.state.certainty.refused();
        }
        self.renewed = Some(self.heartbeat.clone());
        self.state.certainty.accepted(AcceptedRenewal {
            sent: now,
            accepted: now,
            revision: store.put_heartbeat(&self.id, &self.heartbeat),
        });
    }

    fn read(&mut self, store: &Store, now: Mono) {
        let is_new = !self.state.certainty.is_current();
        if is_new {
            self.state.connected(now);
            self.read = 0;
        }
        for entry in &store.entries[self.read..] {
            match entry.clone() {
                StoreEvent::Heartbeat(entry) if is_new && store.is_absent(&entry.node) => {}
                StoreEvent::Heartbeat(entry) => self.state.heartbeat(entry, now),
                StoreEvent::Stopped(node) => self.state.stopped(&node),
                StoreEvent::Owned(camera, ownership) => self.owned(camera, ownership),
                _ => {}
            }
        }
        self.read = store.entries.len();
        if is_new {
            self.state.current();
        }
    }

    fn follow(&mut self, actions: Vec<ClaimAction>, store: &mut Store) {
        for action in actions {
            match action {
                ClaimAction::Claim {
                    camera,
                    expected,
                    dead,
                } => {
                    let swap = Swap {
                        camera,
                        expected,
                        owner: Some(self.id.clone()),
                        writer: self.id.clone(),
                    };
                    match dead {
                        Some(dead) if !store.is_absent(&dead) => {}
                        Some(_) if store.now_s < self.refused_until_s => {}
                        Some(_) => store.send(swap),
                        None => self.swap(swap, store),
                    }
                }
                ClaimAction::GiveUp { camera } => {
                    self.state.set_hand_over(&camera, HandOverState::GivingUp);
                    let silent_s = store.now_s + store.uniform() * 2.0;
                    self.giving_up.insert(camera, silent_s);
                }
                ClaimAction::HandOver { camera, epoch, to } => {
                    let swap = Swap {
                        camera,
                        expected: Some(epoch),
                        owner: to,
                        writer: self.id.clone(),
                    };
                    self.swap(swap, store);
                }
            }
        }
    }

    /// Of four answers one is lost: the watch reports what was written.
    fn swap(&mut self, swap: Swap, store: &mut Store) {
        if store.now_s < self.refused_until_s {
            return;
        }
        let camera = swap.camera.clone();
        let written = store.swap(swap);
        if let Some(ownership) = written
            && store.uniform() > 0.25
        {
            self.owned(camera, ownership);
        }
    }

    /// Cameras that it publishes.
    fn published(&self, store: &Store) -> impl Iterator<Item = (&CameraId, Epoch)> {
        let now = self.now(store);
        self.state
            .own()
            .filter_map(move |(camera, _)| match self.rights.may(camera, now) {
                MayPublish::Publish(epoch) => Some((camera, epoch)),
                MayPublish::Silent { .. } => None,
            })
    }
}

struct Sim {
    store: Store,
    nodes: Vec<SimNode>,
    cameras: BTreeMap<CameraId, CameraNeed>,
}

impl Sim {
    fn new(nodes: usize, cameras: usize) -> Self {
        let mut sim = Self {
            store: Store::default(),
            nodes: Vec::new(),
            cameras: listed(cameras),
        };
        (0..nodes).for_each(|_| sim.join());
        sim
    }

    fn join(&mut self) {
        let mut node = SimNode::new(self.nodes.len());
        node.state.cameras = self.cameras.clone();
        self.nodes.push(node);
    }

    fn leave(&mut self, nth: usize) {
        let node = &mut self.nodes[nth];
        node.heartbeat.is_leaving = true;
        node.state.leave(node.now(&self.store));
    }

    /// A process that ends without a word and starts again.
    fn restart(&mut self, nth: usize) {
        self.nodes[nth] = SimNode::new(nth);
        self.nodes[nth].state.cameras = self.cameras.clone();
    }

    fn run(&mut self, seconds: f64) {
        let end = self.store.now_s + seconds;
        while self.store.now_s < end {
            self.store.deliver();
            // Before the owners so far have read of it.
            self.check_epochs();
            for node in &mut self.nodes {
                node.step(&mut self.store);
            }
            self.check_epochs();
            self.store.now_s += STEP.as_secs_f64();
        }
    }

    /// What each node that is not ended publishes; those that are cut off or frozen, too.
    fn check_epochs(&self) {
        let mut seen = BTreeSet::new();
        let nodes = self.nodes.iter();
        for node in nodes.filter(|node| node.running != Running::Ended) {
            for (camera, epoch) in node.published(&self.store) {
                let is_only = seen.insert((camera.clone(), epoch));
                assert!(is_only, "{camera} {epoch} has two owners");
                let key = (node.id.clone(), camera.clone());
                let handed_over = self.store.handed_over.get(&key);
                let is_after = handed_over.is_none_or(|written| *written < epoch);
                assert!(is_after, "{} gave {camera} away and publishes it", node.id);
            }
        }
    }

    fn owner(&self, camera: &CameraId) -> Option<&SimNode> {
        let owner = self.store.owners.get(camera)?.owner.as_ref()?;
        self.nodes.iter().find(|node| node.id == *owner)
    }

    fn unwatched(&self) -> Vec<&CameraId> {
        let is_watched = |camera: &CameraId| {
            self.owner(camera)
                .is_some_and(|node| node.running == Running::Runs && !node.is_cut)
        };
        self.cameras
            .keys()
            .filter(|camera| !is_watched(camera))
            .collect()
    }

    fn of(&self, node: usize) -> usize {
        let owned = self.cameras.keys().filter_map(|camera| self.owner(camera));
        owned
            .filter(|owner| owner.id == self.nodes[node].id)
            .count()
    }
}

// Faults: F2.
#[test]
fn cameras_of_an_ended_node_are_watched_within_fifteen_seconds() {
    for is_killed in [true, false] {
        let mut sim = Sim::new(5, 60);
        sim.run(PROMISED_S);
        assert_eq!((sim.unwatched().len(), sim.store.moves), (0, 60));
        sim.run(PROMISED_S);
        let (lost, moves) = (sim.of(2), sim.store.moves);
        match is_killed {
            true => sim.nodes[2].running = Running::Ended,
            false => sim.leave(2),
        }
        sim.run(PROMISED_S);
        assert_eq!(sim.nodes[2].running, Running::Ended);
        assert_eq!(sim.unwatched(), [] as [&CameraId; 0]);
        sim.run(60.0);
        assert_eq!(sim.store.moves, moves + lost, "no other camera moves");
    }
}

// Faults: F7.
#[test]
fn outage_of_the_store_moves_nothing() {
    let mut sim = Sim::new(5, 60);
    sim.run(30.0);
    let moves = sim.store.moves;
    for node in &mut sim.nodes {
        node.is_cut = true;
        node.state.certainty.disconnected();
    }
    sim.run(120.0);
    assert!(
        (0..5).all(|n| sim.nodes[n].state.own().count() > 0),
        "all go on watching"
    );
    // They return one after the other.
    for n in 0..5 {
        sim.nodes[n].is_cut = false;
        sim.run(1.0);
    }
    sim.run(60.0);
    assert_eq!(sim.store.moves, moves);
    assert_eq!(sim.unwatched(), [] as [&CameraId; 0]);
}

// Faults: F7.
/// Heartbeats of all nodes expire, and each node learns at another moment that there is a leader again.
#[test]
fn cluster_without_leader_moves_nothing() {
    for length_s in 1..30 {
        let mut sim = Sim::new(1, 60);
        sim.store.random = 1000 * length_s;
        // Their renewals have different phases.
        for _ in 1..5 {
            sim.run(1.0);
            sim.join();
        }
        sim.run(60.0);
        let moves = sim.store.moves;
        for node in &mut sim.nodes {
            let until_s = sim.store.now_s + length_s as f64;
            node.refused_until_s = until_s + 3.0 * sim.store.uniform();
        }
        sim.run(60.0);
        assert_eq!(sim.store.moves, moves, "{length_s} s");
        assert_eq!(sim.unwatched(), [] as [&CameraId; 0]);
    }
}

#[test]
fn receiver_dies_before_hand_over_and_camera_stays_watched() {
    let mut sim = Sim::new(2, 10);
    sim.run(30.0);
    let moving = sim.nodes[1].state.own().map(|(camera, _)| camera.clone());
    let moving: Vec<CameraId> = moving.collect();
    let has_begun = |sim: &Sim, state| {
        let state_of = |camera| sim.nodes[1].state.hand_over(camera) == Some(state);
        moving.iter().any(state_of)
    };
    sim.leave(1);
    while !has_begun(&sim, HandOverState::GivingUp) {
        sim.run(STEP.as_secs_f64());
        assert!(sim.store.now_s < 60.0, "no hand-over");
    }
    sim.nodes[0].running = Running::Ended;
    sim.join();
    // Some cameras are written to the dead node, others to none or to the new one.
    sim.run(40.0);
    assert_eq!(sim.unwatched(), [] as [&CameraId; 0]);
    assert_eq!(sim.of(2), 10);
}

#[test]
fn last_node_releases_all_and_leaves_within_the_limit() {
    let mut sim = Sim::new(1, 10);
    sim.run(30.0);
    sim.leave(0);
    sim.run(5.0);
    assert_eq!(sim.nodes[0].running, Running::Ended);
    let owners = sim.store.owners.values();
    assert_eq!(owners.filter(|known| known.owner.is_some()).count(), 0);
    // Without the store it leaves, too.
    let mut sim = Sim::new(1, 10);
    sim.run(30.0);
    sim.leave(0);
    sim.nodes[0].state.certainty.disconnected();
    let now = sim.nodes[0].now(&sim.store);
    let limit = LEAVE_LIMIT_WITHOUT_STORE + GIVE_UP_LIMIT;
    assert!(!sim.nodes[0].state.has_left(now));
    assert!(sim.nodes[0].state.has_left(now.after(limit)));
}

#[test]
fn camera_that_no_node_may_have_is_released() {
    let mut sim = Sim::new(2, 10);
    sim.run(30.0);
    sim.cameras.get_mut(&camera(3)).unwrap().label = Some("yard".into());
    sim.cameras.remove(&camera(4));
    for node in &mut sim.nodes {
        node.state.cameras = sim.cameras.clone();
    }
    sim.run(5.0);
    let owner = |n| &sim.store.owners[&camera(n)].owner;
    assert_eq!((owner(3), owner(4)), (&None, &None));
    let view = sim.nodes[0].state.view(sim.nodes[0].now(&sim.store));
    assert_eq!(view.unowned, [camera(3)]);
    assert_eq!((view.owners.len(), view.missing_hz), (8, 1.0));
}

// Faults: F4.
/// Others may have its cameras: it publishes none of an older epoch, not even until it has read of them.
#[test]
fn stopped_node_publishes_nothing_until_it_has_read() {
    for steps in 1..40 {
        let mut sim = Sim::new(3, 30);
        sim.store.random = 1000 * steps;
        sim.run(30.0);
        let (before, moves) = (sim.of(0), sim.store.moves);
        sim.nodes[0].running = Running::Frozen;
        sim.run(steps as f64 * STEP.as_secs_f64());
        let is_older = |(camera, epoch): (&CameraId, Epoch)| epoch < sim.store.owners[camera].epoch;
        assert!(!sim.nodes[0].published(&sim.store).any(is_older), "{steps}");
        sim.nodes[0].running = Running::Runs;
        sim.run(STEP.as_secs_f64());
        // It claims nothing back.
        assert!(sim.store.moves <= moves + before, "{steps}");
        sim.run(20.0);
        let published = sim.nodes[0].published(&sim.store).count();
        assert_eq!(published, sim.of(0), "{steps}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Freeze,
    Cut,
    /// Of the whole store, which has no leader.
    Refuse,
    Join,
    Leave,
    Restart,
}

fn faults() -> impl Strategy<Value = Vec<(Fault, usize, f64)>> {
    use Fault::*;
    let kind = prop::sample::select(vec![Kill, Freeze, Cut, Refuse, Join, Leave, Restart]);
    prop::collection::vec((kind, 0..8usize, 0.0..40.0f64), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(24)))]

    /// At most one owner of an epoch in each step; afterwards all cameras are watched, and nothing moves any more.
    #[test]
    fn any_faults_leave_one_owner_each(faults in faults()) {
        let mut sim = Sim::new(5, 40);
        for (fault, nth, pause) in faults {
            sim.run(pause);
            let nth = nth % sim.nodes.len();
            let living = sim.nodes.iter().filter(|node| node.running == Running::Runs && !node.is_cut).count();
            let node = &mut sim.nodes[nth];
            match fault {
                Fault::Join => sim.join(),
                Fault::Refuse => {
                    let until_s = sim.store.now_s + pause / 2.0;
                    for node in &mut sim.nodes {
                        node.refused_until_s = until_s;
                    }
                }
                _ if node.running == Running::Ended => {}
                Fault::Freeze if node.running == Running::Frozen => node.running = Running::Runs,
                Fault::Cut if node.is_cut => node.is_cut = false,
                // One node always goes on.
                _ if living < 3 => {}
                Fault::Kill => node.running = Running::Ended,
                Fault::Freeze => node.running = Running::Frozen,
                Fault::Cut => {
                    node.is_cut = true;
                    node.state.certainty.disconnected();
                }
                Fault::Leave => sim.leave(nth),
                Fault::Restart => sim.restart(nth),
            }
        }
        sim.run(60.0);
        prop_assert_eq!(sim.unwatched(), [] as [&CameraId; 0]);
        let moves = sim.store.moves;
        sim.run(60.0);
        prop_assert_eq!(sim.store.moves, moves, "cameras still move");
    }
}
