//! Every metric of the program, declared here and nowhere else: `spotter_<stage>_<noun>_<unit>`, counters end in
//! `_total`. Labels are bounded: cameras, prompts' stages, reasons.

use std::sync::atomic::Ordering;

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use crate::domain::{Books, CameraId};

/// Label `camera`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfCamera {
    camera: String,
}

impl From<&CameraId> for OfCamera {
    fn from(camera: &CameraId) -> Self {
        Self {
            camera: camera.to_string(),
        }
    }
}

/// Labels `camera` and `fate`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfFate {
    camera: String,
    fate: &'static str,
}

/// Label `stage` of the latency account.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfStage {
    /// decode, wait, prep, vision, prompt, generate, post, out.
    pub stage: &'static str,
}

/// Label `device` of an engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfDevice {
    /// `cpu`, or `cuda 1, NVIDIA H200`.
    pub device: String,
}

/// Label `reason` of a loss.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfReason {
    /// A short word.
    pub reason: &'static str,
}

/// How frames ended. Each of these only rises; what waits and what is in flight are gauges.
fn by_fate(books: &Books) -> [(&'static str, u64); 6] {
    [
        ("replaced", books.replaced),
        ("skipped", books.skipped),
        ("gated", books.gated),
        ("late", books.late),
        ("looked", books.looked),
        ("failed", books.failed),
    ]
}

type Seconds = Family<OfStage, Histogram, fn() -> Histogram>;

/// Handles to all metrics; safe to use from any thread, no call waits.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    frames_in: Family<OfCamera, Counter>,
    frames: Family<OfFate, Counter>,
    frames_waiting: Family<OfCamera, Gauge>,
    frames_in_flight: Family<OfCamera, Gauge>,
    /// 1 while frames arrive.
    pub camera_online: Family<OfCamera, Gauge>,
    /// 1 while the engine on that device runs.
    pub engine_up: Family<OfDevice, Gauge>,
    /// Each stage of the latency account, of each detection.
    pub stage_seconds: Seconds,
    /// Receive to publish, of each detection.
    pub total_seconds: Histogram,
    messages_sent: Counter,
    messages_dropped: Family<OfReason, Counter>,
    /// 1 while the broker accepts messages.
    pub broker_online: Gauge,
}

/// 1 ms to about 8 s, by doubling.
fn latency_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 14))
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("spotter"),
            frames_in: Family::default(),
            frames: Family::default(),
            frames_waiting: Family::default(),
            frames_in_flight: Family::default(),
            camera_online: Family::default(),
            engine_up: Family::default(),
            stage_seconds: Family::new_with_constructor(latency_buckets),
            total_seconds: latency_buckets(),
            messages_sent: Counter::default(),
            messages_dropped: Family::default(),
            broker_online: Gauge::default(),
        };
        metrics.register_frames();
        metrics.register_rest();
        metrics
    }

    fn register_frames(&mut self) {
        let registry = &mut self.registry;
        registry.register("ingest_frames", "Decoded frames", self.frames_in.clone());
        registry.register(
            "ingest_camera_online",
            "1 while frames arrive",
            self.camera_online.clone(),
        );
        registry.register(
            "sampler_frames",
            "What became of decoded frames; with those waiting and in flight they add up to all decoded frames",
            self.frames.clone(),
        );
        registry.register(
            "sampler_frames_waiting",
            "Newest frames not yet taken",
            self.frames_waiting.clone(),
        );
        registry.register(
            "engine_frames_in_flight",
            "Frames that the engine looks at now",
            self.frames_in_flight.clone(),
        );
        registry.register(
            "engine_up",
            "1 while the engine on the device runs",
            self.engine_up.clone(),
        );
    }

    fn register_rest(&mut self) {
        let registry = &mut self.registry;
        registry.register_with_unit(
            "publish_stage",
            "Stages of a detection's way from reception to publication",
            Unit::Seconds,
            self.stage_seconds.clone(),
        );
        registry.register_with_unit(
            "publish_latency",
            "Reception to publication of a detection",
            Unit::Seconds,
            self.total_seconds.clone(),
        );
        registry.register(
            "publish_messages",
            "Messages that reached the broker's client",
            self.messages_sent.clone(),
        );
        registry.register(
            "publish_messages_dropped",
            "Messages not sent, by reason",
            self.messages_dropped.clone(),
        );
        registry.register(
            "publish_broker_online",
            "1 while the broker accepts messages",
            self.broker_online.clone(),
        );
    }

    /// Copies a camera's books, which count from the start.
    pub fn set_books(&self, camera: &CameraId, books: &Books) {
        let label = OfCamera::from(camera);
        set(&self.frames_in.get_or_create(&label), books.arrived);
        for (gauge, frames) in [
            (&self.frames_waiting, books.waiting),
            (&self.frames_in_flight, books.in_flight),
        ] {
            let frames = i64::try_from(frames).unwrap_or(i64::MAX);
            gauge.get_or_create(&label).set(frames);
        }
        for (fate, frames) in by_fate(books) {
            let camera = label.camera.clone();
            set(&self.frames.get_or_create(&OfFate { camera, fate }), frames);
        }
    }

    /// Copies the outbox's counters, which count from the start.
    pub fn set_messages(&self, sent: u64, dropped: &[(&'static str, u64)]) {
        set(&self.messages_sent, sent);
        for &(reason, messages) in dropped {
            set(
                &self.messages_dropped.get_or_create(&OfReason { reason }),
                messages,
            );
        }
    }

    /// OpenMetrics text.
    pub fn encode(&self) -> String {
        let mut page = String::new();
        // A String takes everything that is written to it.
        _ = text::encode(&mut page, &self.registry);
        page
    }
}

/// Totals are counted where things happen; here they are shown.
fn set(counter: &Counter, total: u64) {
    counter.inner().store(total, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_scheme_and_books_are_copied() {
        let metrics = Metrics::new();
        let books = Books {
            arrived: 10,
            replaced: 1,
            skipped: 3,
            gated: 2,
            late: 0,
            looked: 1,
            failed: 1,
            waiting: 1,
            in_flight: 1,
        };
        metrics.set_books(&CameraId::new("gate").unwrap(), &books);
        metrics.set_messages(7, &[("offline", 2)]);
        metrics.total_seconds.observe(0.066);
        let page = metrics.encode();
        for line in [
            "spotter_ingest_frames_total{camera=\"gate\"} 10",
            "spotter_sampler_frames_total{camera=\"gate\",fate=\"skipped\"} 3",
            "spotter_sampler_frames_total{camera=\"gate\",fate=\"failed\"} 1",
            "spotter_sampler_frames_waiting{camera=\"gate\"} 1",
            "spotter_engine_frames_in_flight{camera=\"gate\"} 1",
            "spotter_publish_messages_dropped_total{reason=\"offline\"} 2",
            "spotter_publish_latency_seconds_count 1",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }
}
