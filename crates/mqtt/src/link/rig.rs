//! For tests: mosquitto and NATS as child processes on loopback, and a consumer.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tokio::{net::TcpSocket, sync::mpsc, time::timeout};

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

/// Retained at a broker for [`Consumer::on`].
const READY: &str = "test/ready";

/// `mosquitto_sub`, which reconnects by itself.
pub(super) struct Consumer {
    _child: KilledChild,
    heard: mpsc::Receiver<ReceivedMessage>,
}

impl Consumer {
    /// With MQTT 5; returns when it is subscribed.
    pub(super) async fn on(port: u16, filter: &str) -> Self {
        // A broker may allow no other.
        publish(port, "0", &[READY, "-m", "ready"], true);
        let mut consumer = Self::start(port, &["-V", "5", "-t", READY, "-t", filter]);
        assert_eq!(consumer.next().await.topic, READY);
        consumer
    }

    /// With a session of MQTT `5` or `311` that survives the connection, and a broker that keeps sessions.
    pub(super) fn persistent(port: u16, filter: &str, protocol: &str) -> Self {
        // A persistent session of MQTT 3.1.1 never expires.
        let kept: &[&str] = match protocol {
            "5" => &["-x", "3600"],
            _ => &[],
        };
        let id = format!("on-{filter}").replace(['/', '#', '+'], "-");
        let session = ["-V", protocol, "-c", "-i", &id, "-t", filter];
        Self::start(port, &[&session, kept].concat())
    }

    fn start(port: u16, arguments: &[&str]) -> Self {
        let mut command = Command::new("mosquitto_sub");
        command
            .args(["-h", "127.0.0.1", "-p", &port.to_string()])
            .args(["-q", "1", "-F", "%j"])
            .args(arguments)
            .stdout(Stdio::piped());
        let mut child = KilledChild::start(&mut command, "mosquitto-clients");
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let (sender, heard) = mpsc::channel(1024);
        let read = move || {
            for line in lines.map_while(Result::ok) {
                if sender.blocking_send(ReceivedMessage::of(&line)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("consumer".into());
        thread.spawn(read).unwrap();
        Self {
            _child: child,
            heard,
        }
    }

    pub(super) async fn next(&mut self) -> ReceivedMessage {
        timeout(PATIENCE, self.heard.recv())
            .await
            .expect("no message arrived")
            .unwrap()
    }

    /// The next message of a topic with this payload, or with any.
    pub(super) async fn until<'a>(
        &mut self,
        topic: &str,
        payload: impl Into<Option<&'a str>>,
    ) -> ReceivedMessage {
        let payload = payload.into();
        loop {
            let heard = self.next().await;
            let is_wanted = payload.is_none_or(|payload| heard.payload == payload);
            if heard.topic.ends_with(topic) && is_wanted {
                return heard;
            }
        }
    }

    /// The next message if it has arrived.
    pub(super) fn received_already(&mut self) -> Option<ReceivedMessage> {
        self.heard.try_recv().ok()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReceivedMessage {
    pub(super) topic: String,
    pub(super) payload: String,
    pub(super) qos: u64,
    pub(super) retain: bool,
    pub(super) expiry_s: Option<u64>,
    pub(super) content_type: Option<String>,
    /// The user property.
    pub(super) epoch: Option<String>,
}

impl ReceivedMessage {
    /// A line of `mosquitto_sub -F %j`.
    fn of(line: &str) -> Self {
        let json: Value = serde_json::from_str(line).unwrap();
        let properties = &json["properties"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Self {
            topic: text(&json["topic"]).unwrap(),
            payload: text(&json["payload"]).unwrap_or_default(),
            qos: json["qos"].as_u64().unwrap(),
            retain: json["retain"] == 1,
            expiry_s: properties["message-expiry-interval"].as_u64(),
            content_type: text(&properties["content-type"]),
            epoch: text(&properties["user-properties"]["epoch"]),
        }
    }
}

/// Publishes with QoS 1 and MQTT 3.1.1 as another client.
pub(super) fn publish_as_other(port: u16, topic: &str, payload: &str, retained: bool) {
    publish(port, "1", &[topic, "-m", payload], retained);
}

fn publish(port: u16, qos: &str, topic_and_payload: &[&str], retained: bool) {
    let mut command = Command::new("mosquitto_pub");
    command
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-V", "311"])
        .args(["-q", qos, "-t"])
        .args(topic_and_payload)
        .args(retained.then_some("-r"));
    let done = command.status().expect("tests need mosquitto-clients");
    assert!(done.success());
}
