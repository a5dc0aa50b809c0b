//! The program as a child process with a broker and a consumer beside it. Everything is on loopback and ends with the
//! test that started it.
//!
//! Nothing here reads a clock: a test waits for what has to happen and gives up after [`PATIENCE`], which is generous
//! because it says nothing about speed.

pub mod broker;
mod lines;
pub mod room;
#[allow(dead_code, reason = "a test of crates/mqtt uses the rest")]
pub mod schemas;
pub mod viewer;

use std::{
    ffi::OsStr,
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU16, AtomicUsize, Ordering},
    time::Duration,
};

use lines::Lines;
use serde_json::Value;

/// How long anything may take before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// An asked-for stop has to be over by then: systemd kills (`TimeoutStopSec` of the unit).
pub const STOP_LIMIT: Duration = Duration::from_secs(20);
/// Between two looks at something that cannot be waited for.
const POLL: Duration = Duration::from_millis(50);

/// Exit codes of the program.
pub const DONE: i32 = 0;
/// It could not; the reason is on stderr.
pub const FAILED: i32 = 1;
/// The configuration is wrong.
pub const CONFIG: i32 = 78;

/// Calls `attempt` until it gives something; `what` names it when patience ends.
pub fn until<T>(what: &str, attempt: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, what, attempt)
}

#[track_caller]
fn within<T>(limit: Duration, what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    for _ in 0..limit.as_millis() / POLL.as_millis() {
        if let Some(value) = attempt() {
            return value;
        }
        std::thread::sleep(POLL);
    }
    panic!("{limit:?} went by without {what}")
}

/// A loopback address where nothing listens. Its port is below those that Linux assigns to sockets without one, so only
/// another test that looks for a free address could take it meanwhile; each process begins at another port.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 10_000;
    const PORTS: u16 = 20_000;
    let own = (std::process::id() * 97 % u32::from(PORTS)) as u16;
    let mut ports = std::iter::repeat_with(|| {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST + (own + next) % PORTS))
    });
    let is_free = |address: &SocketAddr| TcpListener::bind(address).is_ok();
    ports.find(is_free).expect("one of many ports is free")
}

/// A folder of the checkout or a file in it.
pub fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Writes `text` to `directory/name`.
pub fn file(directory: &Path, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, text).expect("a file in the test's directory");
    path
}

/// Writes a program for the shell. It is put in its place by a process of its own: a child that another test forks while
/// this process writes a file would hold it open, and such a file cannot be run.
pub fn script(directory: &Path, name: &str, text: &str) {
    let draft = file(directory, &format!("{name}.draft"), text);
    let install = Command::new("install")
        .args(["-m", "755"])
        .args([&draft, &directory.join(name)])
        .status();
    assert!(install.expect("install is there").success(), "{name}");
}

/// `spotter` with `arguments`, to be changed before it starts. Each has a place of its own for its state.
pub fn command<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    let (process, number) = (std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
    let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("state-{process}-{number}"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_spotter"));
    command
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env_remove("RUST_LOG")
        .env("STATE_DIRECTORY", &state)
        // A model that the developer has fetched is not used.
        .env("XDG_DATA_HOME", state)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub struct Program {
    child: Child,
    pub stdout: Lines,
    pub stderr: Lines,
}

/// What is left of a run.
#[derive(Debug)]
pub struct Ended {
    /// `None` when a signal killed it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Program {
    /// Starts `spotter` with `arguments`.
    pub fn start<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Self {
        Self::from_command(&mut command(arguments))
    }

    /// Starts what [`command`] gave.
    pub fn from_command(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("the program starts");
        let stdout = Lines::follow(child.stdout.take().expect("stdout is piped"));
        let stderr = Lines::follow(child.stderr.take().expect("stderr is piped"));
        Self {
            child,
            stdout,
            stderr,
        }
    }

    /// Sends a signal, for example `TERM`.
    pub fn signal(&self, name: &str) {
        self.kill(name, &self.child.id().to_string());
    }

    /// Waits until it has taken over SIGTERM, which is before it loads the model.
    pub fn wait_for_its_signal_handler(&self) {
        const TERM_BIT: u64 = 1 << (15 - 1);
        let status = format!("/proc/{}/status", self.child.id());
        until("a handler of SIGTERM", || {
            let text = fs::read_to_string(&status).ok()?;
            let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
            let caught = u64::from_str_radix(caught.trim(), 16).ok()?;
            (caught & TERM_BIT != 0).then_some(())
        });
    }

    /// Sends it to the process group that the program leads, as a terminal does at Ctrl-C.
    pub fn signal_group(&self, name: &str) {
        self.kill(name, &format!("-{}", self.child.id()));
    }

    fn kill(&self, name: &str, whom: &str) {
        let kill = Command::new("kill")
            .args([&format!("-{name}"), "--", whom])
            .status();
        assert!(
            kill.expect("kill is there").success(),
            "the program is gone: {}",
            self.stderr.text()
        );
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end(self) -> Ended {
        self.end_within(PATIENCE)
    }

    /// Asks it to stop as systemd does, which it has to obey soon.
    #[track_caller]
    pub fn terminate(self) -> Ended {
        self.signal("TERM");
        self.end_within(STOP_LIMIT)
    }

    #[track_caller]
    fn end_within(mut self, limit: Duration) -> Ended {
        let status = within(limit, "the end of the program", || {
            self.child.try_wait().expect("a child")
        });
        Ended {
            code: status.code(),
            stdout: self.stdout.to_end(),
            stderr: self.stderr.to_end(),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Ended already, or ended now; there is nothing else to be done about it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// It ended so, or the test ends with all it said.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// It was stopped in order, and every frame is in the counters.
    #[track_caller]
    pub fn expect_balanced(self) -> Self {
        let ended = self.expect(DONE);
        let report = "every frame is accounted for";
        let is_balanced = [&ended.stdout, &ended.stderr].map(|text| text.contains(report));
        assert!(is_balanced.contains(&true), "{ended:#?}");
        ended
    }

    /// It failed with one message that holds all of `parts`, and without the words of a panic.
    #[track_caller]
    pub fn fails_with(self, code: i32, parts: &[&str]) {
        let ended = self.expect(code);
        for part in parts {
            assert!(ended.stderr.contains(part), "{part:?} is not in {ended:#?}");
        }
        let messages = ended.stderr.matches("spotter: ").count();
        assert_eq!(messages, 1, "one message is enough: {ended:#?}");
        for alarm in ["panicked", "RUST_BACKTRACE", "unwrap"] {
            assert!(!ended.stderr.contains(alarm), "{ended:#?}");
        }
    }
}

/// Runs `spotter` to its end.
pub fn spotter<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Ended {
    Program::start(arguments).end()
}

/// One figure of the status page at `address`, `None` while it is not there. `name` is everything before the value, for
/// example `spotter_ingest_frames_total{camera="gate"}`.
pub fn metric(address: SocketAddr, name: &str) -> Option<f64> {
    let page = get(address, "/metrics")?;
    let line = page.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

pub fn get(address: SocketAddr, path: &str) -> Option<String> {
    request(address, "GET", path)
}

/// Status and JSON of the answer to a command that the page's token sends.
pub fn command_of_page(page: SocketAddr, token: &str, command: &Value) -> (u16, Value) {
    ask_page(page, token, "POST /command", &command.to_string())
}

/// Status and JSON of the page's answer to a client with a token.
pub fn ask_page(page: SocketAddr, token: &str, request: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(page).expect("the page");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let head = format!(
        "Host: {page}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {}",
        body.len()
    );
    write!(stream, "{request} HTTP/1.1\r\n{head}\r\n\r\n{body}").expect("the page");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let json = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
    (status.expect("a status"), json)
}

/// The answer to a request without a body, `None` while the connection is refused. Bytes that are no text are replaced.
pub fn request(address: SocketAddr, method: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )
    .ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    Some(String::from_utf8_lossy(&answer).into_owned())
}
