//! A real nats-server on this machine, for tests and measurements. What cannot be set up panics.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use spotter_core::{
    CameraId, NodeId,
    config::{NatsAccess, NatsLogin, Secret},
};

use crate::{
    assignment::CameraNeed,
    claims::ListedCamera,
    store::{FleetStore, StoreSettings},
};

/// The longest time that a test waits for one result.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

/// Cameras `c0`, `c1`, … that ask for one look a second.
pub fn listed(cameras: usize) -> BTreeMap<CameraId, ListedCamera> {
    let camera = |n| {
        let need = CameraNeed {
            work_hz: 1.0,
            ..CameraNeed::default()
        };
        let camera = ListedCamera {
            need,
            has_one_session: false,
        };
        (CameraId::new(&format!("c{n}")).unwrap(), camera)
    };
    (0..cameras).map(camera).collect()
}

/// Keeps its files in a folder, so that it can start again with them.
pub struct NatsServer {
    child: Child,
    port: u16,
    /// Of its figures.
    monitor: u16,
    folder: tempfile::TempDir,
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

    fn start_in(folder: tempfile::TempDir, arguments: &[&str]) -> Self {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [port, monitor] = listeners.map(|listener| listener.local_addr().unwrap().port());
        Self {
            child: Self::spawn([port, monitor], folder.path(), arguments),
            port,
            monitor,
            folder,
        }
    }

    fn spawn(ports: [u16; 2], folder: &Path, more: &[&str]) -> Child {
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

    /// Starts again with other arguments.
    pub fn begin(&mut self, arguments: &[&str]) {
        self.child = Self::spawn([self.port, self.monitor], self.folder.path(), arguments);
    }

    pub fn restart(&mut self) {
        self.end();
        self.begin(&["-js"]);
    }

    /// Messages that clients have sent since its start.
    pub fn messages(&self) -> u64 {
        let mut socket = TcpStream::connect(("127.0.0.1", self.monitor)).unwrap();
        socket.write_all(b"GET /varz HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let count = answer
            .split("\"in_msgs\": ")
            .nth(1)
            .and_then(|rest| rest.split(',').next());
        count.and_then(|count| count.parse().ok()).unwrap()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn settings(&self) -> StoreSettings {
        StoreSettings {
            fleet: node("hall"),
            access: NatsAccess {
                urls: vec![format!("nats://127.0.0.1:{}", self.port)],
                login: NatsLogin::None,
                ca: None,
                replicas: 1,
            },
        }
    }

    /// With a user of the configuration file; the password is the name.
    pub fn settings_of(&self, user: &str) -> StoreSettings {
        let mut settings = self.settings();
        settings.access.login = NatsLogin::Password {
            user: user.to_owned(),
            password: Secret::new(user.to_owned()),
        };
        settings
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
