//! For tests: mosquitto and NATS as child processes on loopback, and a consumer with its own connection.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rumqttc::{AsyncClient, Event, MqttOptions, Packet, QoS};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};

/// The longest time that a test waits for one result.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A process that the end of the test kills.
struct KilledChild(Child);

impl KilledChild {
    fn start(command: &mut Command, package: &str) -> Self {
        let child = command.stderr(Stdio::null()).spawn();
        Self(child.unwrap_or_else(|error| panic!("tests need {package}: {error}")))
    }

    fn kill(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }

    /// Sends `TERM`, `STOP` or `CONT`; waits for the end that `TERM` asks for.
    fn signal(&mut self, name: &str) {
        let id = self.0.id().to_string();
        let done = Command::new("kill")
            .args([&format!("-{name}"), &id])
            .status();
        assert!(done.unwrap().success(), "kill -{name}");
        if name == "TERM" {
            self.0.wait().unwrap();
        }
    }
}

impl Drop for KilledChild {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A mosquitto process; the end of the test kills it.
pub(super) struct Mosquitto {
    child: KilledChild,
    pub(super) port: u16,
    pub(super) directory: tempfile::TempDir,
}

impl Mosquitto {
    /// `extra` is added to a configuration that listens on a free loopback port. `DIR` in it is the broker's directory,
    /// which `prepare` may fill.
    pub(super) fn start(extra: &str, prepare: impl FnOnce(&Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        prepare(directory.path());
        let port = free_port();
        let extra = extra.replace("DIR", directory.path().to_str().unwrap());
        let config = format!("listener {port} 127.0.0.1\npersistence false\nuser root\n{extra}\n");
        fs::write(directory.path().join("broker.conf"), config).unwrap();
        let child = spawn(directory.path());
        let broker = Self {
            child,
            port,
            directory,
        };
        listens(port);
        broker
    }

    /// With persistence: sessions and their messages survive a kill.
    pub(super) fn that_keeps() -> Self {
        let keeps = "allow_anonymous true\npersistence true\npersistence_location DIR/\n\
                     autosave_on_changes true\nautosave_interval 1";
        Self::start(keeps, |_| {})
    }

    pub(super) fn open() -> Self {
        Self::start("allow_anonymous true", |_| {})
    }

    pub(super) fn kill(&mut self) {
        self.child.kill();
    }

    pub(super) fn restart(&mut self) {
        self.child = spawn(self.directory.path());
        listens(self.port);
    }

    /// Sends the broker `TERM`, `STOP` or `CONT`.
    pub(super) fn signal(&mut self, name: &str) {
        self.child.signal(name);
    }
}

/// The program on PATH, or where Debian installs it, which a user's PATH may not contain.
fn program(name: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let mut found = folders
        .map(|folder| folder.join(name))
        .filter(|path| path.exists());
    found.next().unwrap_or_else(|| name.into())
}

/// Blocks until the port accepts connections.
fn listens(port: u16) {
    for _ in 0..PATIENCE.as_millis() / 25 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    panic!("no listener on port {port}");
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Makes the broker sync each message before it acknowledges it (the default is every two minutes), so that Spotter lost an
/// event that is missing after a kill of the broker. nats-server 2.9 (Debian 12) rejects the setting; it is ended with SIGTERM instead, at which
/// it writes all that it acknowledged. Killed, it forgets how many messages a stream had, but not how many a session was given, and the session
/// then misses the first new ones.
const SYNC: &str = ", sync_interval: always";

/// Debian's `nats-server` with its MQTT 3.1.1, the second broker of another make. It keeps retained messages in JetStream.
pub(super) struct Nats {
    child: KilledChild,
    pub(super) port: u16,
    /// It syncs each message.
    syncs: bool,
    directory: tempfile::TempDir,
}

impl Nats {
    pub(super) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (port, syncs) = (free_port(), Self::has_sync());
        let config = format!(
            "host: 127.0.0.1\nport: {}\nserver_name: second\njetstream {{ store_dir: {:?}{} }}\nmqtt {{ host: 127.0.0.1, port: {port} }}\n",
            free_port(),
            directory.path().join("store"),
            if syncs { SYNC } else { "" },
        );
        fs::write(directory.path().join("nats.conf"), config).unwrap();
        let child = Self::spawn(directory.path());
        listens(port);
        Self {
            child,
            port,
            syncs,
            directory,
        }
    }

    /// True from version 2.10 on.
    fn has_sync() -> bool {
        let output = Command::new(program("nats-server"))
            .arg("--version")
            .output();
        let output = output.expect("tests need nats-server: apt-get install nats-server");
        let version = String::from_utf8_lossy(&output.stdout);
        let minor = version.split('.').nth(1).map(str::parse::<u32>);
        !matches!(minor, Some(Ok(..10)))
    }

    fn spawn(directory: &Path) -> KilledChild {
        let mut command = Command::new(program("nats-server"));
        command.arg("-c").arg(directory.join("nats.conf"));
        KilledChild::start(command.stdout(Stdio::null()), "nats-server")
    }

    /// What it acknowledged is in its store afterwards.
    pub(super) fn kill(&mut self) {
        match self.syncs {
            true => self.child.kill(),
            false => self.child.signal("TERM"),
        }
    }

    pub(super) fn restart(&mut self) {
        self.child = Self::spawn(self.directory.path());
        listens(self.port);
    }

    /// Kills the server and restarts it with an empty store.
    pub(super) fn lose_everything(&mut self) {
        self.kill();
        fs::remove_dir_all(self.directory.path().join("store")).unwrap();
        self.restart();
    }
}

fn spawn(directory: &Path) -> KilledChild {
    let mut command = Command::new(program("mosquitto"));
    command.arg("-c").arg(directory.join("broker.conf"));
    KilledChild::start(command.stdout(Stdio::null()), "mosquitto")
}

/// A consumer with a persistent session: `mosquitto_sub`, which reconnects by itself.
pub(super) struct PersistentConsumer {
    _child: KilledChild,
    heard: mpsc::Receiver<ReceivedLine>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReceivedLine {
    pub(super) retain: bool,
    pub(super) topic: String,
    pub(super) payload: String,
}

impl PersistentConsumer {
    /// Subscribes to `filter` with MQTT `5` or `311`.
    pub(super) fn on(port: u16, filter: &str, protocol: &str) -> Self {
        // A persistent session of MQTT 3.1.1 never expires.
        let kept: &[&str] = match protocol {
            "5" => &["-x", "3600"],
            _ => &[],
        };
        let id = format!("on-{filter}").replace(['/', '#', '+'], "-");
        let mut command = Command::new("mosquitto_sub");
        command
            .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-V", protocol])
            .args(["-c", "-i", &id, "-q", "1", "-t", filter, "-F", "%r %t %p"])
            .args(kept)
            .stdout(Stdio::piped());
        let mut child = KilledChild::start(&mut command, "mosquitto-clients");
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let (sender, heard) = mpsc::channel(1024);
        let read = move || {
            for line in lines.map_while(Result::ok) {
                let mut parts = line.splitn(3, ' ').map(str::to_owned);
                let mut next = || parts.next().unwrap_or_default();
                let line = ReceivedLine {
                    retain: next() == "1",
                    topic: next(),
                    payload: next(),
                };
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("persistent".into());
        thread.spawn(read).unwrap();
        Self {
            _child: child,
            heard,
        }
    }

    pub(super) async fn next(&mut self) -> ReceivedLine {
        timeout(PATIENCE, self.heard.recv())
            .await
            .expect("no message arrived")
            .unwrap()
    }

    /// The next message of a topic with this payload, or with any.
    pub(super) async fn until(&mut self, topic: &str, payload: Option<&str>) -> ReceivedLine {
        loop {
            let heard = self.next().await;
            let is_wanted = payload.is_none_or(|payload| heard.payload == payload);
            if heard.topic.ends_with(topic) && is_wanted {
                return heard;
            }
        }
    }

    /// The next message if it has arrived.
    pub(super) fn received_already(&mut self) -> Option<ReceivedLine> {
        self.heard.try_recv().ok()
    }
}

/// Publishes with QoS 1 and MQTT 3.1.1 as another client.
pub(super) fn publish_as_other(port: u16, topic: &str, payload: &str, retained: bool) {
    let mut command = Command::new("mosquitto_pub");
    command
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-V", "311"])
        .args(["-q", "1", "-t", topic, "-m", payload])
        .args(retained.then_some("-r"));
    let done = command.status().expect("tests need mosquitto-clients");
    assert!(done.success());
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReceivedMessage {
    pub(super) topic: String,
    pub(super) payload: String,
    pub(super) qos: QoS,
    pub(super) retain: bool,
    pub(super) expiry_s: Option<u32>,
    pub(super) content_type: Option<String>,
    /// The user property.
    pub(super) epoch: Option<String>,
}

/// A consumer with its own connection, subscribed to `filter`.
pub(super) struct Listener {
    heard: mpsc::Receiver<ReceivedMessage>,
    pub(super) client: AsyncClient,
    task: JoinHandle<()>,
}

impl Listener {
    pub(super) async fn on(port: u16, filter: &str) -> Self {
        let mut options = MqttOptions::new(
            format!("listener-{filter}").replace(['/', '#'], "-"),
            ("127.0.0.1", port),
        );
        options.set_keep_alive(30);
        let (client, mut events) = AsyncClient::builder(options).capacity(16).build();
        client.subscribe(filter, QoS::AtLeastOnce).await.unwrap();
        let (sender, heard) = mpsc::channel(256);
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let mut ready = Some(ready);
        let task = tokio::spawn(async move {
            loop {
                let event = match events.poll().await {
                    Ok(event) => event,
                    // A busy broker may need several tries.
                    Err(_) if ready.is_some() => {
                        sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                    Err(_) => return,
                };
                match event {
                    Event::Incoming(Packet::SubAck(_)) => {
                        ready.take().map(|ready| ready.send(()));
                    }
                    Event::Incoming(Packet::Publish(publish)) => {
                        let properties = publish.properties.unwrap_or_default();
                        let heard = ReceivedMessage {
                            topic: String::from_utf8(publish.topic.to_vec()).unwrap(),
                            payload: String::from_utf8(publish.payload.to_vec()).unwrap(),
                            qos: publish.qos,
                            retain: publish.retain,
                            expiry_s: properties.message_expiry_interval,
                            content_type: properties.content_type,
                            epoch: epoch_of(&properties.user_properties),
                        };
                        if sender.send(heard).await.is_err() {
                            return;
                        }
                    }
                    _ => {}
                }
            }
        });
        timeout(PATIENCE, is_ready).await.unwrap().unwrap();
        Self {
            heard,
            client,
            task,
        }
    }

    pub(super) async fn next(&mut self) -> ReceivedMessage {
        timeout(PATIENCE, self.heard.recv())
            .await
            .expect("no message arrived")
            .unwrap()
    }

    pub(super) async fn until(&mut self, topic: &str, payload: &str) -> ReceivedMessage {
        loop {
            let heard = self.next().await;
            if heard.topic.ends_with(topic) && heard.payload == payload {
                return heard;
            }
        }
    }
}

fn epoch_of(properties: &[(String, String)]) -> Option<String> {
    let mut epochs = properties.iter().filter(|(name, _)| name == "epoch");
    epochs.next().map(|(_, epoch)| epoch.clone())
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}
