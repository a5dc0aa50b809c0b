//! A mosquitto of our own, for the demo on a machine where no broker answers, and for tests.

use std::{
    io::{self, Write as _},
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::NamedTempFile;

/// Why there is no broker.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// Nothing answers there and it is not this machine, where we could start one.
    #[error("no MQTT broker answers at {0}; start one there, or use mqtt://127.0.0.1")]
    Elsewhere(String),
    /// The configuration file could not be written.
    #[error("writing mosquitto's configuration into {dir}: {0}", dir = std::env::temp_dir().display())]
    Config(io::Error),
    /// The program is not there.
    #[error(
        "starting mosquitto for the demo: {0}; install it (apt-get install mosquitto) or start a broker yourself"
    )]
    Start(io::Error),
    /// It ended, or never listened.
    #[error("mosquitto does not answer on {0}: {1}; is the port in use?")]
    Silent(SocketAddr, String),
}

/// A mosquitto child process on loopback. It is ended when this value is dropped.
#[derive(Debug)]
pub struct Broker {
    child: Child,
    address: SocketAddr,
    /// Removed with this value; mosquitto reads it at its start and on SIGHUP.
    _config: NamedTempFile,
}

/// How long a fresh mosquitto may take until it listens.
const START_TRIES: u32 = 600;
const START_PAUSE: Duration = Duration::from_millis(50);
/// How long a broker that is there may take until it accepts a connection.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Starts mosquitto when nothing answers at `host:port` and that is this machine; `None` when a broker is there.
/// Blocks for up to thirty seconds, and for two more for each address of the host that does not answer.
pub fn ensure(host: &str, port: u16) -> Result<Option<Broker>, BrokerError> {
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
        Some(address) => Broker::start(address, "").map(Some),
        None => Err(BrokerError::Elsewhere(format!("{host}:{port}"))),
    }
}

fn answers(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, ANSWER_LIMIT).is_ok()
}

impl Broker {
    /// Starts mosquitto on a loopback address, with further lines of its configuration. Blocks until it answers.
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
    // Debian keeps it in sbin, which is not on every user's PATH.
    for program in ["mosquitto", "/usr/sbin/mosquitto"] {
        let started = Command::new(program)
            .arg("-c")
            .arg(config)
            // A terminal's Ctrl-C goes to the whole group, and the last messages still need the broker.
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

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing else to do about a child that cannot be ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn one_is_started_where_none_answers_and_ends_with_its_value() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let there = ensure("127.0.0.1", address.port()).unwrap();
        assert!(there.is_none(), "something answers already");
        drop(taken);
        let own = ensure("localhost", address.port()).unwrap();
        assert_eq!(own.map(|broker| broker.address()), Some(address));
        assert!(!answers(address), "it ended with its value");
    }

    #[test]
    fn a_configuration_that_it_refuses_is_told_at_once() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        drop(taken);
        let refused = Broker::start(address, "no_such_option 1");
        assert!(matches!(refused, Err(BrokerError::Silent(..))));
    }
}
