//! A camera logs no login, and abandons a pipeline that is stuck.

use std::sync::atomic::AtomicUsize;

use super::*;

/// The log of a process is that of all its tests.
#[test]
fn log_of_a_camera_never_contains_its_login() {
    let Some(text) = run_alone("life::log_of_a_camera_never_contains_its_login", &[]) else {
        return tokio::runtime::Runtime::new().unwrap().block_on(async {
            let trace = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
            trace.init();
            let server = street(street_options());
            let mut watched = WatchedCamera::start(rtsp(server.url(), Transport::Tcp));
            watched.frame().await;
            watched.stop().await;
        });
    };
    let is_logged = text.contains("decoder chosen");
    assert!(is_logged && !text.contains(CANARY), "{text}");
}

/// What a stuck source waits for, with its events.
type HeldSource = (mpsc::Sender<SourceEvent>, std::sync::mpsc::Sender<()>);

/// A source that plays by a script: it opens, and blocks when it is to end, until what it holds is dropped.
#[derive(Clone, Default)]
struct Stuck {
    opened: Arc<AtomicUsize>,
    held: Arc<Mutex<Vec<HeldSource>>>,
}

struct StuckSource(Mutex<Option<std::sync::mpsc::Receiver<()>>>);

impl Source for StuckSource {
    fn progress(&self) -> Progress {
        Progress::default()
    }
    fn rewind(&self) -> Result<(), Failure> {
        Ok(())
    }
    fn stop(&self) {
        let stuck = self.0.lock().unwrap().take();
        let _ = stuck.map(|stuck| stuck.recv_timeout(LIMIT));
    }
}

impl Opener for Stuck {
    fn open(&self, outlet: SourceOutlet) -> Result<Arc<dyn Source>, Failure> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        outlet.send(SourceEvent::FirstFrame);
        let failure = Failure::new(StreamFault::Disconnected, "gone");
        outlet.send(SourceEvent::Failed(failure));
        let (sender, receiver) = std::sync::mpsc::channel();
        self.held.lock().unwrap().push((outlet.events, sender));
        Ok(Arc::new(StuckSource(Mutex::new(Some(receiver)))))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipeline_that_does_not_stop_is_abandoned_and_counted() {
    let opener = Stuck::default();
    let watched = WatchedCamera::start_with(opener.clone(), &camera(SourceConfig::Test));
    let abandoned = |health: &Health| health.abandoned >= 1;
    assert_eq!(watched.until("abandoned", abandoned).await.frames, 0);
    let again = |health: &Health| health.reconnects_1h >= 1;
    watched.until("a new connection", again).await;
    assert!(opener.opened.load(Ordering::SeqCst) >= 2);
    drop(watched);
    opener.held.lock().unwrap().clear();
}

/// A source whose driver does not return from opening it until what it holds is dropped.
struct HangingSource {
    opening: std::sync::mpsc::Sender<()>,
    held: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl Opener for HangingSource {
    fn open(&self, _: SourceOutlet) -> Result<Arc<dyn Source>, Failure> {
        let _ = self.opening.send(());
        let _ = self.held.lock().unwrap().recv();
        Err(Failure::new(StreamFault::Device, "gone"))
    }
}

#[test]
fn source_that_never_opens_does_not_delay_shutdown() {
    let (opening, opens) = std::sync::mpsc::channel();
    let (release, held) = std::sync::mpsc::channel();
    let held = Mutex::new(held);
    let opener = Arc::new(HangingSource { opening, held });
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let handle = runtime.block_on(async {
        let clock = Arc::new(SystemClock::new());
        spawn_with(
            opener,
            &camera(SourceConfig::Test),
            clock,
            FrameSink::new(|_| {}),
        )
    });
    opens.recv_timeout(LIMIT).unwrap();
    drop(handle);
    let (ended, end) = std::sync::mpsc::channel();
    let ending = std::thread::Builder::new().name("test-end".into());
    let end_it = move || {
        drop(runtime);
        ended.send(()).unwrap();
    };
    ending.spawn(end_it).unwrap();
    assert!(end.recv_timeout(LIMIT).is_ok());
    drop(release);
}
