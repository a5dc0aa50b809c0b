//! A reload under which a camera keeps its connection and what is known of it.

use std::fs;

use super::*;
use spotter_core::config::Environment;
use spotter_mqtt::BrokerState;
use spotter_scripted::{
    broker::{Broker, Script},
    rtsp::{
        script::Script as Play,
        server::Server,
        tape::{Codec, Recording, Tape},
    },
};

/// A daemon, what it reads, and its camera.
pub(super) struct Site {
    folder: tempfile::TempDir,
    camera: Server,
    signals: Signals,
}

impl Site {
    pub(super) async fn new() -> Self {
        let tape = Arc::new(Tape::record(&Recording::of(Codec::H264)));
        let play = Play::good(&tape);
        Self {
            folder: tempfile::tempdir().unwrap(),
            camera: Server::start(move |_| play.clone()).await,
            signals: Signals::listen().unwrap(),
        }
    }

    pub(super) fn camera(&self) -> &Server {
        &self.camera
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("site.toml")
    }

    /// `head`: the name of the node, and the tables that differ.
    pub(super) fn write(&self, node: &str, broker: &Broker, head: &str) -> Config {
        let (state, camera) = (self.folder.path().join("state"), self.camera.url());
        let text = format!(
            "mqtt.url = \"mqtt://127.0.0.1:{}\"\nnode = {{ name = \"{node}\", state_dir = {state:?} }}\n{head}\n\
             [camera.gate]\nurl = \"{camera}\"\nfirst_frame = \"60s\"\nstall = \"60s\"\nrate = 20\nprompt.person.detect = \"person\"\n",
            broker.port
        );
        fs::write(self.path(), text).unwrap();
        config::load(&self.path(), &Environment::process())
            .unwrap()
            .config
    }

    /// Lets the daemon run until that has come true.
    pub(super) async fn watch(&mut self, daemon: &mut Daemon, wanted: impl Future<Output = ()>) {
        let path = self.path();
        let mut wanted = pin!(wanted);
        loop {
            tokio::select! {
                // Other tests of this process send it signals.
                end = daemon.watch(&mut self.signals, &path) => drop(end.unwrap()),
                () = &mut wanted => return,
            }
        }
    }

    pub(super) async fn reload(&self, daemon: &mut Daemon) -> Result<(), Vec<String>> {
        match daemon.reload(&self.path()).await {
            Reloaded::Unchanged => panic!("it is another"),
            Reloaded::Refused(why) => Err(why),
            Reloaded::Good(next) => {
                assert!(daemon.go_on_with(*next).await.is_none(), "it can stay");
                Ok(())
            }
        }
    }
}

/// Detections of a node's camera that a broker has got: run and number.
pub(super) fn detections(broker: &Broker, node: &str) -> Vec<(String, u64)> {
    let topic = format!("spotter/{node}/cam/gate/det/person");
    let all = broker.messages().into_iter();
    let told = all.filter(|message| message.topic == topic);
    told.map(|message| {
        let json: serde_json::Value = serde_json::from_slice(&message.payload).unwrap();
        let boot = json["boot"].as_str().unwrap().to_owned();
        (boot, json["seq"].as_u64().unwrap())
    })
    .collect()
}

pub(super) async fn tells(broker: &Broker, node: &str) {
    let more = detections(broker, node).len() + 3;
    let has_told = |broker: &Broker| detections(broker, node).len() >= more;
    broker.until("more detections", has_told).await;
}

#[tokio::test]
async fn another_broker_name_and_page_leave_the_camera_alone() {
    let (old, new) = (
        Broker::start(Script::default()).await,
        Broker::start(Script::default()).await,
    );
    let mut site = Site::new().await;
    let mut daemon = daemon_of(
        site.write("edge1", &old, "http.listen = \"off\""),
        &[usize::MAX],
    )
    .await;
    site.watch(&mut daemon, tells(&old, "edge1")).await;
    let status = |broker: &Broker, topic: &str| broker.retained(topic).unwrap_or_default();
    assert_eq!(status(&old, "spotter/edge1/cam/gate/status"), "online");

    // A page that cannot be had refuses all of it.
    let foreign = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("http.listen = \"{}\"", foreign.local_addr().unwrap());
    site.write("edge2", &new, &listen);
    let why = site.reload(&mut daemon).await.unwrap_err();
    assert!(why[0].contains("http.listen: cannot listen on"), "{why:?}");
    site.watch(&mut daemon, tells(&old, "edge1")).await;
    assert!(status(&old, "spotter/edge1/config").contains("http.listen"));
    assert!(new.connects().is_empty());

    // Without the stranger it can.
    drop(foreign);
    site.reload(&mut daemon).await.unwrap();
    site.watch(&mut daemon, tells(&new, "edge2")).await;
    assert_eq!(status(&old, "spotter/edge1/status"), "offline");
    assert_eq!(status(&new, "spotter/edge2/status"), "online");
    assert_eq!(status(&new, "spotter/edge2/cam/gate/status"), "online");
    assert!(status(&new, "spotter/edge2/config").contains("\"ok\""));
    // What another broker of this name kept is cleared there.
    assert_eq!(new.retained("spotter/edge1/info").as_deref(), Some(""));

    // The name alone, at the same broker.
    site.write("edge3", &new, &listen);
    site.reload(&mut daemon).await.unwrap();
    site.watch(&mut daemon, tells(&new, "edge3")).await;
    for leaf in [
        "status",
        "info",
        "cam/gate/status",
        "cam/gate/present/person",
    ] {
        assert_eq!(status(&new, &format!("spotter/edge2/{leaf}")), "", "{leaf}");
        assert_ne!(status(&new, &format!("spotter/edge3/{leaf}")), "", "{leaf}");
    }

    // One connection, one run, and numbers that go on: neither the camera nor what is known of it has begun anew.
    let camera = site.camera.memory();
    assert_eq!((camera.connections, camera.sessions), (1, 1));
    let (first, last) = (detections(&old, "edge1"), detections(&new, "edge3"));
    assert_eq!(first[0].0, last[0].0);
    assert!(last[0].1 > first.last().unwrap().1, "{first:?} {last:?}");
    let books = daemon.engines.sampler().books();
    assert!(books[0].1.balanced() && books[0].1.failed == 0, "{books:?}");
}

#[tokio::test]
async fn a_reload_tries_a_broker_again_that_refused_us_whatever_the_file_says() {
    const REFUSES: u8 = 0x86;
    let broker = Broker::start(Script {
        connack: REFUSES,
        ..Script::default()
    })
    .await;
    let site = Site::new().await;
    let same = "http.listen = \"off\"";
    let mut daemon = daemon_of(site.write("edge1", &broker, same), &[usize::MAX]).await;
    let mut state = daemon.publisher.state();
    for head in [same, "http.listen = \"off\"\nmqtt.retain_snapshots = true"] {
        let is_refused = |state: &BrokerState| matches!(state, BrokerState::Refused { .. });
        let refused = state.wait_for(is_refused).await.unwrap().clone();
        broker.script(|script| script.connack = 0);
        site.write("edge1", &broker, head);
        match daemon.reload(&site.path()).await {
            Reloaded::Unchanged => assert_eq!(head, same),
            Reloaded::Good(next) => assert!(daemon.go_on_with(*next).await.is_none()),
            Reloaded::Refused(why) => panic!("{why:?}"),
        }
        state.wait_for(BrokerState::is_online).await.unwrap();
        assert!(Some(daemon.clock.now()) < refused.retry_at(), "by itself");
        broker.script(|script| script.connack = REFUSES);
        broker.cut();
    }
}
