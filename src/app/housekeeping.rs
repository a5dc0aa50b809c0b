//! What happens beside the looks: figures every ten seconds, the status page, systemd's watchdog.

mod page;

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

pub use self::page::BoundPage;
use self::page::Page;
use super::{
    SnapshotCounters,
    board::{Batches, Board, Facts},
    cameras::Cameras,
    engines::Engines,
    gauges,
    punctual::{Punctuality, Turn},
    report::Report,
};
use crate::ops::{
    metrics::Metrics,
    notify::{self, Vitality, Watchdog},
    page::{EngineState, Health, ListenError},
    process::{ProcessMeter, ProcessUse},
    window::Window,
};
use spotter_core::{CameraId, Clock, FrameCounters, Mono, config::Http};
use spotter_engine::gauge::Gauge;
use spotter_mqtt::{GpuStats, Publisher, Sent, Stats, Tally, Update};

/// `stats` is published so often.
const STATS_EVERY: Duration = Duration::from_secs(10);
/// How often the first GPU is read.
const GAUGED_EVERY: Duration = Duration::from_secs(2);
/// Percentiles look back so far.
const LATENCY_SPAN: Duration = Duration::from_secs(60);
/// The report at the end looks back over a day.
const REPORT_SPAN: Duration = Duration::from_secs(24 * 3600);
/// Values that a window keeps.
const WINDOW_VALUES: usize = 8192;
/// An engine may show no progress for so long, where systemd says nothing else.
const ENGINE_PATIENCE: Duration = Duration::from_secs(30);
/// A look that takes so many times as long as at the start is one that hangs.
const SLOWEST_LOOK: u32 = 10;

/// Collects figures and shows them.
pub struct Housekeeping {
    clock: Arc<dyn Clock>,
    started: Mono,
    stats_at: Mono,
    books_before: FrameCounters,
    latency: [Window; 2],
    whole_run: [Window; 2],
    process: ProcessMeter,
    process_use: ProcessUse,
    busy_before: Duration,
    punctuality: Punctuality,
    batches_before: Batches,
    board: Board,
    metrics: Arc<Metrics>,
    health: watch::Sender<Health>,
    page: Page,
    /// Engines that show no progress are told.
    vigil: Watchdog,
    watchdog: Option<Petted>,
    gauge: Option<Gauge>,
}

/// systemd's watchdog, how often it is petted, and when it was.
type Petted = (Watchdog, Duration, Mono);

/// Reads the first GPU; `None` without one, or when its driver tells nothing. Blocks a moment.
fn gauge(engines: &Engines, clock: &Arc<dyn Clock>) -> Option<Gauge> {
    Gauge::start(engines.first_gpu()?, GAUGED_EVERY, Arc::clone(clock))
}

/// Watches the engines. One shows progress once a step. On a processor a step of a large model takes its time, but none longer
/// than its look.
fn vigil(engines: &Engines, now: Mono) -> Watchdog {
    let patience = notify::watchdog_interval().unwrap_or(ENGINE_PATIENCE);
    let patience = patience.max(engines.look().unwrap_or_default() * SLOWEST_LOOK);
    let loops = engines.beats();
    let loops = loops.map(|(label, _)| (label.to_owned(), patience));
    Watchdog::new(loops, now)
}

/// Watches the connection to the broker; `None` when systemd watches nothing. Whoever asks is the daemon's own loop, which is
/// watched by that.
fn watchdog(now: Mono) -> Option<Petted> {
    let interval = notify::watchdog_interval()?;
    let loops = [("mqtt".to_owned(), interval)];
    Some((Watchdog::new(loops, now), interval / 4, now))
}

impl Housekeeping {
    /// Opens the status page.
    pub fn start(bound: BoundPage, engines: &Engines, board: Board, clock: Arc<dyn Clock>) -> Self {
        let metrics = Arc::new(Metrics::new());
        let (health, seen) = watch::channel(Health::default());
        let scene = Arc::new(board.clone());
        let page = Page::open(bound, Arc::clone(&metrics), seen, scene);
        let now = clock.now();
        let window = |span| Window::new(span, WINDOW_VALUES);
        Self {
            started: now,
            stats_at: now,
            books_before: FrameCounters::default(),
            latency: [window(LATENCY_SPAN), window(LATENCY_SPAN)],
            whole_run: [window(REPORT_SPAN), window(REPORT_SPAN)],
            process: ProcessMeter::default(),
            process_use: ProcessUse::default(),
            busy_before: Duration::ZERO,
            punctuality: Punctuality::default(),
            batches_before: Batches::default(),
            board,
            metrics,
            health,
            page,
            vigil: vigil(engines, now),
            watchdog: watchdog(now),
            gauge: gauge(engines, &clock),
            clock,
        }
    }

    /// Other engines are there.
    pub fn watch(&mut self, engines: &Engines) {
        self.vigil = vigil(engines, self.clock.now());
        self.gauge = gauge(engines, &self.clock);
    }

    /// A detection left: its latency counts.
    pub fn on_sent(&mut self, sent: &Sent) {
        let now = self.clock.now();
        let latency = &sent.latency;
        let total_ms = latency.total_tenth_ms as f64 / 10.0;
        let end_to_end_ms = latency
            .camera_tenth_ms
            .map(|camera| camera as f64 / 10.0 + total_ms);
        for windows in [&mut self.latency, &mut self.whole_run] {
            windows[0].add(now, total_ms);
            if let Some(ms) = end_to_end_ms {
                windows[1].add(now, ms);
            }
        }
        gauges::sent(&self.metrics, latency);
        self.board.sent(sent);
    }

    /// So many lines on standard output were lost since the start.
    pub fn lines_lost(&self, lines: u64) {
        self.metrics.set_lines_lost(lines);
    }

    /// Once a second. `budget` is what messages may take, receive to publish. Gives back the engines that stand still.
    pub fn tick(
        &mut self,
        publisher: &Publisher,
        (engines, cameras): (&Engines, &Cameras),
        snapshots: SnapshotCounters,
        budget: Duration,
    ) -> Vec<String> {
        let now = self.clock.now();
        self.pet(publisher.progress(), now);
        let books = &engines.sampler().books();
        self.show(publisher, (books, snapshots), engines, cameras);
        if now.since(self.stats_at) >= STATS_EVERY {
            let stats = self.stats(publisher, books, (engines, cameras), budget);
            notify::status(&format!(
                "{} of {} cameras online, {:.1} looks/s",
                stats.cams_online, stats.cams_total, stats.frames_analysed_ps
            ));
            publisher.publish(Update::Stats(stats));
            self.stats_at = now;
        }
        let beats: Vec<_> = engines.beats().map(|(_, beats)| beats).collect();
        match self.vigil.check(&beats, now) {
            Vitality::Alive => Vec::new(),
            Vitality::Stuck(engines) => engines,
        }
    }

    /// Tells systemd that we live, when the connection to the broker is looked after.
    fn pet(&mut self, progress: u64, now: Mono) {
        let Some((watchdog, every, petted)) = &mut self.watchdog else {
            return;
        };
        match watchdog.check(&[Some(progress)], now) {
            Vitality::Alive if now.since(*petted) >= *every => {
                notify::alive();
                *petted = now;
            }
            Vitality::Alive => {}
            Vitality::Stuck(loops) => {
                tracing::error!(?loops, "no progress; systemd will restart the daemon")
            }
        }
    }

    /// Where everything stands, for the page, the metrics and the health.
    fn show(
        &self,
        publisher: &Publisher,
        (books, snapshots): (&[(CameraId, FrameCounters)], SnapshotCounters),
        engines: &Engines,
        cameras: &Cameras,
    ) {
        let broker = publisher.state().borrow().clone();
        let of_broker = broker.trouble().map(|trouble| format!("broker: {trouble}"));
        // Without any the daemon ends, unless others come.
        let opening = engines.all_lost();
        let trouble = opening.then(|| "model: it is being opened".to_owned());
        self.health.send_replace(Health {
            ready: true,
            troubles: cameras
                .troubles()
                .chain(trouble)
                .chain(of_broker)
                .chain(publisher.spool_trouble())
                .collect(),
        });
        gauges::engines(&self.metrics, engines, &self.board.busy());
        gauges::cameras(&self.metrics, cameras);
        let facts = Facts {
            cameras: cameras
                .health()
                .map(|(id, health)| (id.clone(), health))
                .collect(),
            books: books.to_vec(),
            engines: engines
                .beats()
                .map(|(device, beats)| (device.to_owned(), state(beats.is_some(), opening)))
                .collect(),
            broker,
            tally: publisher.tally(),
            snapshots,
            puback_p95: publisher.puback_p95(),
            spooled: publisher.spool_msgs(),
            process: self.process_use,
        };
        gauges::facts(&self.metrics, &facts);
        self.board.tick(facts);
    }

    fn stats(
        &mut self,
        publisher: &Publisher,
        books: &[(CameraId, FrameCounters)],
        (engines, cameras): (&Engines, &Cameras),
        budget: Duration,
    ) -> Stats {
        let now = self.clock.now();
        let total = sum(books, engines.sampler().books_of_gone());
        let before = std::mem::replace(&mut self.books_before, total);
        let seconds = now.since(self.stats_at).as_secs_f64();
        let per_second =
            |now: u64, before: u64| ((now - before) as f64 / seconds * 10.0).round() / 10.0;
        let [totals, end_to_end] = &mut self.latency;
        let [p50, p95, p99] = totals.percentiles(now, [0.5, 0.95, 0.99]);
        let [e2e_p95] = end_to_end.percentiles(now, [0.95]);
        self.judge(p95, budget);
        let process = self.process.read(now);
        self.process_use = process;
        let gpu = self.gpu(engines, now);
        let batches = self.board.batches();
        let batch_mean = batches.mean_since(std::mem::replace(&mut self.batches_before, batches));
        let tally = publisher.tally();
        Stats {
            time_ms: self.clock.wall().unix_millis(),
            uptime_s: now.since(self.started).as_secs(),
            cams_online: cameras.online().filter(|(_, online)| *online).count() as u32,
            cams_total: cameras.online().count() as u32,
            frames_in_ps: per_second(total.arrived, before.arrived),
            frames_analysed_ps: per_second(total.looked, before.looked),
            frames_late_ps: per_second(total.late, before.late),
            frames_gated_ps: per_second(total.gated, before.gated),
            lat_total_p50_ms: p50,
            lat_total_p95_ms: p95,
            lat_total_p99_ms: p99,
            lat_e2e_p95_ms: e2e_p95,
            lat_budget_ms: budget.as_millis() as u64,
            lat_over_budget: u8::from(self.punctuality.is_late()),
            gpu,
            batch_mean,
            mqtt_puback_p95_ms: publisher.puback_p95().map(|time| time.as_secs_f64() * 1e3),
            mqtt_dropped: tally.dropped(),
            spool_msgs: publisher.spool_msgs(),
            rss_mib: process.rss_mib,
            cpu_pct: process.cpu_pct,
        }
    }

    /// Messages that come too late are logged when that begins and when it ends.
    fn judge(&mut self, p95_ms: Option<f64>, budget: Duration) {
        match self.punctuality.judge(p95_ms, budget) {
            Some(Turn::Late) => tracing::warn!(
                p95_ms,
                ?budget,
                "one message in twenty comes later than model.budget: lower rates, take fewer prompts or a faster device"
            ),
            Some(Turn::InTime) => tracing::info!("messages come within model.budget again"),
            None => {}
        }
    }

    /// How the first GPU was since the last time: how much of it had a look of ours, and what its driver tells.
    fn gpu(&mut self, engines: &Engines, now: Mono) -> Option<GpuStats> {
        let (_, busy) = self.board.busy().into_iter().next()?;
        let more = busy.saturating_sub(std::mem::replace(&mut self.busy_before, busy));
        let elapsed = now.since(self.stats_at).as_secs_f64();
        let strain = self.gauge.as_ref();
        let strain = strain.and_then(|gauge| gauge.between(self.stats_at, now));
        let strain = strain.unwrap_or_default();
        let tenths = |pct: f64| (pct * 10.0).round() / 10.0;
        engines.first_gpu()?;
        Some(GpuStats {
            gpu0_util_pct: strain.use_pct.map(tenths),
            gpu0_busy_pct: Some(tenths((more.as_secs_f64() / elapsed * 100.0).min(100.0))),
            gpu0_mem_mib: strain.memory_mib.map(|mib| mib.round() as u64),
            gpu0_temp_c: strain.celsius.map(|celsius| celsius.round() as u32),
            nvdec_pct: strain.decoder_pct.map(tenths),
        })
    }

    /// The status page is where `[http]` says from now on. When that cannot be, it stays where it is.
    pub async fn move_page(&mut self, http: &Http) -> Result<(), ListenError> {
        self.page.move_to(http).await
    }

    /// A camera was taken away.
    pub fn forget(&self, camera: &CameraId) {
        self.metrics.forget(camera);
    }

    /// Closes the status page, so that its address is free, and gives the whole run in figures.
    pub async fn end(mut self, books: Vec<(CameraId, FrameCounters)>, messages: Tally) -> Report {
        self.page.close().await;
        let now = self.clock.now();
        let [total_ms, end_to_end_ms] = self
            .whole_run
            .each_mut()
            .map(|window| window.percentiles(now, [0.5, 0.95]));
        Report {
            books,
            messages,
            total_ms,
            end_to_end_ms,
        }
    }
}

fn state(runs: bool, opening: bool) -> EngineState {
    match (runs, opening) {
        (true, _) => EngineState::Runs,
        (false, true) => EngineState::Opens,
        (false, false) => EngineState::Ended,
    }
}

/// Of all cameras together, those too that were taken away: a rate is never that of a sum that has shrunk.
fn sum(books: &[(CameraId, FrameCounters)], gone: FrameCounters) -> FrameCounters {
    books.iter().fold(gone, |mut all, (_, books)| {
        all.add(books);
        all
    })
}
