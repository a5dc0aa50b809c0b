//! What the daemon knows, in the words of the page.

use std::time::Duration;

use super::{Facts, State};
use crate::ops::page::{self, Mood};
use spotter_core::{CameraId, FrameCounters, Mono, STAGES, WallTime};
use spotter_mqtt::{BrokerState, CameraHealth, Tally};

impl State {
    /// Everything, now.
    pub(super) fn view(&mut self, now: Mono, wall: WallTime) -> page::View {
        let [total_p95_ms] = self.totals.percentiles(now, [0.95]);
        let facts = &self.facts;
        let node = page::Node {
            name: self.place.name.clone(),
            version: env!("CARGO_PKG_VERSION"),
            model: self.model.clone(),
            uptime_s: now.since(self.started).as_secs(),
            looks_per_s: self.looks_per_s(),
            total_p95_ms,
            rss_mib: facts.process.rss_mib,
            cpu_pct: facts.process.cpu_pct,
        };
        let mut cameras: Vec<page::Camera> = self
            .cameras
            .iter_mut()
            .map(|camera| camera.view(now))
            .collect();
        for camera in &mut cameras {
            facts.tell_of(camera);
        }
        let engines = self.engines.iter().map(|engine| {
            let its = |(camera, _): &&(CameraId, FrameCounters)| engine.cameras.contains(camera);
            let mut known = facts.engines.iter();
            let known = known.find(|(device, _)| *device == engine.device);
            page::Engine {
                state: known.map(|(_, state)| *state).unwrap_or_default(),
                under_way: facts
                    .books
                    .iter()
                    .filter(its)
                    .map(|(_, b)| b.in_flight)
                    .sum(),
                ..engine.view(now)
            }
        });
        page::View {
            v: 1,
            time_ms: wall.unix_millis(),
            node,
            stages: STAGES.to_vec(),
            cameras,
            engines: engines.collect(),
            broker: page::Broker {
                address: self.place.broker.clone(),
                topics: self.place.topics.clone(),
                sent: facts.tally.streams_sent,
                dropped: dropped(&facts.tally).to_vec(),
                spooled: facts.spooled,
                puback_p95_ms: facts.puback_p95.map(|time| time.as_secs_f64() * 1e3),
                ..broker(&facts.broker, now)
            },
            config: self.config.clone(),
        }
    }

    fn looks_per_s(&self) -> Option<f64> {
        let ((first, before), (last, looked)) = self.looked.front().zip(self.looked.back())?;
        let seconds = last.since(*first).as_secs_f64();
        (seconds > 0.0).then(|| (looked - before) as f64 / seconds)
    }
}

impl Facts {
    fn tell_of(&self, camera: &mut page::Camera) {
        let its = |id: &CameraId| id.as_str() == camera.id;
        let health = self.cameras.iter().find(|(id, _)| its(id));
        let books = self.books.iter().find(|(id, _)| its(id));
        if let Some((_, books)) = books {
            camera.frames = frames(books);
        }
        match health {
            Some((_, health)) => add_health(camera, health),
            None => camera.state = "connecting".into(),
        }
    }
}

fn add_health(camera: &mut page::Camera, health: &CameraHealth) {
    let lost = health
        .reason
        .as_ref()
        .is_some_and(|reason| reason.starts_with("engine_lost"));
    let state = if lost {
        "engine_lost"
    } else {
        health.state.as_str()
    };
    camera.mood = match (state, &health.reason) {
        ("streaming", _) => Mood::Good,
        ("disabled", _) => Mood::Off,
        ("connecting" | "waiting_keyframe", None) => Mood::Busy,
        _ => Mood::Bad,
    };
    camera.state = state.to_owned();
    camera.reason.clone_from(&health.reason);
    camera.since_ms = health.since_ms;
    camera.next_retry_s = health.next_retry_s;
    let clock = &health.clock;
    camera.stream = page::Stream {
        codec: health.codec.clone(),
        size: health.w.zip(health.h),
        fps: health.fps_measured,
        transport: health.transport.clone(),
        decoder: health.decoder.clone(),
        rtp_lost: health.rtp_lost,
        frames_corrupt: health.frames_corrupt,
        frames_late: health.frames_late,
        reconnects_1h: health.reconnects_1h,
        stalls_1h: health.stalls_1h,
        clock: page::Clock {
            trusted: clock.trusted,
            offset_ms: clock.offset_ms,
            drift_ppm: clock.drift_ppm,
            note: clock.note.clone(),
        },
    };
}

fn frames(books: &FrameCounters) -> page::Frames {
    page::Frames {
        arrived: books.arrived,
        looked: books.looked,
        skipped: books.skipped,
        gated: books.gated,
        replaced: books.replaced,
        late: books.late,
        failed: books.failed,
        open: books.waiting + books.in_flight,
    }
}

/// Messages dropped, by reason; for the page and for the metrics.
pub fn dropped(tally: &Tally) -> [(&'static str, u64); 8] {
    tally.drops()
}

fn broker(state: &BrokerState, now: Mono) -> page::Broker {
    let (mood, word) = match state {
        BrokerState::Connecting => (Mood::Busy, "connecting"),
        BrokerState::Online { .. } => (Mood::Good, "online"),
        BrokerState::Backoff { .. } => (Mood::Bad, "away"),
        BrokerState::Refused { .. } => (Mood::Bad, "refuses us"),
        BrokerState::TakenOver { .. } => (Mood::Bad, "taken over"),
        BrokerState::Untrusted { .. } => (Mood::Bad, "not trusted"),
        BrokerState::Stopped => (Mood::Off, "closed"),
    };
    let seconds = |at: Mono| at.since(now).as_secs_f64();
    page::Broker {
        mood,
        state: match state {
            BrokerState::Online { protocol } => format!("{word}, MQTT {protocol}"),
            _ => word.to_owned(),
        },
        reason: state.trouble().map(str::to_owned),
        next_retry_s: state
            .retry_at()
            .map(seconds)
            .filter(|s| *s >= Duration::from_secs(1).as_secs_f64()),
        ..page::Broker::default()
    }
}
