//! Starts mosquitto for tests, and for the demo on a machine without a broker.
//!
//! Faults: D7.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use spotter_core::{Clock as _, SystemClock};
use tempfile::NamedTempFile;

#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// No broker answers, and the host is not this machine.
    #[error("no MQTT broker answers at {0}; start one there, or use mqtt://127.0.0.1")]
    Elsewhere(String),
    #[error("writing mosquitto's configuration into {dir}: {0}", dir = std::env::temp_dir().display())]
    Config(io::Error),
    #[error(
        "starting mosquitto for the demo: {0}; install it (apt-get install mosquitto) or start a broker yourself"
    )]
    Start(io::Error),
    #[error("mosquitto does not answer on {0}: {1}; is the port in use? Its output:\n{2}")]
    Silent(SocketAddr, String, String),
}

/// A mosquitto child process on loopback; dropping it ends the process.
#[derive(Debug)]
pub struct Mosquitto {
    child: Child,
    address: SocketAddr,
    output: NamedTempFile,
    /// Removed with this value; mosquitto reads it at its start and on SIGHUP.
    _config: NamedTempFile,
}

/// Time for a new mosquitto to answer.
const START_LIMIT: Duration = Duration::from_secs(30);
const START_PAUSE: Duration = Duration::from_millis(50);
/// How long a running broker may need to accept a connection, and to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// MQTT 3.1.1, a clean session, no client id.
const CONNECT: [u8; 14] = [0x10, 12, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 10, 0, 0];
/// The type of the packet that answers it.
const CONNACK: u8 = 0x20;
/// Lines of mosquitto's output that are shown.
const SHOWN_LINES: usize = 12;

/// Starts mosquitto if no broker answers at `host:port` and that is this machine; `None` if a broker answers.
/// Blocks for up to thirty seconds, and for two more for each address of the host that does not answer.
pub fn ensure(host: &str, port: u16) -> Result<Option<Mosquitto>, BrokerError> {
    let addresses = (host, port).to_socket_addrs().into_iter().flatten();
    let addresses: Vec<SocketAddr> = addresses.collect();
    if addresses.iter().copied().any(answers) {
        return Ok(None);
    }
    // IPv4 first, where most clients look.
    let own = addresses.into_iter().filter(|a| a.ip().is_loopback());
    match own.min_by_key(SocketAddr::is_ipv6) {
        Some(address) => Mosquitto::start(address, "").map(Some),
        None => Err(BrokerError::Elsewhere(format!("{host}:{port}"))),
    }
}

/// A broker answers CONNECT, also if it rejects it. One that accepts TCP alone, or another program, does not.
fn answers(address: SocketAddr) -> bool {
    let ask = || -> io::Result<u8> {
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.set_write_timeout(Some(ANSWER_LIMIT))?;
        stream.write_all(&CONNECT)?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer)?;
        Ok(answer[0])
    };
    ask().is_ok_and(|kind| kind == CONNACK)
}

impl Mosquitto {
    /// Starts mosquitto on a loopback address, with more lines of configuration. Blocks until it answers CONNECT.
    pub fn start(address: SocketAddr, more: &str) -> Result<Self, BrokerError> {
        let config = write_config(address, more).map_err(BrokerError::Config)?;
        let output = NamedTempFile::new().map_err(BrokerError::Config)?;
        let child = spawn(config.path(), output.as_file()).map_err(BrokerError::Start)?;
        let mut broker = Self {
            child,
            address,
            output,
            _config: config,
        };
        let clock = SystemClock::new();
        let until = clock.now().after(START_LIMIT);
        while clock.now() < until {
            if answers(address) {
                return Ok(broker);
            }
            if let Some(reason) = broker.end() {
                return Err(broker.silent(reason));
            }
            std::thread::sleep(START_PAUSE);
        }
        Err(broker.silent("it does not answer after thirty seconds".to_owned()))
    }

    fn silent(&self, reason: String) -> BrokerError {
        BrokerError::Silent(self.address, reason, self.output())
    }

    /// How it ended, if it did.
    pub fn end(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(format!("it ended with {status}"))
    }

    /// The last lines of what it has printed.
    pub fn output(&self) -> String {
        let bytes = fs::read(self.output.path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A file that only this user can read. Not a pipe: mosquitto 2.0.21 (Debian 13) accepts nothing but a regular file.
fn write_config(address: SocketAddr, more: &str) -> io::Result<NamedTempFile> {
    let (ip, port) = (address.ip(), address.port());
    let mut file = tempfile::Builder::new()
        .prefix("spotter-mosquitto-")
        .suffix(".conf")
        .tempfile()?;
    writeln!(
        file,
        "listener {port} {ip}\nallow_anonymous true\npersistence false\n{more}"
    )?;
    Ok(file)
}

fn spawn(config: &Path, output: &fs::File) -> io::Result<Child> {
    // Debian installs it in sbin, which is not on every user's PATH.
    for program in ["mosquitto", "/usr/sbin/mosquitto"] {
        let started = Command::new(program)
            .arg("-c")
            .arg(config)
            // A terminal sends Ctrl-C to the whole group, and the last messages still need the broker.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .spawn();
        match started {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        // It may have ended already; if it cannot be killed, there is nothing else to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn ensure_starts_one_if_none_answers_and_drop_ends_it() {
        let address = free_address();
        let own = ensure("localhost", address.port()).unwrap();
        assert_eq!(own.as_ref().map(Mosquitto::address), Some(address));
        let there = ensure("127.0.0.1", address.port()).unwrap();
        assert!(there.is_none(), "a broker answers already");
        drop(own);
        assert!(!answers(address), "it ended when it was dropped");
    }

    fn free_address() -> SocketAddr {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap()
    }

    #[test]
    fn listener_that_does_not_answer_is_no_broker() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let error = ensure("127.0.0.1", port).unwrap_err().to_string();
        assert!(error.contains("Address already in use"), "{error}");
    }

    #[test]
    fn broker_that_ends_leaves_its_output() {
        let mut broker = Mosquitto::start(free_address(), "").unwrap();
        assert_eq!(broker.end(), None);
        broker.child.kill().unwrap();
        broker.child.wait().unwrap();
        assert!(broker.end().is_some_and(|end| end.contains("signal")));
        let output = broker.output();
        assert!(output.contains("running"), "{output}");
        assert!(output.lines().count() <= SHOWN_LINES);
    }

    #[test]
    fn a_rejected_configuration_is_an_error_at_once() {
        let rejected = Mosquitto::start(free_address(), "no_such_option 1");
        let error = rejected.unwrap_err().to_string();
        assert!(error.contains("no_such_option"), "{error}");
    }
}
