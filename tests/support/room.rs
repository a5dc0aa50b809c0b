//! A room with boxes that share cameras: a real nats-server, a broker and a consumer, and `spotter run` for each box of the fleet `hall`.

use std::net::SocketAddr;

use spotter_fleet::testing::NatsServer;
use spotter_street::broker::Mosquitto;
use tempfile::TempDir;

use super::{
    DONE, Program,
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
        let state = self.directory.path().join(name);
        let text = format!(
            "node = {{ name = \"{name}\", state_dir = {state:?} }}\nhttp.listen = \"off\"\n\
             model = {{ path = \"embedded\", budget = \"60s\" }}\n\
             mqtt = {{ url = \"mqtt://{}\", commands = \"all\" }}\n\
             fleet = {{ name = \"hall\", url = \"{}\" }}\n{tables}",
            self.address,
            self.nats_url()
        );
        let path = file(self.directory.path(), &format!("{name}.toml"), text);
        Program::start(["run", "--config", path.to_str().expect("UTF-8")])
    }

    fn nats_url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.nats.port())
    }
}
