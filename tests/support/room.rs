//! A room with boxes that share cameras: a real nats-server, a broker and a consumer, and `spotter run` for each box of the fleet `hall`.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use spotter_core::NodeId;
use spotter_fleet::{entries::StoreEvent, testing::NatsServer};
use spotter_street::broker::Mosquitto;
use tempfile::TempDir;
use tokio::{sync::mpsc, time::timeout};

use super::{
    DONE, PATIENCE, Program,
    broker::{Consumer, broker},
    file, free_address, spotter,
};

pub struct Room {
    directory: TempDir,
    nats: NatsServer,
    pub address: SocketAddr,
    _broker: Mosquitto,
    pub consumer: Consumer,
}

impl Room {
    pub fn new() -> Self {
        let address = free_address();
        let broker = broker(address, "");
        Self {
            directory: tempfile::tempdir().expect("a directory"),
            nats: NatsServer::start(),
            address,
            _broker: broker,
            consumer: Consumer::on(address),
        }
    }

    /// Writes `text` as the fleet's list of cameras.
    pub fn apply(&self, text: &str) {
        let path = file(self.directory.path(), "cameras.toml", text);
        let path = path.to_str().expect("UTF-8");
        let url = self.nats_url();
        spotter(["fleet", "apply", path, "--nats", &url, "--fleet", "hall"]).expect(DONE);
    }

    /// A box with the embedded model.
    pub fn start(&self, name: &str) -> Program {
        self.start_with(name, "")
    }

    /// The same with these tables in its file.
    pub fn start_with(&self, name: &str, tables: &str) -> Program {
        self.start_model("embedded", name, tables)
    }

    /// The same with this model.
    pub fn start_model(&self, model: &str, name: &str, tables: &str) -> Program {
        let path = self.write(model, name, tables);
        Program::start(["run", "--config", path.to_str().expect("UTF-8")])
    }

    /// Writes the file of a box.
    pub fn write(&self, model: &str, name: &str, tables: &str) -> PathBuf {
        let state = self.directory.path().join(name);
        let text = format!(
            "node = {{ name = \"{name}\", state_dir = {state:?} }}\nhttp.listen = \"off\"\n\
             model = {{ path = \"{model}\", budget = \"60s\" }}\n\
             mqtt = {{ url = \"mqtt://{}\", commands = \"all\" }}\n\
             fleet = {{ name = \"hall\", url = \"{}\" }}\n{tables}",
            self.address,
            self.nats_url()
        );
        file(self.directory.path(), &format!("{name}.toml"), text)
    }

    /// Waits until the store has what commands have changed at a camera.
    pub fn wait_for_stored_settings(&self, of: &str) {
        self.wait_for_store("stored settings", |event| {
            matches!(event, StoreEvent::Settings { camera, text: Some(_) } if camera.as_str() == of)
        });
    }

    /// Waits until no camera moves any more: all boxes have sent two heartbeats since the last change of an owner.
    pub fn wait_until_settled(&self, boxes: &[&str]) {
        let mut heartbeats: BTreeMap<NodeId, usize> = BTreeMap::new();
        self.wait_for_store("an end of all moves", |event| {
            match event {
                StoreEvent::Owned(..) => heartbeats.clear(),
                StoreEvent::Heartbeat(entry) => *heartbeats.entry(entry.node).or_default() += 1,
                _ => {}
            }
            let settled = heartbeats.iter().filter(|(_, count)| **count >= 2);
            let settled: Vec<&str> = settled.map(|(node, _)| node.as_str()).collect();
            boxes.iter().all(|name| settled.contains(name))
        });
    }

    /// Waits for an event of the store, of which the values of now come first.
    fn wait_for_store(&self, what: &str, mut is_it: impl FnMut(StoreEvent) -> bool) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let found = async {
            let store = self.nats.connect().await;
            let (sender, mut events) = mpsc::channel(64);
            let find = async {
                while let Some(event) = events.recv().await {
                    if is_it(event) {
                        return true;
                    }
                }
                false
            };
            tokio::select! {
                found = find => found,
                () = store.watch(sender) => false,
            }
        };
        let in_time = async { timeout(PATIENCE, found).await };
        let found = runtime.expect("a runtime").block_on(in_time);
        assert_eq!(found, Ok(true), "{PATIENCE:?} went by without {what}");
    }

    fn nats_url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.nats.port())
    }
}
