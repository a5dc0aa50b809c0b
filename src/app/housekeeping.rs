//! Once a second: metrics, health and the status page; every ten seconds `stats`; the watchdogs of the engines and the broker.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{
    board::{Batches, Board},
    camera_supervisor::CameraSupervisor,
    engine_supervisor::EngineSupervisor,
    fleet_membership::FleetMembership,
    report::RunReport,
    triggers::Triggers,
};
use crate::ops::{
    facts::{ApiFacts, CameraFacts, EngineFacts, Facts, SnapshotCounters},
    gpu_stats::Gauge,
    metrics::Metrics,
    notify::{self, Watchdog},
    page::{DaemonHealth, EngineState, PageInputs},
    process::{ProcessMeter, ProcessUse},
    readiness::Readiness,
    window::PercentileWindow,
};
use spotter_core::{CameraId, Clock, FrameCounters, Mono, WebhookId};
use spotter_events::triggers::TriggerReport;
use spotter_mqtt::{GpuStats, MessageCounters, Publisher, SentDetection, Stats, Update};
use spotter_state::StateStore;
use spotter_webhook::WebhookStatus;

/// Period of `stats`.
const STATS_EVERY: Duration = Duration::from_secs(10);
/// Period at which the first GPU is read.
const GAUGED_EVERY: Duration = Duration::from_secs(2);
/// Span of the percentiles in `stats`.
const LATENCY_SPAN: Duration = Duration::from_secs(60);
/// Span of the percentiles in the report at the end.
const REPORT_SPAN: Duration = Duration::from_secs(24 * 3600);
/// Values that a window keeps.
const WINDOW_VALUES: usize = 8192;
/// An engine without progress for this time makes none for `/readyz`.
const STALL_LIMIT: Duration = Duration::from_secs(10);
/// An engine without progress for this time is given up, where systemd sets no watchdog interval.
const PROGRESS_LIMIT: Duration = Duration::from_secs(30);
/// A look that takes this many times its measured time counts as one that hangs.
const SLOWEST_LOOK: u32 = 10;

/// Collects figures and publishes them.
pub struct Housekeeping {
    clock: Arc<dyn Clock>,
    started: Mono,
    recent: LatencyWindows,
    whole_run: LatencyWindows,
    previous: PreviousStats,
    /// The 95th percentile, receive to publish, is above `model.budget`.
    over_budget: bool,
    process: ProcessMeter,
    process_use: ProcessUse,
    board: Board,
    metrics: Arc<Metrics>,
    health: watch::Sender<DaemonHealth>,
    readiness: Readiness,
    engine_watchdog: Watchdog,
    stall_watchdog: Watchdog,
    systemd_watchdog: Option<SystemdWatchdog>,
    gauge: Option<Gauge>,
}

/// What [`Housekeeping::tick`] reads.
#[derive(Clone)]
pub struct TickInput<'a> {
    pub publisher: &'a Publisher,
    pub engines: &'a EngineSupervisor,
    pub cameras: &'a CameraSupervisor,
    pub triggers: &'a Triggers,
    pub snapshots: SnapshotCounters,
    /// Lines on standard output that were lost since the start.
    pub lines_lost: u64,
    /// `model.budget`: receive to publish.
    pub budget: Duration,
    /// Names the run, as in `info`.
    pub started_ms: i64,
    pub webhooks: Vec<WebhookStatus>,
    pub fleet: Option<&'a FleetMembership>,
    pub state: &'a StateStore,
    pub api: Option<ApiFacts>,
}

/// Latencies of published detections, in milliseconds.
struct LatencyWindows {
    total: PercentileWindow,
    /// Capture to publish, of cameras whose clock is known.
    end_to_end: PercentileWindow,
}

impl LatencyWindows {
    fn new(span: Duration) -> Self {
        Self {
            total: PercentileWindow::new(span, WINDOW_VALUES),
            end_to_end: PercentileWindow::new(span, WINDOW_VALUES),
        }
    }

    fn add(&mut self, now: Mono, total_ms: f64, end_to_end_ms: Option<f64>) {
        self.total.add(now, total_ms);
        if let Some(ms) = end_to_end_ms {
            self.end_to_end.add(now, ms);
        }
    }
}

/// Totals at the time of the last `stats`, to compute rates.
struct PreviousStats {
    at: Mono,
    frames: FrameCounters,
    busy: Duration,
    batches: Batches,
}

/// Reports to systemd that the daemon makes progress: its loop, which calls this, and the connection to the broker.
struct SystemdWatchdog {
    watchdog: Watchdog,
    notify_every: Duration,
    notified_at: Mono,
}

impl SystemdWatchdog {
    /// `None` when the unit has no watchdog.
    fn new(now: Mono) -> Option<Self> {
        let interval = notify::watchdog_interval()?;
        Some(Self {
            watchdog: Watchdog::new([("mqtt".to_owned(), interval)], now),
            notify_every: interval / 4,
            notified_at: now,
        })
    }

    /// `progress`: a counter of the broker's connection.
    fn tick(&mut self, progress: u64, now: Mono) {
        let loops = self.watchdog.check(&[Some(progress)], now);
        if !loops.is_empty() {
            tracing::error!(?loops, "no progress; systemd restarts the daemon");
        } else if now.since(self.notified_at) >= self.notify_every {
            notify::alive();
            self.notified_at = now;
        }
    }
}

/// Reads the first GPU; `None` without one or without its driver's figures. Blocks a moment.
fn gauge(engines: &EngineSupervisor, clock: &Arc<dyn Clock>) -> Option<Gauge> {
    Gauge::start(engines.first_gpu()?, GAUGED_EVERY, Arc::clone(clock))
}

/// An engine shows progress once a step. On a processor a step of a large model takes long, but no longer than its look.
fn engine_watchdog(engines: &EngineSupervisor, limit: Duration, now: Mono) -> Watchdog {
    let limit = limit.max(engines.look().unwrap_or_default() * SLOWEST_LOOK);
    let labels = engines.progress().map(|(label, _)| label.to_owned());
    Watchdog::new(labels.map(|label| (label, limit)), now)
}

fn give_up_limit() -> Duration {
    notify::watchdog_interval().unwrap_or(PROGRESS_LIMIT)
}

fn stall_limit() -> Duration {
    STALL_LIMIT.min(give_up_limit() / 2)
}

impl Housekeeping {
    pub fn start(
        readiness: Readiness,
        engines: &EngineSupervisor,
        board: Board,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let now = clock.now();
        Self {
            started: now,
            recent: LatencyWindows::new(LATENCY_SPAN),
            whole_run: LatencyWindows::new(REPORT_SPAN),
            previous: PreviousStats {
                at: now,
                frames: FrameCounters::default(),
                busy: Duration::ZERO,
                batches: Batches::default(),
            },
            over_budget: false,
            process: ProcessMeter::default(),
            process_use: ProcessUse::default(),
            board,
            metrics: Arc::default(),
            health: watch::Sender::default(),
            readiness,
            engine_watchdog: engine_watchdog(engines, give_up_limit(), now),
            stall_watchdog: engine_watchdog(engines, stall_limit(), now),
            systemd_watchdog: SystemdWatchdog::new(now),
            gauge: gauge(engines, &clock),
            clock,
        }
    }

    /// To another one than at the start.
    #[cfg(test)]
    pub fn report_to(&mut self, readiness: Readiness) {
        self.readiness = readiness;
    }

    /// For the status page.
    pub fn page_inputs(&self) -> PageInputs {
        PageInputs {
            metrics: Arc::clone(&self.metrics),
            health: self.health.subscribe(),
            source: Arc::new(self.board.clone()),
        }
    }

    /// Watches the engines that run now.
    pub fn watch(&mut self, engines: &EngineSupervisor) {
        let now = self.clock.now();
        self.engine_watchdog = engine_watchdog(engines, give_up_limit(), now);
        self.stall_watchdog = engine_watchdog(engines, stall_limit(), now);
        self.gauge = gauge(engines, &self.clock);
    }

    /// Counts the latency of a detection that was handed to the MQTT client.
    pub fn on_sent(&mut self, sent: &SentDetection) {
        let now = self.clock.now();
        let latency = &sent.latency;
        let total_ms = latency.total_tenth_ms as f64 / 10.0;
        let end_to_end_ms = latency
            .camera_tenth_ms
            .map(|camera| camera as f64 / 10.0 + total_ms);
        self.recent.add(now, total_ms, end_to_end_ms);
        self.whole_run.add(now, total_ms, end_to_end_ms);
        self.metrics.observe(latency);
        self.board.sent(sent);
    }

    /// Once a second. Returns the labels of engines without progress.
    pub fn tick(&mut self, input: TickInput<'_>) -> Vec<String> {
        let now = self.clock.now();
        if let Some(watchdog) = &mut self.systemd_watchdog {
            watchdog.tick(input.publisher.progress(), now);
        }
        let counters = input.engines.sampler().counters();
        self.update(&input, &counters);
        if now.since(self.previous.at) >= STATS_EVERY {
            let stats = self.stats(&input, &counters);
            notify::status(&format!(
                "{} of {} cameras online, {:.1} looks/s",
                stats.cams_online, stats.cams_total, stats.frames_analysed_ps
            ));
            input.publisher.publish(Update::Stats(stats));
        }
        let progress: Vec<_> = input.engines.progress().map(|(_, count)| count).collect();
        let running = progress.iter().flatten().count();
        let stalled = self.stall_watchdog.check(&progress, now).len();
        self.readiness.turned(running > stalled);
        self.engine_watchdog.check(&progress, now)
    }

    /// Updates health, metrics and status page.
    fn update(&self, input: &TickInput<'_>, counters: &[(CameraId, FrameCounters)]) {
        let TickInput {
            publisher,
            engines,
            cameras,
            ..
        } = input;
        let broker = publisher.state().borrow().clone();
        let of_broker = broker.trouble().map(|trouble| format!("broker: {trouble}"));
        self.health.send_replace(DaemonHealth {
            troubles: cameras
                .troubles()
                .chain(of_broker)
                .chain(input.triggers.troubles())
                .chain(engines.troubles())
                .chain(publisher.spool_trouble())
                .chain(input.state.troubles())
                .chain(input.webhooks.iter().filter_map(WebhookStatus::trouble))
                .chain(input.fleet.and_then(FleetMembership::trouble))
                .chain(input.api.iter().flat_map(|api| api.troubles.clone()))
                .collect(),
        });
        let facts = Facts {
            frames: sum(counters, engines.sampler().removed_counters()),
            cameras: camera_facts(cameras, input.triggers.reports(self.clock.now()), counters),
            engines: engine_facts(engines, &self.board.busy()),
            broker,
            messages: publisher.counters(),
            snapshots: input.snapshots,
            puback_p95: publisher.puback_p95(),
            spooled: publisher.spool_msgs(),
            webhooks: input.webhooks.clone(),
            lines_lost: input.lines_lost,
            process: self.process_use,
            fleet: input.fleet.map(FleetMembership::facts),
            api: input.api.clone(),
        };
        self.metrics.update(&facts);
        self.board.tick(facts);
    }

    /// The figures since the last call.
    fn stats(&mut self, input: &TickInput<'_>, counters: &[(CameraId, FrameCounters)]) -> Stats {
        let TickInput {
            publisher,
            engines,
            cameras,
            budget,
            started_ms,
            ..
        } = input;
        let now = self.clock.now();
        let seconds = now.since(self.previous.at).as_secs_f64();
        let frames = sum(counters, engines.sampler().removed_counters());
        let before = std::mem::replace(&mut self.previous.frames, frames);
        let per_second = |now: u64, before: u64| {
            (now.saturating_sub(before) as f64 / seconds * 10.0).round() / 10.0
        };
        let [p50, p95, p99] = self.recent.total.percentiles(now, [0.5, 0.95, 0.99]);
        let [e2e_p95] = self.recent.end_to_end.percentiles(now, [0.95]);
        self.check_budget(p95, *budget);
        let process = self.process.read(now);
        self.process_use = process;
        let gpu = self.gpu(engines, now);
        let batches = self.board.batches();
        let batches_before = std::mem::replace(&mut self.previous.batches, batches);
        let messages = publisher.counters();
        self.previous.at = now;
        Stats {
            time_ms: self.clock.wall().unix_millis(),
            started_ms: *started_ms,
            uptime_s: now.since(self.started).as_secs(),
            cams_online: cameras.online().filter(|(_, online)| *online).count() as u32,
            cams_total: cameras.online().count() as u32,
            frames_in_ps: per_second(frames.arrived, before.arrived),
            frames_analysed_ps: per_second(frames.looked, before.looked),
            frames_late_ps: per_second(frames.late, before.late),
            frames_gated_ps: per_second(frames.gated, before.gated),
            lat_total_p50_ms: p50,
            lat_total_p95_ms: p95,
            lat_total_p99_ms: p99,
            lat_e2e_p95_ms: e2e_p95,
            lat_budget_ms: budget.as_millis() as u64,
            lat_over_budget: u8::from(self.over_budget),
            gpu,
            batch_mean: batches.mean_since(batches_before),
            mqtt_puback_p95_ms: publisher.puback_p95().map(|time| time.as_secs_f64() * 1e3),
            mqtt_dropped: messages.dropped(),
            spool_msgs: publisher.spool_msgs(),
            rss_mib: process.rss_mib,
            cpu_pct: process.cpu_pct,
        }
    }

    /// Logs when the budget begins and ceases to be exceeded: nothing else shows a machine that is too slow, because looks that
    /// would be late are dropped and no backlog forms.
    fn check_budget(&mut self, p95_ms: Option<f64>, budget: Duration) {
        let was_over = std::mem::replace(&mut self.over_budget, is_over_budget(p95_ms, budget));
        match (was_over, self.over_budget) {
            (false, true) => tracing::warn!(
                p95_ms,
                ?budget,
                "one message in twenty is later than model.budget; lower the rates, configure fewer prompts or use a faster device"
            ),
            (true, false) => tracing::info!("messages are within model.budget again"),
            _ => {}
        }
    }

    /// The first GPU since the last `stats`: the share of time with a look in flight, and its driver's figures.
    fn gpu(&mut self, engines: &EngineSupervisor, now: Mono) -> Option<GpuStats> {
        let (_, busy) = self.board.busy().into_iter().next()?;
        let busy_now = busy.saturating_sub(std::mem::replace(&mut self.previous.busy, busy));
        let elapsed = now.since(self.previous.at).as_secs_f64();
        let gauge = self.gauge.as_ref();
        let figures = gauge.and_then(|gauge| gauge.between(self.previous.at, now));
        let figures = figures.unwrap_or_default();
        let tenths = |pct: f64| (pct * 10.0).round() / 10.0;
        engines.first_gpu()?;
        Some(GpuStats {
            gpu0_util_pct: figures.use_pct.map(tenths),
            gpu0_busy_pct: Some(tenths(
                (busy_now.as_secs_f64() / elapsed * 100.0).min(100.0),
            )),
            gpu0_mem_mib: figures.memory_mib.map(|mib| mib.round() as u64),
            gpu0_temp_c: figures.celsius.map(|celsius| celsius.round() as u32),
            nvdec_pct: figures.decoder_pct.map(tenths),
        })
    }

    /// Removes the metrics of a removed camera.
    pub fn forget(&self, camera: &CameraId) {
        self.metrics.forget(camera);
    }

    /// Removes the metrics of a removed webhook.
    pub fn forget_webhook(&self, webhook: &WebhookId) {
        self.metrics.forget_webhook(webhook);
    }

    /// The figures of the whole run.
    pub fn end(
        mut self,
        frame_counters: Vec<(CameraId, FrameCounters)>,
        messages: MessageCounters,
    ) -> RunReport {
        let now = self.clock.now();
        let LatencyWindows { total, end_to_end } = &mut self.whole_run;
        RunReport {
            frame_counters,
            messages,
            total_ms: total.percentiles(now, [0.5, 0.95]),
            end_to_end_ms: end_to_end.percentiles(now, [0.5, 0.95]),
        }
    }
}

/// `p95_ms`: `None` without a message, which meets the budget.
fn is_over_budget(p95_ms: Option<f64>, budget: Duration) -> bool {
    p95_ms.is_some_and(|ms| ms > budget.as_secs_f64() * 1e3)
}

fn camera_facts(
    cameras: &CameraSupervisor,
    mut triggers: Vec<(CameraId, Vec<TriggerReport>)>,
    counters: &[(CameraId, FrameCounters)],
) -> Vec<(CameraId, CameraFacts)> {
    let cameras = cameras.facts().map(|(id, camera)| {
        let frames = counters.iter().find(|(counted, _)| counted == id);
        let frames = frames.map(|(_, frames)| *frames).unwrap_or_default();
        let its = triggers.iter_mut().find(|(of, _)| of == id);
        let facts = CameraFacts {
            triggers: its.map(|(_, its)| std::mem::take(its)).unwrap_or_default(),
            frames,
            ..camera
        };
        (id.clone(), facts)
    });
    cameras.collect()
}

/// `busy`: by device, the time with a look in progress.
fn engine_facts(engines: &EngineSupervisor, busy: &[(String, Duration)]) -> Vec<EngineFacts> {
    let facts = engines.progress().map(|(label, turns)| {
        let busy = busy.iter().find(|(device, _)| device == label);
        EngineFacts {
            device: label.to_owned(),
            state: match turns {
                Some(_) => EngineState::Runs,
                None if engines.is_reopening(label) => EngineState::Opens,
                None => EngineState::Ended,
            },
            turns,
            busy: busy.map(|(_, busy)| *busy).unwrap_or_default(),
        }
    });
    facts.collect()
}

/// Of all cameras together, with those that were removed: a rate is never computed from a sum that has shrunk.
fn sum(counters: &[(CameraId, FrameCounters)], removed: FrameCounters) -> FrameCounters {
    counters
        .iter()
        .fold(removed, |mut all, (_, frame_counters)| {
            all.add(frame_counters);
            all
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_exceeded_above_it_and_met_by_silence() {
        let is_over = |p95_ms| is_over_budget(p95_ms, Duration::from_millis(250));
        assert!(is_over(Some(250.1)));
        assert!(!is_over(Some(250.0)) && !is_over(None));
    }
}
