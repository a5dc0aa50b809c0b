//! Starts mosquitto for tests, and for the demo on a machine without a broker.

use std::{
    io::{self, Write as _},
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

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
    #[error("mosquitto does not answer on {0}: {1}; is the port in use?")]
    Silent(SocketAddr, String),
}

/// A mosquitto child process on loopback; dropping it ends the process.
#[derive(Debug)]
pub struct Mosquitto {
    child: Child,
    address: SocketAddr,
    /// Removed with this value; mosquitto reads it at its start and on SIGHUP.
    _config: NamedTempFile,
}

/// Attempts to connect to a new mosquitto until it listens.
const START_TRIES: u32 = 600;
const START_PAUSE: Duration = Duration::from_millis(50);
/// How long a running broker may need to accept a connection.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Starts mosquitto if no broker answers at `host:port` and that is this machine; `None` if a broker answers.
/// Blocks for up to thirty seconds, and for two more for each address of the host that does not answer.
pub fn ensure(host: &str, port: u16) -> Result<Option<Mosquitto>, BrokerError> {
    let addresses: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()
        .map(Iterator::collect)
        .unwrap_or_default();
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

fn answers(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, ANSWER_LIMIT).is_ok()
}

impl Mosquitto {
    /// Starts mosquitto on a loopback address, with more lines of configuration. Blocks until it answers.
    pub fn start(address: SocketAddr, more: &str) -> Result<Self, BrokerError> {
        let config = write_config(address, more).map_err(BrokerError::Config)?;
        let child = spawn(config.path()).map_err(BrokerError::Start)?;
        let mut broker = Self {
            child,
            address,
            _config: config,
        };
        for _ in 0..START_TRIES {
            if answers(address) {
                return Ok(broker);
            }
            if let Ok(Some(status)) = broker.child.try_wait() {
                return Err(BrokerError::Silent(
                    address,
                    format!("it ended with {status}"),
                ));
            }
            std::thread::sleep(START_PAUSE);
        }
        Err(BrokerError::Silent(
            address,
            "it does not listen after thirty seconds".into(),
        ))
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

fn spawn(config: &Path) -> io::Result<Child> {
    // Debian installs it in sbin, which is not on every user's PATH.
    for program in ["mosquitto", "/usr/sbin/mosquitto"] {
        let started = Command::new(program)
            .arg("-c")
            .arg(config)
            // A terminal sends Ctrl-C to the whole group, and the last messages still need the broker.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
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
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let there = ensure("127.0.0.1", address.port()).unwrap();
        assert!(there.is_none(), "a broker answers already");
        drop(taken);
        let own = ensure("localhost", address.port()).unwrap();
        assert_eq!(own.map(|broker| broker.address()), Some(address));
        assert!(!answers(address), "it ended when it was dropped");
    }

    #[test]
    fn a_rejected_configuration_is_an_error_at_once() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        drop(taken);
        let rejected = Mosquitto::start(address, "no_such_option 1");
        assert!(matches!(rejected, Err(BrokerError::Silent(..))));
    }
}
