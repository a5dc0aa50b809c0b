//! A real nats-server on this machine, for tests and measurements. What cannot be set up panics.

use std::{
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use spotter_core::NodeId;

use crate::store::{FleetStore, StoreLogin, StoreSettings};

/// The longest time that a test waits for one result.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

/// Keeps its files in a folder, so that it can start again with them.
pub struct NatsServer {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl NatsServer {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        Self {
            child: Self::spawn(port, folder.path(), &["-js"]),
            port,
            folder,
        }
    }

    fn spawn(port: u16, folder: &Path, more: &[&str]) -> Child {
        let program = ["/usr/sbin/nats-server", "/usr/local/sbin/nats-server"];
        let program = program.into_iter().find(|path| Path::new(path).exists());
        let mut command = Command::new(program.unwrap_or("nats-server"));
        let port_text = port.to_string();
        command
            .args(["-a", "127.0.0.1", "-p", &port_text, "-sd"])
            .arg(folder);
        command
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command
            .spawn()
            .expect("tests need nats-server: apt-get install nats-server");
        let is_there = |_| {
            std::thread::sleep(Duration::from_millis(25));
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        };
        assert!((0..800).any(is_there), "no listener on port {port}");
        child
    }

    pub fn end(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts again with other arguments.
    pub fn begin(&mut self, arguments: &[&str]) {
        self.child = Self::spawn(self.port, self.folder.path(), arguments);
    }

    pub fn restart(&mut self) {
        self.end();
        self.begin(&["-js"]);
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn settings(&self) -> StoreSettings {
        StoreSettings {
            urls: vec![format!("nats://127.0.0.1:{}", self.port)],
            fleet: node("hall"),
            replicas: 1,
            login: StoreLogin::None,
            ca: None,
        }
    }

    pub async fn connect(&self) -> FleetStore {
        FleetStore::connect(self.settings()).await.unwrap()
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
