//! The figures of the daemon: once a second for the status page, metrics and health; every ten seconds as `stats`; at the end.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::{
    camera_supervisor::CameraSupervisor,
    engine_supervisor::EngineSupervisor,
    engine_usage::{Batches, EngineUsage},
    fleet_membership::FleetMembership,
    report::RunReport,
    snapshots::SnapshotCounters,
    status,
    triggers::Triggers,
};
use crate::{
    api::ServedApi,
    ops::{
        gpu_stats::Gauge,
        notify,
        process::{self, ProcessMeter},
    },
};
use spotter_config::Config;
use spotter_core::{CameraId, Clock, FrameCounters, ModeId, Mono, PercentileWindow};
use spotter_engine::open::ModelCard;
use spotter_mqtt::{
    ConfigReport, GpuStats, MessageCounters, Publisher, SentDetection, Stats, Update,
};
use spotter_page::{
    Board, BrokerStatus, CameraStatus, EngineState, EngineStatus, NodeStatus, Status,
};
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
/// Looks per second are a mean over this many seconds.
const RATE_TICKS: usize = 10;

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
    cpu_pct: Option<f64>,
    /// Analysed frames at the last ticks.
    looked: VecDeque<(Mono, u64)>,
    /// What does not change while the daemon runs.
    constant: Status,
    board: Board,
    gauge: Option<Gauge>,
}

/// What [`Housekeeping::tick`] reads.
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
    pub mode: Option<&'a ModeId>,
    pub config: &'a ConfigReport,
    pub webhooks: Vec<WebhookStatus>,
    pub fleet: Option<&'a FleetMembership>,
    pub state: &'a StateStore,
    pub api: Option<&'a ServedApi>,
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

/// Reads the first GPU; `None` without one or without its driver's figures. Blocks a moment.
fn gauge(engines: &EngineSupervisor, clock: &Arc<dyn Clock>) -> Option<Gauge> {
    Gauge::start(engines.first_gpu()?, GAUGED_EVERY, Arc::clone(clock))
}

impl Housekeeping {
    /// `constant`: see [`constant_figures`].
    pub fn start(
        engines: &EngineSupervisor,
        board: Board,
        constant: Status,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let now = clock.now();
        board.tick(constant.clone());
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
            cpu_pct: None,
            looked: VecDeque::new(),
            constant,
            board,
            gauge: gauge(engines, &clock),
            clock,
        }
    }

    /// An engine was opened again: the first GPU may be another one.
    pub fn engines_changed(&mut self, engines: &EngineSupervisor) {
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
        self.board.sent(sent.detection.camera(), latency);
    }

    /// Once a second.
    pub fn tick(&mut self, input: TickInput<'_>) {
        let now = self.clock.now();
        let counters = input.engines.sampler().counters();
        let status = self.status(&input, &counters);
        self.board.tick(status);
        if now.since(self.previous.at) >= STATS_EVERY {
            let stats = self.stats(&input, &counters);
            notify::status(&format!(
                "{} of {} cameras online, {:.1} looks/s",
                stats.cams_online, stats.cams_total, stats.frames_analysed_ps
            ));
            input.publisher.publish(Update::Stats(stats));
        }
    }

    /// All figures of this second.
    fn status(&mut self, input: &TickInput<'_>, counters: &[(CameraId, FrameCounters)]) -> Status {
        let now = self.clock.now();
        let cameras = camera_statuses(input, counters, now);
        Status {
            node: self.node(input, counters, now),
            engines: engine_statuses(input.engines, &cameras, now),
            cameras,
            broker: self.broker(input.publisher, now),
            webhooks: input
                .webhooks
                .iter()
                .map(|w| status::webhook(w, now))
                .collect(),
            api: input.api.map(ServedApi::status),
            config: status::config(input.config),
            fleet: input.fleet.map(FleetMembership::status),
            troubles: troubles(input),
            ..Status::default()
        }
    }

    fn node(
        &mut self,
        input: &TickInput<'_>,
        counters: &[(CameraId, FrameCounters)],
        now: Mono,
    ) -> NodeStatus {
        if self.looked.len() > RATE_TICKS {
            self.looked.pop_front();
        }
        let frames = sum(counters, input.engines.sampler().removed_counters());
        self.looked.push_back((now, frames.looked));
        let [total_p95_ms] = self.recent.total.percentiles(now, [0.95]);
        NodeStatus {
            mode: input.mode.map(ToString::to_string),
            uptime_s: now.since(self.started).as_secs(),
            looks_per_s: looks_per_s(&self.looked),
            total_p95_ms,
            rss_mib: process::resident_mib(),
            cpu_pct: self.cpu_pct,
            cpu_time: process::processor_time(),
            lines_lost: input.lines_lost,
            snapshots: input.snapshots.by_outcome().to_vec(),
            ..self.constant.node.clone()
        }
    }

    fn broker(&self, publisher: &Publisher, now: Mono) -> BrokerStatus {
        let messages = publisher.counters();
        let BrokerStatus {
            address, topics, ..
        } = self.constant.broker.clone();
        BrokerStatus {
            address,
            topics,
            sent: messages.streams_sent,
            dropped: messages.drops().to_vec(),
            spooled: publisher.spool_msgs(),
            puback_p95_ms: publisher.puback_p95().map(|time| time.as_secs_f64() * 1e3),
            inbound_dropped: messages.inbound_dropped,
            inbound_retained: messages.inbound_retained,
            feed_dropped: messages.feed_dropped,
            ..status::broker(&publisher.state().borrow(), now)
        }
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
        self.cpu_pct = process.cpu_pct;
        let gpu = self.gpu(engines, now);
        let batches = engines.usage().map(EngineUsage::batches);
        let batches = batches.fold(Batches::default(), Batches::and);
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
        let busy = engines.usage().next()?.busy();
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

/// What does not change while the daemon runs.
pub fn constant_figures(config: &Config, card: &ModelCard) -> Status {
    let mqtt = &config.mqtt;
    Status {
        node: NodeStatus {
            name: config.node.name.to_string(),
            version: env!("CARGO_PKG_VERSION"),
            model: format!("{}, {} ({})", card.name, card.family, card.precision),
            ..NodeStatus::default()
        },
        broker: BrokerStatus {
            address: format!("{}:{}", mqtt.broker.host, mqtt.broker.port),
            topics: format!("{}/{}", mqtt.base, config.node.name),
            ..BrokerStatus::default()
        },
        ..Status::default()
    }
}

fn camera_statuses(
    input: &TickInput<'_>,
    counters: &[(CameraId, FrameCounters)],
    now: Mono,
) -> Vec<CameraStatus> {
    let mut triggers = input.triggers.reports(now);
    let statuses = input.cameras.statuses().map(|(id, camera)| {
        let frames = counters.iter().find(|(counted, _)| counted == id);
        let its = triggers.iter_mut().find(|(of, _)| of == id);
        CameraStatus {
            frames: frames.map(|(_, frames)| *frames).unwrap_or_default(),
            triggers: its.map(|(_, its)| std::mem::take(its)).unwrap_or_default(),
            ..camera
        }
    });
    statuses.collect()
}

fn engine_statuses(
    engines: &EngineSupervisor,
    cameras: &[CameraStatus],
    now: Mono,
) -> Vec<EngineStatus> {
    let assignment = engines.assignment();
    let statuses = engines.progress().zip(engines.usage());
    let statuses = statuses.map(|((device, turns), usage)| {
        let its = assignment.iter().filter(|(_, of)| *of == device);
        let its = its.filter_map(|(id, _)| cameras.iter().find(|camera| camera.id == id.as_str()));
        EngineStatus {
            device: device.to_owned(),
            state: match turns {
                Some(_) => EngineState::Runs,
                None if engines.is_reopening(device) => EngineState::Opens,
                None => EngineState::Ended,
            },
            under_way: its.map(|camera| camera.frames.in_flight).sum(),
            turns,
            ..usage.status(now)
        }
    });
    statuses.collect()
}

/// Current problems for health, one line each.
fn troubles(input: &TickInput<'_>) -> Vec<String> {
    let broker = input.publisher.state().borrow().clone();
    let broker = broker.trouble().map(|trouble| format!("broker: {trouble}"));
    let cameras = input.cameras.troubles().chain(broker);
    let stages = cameras
        .chain(input.triggers.troubles())
        .chain(input.engines.troubles())
        .chain(input.publisher.spool_trouble())
        .chain(input.state.troubles());
    stages
        .chain(input.webhooks.iter().filter_map(WebhookStatus::trouble))
        .chain(input.fleet.and_then(FleetMembership::trouble))
        .chain(input.api.into_iter().flat_map(ServedApi::troubles))
        .collect()
}

/// A mean of the ticks; `None` for less than two.
fn looks_per_s(looked: &VecDeque<(Mono, u64)>) -> Option<f64> {
    let ((first, before), (last, looked)) = looked.front().zip(looked.back())?;
    let seconds = last.since(*first).as_secs_f64();
    (seconds > 0.0).then(|| looked.saturating_sub(*before) as f64 / seconds)
}

/// Of all cameras together, with those that were removed: a rate is never computed from a sum that has shrunk.
fn sum(counters: &[(CameraId, FrameCounters)], removed: FrameCounters) -> FrameCounters {
    counters
        .iter()
        .fold(removed, |mut all, (_, frame_counters)| {
            all += *frame_counters;
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

    #[test]
    fn looks_per_second_survive_a_sum_that_shrinks() {
        let at = |seconds| Mono::default().after(Duration::from_secs(seconds));
        let mut looked = VecDeque::from([(at(0), 100)]);
        assert_eq!(looks_per_s(&looked), None);
        looked.push_back((at(1), 110));
        assert_eq!(looks_per_s(&looked), Some(10.0));
        looked.push_back((at(2), 40));
        assert_eq!(looks_per_s(&looked), Some(0.0));
    }
}
