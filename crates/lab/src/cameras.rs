//! `spotter-lab cameras`: runs many cameras on this machine and measures what they cost.
//!
//! ```text
//!   spotter-lab serve-cameras ──RTSP──▶ ingest ─▶ sampler ─▶ engine        all but the broker, in this process
//!   another process: one tape for every       │        │
//!   camera, from a key frame of its own       └────────┴─▶ Delays, counters; /proc for the rest ─▶ CamerasReport
//! ```
//!
//! Each camera has a server, a phase and a place on the tape of its own: neither pictures nor key frames arrive all at once.
//! `bench::cameras` has the statistics.

mod meter;
mod server;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use tokio::time::{Instant, sleep, timeout};

pub use self::server::serve_cameras;
use self::{meter::CpuReading, server::CameraServer};
use crate::bench::cameras::{
    CamerasReport, CamerasRow, DecodeFloor, Delays, frames_between, memory_slope,
};
use spotter::{
    app::{self, engine_slot::EngineSlot, looks::LooksInFlight},
    cli::out::remark,
    ops::machine::Machine,
};
use spotter_cameras::{
    ingest::{self, CameraHandle, FrameSink, Health},
    sampler::{Sampler, TimeLimits},
};
use spotter_config::{self as config, CameraConfig, Environment, ModelSource};
use spotter_core::{CaptureSource, Clock, Frame, ManualClock, Mono, Phase, WallTime};
use spotter_engine::{
    model::load_model,
    scheduler::{backend::BackendLimits, sequence::Bounds},
    service::{Engine, EngineModel, LookRule, handle},
    sim::{SimBackend, SimCosts, SimModel},
};
use spotter_street::{
    Street,
    h264::{CodecError, Encoding},
    tape::StreetTape,
};

/// What every camera shows: a common setting of small cameras.
const STREAM: Encoding = Encoding {
    width: 1280,
    height: 720,
    fps: 15,
    kbit_per_s: 2000,
};
/// Pairs of seconds on the tape, each begun by a key frame.
const TAPE_PAIRS: u32 = 2;
/// The street at a moment by day with people and cars.
const TAPE_STREET: (u64, WallTime) = (7, WallTime::from_unix_millis(1_780_318_235_000));
const LOOKS_HZ: f64 = 1.0;
/// For all but the largest number of cameras: they only serve the slope of memory.
const SHORT_S: u64 = 15;
/// Until all cameras stream. A busy machine draws the first picture late.
const START_LIMIT: Duration = Duration::from_secs(60);
/// From then on until the measurement: sender reports arrive every second, and two have to agree.
const SETTLE: Duration = Duration::from_secs(5);
/// Between two checks whether a camera of a row was looked at.
const FIRST_LOOK_POLL: Duration = Duration::from_millis(20);
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Processor time is counted in steps of 10 ms, so the floor is measured over some seconds of it.
const FLOOR_TAPES: usize = 12;
/// Most frames of a camera per second whose delays are kept; a stream that catches up sends more than its rate.
const FRAMES_A_SECOND: usize = 30;

/// What every camera shows. The same in each process.
fn record_tape() -> Result<StreetTape, CodecError> {
    let (seed, start) = TAPE_STREET;
    StreetTape::record(Street::new(seed), start, STREAM, TAPE_PAIRS)
}

/// Measures each of `numbers` of cameras, fewest first; the last for all of `seconds`. Blocks for the whole measurement.
pub fn measure(
    numbers: &[usize],
    seconds: u64,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<CamerasReport> {
    ingest::start_gstreamer()?;
    remark("recording the tape");
    let tape = record_tape()?;
    remark("measuring the decoder alone");
    let floor = floor(&tape)?;
    let most = numbers.last().copied().unwrap_or_default();
    let server = CameraServer::start(most)?;
    let runtime = app::runtime()?;
    let mut rows = Vec::new();
    for &number in numbers {
        let seconds = match number == most {
            true => seconds,
            false => seconds.min(SHORT_S),
        };
        remark(format_args!("{number} cameras for {seconds} s"));
        rows.push(runtime.block_on(async {
            let running = RunningCameras::start(&server.urls[..number], seconds, clock).await?;
            running.measure(seconds, server.pid()).await
        })?);
    }
    Ok(CamerasReport {
        stream: (STREAM.width, STREAM.height, STREAM.fps, STREAM.kbit_per_s),
        looks_hz: LOOKS_HZ,
        floor,
        floor_after: self::floor(&tape)?,
        mib_per_camera: memory_slope(&rows),
        rows,
        machine: Machine::now(),
    })
}

fn floor(tape: &StreetTape) -> anyhow::Result<DecodeFloor> {
    let before = CpuReading::now(None);
    let pictures = tape.decode(FLOOR_TAPES)?;
    let used = CpuReading::now(None).own.saturating_sub(before.own);
    let ms_per_picture = used.as_secs_f64() * 1e3 / pictures.max(1) as f64;
    Ok(DecodeFloor {
        ms_per_picture,
        cpu_pct: ms_per_picture * 0.1 * f64::from(STREAM.fps),
    })
}

/// The cameras of a run with sampler and engine.
struct RunningCameras {
    cameras: Vec<CameraHandle>,
    sampler: Arc<Sampler>,
    slot: EngineSlot,
    looks: LooksInFlight,
    recorder: Arc<DelayRecorder>,
    clock: Arc<dyn Clock>,
}

impl RunningCameras {
    /// Starts the cameras and waits until all of them stream and their clocks are known.
    async fn start(urls: &[String], seconds: u64, clock: &Arc<dyn Clock>) -> anyhow::Result<Self> {
        let cameras = configured(urls)?;
        let sampler = Sampler::new(&cameras, Arc::clone(clock));
        let looks = LooksInFlight::default();
        let slot = start_engine(&cameras, &sampler, &looks, clock).await?;
        let recorder = Arc::new(DelayRecorder::new(seconds as usize, urls.len()));
        let mut handles = Vec::with_capacity(cameras.len());
        for camera in &cameras {
            let sampled = sampler.camera_sink(&camera.id);
            let sampled = sampled.context("a camera that the sampler does not know")?;
            let sink = recording_sink(sampled, Arc::clone(&recorder), Arc::clone(clock));
            let handle = ingest::spawn(camera.clone(), Arc::clone(clock), sink, None);
            handles.push(handle);
        }
        let mut running = Self {
            cameras: handles,
            sampler,
            slot,
            looks,
            recorder,
            clock: Arc::clone(clock),
        };
        running.settle().await?;
        Ok(running)
    }

    async fn settle(&mut self) -> anyhow::Result<()> {
        for index in 0..self.cameras.len() {
            let mut health = self.cameras[index].health();
            let streams = |health: &Health| health.phase == Phase::Streaming;
            let streaming = timeout(START_LIMIT, health.wait_for(streams));
            let waited = self.look_until(streaming).await?;
            waited
                .context("a camera did not stream within a minute; is the machine too busy?")??;
        }
        self.look_until(sleep(SETTLE)).await
    }

    /// Answers looks until `end`.
    async fn look_until<T>(&mut self, end: impl Future<Output = T>) -> anyhow::Result<T> {
        let mut end = std::pin::pin!(end);
        loop {
            tokio::select! {
                ended = &mut end => return Ok(ended),
                reason = self.slot.ended() => return Err(reason.into()),
                _ = self.looks.news() => {}
            }
        }
    }

    /// Measures, then stops the cameras.
    async fn measure(mut self, seconds: u64, server: u32) -> anyhow::Result<CamerasRow> {
        let counters = self.sampler.counters();
        let (before, from) = (CpuReading::now(Some(server)), self.clock.now());
        self.recorder.begin(from);
        self.look_until(sleep(Duration::from_secs(seconds))).await?;
        let sampler = Arc::clone(&self.sampler);
        let frames = || {
            let now = sampler.counters();
            let readings = counters.iter().zip(&now);
            frames_between(readings.map(|((_, before), (_, after))| (before, after)))
        };
        // A row without a frame and a look has no figures, however busy the machine is.
        let first_look = async {
            while ["arrived", "looked"]
                .iter()
                .any(|end| frames().get(end) == Some(&0))
            {
                sleep(FIRST_LOOK_POLL).await;
            }
        };
        let first_look = self.look_until(timeout(START_LIMIT, first_look)).await?;
        first_look.context("no camera was looked at within a minute; is the machine too busy?")?;
        let (after, to) = (CpuReading::now(Some(server)), self.clock.now());
        self.recorder.end();
        let took = to.since(from);
        let pct = |of: fn(&CpuReading) -> Duration| {
            let used = of(&after).saturating_sub(of(&before));
            used.as_secs_f64() / took.as_secs_f64() * 100.0
        };
        let (cpu_pct, server_cpu_pct) = (pct(|r| r.own), pct(|r| r.server));
        let (decode, behind) = self.recorder.delays();
        let row = CamerasRow {
            cameras: self.cameras.len(),
            seconds: took.as_secs_f64(),
            cpu_pct,
            server_cpu_pct,
            others_cpu_pct: (pct(|r| r.all) - cpu_pct - server_cpu_pct).max(0.0),
            rss_mib: after.rss_mib,
            threads: meter::threads_between(&before, &after, took),
            decode: decode.spread(),
            behind: behind.spread(),
            trend: behind.trend(),
            course_ms: behind.course().into_iter().map(|(_, ms)| ms).collect(),
            frames: frames(),
        };
        for camera in self.cameras.drain(..) {
            anyhow::ensure!(
                camera.stop(STOP_LIMIT).await,
                "a camera did not stop in time"
            );
        }
        let until = Instant::now() + STOP_LIMIT;
        self.slot.stop_looks().await;
        self.looks.finish(until).await;
        self.slot.close(STOP_LIMIT, false).await;
        Ok(row)
    }
}

/// A camera for each URL, as a file configures it.
fn configured(urls: &[String]) -> anyhow::Result<Vec<CameraConfig>> {
    let mut text = String::from("mqtt.url = \"mqtt://127.0.0.1\"\n");
    for (number, url) in urls.iter().enumerate() {
        text += &format!(
            "[camera.c{number}]\nurl = \"{url}\"\nrate = {LOOKS_HZ:?}\nprompt.person.detect = \"person\"\n"
        );
    }
    let loaded = config::of_text("the benchmark's cameras", &text, &Environment::process())?;
    Ok(loaded.config.cameras)
}

/// Starts the engine on its thread, with all cameras.
async fn start_engine(
    cameras: &[CameraConfig],
    sampler: &Sampler,
    looks: &LooksInFlight,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<EngineSlot> {
    let own = Arc::clone(clock);
    let build = move || Ok((simulated(own)?, LookRule::fixed(1), ()));
    let (engine, end, ()) = handle::start_and_report(build).await?;
    let share = sampler.share(TimeLimits::new(Duration::from_secs(1), None));
    let ids = cameras.iter().map(|camera| camera.id.clone()).collect();
    let mut slot = EngineSlot::new("bench".into(), (engine, end), share);
    slot.set_cameras(ids, sampler);
    slot.begin_looks(looks, &Arc::default());
    Ok(slot)
}

/// The embedded model's shape on a device whose steps cost nothing.
fn simulated(clock: Arc<dyn Clock>) -> Result<Engine, String> {
    let loaded = load_model(&ModelSource::Embedded).map_err(|e| e.to_string())?;
    let context = loaded.config.prefix_positions() + 200;
    let limits = BackendLimits {
        slots: 2,
        rows: 4,
        pages: 16 * context.div_ceil(16),
        page_tokens: 16,
        context,
        prefix_positions: loaded.config.prefix_positions(),
        images: 1,
        positions: 2 * context,
        tokens: 2 * context,
        picks: usize::MAX,
        picture_pixels: usize::MAX,
        kept_crops: 0,
        adapters: 0,
    };
    let simulated = SimModel {
        vocab: loaded.config.text.vocab_size,
        objects: 2,
        crops: 1,
        memory: false,
    };
    let costs = SimCosts::constant(Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let device = SimBackend::new(limits, simulated, costs, ManualClock::default());
    let bounds = Bounds {
        max_objects: 5,
        max_tokens: 8,
    };
    let model = EngineModel {
        config: loaded.config,
        tokenizer: loaded.tokenizer,
        explains_strips: true,
    };
    Ok(Engine::new(Box::new(device), model, bounds, clock))
}

/// The sampler's sink, which also records the delays of frames.
fn recording_sink(
    sampled: impl Fn(Frame) + Send + Sync + 'static,
    recorder: Arc<DelayRecorder>,
    clock: Arc<dyn Clock>,
) -> FrameSink {
    FrameSink::new(move |frame: Frame| {
        let times = frame.times;
        sampled(frame);
        let now = clock.now();
        let decode_ms = now.since(times.received).as_secs_f64() * 1e3;
        let capture = times.capture.filter(|c| c.source == CaptureSource::Rtcp);
        let camera_ms = capture.map(|c| times.received_wall.seconds_since(c.wall) * 1e3);
        recorder.add(now, decode_ms, camera_ms);
    })
}

/// Delays of all cameras, from the beginning of the measurement to its end.
struct DelayRecorder(Mutex<RecordedDelays>);

struct RecordedDelays {
    since: Option<Mono>,
    decode: Delays,
    behind: Delays,
}

impl DelayRecorder {
    fn new(seconds: usize, cameras: usize) -> Self {
        let delays = Delays::new(seconds, cameras * FRAMES_A_SECOND);
        Self(Mutex::new(RecordedDelays {
            since: None,
            decode: delays.clone(),
            behind: delays,
        }))
    }

    fn begin(&self, now: Mono) {
        self.lock().since = Some(now);
    }

    fn end(&self) {
        self.lock().since = None;
    }

    fn add(&self, now: Mono, decode_ms: f64, camera_ms: Option<f64>) {
        let mut delays = self.lock();
        let Some(since) = delays.since else { return };
        let at_s = now.since(since).as_secs_f64();
        delays.decode.add(at_s, decode_ms);
        if let Some(camera_ms) = camera_ms {
            delays.behind.add(at_s, camera_ms + decode_ms);
        }
    }

    fn delays(&self) -> (Delays, Delays) {
        let delays = self.lock();
        (delays.decode.clone(), delays.behind.clone())
    }

    fn lock(&self) -> MutexGuard<'_, RecordedDelays> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
