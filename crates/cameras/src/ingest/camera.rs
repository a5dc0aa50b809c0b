//! The shell around a [`Session`]: one tokio task a camera that opens, watches, stops and reports.

use std::{
    collections::VecDeque,
    future::pending,
    pin::Pin,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::{Timeout, sleep, timeout},
};
use tracing::{error, info, warn};

use super::{
    gst::{DeviceMap, GstOpener},
    health::{Failure, Health},
    session::{Action, Session, SessionInput, SessionPolicy, SourceActivity},
    source::{FrameSink, Opener, Progress, Source, SourceEvent, SourceOutlet},
};
use spotter_config::CameraConfig;
use spotter_core::{
    CameraId, Clock, LogThrottle, Phase, StreamCounters, StreamFault, WallTime, duration_from_secs,
    rounded,
};

/// A pipeline that did not end by then is left behind.
const TEARDOWN_LIMIT: Duration = Duration::from_secs(5);
/// Health is reported at least so often.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// A source sends at most four events before they are received; requests are rare.
const CHANNEL: usize = 16;

/// What is wanted of a camera. Its task compares it with what it has.
#[derive(Clone)]
struct CameraWish {
    enabled: bool,
    /// Counts the requests to connect again.
    reconnects: u64,
    stream: Arc<SourceSetup>,
}

impl CameraWish {
    /// From this wish to a later one.
    fn inputs(&self, later: &Self) -> Vec<SessionInput> {
        let mut inputs = Vec::new();
        if !Arc::ptr_eq(&self.stream, &later.stream) {
            inputs.push(SessionInput::Change(later.stream.policy));
        }
        match (self.enabled, later.enabled) {
            (false, true) => inputs.push(SessionInput::Enable),
            (true, false) => inputs.push(SessionInput::Disable),
            (true, true) if self.reconnects != later.reconnects => {
                inputs.push(SessionInput::Reconnect);
            }
            _ => {}
        }
        inputs
    }
}

/// What decides how a camera is connected to.
struct SourceSetup {
    opener: Arc<dyn Opener>,
    policy: SessionPolicy,
}

/// A camera that runs. Dropping the handle stops it too, without waiting for the end of its session.
pub struct CameraHandle {
    wish: watch::Sender<CameraWish>,
    health: watch::Receiver<Health>,
    task: JoinHandle<()>,
}

impl CameraHandle {
    /// The latest health; changes can be awaited.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    /// Starts or stops watching the camera, with its connection.
    pub fn set_enabled(&self, enabled: bool) {
        self.wish.send_modify(|wish| wish.enabled = enabled);
    }

    pub fn reconnect(&self) {
        self.wish.send_modify(|wish| wish.reconnects += 1);
    }

    /// The camera is to be reached and decoded as configured here from now on: the old connection is ended first. Its id and
    /// where its frames go stay.
    pub fn change(&self, camera: &CameraConfig, device: Option<DeviceMap>) {
        let opener = Arc::new(GstOpener::new(camera.clone(), device));
        let stream = Arc::new(SourceSetup::new(opener, camera));
        self.wish.send_modify(|wish| wish.stream = stream);
    }

    /// Ends the camera's session and the task. False when that took longer than `limit`; it then goes on in the background.
    pub async fn stop(self, limit: Duration) -> bool {
        // The end of wishes is the order to end.
        drop(self.wish);
        timeout(limit, self.task).await.is_ok()
    }
}

/// Starts a camera for ever. Needs a tokio runtime. `sink` gets every good frame, in GStreamer's thread. With a `device`,
/// frames that are decoded on a GPU stay there.
pub fn spawn(
    camera: CameraConfig,
    clock: Arc<dyn Clock>,
    sink: FrameSink,
    device: Option<DeviceMap>,
) -> CameraHandle {
    let opener = Arc::new(GstOpener::new(camera.clone(), device));
    spawn_with(opener, &camera, clock, sink)
}

/// As [`spawn`], with other sources.
pub fn spawn_with(
    opener: Arc<dyn Opener>,
    camera: &CameraConfig,
    clock: Arc<dyn Clock>,
    sink: FrameSink,
) -> CameraHandle {
    start(SourceSetup::new(opener, camera), &camera.id, clock, sink)
}

fn start(
    stream: SourceSetup,
    camera: &CameraId,
    clock: Arc<dyn Clock>,
    sink: FrameSink,
) -> CameraHandle {
    let session = Session::new(stream.policy);
    let (wish, wished) = watch::channel(CameraWish {
        enabled: true,
        reconnects: 0,
        stream: Arc::new(stream),
    });
    let since = clock.wall();
    let (events, _) = mpsc::channel(CHANNEL);
    let outlet = SourceOutlet {
        camera: camera.clone(),
        clock,
        sink,
        numbers: Arc::new(AtomicU64::new(0)),
        events,
    };
    let mut task = CameraTask {
        session,
        wish: wish.borrow().clone(),
        outlet,
        running: None,
        stopping: None,
        last: Progress::default(),
        frames: 0,
        counters: StreamCounters::default(),
        abandoned: 0,
        since,
        failures: LogThrottle::default(),
        silent: true,
    };
    let first = Health {
        // The task begins by enabling the session.
        phase: Phase::Connecting,
        ..task.health()
    };
    let (reports, health) = watch::channel(first);
    CameraHandle {
        wish,
        health,
        task: tokio::spawn(task.run(wished, reports)),
    }
}

/// Does what may block in a thread of its own, as a runtime waits for its threads at the end, for ever. Nothing is received when the
/// thread did not start or panicked.
fn in_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> oneshot::Receiver<T> {
    let (done, receiver) = oneshot::channel();
    let thread = std::thread::Builder::new().name(name.to_owned());
    if let Err(e) = thread.spawn(move || drop(done.send(work()))) {
        error!("cannot start the thread {name}: {e}");
    }
    receiver
}

/// Opens or rewinds a source. `None` when it was not done within `limit`; it then goes on in the background.
async fn in_time<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Option<Result<T, Failure>> {
    let done = timeout(limit, in_thread("ingest-open", work)).await.ok()?;
    Some(done.unwrap_or_else(|_| {
        let text = "the thread that opens the source failed; the log above says why";
        Err(Failure::new(StreamFault::Device, text))
    }))
}

/// `what` was not done in time.
fn stuck(what: &str) -> Failure {
    Failure::new(StreamFault::Device, format!("{what}; is its driver stuck?"))
}

impl SourceSetup {
    fn new(opener: Arc<dyn Opener>, camera: &CameraConfig) -> Self {
        let policy = SessionPolicy {
            first_frame: camera.first_frame,
            stall: camera.stall,
            looped: camera.source.is_looped(),
            pause_scale: 1.0,
        };
        Self { opener, policy }
    }
}

struct RunningSource {
    source: Arc<dyn Source>,
    events: mpsc::Receiver<SourceEvent>,
}

type Teardown = Pin<Box<Timeout<oneshot::Receiver<()>>>>;

struct CameraTask {
    session: Session,
    wish: CameraWish,
    outlet: SourceOutlet,
    running: Option<RunningSource>,
    /// The end of a pipeline that is torn down.
    stopping: Option<Teardown>,
    last: Progress,
    /// Sums over the pipelines that are gone: frames, losses, and those that did not end.
    frames: u64,
    counters: StreamCounters,
    abandoned: u32,
    since: WallTime,
    failures: LogThrottle<StreamFault>,
    /// The last log line was about a failure, or there was none.
    silent: bool,
}

impl CameraTask {
    async fn run(
        mut self,
        mut wished: watch::Receiver<CameraWish>,
        reports: watch::Sender<Health>,
    ) {
        self.feed(SessionInput::Enable).await;
        loop {
            reports.send_replace(self.health());
            let now = self.outlet.clock.now();
            let wake = self.session.next_deadline().map(|due| due.since(now));
            let pause = wake.unwrap_or(REPORT_EVERY).min(REPORT_EVERY);
            let input = tokio::select! {
                changed = wished.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    let later = wished.borrow_and_update().clone();
                    let before = std::mem::replace(&mut self.wish, later);
                    for input in before.inputs(&self.wish) {
                        if matches!(input, SessionInput::Enable | SessionInput::Reconnect) {
                            self.wish.stream.opener.requested();
                        }
                        self.feed(input).await;
                    }
                    continue;
                }
                event = next_event(&mut self.running) => SessionInput::Source(event),
                ended = stopped(&mut self.stopping) => {
                    self.stopped(ended);
                    SessionInput::Stopped
                }
                () = sleep(pause) => SessionInput::Tick(self.read_progress()),
            };
            self.feed(input).await;
        }
        self.feed(SessionInput::Disable).await;
        if self.stopping.is_some() {
            let ended = stopped(&mut self.stopping).await;
            self.stopped(ended);
        }
        reports.send_replace(self.health());
    }

    /// Gives an input to the session and performs its actions. A failed action is an input again.
    async fn feed(&mut self, input: SessionInput) {
        let failed = |failure| SessionInput::Source(SourceEvent::Failed(failure));
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let (phase, attempts) = (self.session.phase(), self.session.attempts);
            let now = self.outlet.clock.now();
            for action in self.session.on(input, now, fastrand::f64()) {
                let result = match action {
                    Action::Start => self.start().await.map_err(failed),
                    Action::Stop => self.stop(),
                    Action::Rewind => self.rewind().await.map_err(failed),
                };
                inputs.extend(result.err());
            }
            self.log(phase, attempts);
        }
    }

    async fn start(&mut self) -> Result<(), Failure> {
        let (events, received) = mpsc::channel(CHANNEL);
        let outlet = SourceOutlet {
            events,
            ..self.outlet.clone()
        };
        let opener = self.wish.stream.opener.clone();
        let limit = self.wish.stream.policy.first_frame;
        let Some(opened) = in_time(limit, move || opener.open(outlet)).await else {
            self.abandoned += 1;
            return Err(stuck("the source did not open in time"));
        };
        self.last = Progress::default();
        self.running = Some(RunningSource {
            source: opened?,
            events: received,
        });
        Ok(())
    }

    /// Begins the end of the pipeline; `Err` is the input for a pipeline that is gone already.
    fn stop(&mut self) -> Result<(), SessionInput> {
        let Some(running) = self.running.take() else {
            return Err(SessionInput::Stopped);
        };
        let progress = running.source.progress();
        self.frames += progress.frames;
        self.counters += progress.counters;
        self.last = Progress {
            // Already in the totals; the rest is shown while the camera is away.
            frames: 0,
            counters: StreamCounters::default(),
            ..progress
        };
        let source = running.source;
        // Broken drivers may block for ever.
        let end = move || {
            source.stop();
            drop(source);
        };
        let ended = in_thread("ingest-teardown", end);
        self.stopping = Some(Box::pin(timeout(TEARDOWN_LIMIT, ended)));
        Ok(())
    }

    async fn rewind(&self) -> Result<(), Failure> {
        let Some(running) = &self.running else {
            return Ok(());
        };
        let source = Arc::clone(&running.source);
        let limit = self.wish.stream.policy.first_frame;
        let rewound = in_time(limit, move || source.rewind()).await;
        rewound.unwrap_or_else(|| Err(stuck("the source did not go back to its start in time")))
    }

    fn stopped(&mut self, in_time: bool) {
        self.stopping = None;
        if !in_time {
            self.abandoned += 1;
            error!(camera = %self.outlet.camera, "a pipeline did not end in time and was left behind");
        }
    }

    /// Asks the source for its progress.
    fn read_progress(&mut self) -> SourceActivity {
        let Some(running) = &self.running else {
            return SourceActivity::default();
        };
        self.last = running.source.progress();
        SourceActivity {
            frame: self.last.last_frame,
            packet: self.last.last_packet,
            gop: self.last.stream.gop_s.map(duration_from_secs),
        }
    }

    /// A log line when it streams or fails, none for frames. Each reason of a camera is logged at most once a
    /// minute, and that it streams only after a failure was logged.
    fn log(&mut self, before: Phase, attempts_before: u32) {
        let (phase, camera) = (self.session.phase(), &self.outlet.camera);
        let now = self.outlet.clock.now();
        if let Some(failure) = &self.session.failure
            && self.session.attempts > attempts_before
        {
            if let Some(suppressed) = self.failures.admit(failure.fault, now) {
                let suppressed = (suppressed > 0).then_some(suppressed);
                let retry = self.session.next_retry();
                let retry_s = retry.map_or(0.0, |due| tenths(due.since(now)));
                let (reason, attempts) = (failure.fault.code(), self.session.attempts);
                warn!(%camera, reason, attempts, suppressed, retry_s, "{failure}");
                self.silent = true;
            }
        } else if phase == Phase::Streaming && before != phase && self.silent {
            let reconnects_1h = self.session.last_hour(now).0;
            let reconnects_1h = (reconnects_1h > 0).then_some(reconnects_1h);
            info!(%camera, reconnects_1h, "streaming");
            self.silent = false;
        }
        if phase != before {
            self.since = self.outlet.clock.wall();
        }
    }

    fn health(&mut self) -> Health {
        if self.running.is_some() {
            self.read_progress();
        }
        let now = self.outlet.clock.now();
        let (reconnects_1h, stalls_1h) = self.session.last_hour(now);
        let (last, counts) = (&self.last, self.session.counts);
        Health {
            phase: self.session.phase(),
            failure: self.session.failure.clone(),
            since: self.since,
            attempts: self.session.attempts,
            next_retry: self.session.next_retry().map(|due| due.since(now)),
            stream: last.stream.clone(),
            frames: self.frames + last.frames,
            counters: self.counters + last.counters,
            losses: counts.losses,
            reconnects: counts.reconnects,
            stalls: counts.stalls,
            reconnects_1h,
            stalls_1h,
            abandoned: self.abandoned,
            clock: last.clock,
        }
    }
}

fn tenths(time: Duration) -> f64 {
    rounded(time.as_secs_f64(), 1)
}

async fn next_event(running: &mut Option<RunningSource>) -> SourceEvent {
    match running {
        Some(running) => match running.events.recv().await {
            Some(event) => event,
            None => pending().await,
        },
        None => pending().await,
    }
}

/// Waits for the end of a teardown; false when its time is over.
async fn stopped(stopping: &mut Option<Teardown>) -> bool {
    match stopping {
        Some(stopping) => matches!(stopping.await, Ok(Ok(()))),
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
