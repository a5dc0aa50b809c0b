//! A real nats-server on this machine, for tests and measurements. What cannot be set up panics.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use spotter_config::{NatsAccess, NatsLogin, Secret};
use spotter_core::{CameraId, NodeId};

use crate::{
    assignment::CameraNeed,
    store::{FleetStore, StoreError},
};

/// The longest time that a test waits for one result.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

/// `c0`, `c1`, …
pub fn camera(n: usize) -> CameraId {
    CameraId::new(&format!("c{n}")).unwrap()
}

/// Cameras that ask for one look a second.
pub fn listed(cameras: usize) -> BTreeMap<CameraId, CameraNeed> {
    let need = CameraNeed {
        work_hz: 1.0,
        ..CameraNeed::default()
    };
    (0..cameras).map(|n| (camera(n), need.clone())).collect()
}

/// What a server counts since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NatsTraffic {
    /// From clients and from the other servers of its cluster.
    pub messages_in: u64,
    /// To them.
    pub messages_out: u64,
}

/// Keeps its files in a folder, so that it can start again with them.
pub struct NatsServer {
    child: Child,
    port: u16,
    /// Of its figures.
    monitor: u16,
    folder: tempfile::TempDir,
    /// Of its first start.
    arguments: Vec<String>,
}

impl NatsServer {
    pub fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), &["-js"])
    }

    /// With accounts and rights of a configuration file.
    pub fn start_with(configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nats.conf");
        std::fs::write(&path, configuration).unwrap();
        Self::start_in(folder, &["-js", "-c", path.to_str().unwrap()])
    }

    /// Servers that replicate their buckets. They do not announce each other to clients, which therefore keep to the addresses that they have.
    pub fn start_cluster(servers: usize) -> Vec<Self> {
        let listeners: Vec<TcpListener> = (0..servers)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let ports = listeners
            .iter()
            .map(|listener| listener.local_addr().unwrap().port());
        let ports: Vec<u16> = ports.collect();
        drop(listeners);
        let routes = ports
            .iter()
            .map(|port| format!("nats-route://127.0.0.1:{port}"));
        let routes = routes.collect::<Vec<_>>().join(", ");
        let start = |number: usize| {
            let port = ports[number];
            Self::start_with(&format!(
                "server_name: n{number}\n\
                 cluster {{ name: fleet, listen: \"127.0.0.1:{port}\", no_advertise: true, routes: [{routes}] }}\n"
            ))
        };
        (0..servers).map(start).collect()
    }

    pub(crate) fn start_in(folder: tempfile::TempDir, arguments: &[&str]) -> Self {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [port, monitor] = listeners.map(|listener| listener.local_addr().unwrap().port());
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        Self {
            child: Self::spawn([port, monitor], folder.path(), &arguments),
            port,
            monitor,
            folder,
            arguments,
        }
    }

    fn spawn(ports: [u16; 2], folder: &Path, more: &[String]) -> Child {
        let [port, monitor] = ports;
        let program = ["/usr/sbin/nats-server", "/usr/local/sbin/nats-server"];
        let program = program.into_iter().find(|path| Path::new(path).exists());
        let mut command = Command::new(program.unwrap_or("nats-server"));
        let (port_text, monitor) = (port.to_string(), monitor.to_string());
        command
            .args(["-a", "127.0.0.1", "-p", &port_text, "-m", &monitor, "-sd"])
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

    /// Starts again as it started first.
    pub fn begin(&mut self) {
        let ports = [self.port, self.monitor];
        self.child = Self::spawn(ports, self.folder.path(), &self.arguments);
    }

    /// `None` while it does not run or answer.
    pub fn traffic(&self) -> Option<NatsTraffic> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.monitor)).ok()?;
        socket.set_read_timeout(Some(PATIENCE)).ok()?;
        socket.write_all(b"GET /varz HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).ok()?;
        let count = |name: &str| {
            let rest = answer.split(name).nth(1)?;
            rest.split(',').next()?.trim().parse().ok()
        };
        Some(NatsTraffic {
            messages_in: count("\"in_msgs\":")?,
            messages_out: count("\"out_msgs\":")?,
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn access(&self) -> NatsAccess {
        NatsAccess {
            urls: vec![format!("nats://127.0.0.1:{}", self.port)],
            login: NatsLogin::None,
            ca: None,
            replicas: 1,
        }
    }

    /// With a user of the configuration file; the password is the name.
    pub async fn connect_as(&self, user: &str) -> Result<FleetStore, StoreError> {
        let login = NatsLogin::Password {
            user: user.to_owned(),
            password: Secret::new(user.to_owned()),
        };
        let access = self.access();
        FleetStore::connect(node("hall"), NatsAccess { login, ..access }).await
    }

    pub async fn connect(&self) -> FleetStore {
        let store = FleetStore::connect(node("hall"), self.access()).await;
        store.unwrap()
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
