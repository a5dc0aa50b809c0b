//! Nodes of one process on a real nats-server.

use spotter_core::SystemClock;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::*;
use crate::testing::{NatsServer, PATIENCE, listed, node};

/// A node, and the cameras that it is to watch.
struct Running {
    commands: mpsc::Sender<MemberCommand>,
    events: mpsc::Receiver<MemberEvent>,
    member: JoinHandle<()>,
    own: BTreeMap<CameraId, Epoch>,
    has_left: bool,
}

impl Running {
    async fn start(server: &NatsServer, name: &str, cameras: usize) -> Self {
        let (commands, received) = mpsc::channel(64);
        let (sender, events) = mpsc::channel(256);
        let settings = MemberSettings {
            node: node(name),
            labels: BTreeSet::new(),
            version: "test".into(),
            machine: name.into(),
            resumed: BTreeMap::new(),
        };
        let store = Arc::new(server.connect().await);
        let member = Member::new(settings, store, Arc::new(SystemClock::new()), sender);
        let cameras = listed(cameras);
        let refused = BTreeMap::new();
        for command in [
            MemberCommand::Cameras {
                revision: 1,
                cameras,
                refused,
            },
            MemberCommand::Capacity(30.0),
        ] {
            commands.send(command).await.unwrap();
        }
        Self {
            commands,
            events,
            member: tokio::spawn(member.run(received)),
            own: BTreeMap::new(),
            has_left: false,
        }
    }

    /// Does what the events ask for.
    async fn follow(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            match event {
                MemberEvent::Own(camera, epoch) => drop(self.own.insert(camera, epoch)),
                MemberEvent::Lost { camera, .. } => drop(self.own.remove(&camera)),
                MemberEvent::Prepare(camera) => {
                    let prepared = MemberCommand::Prepared(camera);
                    self.commands.send(prepared).await.unwrap();
                }
                MemberEvent::Left => self.has_left = true,
                _ => {}
            }
        }
    }
}

/// Follows all nodes until each of so many cameras has one owner. Returns the seconds.
async fn all_watched(nodes: &mut [&mut Running], cameras: usize) -> f64 {
    let begin = Instant::now();
    let watching = async {
        loop {
            let mut owned = BTreeSet::new();
            let mut count = 0;
            for node in nodes.iter_mut() {
                node.follow().await;
                count += node.own.len();
                owned.extend(node.own.keys().cloned());
            }
            if owned.len() == cameras && count == cameras {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, watching).await.unwrap();
    begin.elapsed().as_secs_f64()
}

/// Follows all nodes until nothing has moved for two seconds.
async fn settled(nodes: &mut [&mut Running]) {
    let mut since = Instant::now();
    let deadline = since + PATIENCE;
    while since.elapsed() < Duration::from_secs(2) {
        assert!(Instant::now() < deadline, "cameras still move");
        for node in nodes.iter_mut() {
            let before = node.own.clone();
            node.follow().await;
            if node.own != before {
                since = Instant::now();
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn nodes_share_cameras_and_survive_a_lost_one() {
    let server = NatsServer::start();
    let mut a = Running::start(&server, "a", 24).await;
    let mut b = Running::start(&server, "b", 24).await;
    let mut c = Running::start(&server, "c", 24).await;
    settled(&mut [&mut a, &mut b, &mut c]).await;
    all_watched(&mut [&mut a, &mut b, &mut c], 24).await;
    let before = a.own.clone();
    // The first one had all; others take from it until it is half busy.
    assert!((1..=14).contains(&before.len()), "{}", before.len());
    // A task that is aborted removes no heartbeat, like a process that is killed.
    b.member.abort();
    let lost = b.own.len();
    let seconds = all_watched(&mut [&mut a, &mut c], 24).await;
    println!("{lost} cameras of the lost node were watched again after {seconds:.1} s");
    assert!(
        before
            .iter()
            .all(|(camera, epoch)| a.own.get(camera) == Some(epoch))
    );
    // A node that leaves hands over at once.
    c.commands.send(MemberCommand::Leave).await.unwrap();
    let begin = Instant::now();
    while !c.has_left {
        assert!(begin.elapsed() < PATIENCE);
        a.follow().await;
        c.follow().await;
        sleep(Duration::from_millis(20)).await;
    }
    println!("handed over after {:.1} s", begin.elapsed().as_secs_f64());
    all_watched(&mut [&mut a, &mut c], 24).await;
    assert_eq!(a.own.len(), 24);
}

#[tokio::test]
async fn node_that_sees_a_newer_epoch_at_the_broker_stops() {
    let server = NatsServer::start();
    let mut a = Running::start(&server, "a", 1).await;
    all_watched(&mut [&mut a], 1).await;
    let (camera, epoch) = a.own.pop_first().unwrap();
    let seen = MemberCommand::SeenOwner {
        camera: camera.clone(),
        node: node("b"),
        epoch: Epoch(epoch.0 + 1),
    };
    a.commands.send(seen).await.unwrap();
    let newer = Epoch(epoch.0 + 1);
    let expected = Some(MemberEvent::Lost { camera, newer });
    let lost = async { while a.events.recv().await != expected {} };
    timeout(PATIENCE, lost).await.unwrap();
}
