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

use spotter_core::Mono;

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

/// Reports progress to systemd's watchdog. Call it while [`Watchdog::check`] returns no stuck loop, never from a plain timer; a start that comes after a reload has nothing to check yet and uses [`alive_while`].
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

/// The unit's `WatchdogSec`; `None` when there is no watchdog. Check [`Watchdog`] a few times in it.
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

/// Compares progress counters with their earlier values. Pure: a loop without progress for its whole limit is stuck; for less,
/// it is busy.
#[derive(Clone, Debug)]
pub struct Watchdog {
    seen: Vec<LoopProgress>,
}

#[derive(Clone, Debug)]
struct LoopProgress {
    name: String,
    limit: Duration,
    counter: u64,
    since: Mono,
}

impl Watchdog {
    /// `loops` names the counters that [`check`](Self::check) gets, in order, and how long each may make no progress.
    pub fn new(loops: impl IntoIterator<Item = (String, Duration)>, now: Mono) -> Self {
        let seen = loops.into_iter().map(|(name, limit)| LoopProgress {
            name,
            limit,
            counter: 0,
            since: now,
        });
        Self {
            seen: seen.collect(),
        }
    }

    /// Returns the names of stuck loops. `counters` rise while their loops live; one for each name. `None` is a loop that has
    /// ended; that was reported when it did and is no reason to restart the others.
    pub fn check(&mut self, counters: &[Option<u64>], now: Mono) -> Vec<String> {
        let mut stuck = Vec::new();
        let running = self.seen.iter_mut().zip(counters);
        for (seen, counter) in running.filter_map(|(seen, counter)| Some((seen, (*counter)?))) {
            if counter != seen.counter {
                (seen.counter, seen.since) = (counter, now);
            } else if now.since(seen.since) >= seen.limit {
                stuck.push(seen.name.clone());
            }
        }
        stuck
    }
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

    #[test]
    fn one_stuck_loop_is_reported_until_it_recovers() {
        let at = |seconds| Mono::default().after(Duration::from_secs(seconds));
        let limit = Duration::from_secs(30);
        let loops = ["engine", "mqtt"].map(|name| (name.to_owned(), limit));
        let mut watchdog = Watchdog::new(loops, at(0));
        let mut check = |counters: [u64; 2], now| watchdog.check(&counters.map(Some), now);
        assert_eq!(check([1, 1], at(10)), [""; 0]);
        assert_eq!(check([1, 2], at(39)), [""; 0]);
        let stuck = ["engine"];
        assert_eq!(check([1, 3], at(40)), stuck);
        assert_eq!(check([2, 4], at(41)), [""; 0]);
    }

    #[test]
    fn ended_loop_is_not_reported_as_stuck() {
        let at = |seconds| Mono::default().after(Duration::from_secs(seconds));
        let loops = ["cuda 0", "cuda 1"].map(|name| (name.to_owned(), Duration::from_secs(30)));
        let mut watchdog = Watchdog::new(loops, at(0));
        assert_eq!(watchdog.check(&[Some(1), Some(1)], at(1)), [""; 0]);
        assert_eq!(watchdog.check(&[Some(2), None], at(60)), [""; 0]);
        let stuck = ["cuda 0"];
        assert_eq!(watchdog.check(&[Some(2), None], at(90)), stuck);
    }
}
