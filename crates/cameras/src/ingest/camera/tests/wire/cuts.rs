//! A thousand connections that end badly leak no threads, files or memory.

use super::*;

const CAMERAS: usize = 40;
/// Rounds of each camera: the first ones fill pools (tokio's, the decoders', malloc's), a batch of the others must leak nothing.
const FIRST_ROUNDS: usize = 10;
const MORE_ROUNDS: usize = 15;
/// Pools may go on filling during the first batches of rounds; a leak shows in each.
const BATCHES: usize = 3;
/// Memory may grow by this much for each rebuilt pipeline: malloc's own reserve varies by less, and the test finds a pipeline
/// that leaks 32 KiB.
const KEPT_KIB: u64 = 16;

/// Threads, open files and memory of the process.
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
        // Anonymous memory only: the kernel loads and evicts pages of programs and libraries at any time.
        let own = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = own.and_then(|own| own.trim().split(' ').next()?.parse().ok());
        Self {
            threads: count("task"),
            files: count("fd"),
            kib: kib.unwrap(),
        }
    }

    /// The least of each within some seconds, in which what ends by itself has ended: a leak shows in it too.
    async fn at_rest() -> Self {
        let mut least = Self::now();
        for _ in 0..60 {
            sleep(Duration::from_millis(50)).await;
            let now = Self::now();
            least.threads = least.threads.min(now.threads);
            least.files = least.files.min(now.files);
            least.kib = least.kib.min(now.kib);
        }
        least
    }

    fn is_no_more_than(&self, before: &Self) -> bool {
        let kept_kib = KEPT_KIB * (CAMERAS * MORE_ROUNDS) as u64;
        self.threads <= before.threads + 4
            && self.files <= before.files + 4
            && self.kib <= before.kib + kept_kib
    }
}

// Faults: C50.
/// Other tests of this process use threads and files too. It has as many of malloc's arenas as the service, and each picture has
/// its own pages, which malloc returns when they are freed: the rest is leaked.
#[test]
fn a_thousand_cuts_leave_nothing_behind() {
    let test = "wire::cuts::a_thousand_cuts_leave_nothing_behind";
    let malloc = [
        ("MALLOC_ARENA_MAX", "2"),
        ("MALLOC_MMAP_THRESHOLD_", "16384"),
    ];
    match run_alone(test, &malloc) {
        Some(text) => println!("{text}"),
        None => {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(cut_and_restore());
        }
    }
}

async fn cut_and_restore() {
    tape(TapeCodec::H264);
    let beside = Server::start(|_| good()).await;
    let untouched = CheckedCamera::start(camera_of(&beside), &good());
    let mut cameras: Vec<CutConnection> = Vec::new();
    for camera in 0..CAMERAS {
        cameras.push(CutConnection::start(camera).await);
    }
    cameras = side_by_side_for(FIRST_ROUNDS, cameras).await;
    let mut before = Holds::at_rest().await;
    for batch in 1..=BATCHES {
        cameras = side_by_side_for(MORE_ROUNDS, cameras).await;
        let after = Holds::at_rest().await;
        println!("before {before:?}, after {after:?}");
        if after.is_no_more_than(&before) {
            break;
        }
        assert!(batch < BATCHES, "before {before:?}, after {after:?}");
        before = after;
    }
    for camera in cameras {
        camera.end().await;
    }
    let health = untouched.health();
    untouched.frames(health.frames + 10).await;
    assert_undamaged(&health, "beside");
    untouched.stop().await;
}

/// Runs all cameras; none of them is connected at the end.
async fn side_by_side_for(rounds: usize, cameras: Vec<CutConnection>) -> Vec<CutConnection> {
    let mut running = JoinSet::new();
    for camera in cameras {
        running.spawn(camera.rounds(rounds));
    }
    running.join_all().await
}

/// Each connection ends by itself, in another way and after other pictures than the one before.
struct CutConnection {
    server: Server,
    watched: CheckedCamera,
}

impl CutConnection {
    async fn start(camera: usize) -> Self {
        let script = move |connection: usize| {
            // The first picture is shown when the second one begins.
            let pictures = 8 + (connection + camera) % 7;
            let deed = [CameraFault::Close, CameraFault::Reset][connection % 2];
            match connection % 4 {
                0 | 1 => good().after(pictures, deed),
                _ => good().within(pictures, deed),
            }
        };
        let server = Server::start(script).await;
        let watched = CheckedCamera::start(camera_of(&server), &good());
        Self { server, watched }
    }

    async fn rounds(self, rounds: usize) -> Self {
        let handle = &self.watched.handle;
        handle.set_enabled(true);
        // A connection counts when it showed a picture: on a busy machine all of one may be late.
        let (mut counted, mut right) = (0, self.watched.tally().right);
        while counted < rounds {
            let health = self.watched.failure().await;
            assert_eq!(health.failure.unwrap().fault, StreamFault::Disconnected);
            let now = self.watched.tally().right;
            counted += usize::from(now > right);
            right = now;
            // Each pause is the one after a first failure, so two starts are still one second apart.
            handle.reconnect();
            let tries = |health: &Health| health.next_retry.is_none();
            self.watched.until("a new connection", tries).await;
        }
        handle.set_enabled(false);
        let off = |health: &Health| health.phase == Phase::Disabled;
        self.watched.until("disabled", off).await;
        eventually("closed", || self.server.memory().open == 0).await;
        self
    }

    async fn end(self) {
        let health = self.watched.health();
        assert_eq!((health.abandoned, health.counters.frames_corrupt), (0, 0));
        let rounds = FIRST_ROUNDS + MORE_ROUNDS;
        assert!(self.server.memory().connections >= rounds);
        let tally = self.watched.stop().await;
        assert!(tally.right >= rounds as u64, "{tally:?}");
    }
}
