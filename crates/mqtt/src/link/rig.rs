//! For tests: mosquitto and NATS as child processes on loopback, and a consumer with its own connection.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rumqttc::{AsyncClient, Event, MqttOptions, Packet, QoS};
use tokio::{
    net::TcpSocket,
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
}

impl Drop for KilledChild {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A broker's process; the end of the test kills it.
pub(super) struct RealBroker {
    child: KilledChild,
    program: &'static str,
    pub(super) port: u16,
    /// Bound to the port, without listening: nothing else is given the port of a broker that was killed, and none of its messages.
    _held: TcpSocket,
    pub(super) directory: tempfile::TempDir,
    /// What [`kill`](Self::kill) sends.
    end: &'static str,
}

impl RealBroker {
    /// `config` makes the configuration for a loopback port and the broker's directory, which `prepare` may fill.
    fn start(
        program: &'static str,
        end: &'static str,
        prepare: impl FnOnce(&Path),
        config: impl FnOnce(u16, &str) -> String,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        prepare(directory.path());
        let held = TcpSocket::new_v4().unwrap();
        // Brokers set it too, so they may listen on the port.
        held.set_reuseaddr(true).unwrap();
        held.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let port = held.local_addr().unwrap().port();
        let config = config(port, directory.path().to_str().unwrap());
        fs::write(directory.path().join("broker.conf"), config).unwrap();
        let child = spawn(program, directory.path());
        listens(port);
        Self {
            child,
            program,
            port,
            _held: held,
            directory,
            end,
        }
    }

    /// `extra` is added to the configuration; `DIR` in it is the broker's directory.
    pub(super) fn mosquitto(extra: &str, prepare: impl FnOnce(&Path)) -> Self {
        Self::start("mosquitto", "KILL", prepare, |port, directory| {
            let extra = extra.replace("DIR", directory);
            format!("listener {port} 127.0.0.1\npersistence false\nuser root\n{extra}\n")
        })
    }

    pub(super) fn open() -> Self {
        Self::mosquitto("allow_anonymous true", |_| {})
    }

    /// With persistence: sessions and their messages survive a kill.
    pub(super) fn that_keeps() -> Self {
        let keeps = "allow_anonymous true\npersistence true\npersistence_location DIR/\n\
                     autosave_on_changes true\nautosave_interval 1";
        Self::mosquitto(keeps, |_| {})
    }

    /// Debian's `nats-server` with its MQTT 3.1.1, a second broker of another make. It keeps retained messages in JetStream.
    pub(super) fn nats() -> Self {
        let (end, sync) = match nats_has_sync() {
            true => ("KILL", SYNC),
            false => ("TERM", ""),
        };
        Self::start(
            "nats-server",
            end,
            |_| {},
            |port, directory| {
                format!(
                    "host: 127.0.0.1\nport: -1\nserver_name: second\njetstream {{ store_dir: \"{directory}/store\"{sync} }}\n\
                 mqtt {{ host: 127.0.0.1, port: {port} }}\n"
                )
            },
        )
    }

    pub(super) fn kill(&mut self) {
        self.signal(self.end);
    }

    pub(super) fn restart(&mut self) {
        self.child = spawn(self.program, self.directory.path());
        listens(self.port);
    }

    /// Kills NATS and restarts it with an empty store.
    pub(super) fn lose_everything(&mut self) {
        self.kill();
        fs::remove_dir_all(self.directory.path().join("store")).unwrap();
        self.restart();
    }

    /// Sends the broker a signal, and waits for the end that `KILL` and `TERM` ask for.
    pub(super) fn signal(&mut self, name: &str) {
        let id = self.child.0.id().to_string();
        let done = Command::new("kill")
            .args([&format!("-{name}"), &id])
            .status();
        assert!(done.unwrap().success(), "kill -{name}");
        if matches!(name, "KILL" | "TERM") {
            self.child.0.wait().unwrap();
        }
    }
}

/// Makes NATS sync each message before it acknowledges it (the default is every two minutes), so that Spotter lost an
/// event that is missing after a kill of the broker. nats-server 2.9 (Debian 12) rejects the setting; it is ended with SIGTERM instead, at which
/// it writes all that it acknowledged. Killed, it forgets how many messages a stream had, but not how many a session was given, and the session
/// then misses the first new ones.
const SYNC: &str = ", sync_interval: always";

/// True from version 2.10 on.
fn nats_has_sync() -> bool {
    let output = Command::new(program("nats-server"))
        .arg("--version")
        .output();
    let output = output.expect("tests need nats-server: apt-get install nats-server");
    let version = String::from_utf8_lossy(&output.stdout);
    let minor = version.split('.').nth(1).map(str::parse::<u32>);
    !matches!(minor, Some(Ok(..10)))
}

fn spawn(name: &str, directory: &Path) -> KilledChild {
    let mut command = Command::new(program(name));
    command.arg("-c").arg(directory.join("broker.conf"));
    KilledChild::start(command.stdout(Stdio::null()), name)
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
