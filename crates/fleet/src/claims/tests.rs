//! Nodes on a simulated store, in steps of half a second, with faults.

use proptest::prelude::*;
use spotter_core::testing::cases;

use super::*;

const STEP: Duration = Duration::from_millis(500);
/// After a fault: the lifetime of a heartbeat, until it is noticed, and a claim.
const PROMISED_S: f64 = 15.0;

fn camera(n: usize) -> CameraId {
    CameraId::new(&format!("c{n}")).unwrap()
}

fn node(n: usize) -> NodeId {
    NodeId::new(&format!("n{n}")).unwrap()
}

/// What watches report.
#[derive(Clone)]
enum Entry {
    Heartbeat(NodeId, Heartbeat),
    Stopped(NodeId),
    Owned(CameraId, Ownership),
}

#[derive(Default)]
struct Store {
    now_s: f64,
    revision: u64,
    owners: BTreeMap<CameraId, Ownership>,
    /// With the time at which they expire.
    heartbeats: BTreeMap<NodeId, f64>,
    entries: Vec<Entry>,
    claims: usize,
}

impl Store {
    fn put_heartbeat(&mut self, node: &NodeId, heartbeat: &Heartbeat) {
        let expires = self.now_s + HEARTBEAT_LIFETIME.as_secs_f64();
        self.heartbeats.insert(node.clone(), expires);
        self.entries
            .push(Entry::Heartbeat(node.clone(), heartbeat.clone()));
    }

    fn is_absent(&self, node: &NodeId) -> bool {
        self.heartbeats
            .get(node)
            .is_none_or(|expires| *expires <= self.now_s)
    }

    /// The compare-and-swap of an owner's key.
    fn swap(&mut self, camera: &CameraId, expected: Option<Epoch>, owner: Option<NodeId>) {
        if self.owners.get(camera).map(|known| known.epoch) != expected {
            return;
        }
        self.revision += 1;
        self.claims += usize::from(owner.is_some());
        let epoch = Epoch(self.revision);
        let ownership = Ownership { owner, epoch };
        self.owners.insert(camera.clone(), ownership.clone());
        self.entries.push(Entry::Owned(camera.clone(), ownership));
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
    renew_s: f64,
    read: usize,
    prepared: BTreeSet<CameraId>,
    /// Hours of difference between the clocks of machines.
    clock_ahead: Duration,
    running: Running,
    /// Cannot reach the store.
    is_cut: bool,
}

impl SimNode {
    fn new(n: usize) -> Self {
        let id = node(n);
        let heartbeat = Heartbeat {
            capacity_hz: 20.0,
            ..Heartbeat::default()
        };
        Self {
            state: FleetState::new(id.clone()),
            id,
            heartbeat,
            renew_s: 0.0,
            read: 0,
            prepared: BTreeSet::new(),
            clock_ahead: Duration::from_secs(3600 * n as u64),
            running: Running::Runs,
            is_cut: false,
        }
    }

    fn now(&self, store: &Store) -> Mono {
        Mono::default().after(Duration::from_secs_f64(store.now_s) + self.clock_ahead)
    }

    fn step(&mut self, store: &mut Store) {
        if self.running != Running::Runs || self.is_cut {
            return;
        }
        let now = self.now(store);
        if self.state.connected_at.is_none() {
            self.state.connected(now);
        }
        for entry in &store.entries[self.read..] {
            match entry.clone() {
                Entry::Heartbeat(node, heartbeat) => self.state.heartbeat(node, heartbeat, now),
                Entry::Stopped(node) => self.state.stopped(&node),
                Entry::Owned(camera, ownership) => self.state.owned(camera, ownership),
            }
        }
        self.read = store.entries.len();
        let decisions = self.state.decide(&self.prepared, now);
        for action in decisions.actions {
            match action {
                ClaimAction::Claim {
                    camera,
                    expected,
                    dead,
                } => {
                    if dead.is_none_or(|dead| store.is_absent(&dead)) {
                        store.swap(&camera, expected, Some(self.id.clone()));
                    }
                }
                ClaimAction::Prepare { camera } => drop(self.prepared.insert(camera)),
                ClaimAction::Release { camera, epoch } => store.swap(&camera, Some(epoch), None),
            }
        }
        let is_new = self.heartbeat.offers != decisions.offers;
        self.heartbeat.offers = decisions.offers;
        if is_new || store.now_s >= self.renew_s {
            store.put_heartbeat(&self.id, &self.heartbeat);
            self.renew_s = store.now_s + HEARTBEAT_PERIOD.as_secs_f64();
        }
        self.prepared
            .retain(|camera| self.state.own().all(|(own, _)| own != camera));
        if self.heartbeat.is_leaving && self.state.own().next().is_none() {
            self.running = Running::Ended;
            store.heartbeats.remove(&self.id);
            store.entries.push(Entry::Stopped(self.id.clone()));
        }
    }
}

struct Sim {
    store: Store,
    nodes: Vec<SimNode>,
    cameras: BTreeMap<CameraId, ListedCamera>,
}

impl Sim {
    fn new(nodes: usize, cameras: usize) -> Self {
        let listed = |n: usize| ListedCamera {
            need: CameraNeed {
                work_hz: 1.0,
                ..CameraNeed::default()
            },
            has_one_session: n.is_multiple_of(5),
        };
        let mut sim = Self {
            store: Store::default(),
            nodes: Vec::new(),
            cameras: (0..cameras).map(|n| (camera(n), listed(n))).collect(),
        };
        (0..nodes).for_each(|_| sim.join());
        sim
    }

    fn join(&mut self) {
        let mut node = SimNode::new(self.nodes.len());
        node.state.set_cameras(self.cameras.clone());
        self.nodes.push(node);
    }

    fn run(&mut self, seconds: f64) {
        let end = self.store.now_s + seconds;
        while self.store.now_s < end {
            for node in &mut self.nodes {
                node.step(&mut self.store);
            }
            self.assert_one_owner_an_epoch();
            self.store.now_s += STEP.as_secs_f64();
        }
    }

    /// What each node that is not ended takes for its own; those that are cut off or frozen, too.
    fn assert_one_owner_an_epoch(&self) {
        let mut seen = BTreeSet::new();
        for node in self
            .nodes
            .iter()
            .filter(|node| node.running != Running::Ended)
        {
            for (camera, epoch) in node.state.own() {
                assert!(
                    seen.insert((camera.clone(), epoch)),
                    "{camera} {epoch:?} twice"
                );
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

#[test]
fn all_cameras_get_one_owner_at_the_start() {
    let mut sim = Sim::new(5, 60);
    sim.run(PROMISED_S);
    assert_eq!(sim.unwatched(), [] as [&CameraId; 0]);
    assert_eq!(sim.store.claims, 60);
}

#[test]
fn cameras_of_a_killed_node_are_watched_within_fifteen_seconds() {
    let mut sim = Sim::new(5, 60);
    sim.run(30.0);
    let (lost, claims) = (sim.of(2), sim.store.claims);
    sim.nodes[2].running = Running::Ended;
    sim.run(PROMISED_S);
    assert_eq!(sim.unwatched(), [] as [&CameraId; 0]);
    sim.run(60.0);
    assert_eq!(sim.store.claims, claims + lost, "no other camera moves");
}

#[test]
fn leaving_node_hands_over_before_it_ends() {
    let mut sim = Sim::new(4, 40);
    sim.run(30.0);
    let (lost, claims) = (sim.of(1), sim.store.claims);
    sim.nodes[1].heartbeat.is_leaving = true;
    sim.nodes[1].renew_s = 0.0;
    for _ in 0..20 {
        sim.run(STEP.as_secs_f64());
        let with_one_session = sim
            .unwatched()
            .into_iter()
            .all(|camera| sim.cameras[camera].has_one_session);
        assert!(with_one_session, "{:?}", sim.unwatched());
    }
    assert_eq!(sim.nodes[1].running, Running::Ended);
    assert_eq!(sim.unwatched(), [] as [&CameraId; 0]);
    sim.run(30.0);
    assert_eq!(sim.store.claims, claims + lost);
}

#[test]
fn outage_of_the_store_moves_nothing() {
    let mut sim = Sim::new(5, 60);
    sim.run(30.0);
    let claims = sim.store.claims;
    for node in &mut sim.nodes {
        node.is_cut = true;
        node.state.disconnected();
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
    assert_eq!(sim.store.claims, claims);
    assert_eq!(sim.unwatched(), [] as [&CameraId; 0]);
}

#[test]
fn continued_node_has_lost_its_cameras_and_claims_nothing() {
    let mut sim = Sim::new(3, 30);
    sim.run(30.0);
    let lost = sim.of(0);
    let claims = sim.store.claims;
    sim.nodes[0].running = Running::Frozen;
    sim.run(40.0);
    assert_eq!(
        sim.nodes[0].state.own().count(),
        lost,
        "it knows of nothing"
    );
    sim.nodes[0].running = Running::Runs;
    sim.run(STEP.as_secs_f64());
    assert_eq!(sim.nodes[0].state.own().count(), 0);
    assert_eq!(sim.store.claims, claims + lost);
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Freeze,
    Cut,
    Join,
    Leave,
}

fn faults() -> impl Strategy<Value = Vec<(Fault, usize, f64)>> {
    use Fault::*;
    let kind = prop::sample::select(vec![Kill, Freeze, Cut, Join, Leave]);
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
                _ if node.running == Running::Ended => {}
                Fault::Freeze if node.running == Running::Frozen => node.running = Running::Runs,
                Fault::Cut if node.is_cut => node.is_cut = false,
                // One node always goes on.
                _ if living < 3 => {}
                Fault::Kill => node.running = Running::Ended,
                Fault::Freeze => node.running = Running::Frozen,
                Fault::Cut => {
                    node.is_cut = true;
                    node.state.disconnected();
                }
                Fault::Leave => node.heartbeat.is_leaving = true,
            }
        }
        sim.run(60.0);
        prop_assert_eq!(sim.unwatched(), [] as [&CameraId; 0]);
        let claims = sim.store.claims;
        sim.run(60.0);
        prop_assert_eq!(sim.store.claims, claims, "cameras still move");
    }
}
