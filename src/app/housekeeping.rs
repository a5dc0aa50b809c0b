//! The figures of the daemon: once a second for the status page, metrics and health; every ten seconds as `stats`; at the end.

use std::{sync::Arc, time::Duration};

use super::{
    engine_usage::Batches,
    lines::Lines,
    notice::StageNotice,
    report::RunReport,
    stage::{Handles, Stage, StageContext},
};
use crate::ops::{
    gpu_stats::Gauge,
    notify,
    process::{self, ProcessMeter},
};
use spotter_config::{Config, ConfigChange};
use spotter_core::{CameraId, FrameCounters, Mono, PercentileWindow, Phase, rounded};
use spotter_engine::open::ModelCard;
use spotter_mqtt::{GpuStats, Info, SentDetection, Stats, Update};
use spotter_page::{NodeStatus, Status, Trouble, TroubleKind};

/// Period of `stats`.
const STATS_EVERY: Duration = Duration::from_secs(10);
/// Period at which the first GPU is read.
const GAUGED_EVERY: Duration = Duration::from_secs(2);
/// Span of the percentiles in `stats`, and in the report at the end.
const LATENCY_SPAN: Duration = Duration::from_secs(60);
/// Values that a window keeps.
const WINDOW_VALUES: usize = 8192;

/// Collects figures and publishes them. The last stage, so that the figures of the others are there.
pub struct Housekeeping {
    handles: Handles,
    lines: Option<Lines>,
    /// Name, version and model, and the figures of the last `stats`.
    known: NodeStatus,
    /// Names the run, as in `info`.
    started_ms: i64,
    started: Mono,
    /// Latencies of published detections, in milliseconds.
    total: PercentileWindow,
    /// Capture to publish, of cameras whose clock is known.
    end_to_end: PercentileWindow,
    previous: PreviousStats,
    /// The 95th percentile, receive to publish, is above `model.budget`.
    over_budget: bool,
    process: ProcessMeter,
    gauge: Option<GaugedGpu>,
}

/// The first GPU and its driver's figures; `None` without them.
struct GaugedGpu {
    uuid: String,
    gauge: Option<Gauge>,
}

/// Totals at the time of the last `stats`, to compute rates.
struct PreviousStats {
    at: Mono,
    frames: FrameCounters,
    busy: Duration,
    batches: Batches,
}

/// Totals of all cameras, with those that were removed: a rate is never computed from a sum that has shrunk.
fn frames(status: &Status) -> FrameCounters {
    let mut all = status.removed;
    for camera in &status.cameras {
        all += camera.frames;
    }
    all
}

impl Housekeeping {
    pub fn start(info: &Info, named: NodeStatus, lines: Option<Lines>, handles: Handles) -> Self {
        let now = handles.clock.now();
        handles.board.tick(Status {
            node: named.clone(),
            ..Status::default()
        });
        Self {
            lines,
            known: named,
            started_ms: info.started_ms,
            handles,
            started: now,
            total: PercentileWindow::new(LATENCY_SPAN, WINDOW_VALUES),
            end_to_end: PercentileWindow::new(LATENCY_SPAN, WINDOW_VALUES),
            previous: PreviousStats {
                at: now,
                frames: FrameCounters::default(),
                busy: Duration::ZERO,
                batches: Batches::default(),
            },
            over_budget: false,
            process: ProcessMeter::default(),
            gauge: None,
        }
    }

    /// Counts the latency of a detection that was handed to the MQTT client.
    fn on_sent(&mut self, sent: &SentDetection, context: &StageContext<'_>) {
        let latency = &sent.latency;
        let total_ms = latency.total_tenth_ms as f64 / 10.0;
        self.total.add(context.now, total_ms);
        if let Some(camera) = latency.camera_tenth_ms {
            let ms = camera as f64 / 10.0 + total_ms;
            self.end_to_end.add(context.now, ms);
        }
        self.handles.board.sent(sent.detection.camera(), latency);
    }

    /// Completes what other stages said of the node.
    fn node(&mut self, said: NodeStatus, mode: Option<String>, now: Mono) -> NodeStatus {
        let [total_p95_ms] = self.total.percentiles(now, [0.95]);
        NodeStatus {
            mode,
            uptime_s: now.since(self.started).as_secs(),
            total_p95_ms,
            rss_mib: process::resident_mib(),
            cpu_time: process::processor_time(),
            lines_lost: self.lines.as_ref().map_or(0, Lines::lost),
            snapshots: said.snapshots,
            ..self.known.clone()
        }
    }

    /// The figures since the last call.
    fn stats(&mut self, status: &Status, budget: Duration, now: Mono) -> Stats {
        let seconds = now.since(self.previous.at).as_secs_f64();
        let frames = frames(status);
        let before = std::mem::replace(&mut self.previous.frames, frames);
        let looks_per_s = per_second(frames.looked, before.looked, seconds);
        self.known.looks_per_s = Some(looks_per_s);
        let tenths = |figure| rounded(figure, 1);
        let [p50, p95, p99] = self.total.percentiles(now, [0.5, 0.95, 0.99]);
        let [e2e_p95] = self.end_to_end.percentiles(now, [0.95]);
        self.check_budget(p95, budget);
        self.known.cpu_pct = self.process.cpu_pct(now);
        let gpu = self.gpu(status, now);
        let batches = Batches::of_all(&status.engines);
        let batches_before = std::mem::replace(&mut self.previous.batches, batches);
        self.previous.at = now;
        let online = status.cameras.iter();
        let online = online.filter(|camera| camera.state == Phase::Streaming);
        Stats {
            time_ms: self.handles.clock.wall().unix_millis(),
            started_ms: self.started_ms,
            uptime_s: now.since(self.started).as_secs(),
            cams_online: online.count() as u32,
            cams_total: status.cameras.len() as u32,
            frames_in_ps: tenths(per_second(frames.arrived, before.arrived, seconds)),
            frames_analysed_ps: tenths(looks_per_s),
            frames_late_ps: tenths(per_second(frames.late, before.late, seconds)),
            frames_gated_ps: tenths(per_second(frames.gated, before.gated, seconds)),
            lat_total_p50_ms: p50,
            lat_total_p95_ms: p95,
            lat_total_p99_ms: p99,
            lat_e2e_p95_ms: e2e_p95,
            lat_budget_ms: budget.as_millis() as u64,
            lat_over_budget: u8::from(self.over_budget),
            gpu,
            batch_mean: batches.mean_since(batches_before),
            mqtt_puback_p95_ms: status.broker.puback_p95_ms,
            mqtt_dropped: self.handles.publisher.counters().dropped(),
            spool_msgs: status.broker.spooled,
            rss_mib: process::resident_mib(),
            cpu_pct: self.known.cpu_pct,
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
    fn gpu(&mut self, status: &Status, now: Mono) -> Option<GpuStats> {
        let busy = status.engines.first()?.busy;
        let busy_now = busy.saturating_sub(std::mem::replace(&mut self.previous.busy, busy));
        let elapsed = now.since(self.previous.at).as_secs_f64();
        let mut gpus = status.engines.iter().flat_map(|engine| &engine.gpus);
        let uuid = gpus.next()?.clone();
        // An engine that was opened again may be the first now.
        let gpu = self.gauge.take_if(|gpu| gpu.uuid == uuid);
        let gpu = gpu.unwrap_or_else(|| GaugedGpu {
            gauge: Gauge::start(&uuid, GAUGED_EVERY, Arc::clone(&self.handles.clock)),
            uuid,
        });
        let gauge = self.gauge.insert(gpu).gauge.as_ref();
        let figures = gauge.and_then(|gauge| gauge.between(self.previous.at, now));
        let figures = figures.unwrap_or_default();
        let tenths = |pct| rounded(pct, 1);
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
    pub fn report(&mut self, frame_counters: Vec<(CameraId, FrameCounters)>) -> RunReport {
        let now = self.handles.clock.now();
        RunReport {
            frame_counters,
            messages: self.handles.publisher.counters(),
            total_ms: self.total.percentiles(now, [0.5, 0.95]),
            end_to_end_ms: self.end_to_end.percentiles(now, [0.5, 0.95]),
        }
    }
}

impl Stage for Housekeeping {
    fn hear(&mut self, notice: &mut StageNotice, context: &mut StageContext<'_>) {
        if let StageNotice::Sent(sent) = notice {
            self.on_sent(sent, context);
        }
    }

    fn apply(&mut self, change: &ConfigChange, _context: &mut StageContext<'_>) {
        self.handles.board.apply(change);
    }

    fn tick(&mut self, context: &mut StageContext<'_>) {
        let mut status = std::mem::take(&mut context.status);
        let mode = context.config.mode().map(ToString::to_string);
        status.node = self.node(status.node, mode, context.now);
        let of_state = self.handles.state.troubles().into_iter();
        let of_state = of_state.map(|text| Trouble::new(TroubleKind::StateDisk, text));
        status.troubles.extend(of_state);
        if context.now.since(self.previous.at) >= STATS_EVERY {
            let budget = context.config.file().model.budget;
            let stats = self.stats(&status, budget, context.now);
            notify::status(&format!(
                "{} of {} cameras online, {:.1} looks/s",
                stats.cams_online, stats.cams_total, stats.frames_analysed_ps
            ));
            self.handles.publisher.publish(Update::Stats(stats));
        }
        if self.over_budget {
            let text = "one message in twenty is later than model.budget".to_owned();
            let trouble = Trouble::new(TroubleKind::OverBudget, text);
            status.troubles.push(trouble);
        }
        self.handles.board.tick(status);
    }
}

/// `p95_ms`: `None` without a message, which meets the budget.
fn is_over_budget(p95_ms: Option<f64>, budget: Duration) -> bool {
    p95_ms.is_some_and(|ms| ms > budget.as_secs_f64() * 1e3)
}

/// Name, version and model.
pub fn named(config: &Config, card: &ModelCard) -> NodeStatus {
    NodeStatus {
        name: config.node.name.to_string(),
        version: env!("CARGO_PKG_VERSION"),
        model: format!("{}, {} ({})", card.name, card.family, card.precision),
        ..NodeStatus::default()
    }
}

/// 0 when the sum has shrunk.
fn per_second(now: u64, before: u64, seconds: f64) -> f64 {
    now.saturating_sub(before) as f64 / seconds
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

    // Faults: H10.
    #[test]
    fn looks_per_second_survive_a_sum_that_shrinks() {
        assert_eq!(per_second(110, 85, 10.0), 2.5);
        assert_eq!(per_second(40, 110, 10.0), 0.0);
    }
}
