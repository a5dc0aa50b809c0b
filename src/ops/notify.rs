//! systemd: ready, alive, stopping. Without systemd every call does nothing.

use std::{
    ffi::OsStr,
    fmt::Write as _,
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    pin::pin,
    sync::Once,
    time::Duration,
};

use sd_notify::NotifyState;
use tokio::time::timeout;

/// Reports to systemd that the start is complete.
pub fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// One line for `systemctl status`.
pub fn status(text: &str) {
    send(&[NotifyState::Status(text)]);
}

/// Reports to systemd that the stop began.
pub fn stopping(why: &str) {
    send(&[NotifyState::Stopping, NotifyState::Status(why)]);
}

/// Reports progress to systemd's watchdog. Not from a plain timer; a start that comes after a reload has no progress yet and uses
/// [`alive_while`].
pub fn alive() {
    send(&[NotifyState::Watchdog]);
}

/// Does `work`, which shows no progress until it is done, and feeds the watchdog for at most `limit`. After a reload
/// systemd watches already while a model is loaded.
pub async fn alive_while<T>(limit: Duration, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let every = watchdog_interval().map_or(limit, |interval| interval / 4);
    let every = every.max(Duration::from_millis(100));
    let mut left = limit;
    while !left.is_zero() {
        alive();
        let pause = every.min(left);
        if let Ok(done) = timeout(pause, &mut work).await {
            return done;
        }
        left -= pause;
    }
    work.await
}

/// The unit's `WatchdogSec`; `None` when there is no watchdog.
pub fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

fn send(states: &[NotifyState<'_>]) {
    static FAILED: Once = Once::new();
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send_to(&socket, states) {
        // The next report fails in the same way.
        FAILED.call_once(|| {
            tracing::warn!(?socket, %error, "cannot notify systemd, which may restart the service or report a failed start; unset NOTIFY_SOCKET where nothing listens");
        });
    }
}

/// The library does not know abstract sockets, whose names begin with `@`.
fn send_to(socket: &OsStr, states: &[NotifyState<'_>]) -> io::Result<()> {
    let mut message = String::new();
    for state in states {
        // Memory accepts all that is written.
        _ = writeln!(message, "{state}");
    }
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.send_to_addr(message.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Faults: D6.
    #[test]
    fn abstract_socket_and_path_receive_the_states() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("spotter-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let states = [NotifyState::Ready, NotifyState::Status("3 cameras")];
        for (receiver, socket) in [
            (UnixDatagram::bind_addr(&address), format!("@{name}").into()),
            (UnixDatagram::bind(&path), path.clone().into_os_string()),
        ] {
            send_to(&socket, &states).unwrap();
            let mut message = [0; 64];
            let length = receiver.unwrap().recv(&mut message).unwrap();
            assert_eq!(&message[..length], b"READY=1\nSTATUS=3 cameras\n");
        }
        let absent = folder.path().join("absent");
        assert!(send_to(absent.as_os_str(), &states).is_err());
    }
}
