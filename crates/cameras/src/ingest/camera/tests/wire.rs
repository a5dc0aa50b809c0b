//! Scripted cameras over real sockets: their faults, and how the client reacts to them.
//!
//! Each picture shows its number, so the tests compare each frame with the picture that the camera sent, and find every
//! wrong one.

use std::{
    ops::Range,
    sync::{OnceLock, atomic::AtomicBool},
};

use tokio::task::JoinSet;

use super::*;
use spotter_scripted::rtsp::{
    paint,
    play::picture_at,
    script::{CameraFault, CameraScript, Damage, Login, Marks, Reports, Scheme, Stamps},
    server::Server,
    tape::{CameraTape, Recording, TapeCodec, media},
};

mod changes;
mod content;
mod conversation;
mod cuts;
mod damage;
mod datagrams;
mod descriptors;
mod endings;
mod refusals;
mod zoo;

/// Limits of cameras that must fail: short, but long enough for a busy machine to reconnect.
const FIRST_FRAME: Duration = Duration::from_secs(5);
const STALL: Duration = Duration::from_secs(3);
/// Scales the pauses between attempts: the longest pause, 36 s, becomes 9 s.
const PAUSE_SCALE: f64 = 0.25;
/// A busy machine may exceed a promised time by this much.
const SLACK: Duration = Duration::from_secs(20);

/// A tape that several tests play.
fn tape(codec: TapeCodec) -> Arc<CameraTape> {
    static TAPES: [OnceLock<Arc<CameraTape>>; 3] = [const { OnceLock::new() }; 3];
    let record = || Arc::new(CameraTape::record(&Recording::of(codec)));
    Arc::clone(TAPES[codec as usize].get_or_init(record))
}

/// The same in several slices a picture.
fn sliced(codec: TapeCodec) -> Arc<CameraTape> {
    static TAPES: [OnceLock<Arc<CameraTape>>; 3] = [const { OnceLock::new() }; 3];
    let recording = Recording {
        sliced: true,
        ..Recording::of(codec)
    };
    let record = || Arc::new(CameraTape::record(&recording));
    Arc::clone(TAPES[codec as usize].get_or_init(record))
}

/// A good H.264 camera.
fn good() -> CameraScript {
    CameraScript::good(&tape(TapeCodec::H264))
}

fn streams(frames: u64) -> impl Fn(&Health) -> bool {
    move |health| health.frames >= frames && is_streaming(health)
}

/// The frames that the sink received.
#[derive(Clone, Debug, Default)]
struct Tally {
    right: u64,
    /// The picture and what it shows, for each wrong frame.
    wrong: Vec<(Option<usize>, Option<u32>)>,
    /// One entry for each change of size.
    sizes: Vec<(u32, u32)>,
    /// Pictures that the camera sent between two frames.
    skipped: usize,
    last: Option<u32>,
}

/// With the check of its frames.
type CheckedCamera = TestCamera<Arc<Mutex<Tally>>>;

impl CheckedCamera {
    /// Connects to a camera that plays the script.
    fn start(camera: CameraConfig, script: &CameraScript) -> Self {
        let opener = Arc::new(GstOpener::new(camera.clone(), None));
        Self::start_with(SourceSetup::new(opener, &camera), script)
    }

    fn start_with(stream: SourceSetup, script: &CameraScript) -> Self {
        let received = Arc::<Mutex<Tally>>::default();
        let (judge, script) = (Arc::clone(&received), script.clone());
        let sink = FrameSink::new(move |frame| judge.lock().unwrap().take(&frame, &script));
        let camera = CameraId::new("gate").unwrap();
        let handle = start(stream, &camera, Arc::new(SystemClock::new()), sink);
        Self { handle, received }
    }

    /// Waits until the total reaches this number of frames.
    async fn frames(&self, frames: u64) -> Health {
        self.until("frames", streams(frames)).await
    }

    /// After a failure: waits for a frame of the next try.
    async fn comes_back(&self, failed: &Health, what: &str) -> Health {
        let limit = failed.next_retry.unwrap() + SLACK;
        self.within(limit, what, streams(failed.frames + 1)).await
    }

    fn tally(&self) -> Tally {
        self.received.lock().unwrap().clone()
    }

    /// Stops the camera and returns the tally of its frames.
    async fn stop(self) -> Tally {
        assert!(self.handle.stop(LIMIT).await, "the camera did not stop");
        let tally = self.received.lock().unwrap().clone();
        assert!(tally.wrong.is_empty(), "{tally:?}");
        tally
    }

    /// Stops without a check of capture times: after a pause of the process for a second, the capture times of the next
    /// pictures are unknown and cannot be compared.
    async fn stop_undated(self) {
        let tally = self.tally();
        assert!(self.handle.stop(LIMIT).await, "the camera did not stop");
        let is_dated = |wrong: &(_, Option<u32>)| wrong.1.is_some();
        assert!(!tally.wrong.iter().any(is_dated), "{tally:?}");
    }
}

impl Tally {
    fn take(&mut self, frame: &Frame, script: &CameraScript) {
        let (width, height) = (frame.picture.width(), frame.picture.height());
        let shown = paint::read(width, height, |x, y| frame.picture.row(0, y)[x]);
        let sent = frame.times.rtp.map(|rtp| {
            let lengths: Vec<usize> = script.reel.iter().map(|tape| tape.pictures.len()).collect();
            let mut number = picture_at(rtp, script.stamps.rtp, script.every);
            number %= lengths.iter().sum::<usize>();
            for length in lengths {
                if number < length {
                    break;
                }
                number -= length;
            }
            number
        });
        if let (Some(rtp), Some(last)) = (frame.times.rtp, self.last) {
            self.skipped += picture_at(rtp, last, script.every).saturating_sub(1);
        }
        self.last = frame.times.rtp;
        let size = (width as u32, height as u32);
        if self.sizes.last() != Some(&size) {
            self.sizes.push(size);
        }
        match (shown, sent) {
            (Some(shown), Some(sent)) if shown == sent % paint::NUMBERS => self.right += 1,
            _ => self.wrong.push((shown, frame.times.rtp)),
        }
    }
}

/// Polls for what sends no message when it changes.
async fn eventually(what: &str, wanted: impl Fn() -> bool) {
    let search = async {
        while !wanted() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(LIMIT, search).await.is_ok(), "{what}");
}

/// A server that plays the script to each connection.
async fn serve(script: &CameraScript) -> Server {
    let script = script.clone();
    Server::start(move |_| script.clone()).await
}

/// Connects to a camera that plays the script, until its health is as wanted. Every frame is right, and the stream is never lost.
async fn played(
    name: &str,
    script: CameraScript,
    configure: impl FnOnce(&mut CameraConfig),
    wanted: impl FnMut(&Health) -> bool,
) -> (Health, Tally, Server) {
    let server = serve(&script).await;
    let mut camera = camera_of(&server);
    configure(&mut camera);
    let watched = CheckedCamera::start(camera, &script);
    let health = watched.until(name, wanted).await;
    let tally = watched.stop().await;
    assert_eq!(health.losses, 0, "{name}");
    println!("{name}: {} right, {health:?}", tally.right);
    (health, tally, server)
}

fn assert_undamaged(health: &Health, name: &str) {
    let counters = health.counters;
    let damage = (health.losses, counters.rtp_lost, counters.frames_corrupt);
    assert_eq!(damage, (0, 0, 0), "{name}");
}

/// A camera that is configured with this server.
fn camera_of(server: &Server) -> CameraConfig {
    rtsp(server.url(), Transport::Tcp)
}

/// With limits of a camera that must fail.
fn impatient(camera: &mut CameraConfig) {
    (camera.stall, camera.first_frame) = (STALL, FIRST_FRAME);
}

/// A fault, the health that the camera must report for it, how soon, and when it must reconnect.
struct Case {
    name: String,
    script: CameraScript,
    fault: StreamFault,
    phase: Phase,
    /// From the first picture, or from the connection where none comes.
    noticed: Duration,
    retry_s: Range<f64>,
}

impl Case {
    /// A case of an ordinary fault: the camera reconnects after a second.
    fn new(name: impl Into<String>, script: CameraScript, fault: StreamFault) -> Self {
        Self {
            name: name.into(),
            script,
            fault,
            phase: match fault {
                StreamFault::Stalled => Phase::Stalled,
                StreamFault::AuthFailed => Phase::AuthFailed,
                StreamFault::Unsupported => Phase::Unsupported,
                _ => Phase::Connecting,
            },
            noticed: match fault {
                StreamFault::NoFrame => FIRST_FRAME,
                StreamFault::Stalled => STALL,
                _ => Duration::ZERO,
            },
            // The time that has passed until the test reads it is already subtracted.
            retry_s: match fault {
                // 10 to 12 s, and 30 to 36 s, by `PAUSE_SCALE`.
                StreamFault::TooManySessions => 1.3..3.1,
                StreamFault::AuthFailed | StreamFault::Unsupported => 4.0..9.1,
                _ => 0.0..1.3,
            },
        }
    }

    /// The camera has the fault until the client reports it in time, then behaves correctly: the client must stream with its
    /// next attempt.
    async fn run(self) {
        let clock = SystemClock::new();
        let mended = Arc::new(AtomicBool::new(false));
        let (bad, watch) = (self.script.clone(), Arc::clone(&mended));
        let script = move |_| match watch.load(Ordering::SeqCst) {
            true => CameraScript {
                login: None,
                deeds: Vec::new(),
                ending: None,
                ..bad.clone()
            },
            false => bad.clone(),
        };
        let server = Server::start(script).await;
        let mut camera = camera_of(&server);
        // Only cameras that must fail get short limits.
        match self.fault {
            StreamFault::NoFrame => camera.first_frame = FIRST_FRAME,
            StreamFault::Stalled => camera.stall = STALL,
            _ => {}
        }
        let began = clock.now();
        let mut stream = SourceSetup::new(Arc::new(GstOpener::new(camera.clone(), None)), &camera);
        stream.policy.pause_scale = PAUSE_SCALE;
        let watched = CheckedCamera::start_with(stream, &self.script);
        let name = &self.name;
        let health = watched.within(self.noticed + SLACK, name, failed).await;
        mended.store(true, Ordering::SeqCst);
        let noticed = clock.now().since(began);
        let failure = health.failure.clone().unwrap();
        let found = (failure.fault, health.phase);
        assert_eq!(found, (self.fault, self.phase), "{name}: {failure}");
        assert!(noticed >= self.noticed, "{name}: {noticed:?}");
        assert!(!format!("{health:?}").contains(CANARY), "{name}");
        let retry = health.next_retry.unwrap();
        let retry_s = retry.as_secs_f64();
        // A busy machine may have tried it again since.
        let of_first = health.attempts > 1 || self.retry_s.contains(&retry_s);
        assert!(of_first, "{name}: {retry_s}");
        let memory = server.memory();
        assert!(memory.wrong_logins <= 1, "{name}: {memory:?}");
        watched.comes_back(&health, name).await;
        let back = clock.now().since(began);
        assert!(back >= self.noticed + retry, "{name}: {back:?} {retry:?}");
        println!(
            "{name}: {} after {noticed:.1?}, to be tried again in {retry:.1?}, back after {:.1?}",
            failure.fault.code(),
            back.saturating_sub(noticed)
        );
        watched.stop_undated().await;
    }
}

/// Runs all cases in parallel with a good camera, which they must not affect.
async fn side_by_side(cases: Vec<Case>) {
    let beside = Server::start(|_| good()).await;
    let untouched = CheckedCamera::start(camera_of(&beside), &good());
    untouched.frames(1).await;
    let mut running = JoinSet::new();
    for case in cases {
        running.spawn(case.run());
    }
    running.join_all().await;
    let before = untouched.health();
    untouched.frames(before.frames + 10).await;
    assert_undamaged(&untouched.health(), "beside");
    untouched.stop_undated().await;
    assert_eq!(beside.memory().connections, 1);
}
