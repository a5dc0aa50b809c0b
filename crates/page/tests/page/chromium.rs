//! A headless Chromium that shows one page and ends.

use std::process::Command;

/// How it starts wherever it runs.
pub const QUIET: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    // It has questions of its own, and it shall not ask anybody.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

pub struct Seen {
    /// The document after the script ran.
    pub dom: String,
    /// What the page complained of.
    pub console: Vec<String>,
    /// Addresses on the page's own server that were asked for.
    pub asked: Vec<String>,
    pub elsewhere: Vec<String>,
}

/// Shows `url` for some seconds of the browser's own time.
pub fn dump(url: &str) -> Seen {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("net.json");
    let output = Command::new("chromium")
        .args(QUIET)
        .args([
            "--enable-logging=stderr",
            "--v=0",
            "--dump-dom",
            // Of the time that the page's clock shows; it runs as fast as answers come.
            "--virtual-time-budget=4500",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.path().join("profile").display()
        ))
        .arg(format!("--log-net-log={}", log.display()))
        .arg(url)
        .output()
        .expect("chromium starts (package chromium)");
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{complaints}");
    let said = |line: &&str| line.contains("CONSOLE");
    let net = std::fs::read_to_string(&log).expect("the log of requests");
    let (asked, elsewhere) = requests(&net)
        .into_iter()
        .partition(|asked| asked.starts_with(url));
    Seen {
        dom: String::from_utf8_lossy(&output.stdout).into_owned(),
        console: complaints.lines().filter(said).map(str::to_owned).collect(),
        asked,
        elsewhere,
    }
}

/// Addresses of all requests of the page in the log, which has one event per line. Requests of the browser itself have no
/// origin.
fn requests(log: &str) -> Vec<String> {
    let of = |line: &str| {
        let (_, rest) = line.split_once("\"url\":\"")?;
        let (url, _) = rest.split_once('"')?;
        let is_new =
            line.contains("\"method\":") && !line.contains("\"initiator\":\"not an origin\"");
        (is_new && url.starts_with("http")).then(|| url.to_owned())
    };
    log.lines().filter_map(of).collect()
}
