//! Nodes of one process on a real nats-server.
//!
//! Faults: F17.

use spotter_core::{CameraRights as _, MayPublish, SystemClock};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::*;
use crate::testing::{NatsServer, PATIENCE, listed, node};

/// A node, the cameras that it is to watch, and the other events.
struct Running {
    commands: mpsc::Sender<MemberCommand>,
    events: mpsc::Receiver<MemberEvent>,
    member: JoinHandle<()>,
    own: BTreeMap<CameraId, Epoch>,
    rights: Arc<PublishRights>,
    /// Those that change no camera.
    others: Vec<MemberEvent>,
}

fn settings(name: &str, resumed: &BTreeMap<CameraId, Epoch>) -> MemberSettings {
    MemberSettings {
        node: node(name),
        machine: format!("machine of {name}"),
        labels: BTreeSet::new(),
        version: "test".into(),
        url: None,
        resumed: resumed.clone(),
        rights: Arc::default(),
    }
}

impl Running {
    async fn start(server: &NatsServer, name: &str, cameras: usize) -> Self {
        Self::with(server, settings(name, &BTreeMap::new()), cameras).await
    }

    async fn with(server: &NatsServer, settings: MemberSettings, cameras: usize) -> Self {
        let (commands, received) = mpsc::channel(64);
        let (sender, events) = mpsc::channel(256);
        let store = Arc::new(FleetStore::new(node("hall"), server.access()));
        let rights = Arc::clone(&settings.rights);
        let member = Member::new(settings, store, Arc::new(SystemClock::new()), sender);
        let first = MemberCommand::Cameras {
            revision: 1,
            cameras: listed(cameras),
            refused: BTreeMap::new(),
        };
        for command in [first, MemberCommand::Capacity(30.0)] {
            commands.send(command).await.unwrap();
        }
        Self {
            commands,
            events,
            member: tokio::spawn(member.run(received)),
            own: BTreeMap::new(),
            rights,
            others: Vec::new(),
        }
    }

    /// Does what the events ask for.
    async fn follow(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            match event {
                MemberEvent::Own(camera, epoch) => {
                    self.rights.grant(&camera, epoch);
                    self.own.insert(camera, epoch);
                }
                MemberEvent::Lost(camera) | MemberEvent::HandedOver { camera, .. } => {
                    self.own.remove(&camera);
                }
                MemberEvent::GiveUp(camera) => {
                    self.rights.withdraw(&camera);
                    let given_up = MemberCommand::GivenUp(camera);
                    self.commands.send(given_up).await.unwrap();
                }
                event => self.others.push(event),
            }
        }
    }

    /// Follows until an event is there.
    async fn until(&mut self, wanted: impl Fn(&MemberEvent) -> bool) {
        let following = async {
            while !self.others.iter().any(&wanted) {
                sleep(Duration::from_millis(20)).await;
                self.follow().await;
            }
        };
        let found = timeout(PATIENCE, following).await;
        assert!(found.is_ok(), "{:#?}", self.others);
    }

    /// Follows until the node has so many cameras.
    async fn owns(&mut self, cameras: usize) {
        let following = async {
            while self.own.len() != cameras {
                sleep(Duration::from_millis(20)).await;
                self.follow().await;
            }
        };
        timeout(PATIENCE, following).await.unwrap();
    }

    fn count(&self, wanted: impl Fn(&MemberEvent) -> bool) -> usize {
        self.others.iter().filter(|event| wanted(event)).count()
    }
}

fn is_trouble(event: &MemberEvent) -> bool {
    matches!(event, MemberEvent::Trouble(Some(_)))
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

// Faults: F5, F12.
#[tokio::test]
async fn node_follows_the_broker_until_the_store_returns() {
    let mut server = NatsServer::start();
    let mut a = Running::start(&server, "a", 1).await;
    a.owns(1).await;
    let (camera, before) = a.own.clone().pop_first().unwrap();
    server.end();
    a.until(is_trouble).await;
    a.rights.seen_owner(&camera, Epoch::MAX);
    a.owns(0).await;
    // The store does not know of it.
    server.begin();
    a.owns(1).await;
    assert_eq!(a.own[&camera], before);
    let now = SystemClock::new().now();
    assert_eq!(a.rights.may(&camera, now), MayPublish::Publish(before));
}

#[tokio::test]
async fn node_without_a_store_goes_on_with_its_last_cameras() {
    let mut server = NatsServer::start();
    let mut a = Running::start(&server, "a", 3).await;
    a.owns(3).await;
    a.member.abort();
    server.end();
    let resumed = a.own.clone();
    let mut a = Running::with(&server, settings("a", &resumed), 3).await;
    a.owns(3).await;
    assert_eq!(a.own, resumed);
    assert_eq!(a.count(is_trouble), 1, "{:?}", a.others);
    // Nothing moves when it returns.
    server.begin();
    a.until(|event| *event == MemberEvent::Trouble(None)).await;
    settled(&mut [&mut a]).await;
    assert_eq!(a.own, resumed);
}

#[tokio::test]
async fn second_machine_with_one_name_owns_nothing() {
    let mut server = NatsServer::start();
    let mut first = Running::start(&server, "a", 3).await;
    first.owns(3).await;
    let other = MemberSettings {
        machine: "another machine".into(),
        ..settings("a", &BTreeMap::new())
    };
    let mut second = Running::with(&server, other, 3).await;
    second.until(is_trouble).await;
    settled(&mut [&mut first, &mut second]).await;
    assert_eq!((first.own.len(), second.own.len()), (3, 0));
    assert_eq!((first.count(is_trouble), second.count(is_trouble)), (0, 1));
    let text = "machine machine of a has this node's name; give each box its own node.name";
    let taken = MemberEvent::Trouble(Some(text.into()));
    assert_eq!(second.count(|event| *event == taken), 1);
    // Without the store, it does not say that it keeps cameras.
    server.end();
    let is_taken = |trouble: &String| trouble.ends_with(&format!("; {text}"));
    let says_so =
        |event: &MemberEvent| matches!(event, MemberEvent::Trouble(Some(it)) if is_taken(it));
    second.until(says_so).await;
    server.begin();
    second.until(|event| *event == taken).await;
    settled(&mut [&mut first, &mut second]).await;
    first.member.abort();
    let epochs = std::mem::take(&mut first.own);
    second.owns(3).await;
    assert_eq!(second.own, epochs);
}

#[tokio::test]
async fn newest_settings_of_an_own_camera_survive_an_outage() {
    let mut server = NatsServer::start();
    let mut a = Running::start(&server, "a", 1).await;
    a.owns(1).await;
    let (camera, _) = a.own.first_key_value().unwrap();
    let camera = camera.clone();
    let mut b = Running::start(&server, "b", 1).await;
    b.until(|event| *event == MemberEvent::Trouble(None)).await;
    let set = |text: Option<&str>| MemberCommand::SetSettings {
        camera: camera.clone(),
        text: text.map(str::to_owned),
    };
    let reported = |text: Option<&str>| MemberEvent::Settings {
        camera: camera.clone(),
        text: text.map(str::to_owned),
    };
    a.commands.send(set(Some("one"))).await.unwrap();
    b.until(|event| *event == reported(Some("one"))).await;
    server.end();
    a.until(is_trouble).await;
    for text in ["two", "three"] {
        a.commands.send(set(Some(text))).await.unwrap();
    }
    // Not its camera.
    b.commands.send(set(None)).await.unwrap();
    server.begin();
    b.until(|event| *event == reported(Some("three"))).await;
    assert_eq!(b.count(|event| *event == reported(Some("two"))), 0);
    assert_eq!(b.count(|event| *event == reported(None)), 0);
    a.commands.send(set(None)).await.unwrap();
    b.until(|event| *event == reported(None)).await;
}
