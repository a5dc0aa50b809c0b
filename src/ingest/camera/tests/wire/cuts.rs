//! Five hundred connections that end badly leave nothing behind.

use super::*;

const CAMERAS: usize = 10;
const ROUNDS: usize = 50;
/// A rebuilt pipeline may keep so much for ever, of what malloc does not give back.
const KEPT_KIB: u64 = 128;

/// What the process holds.
#[derive(Clone, Copy, Debug)]
struct Holds {
    threads: u64,
    files: u64,
    kib: u64,
}

impl Holds {
    fn now() -> Self {
        let count = |what: &str| {
            let folder = std::fs::read_dir(format!("/proc/self/{what}"));
            folder.unwrap().count() as u64
        };
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = rss.and_then(|rss| rss.trim().split(' ').next()?.parse().ok());
        Self {
            threads: count("task"),
            files: count("fd"),
            kib: kib.unwrap(),
        }
    }

    /// The least of each: what is always there is there in the quietest moment too.
    fn least(of: &[Self]) -> Self {
        let least = |what: fn(&Self) -> u64| of.iter().map(what).min().unwrap();
        Self {
            threads: least(|holds| holds.threads),
            files: least(|holds| holds.files),
            kib: least(|holds| holds.kib),
        }
    }
}

/// Other tests of this process use threads and files too, so this one runs itself again, alone.
#[test]
fn five_hundred_cuts_leave_nothing_behind() {
    const ALONE: &str = "SPOTTER_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        return runtime.block_on(cut_and_restore());
    }
    let test = "ingest::camera::tests::wire::cuts::five_hundred_cuts_leave_nothing_behind";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    println!("{text}");
    assert!(output.status.success());
}

async fn cut_and_restore() {
    tape(Codec::H264);
    let beside = Server::start(|_| good()).await;
    let untouched = Judged::start(camera_of(&beside), &good());
    let (told, mut rounds) = mpsc::channel(CAMERAS * ROUNDS);
    let mut running = JoinSet::new();
    for camera in 0..CAMERAS {
        running.spawn(rounds_of(camera, told.clone()));
    }
    drop(told);
    let mut moments = Vec::new();
    while rounds.recv().await.is_some() {
        moments.push(Holds::now());
    }
    running.join_all().await;
    assert_eq!(moments.len(), CAMERAS * ROUNDS);
    let health = untouched.health();
    untouched.frames(health.frames + 10).await;
    assert_eq!(
        (health.losses, health.rtp_lost, health.frames_corrupt),
        (0, 0, 0)
    );
    untouched.stop().await;
    // The first rounds fill pools: tokio's, the decoders', malloc's.
    let (early, late) = (
        Holds::least(&moments[200..300]),
        Holds::least(&moments[400..]),
    );
    println!("early {early:?}, late {late:?}");
    assert!(late.threads <= early.threads + 4, "{early:?} {late:?}");
    assert!(late.files <= early.files + 4, "{early:?} {late:?}");
    assert!(late.kib <= early.kib + 200 * KEPT_KIB, "{early:?} {late:?}");
}

/// Each connection ends by itself, in another way and after other pictures than the one before.
async fn rounds_of(camera: usize, told: mpsc::Sender<()>) {
    let script = move |connection: usize| {
        let pictures = 6 + (connection + camera) % 7;
        let deed = [Deed::Close, Deed::Reset][connection % 2];
        match connection % 4 {
            0 | 1 => good().after(pictures, deed),
            _ => good().within(pictures, deed),
        }
    };
    let server = Server::start(script).await;
    let watched = Judged::start(camera_of(&server), &good());
    for _ in 0..ROUNDS {
        let health = watched.failure().await;
        assert_eq!(health.failure.unwrap().fault, Fault::Disconnected);
        told.send(()).await.unwrap();
        // The pauses are those after a first failure: a second lies between two starts all the same.
        watched.handle.reconnect().await;
        let tries = |health: &Health| health.next_retry.is_none();
        watched.until("a new connection", tries).await;
    }
    let health = watched.health();
    assert_eq!((health.abandoned, health.frames_corrupt), (0, 0));
    assert!(server.memory().connections >= ROUNDS);
    let tally = watched.stop().await;
    assert!(tally.right >= ROUNDS as u64, "{tally:?}");
}
