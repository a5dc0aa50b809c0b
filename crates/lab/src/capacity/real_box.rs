//! One box in real time: cameras that deliver noise, sampler, permits, the engine's thread on this machine's device, tracker.
//!
//! ```text
//!   frames (thread) ─▶ Sampler ─▶ EngineSlot ─▶ engine (thread) on the CPU or a GPU
//!                                    └─▶ outcomes in order ─▶ Tracker
//! ```
//!
//! Load 1 is the rate of looks one after the other. Every answer has the same number of objects, so a rate can be compared with
//! that of `spotter-lab load`, which asks the engine directly. The number in flight is learned, as in the daemon; fixed numbers
//! are not run.

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::bail;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use super::{
    CapacityOptions, LOOKS_ALONE,
    cameras::{FrameSender, configured_cameras, tasks},
    figures::{CapacityLoad, CapacityRow, CapacityTable, RunFigures},
    look_log::{LookEnd, LookLog},
    simulated_box::budget,
};
use crate::bench::noise;
use spotter::app::{engine_slot::EngineSlot, looks::LooksInFlight};
use spotter_cameras::sampler::{Sampler, TimeLimits};
use spotter_config::{CameraConfig, ConfigChange, ModelSettings};
use spotter_core::{CameraId, Clock, Look, LookNews, Mono, Outcome, Picture, SystemClock};
use spotter_engine::{
    model::ModelConfig,
    open::{self, ExpectedLook},
    service::handle::{self, EngineHandle},
};
use spotter_street::calibration_pictures;

/// Looks for the time of one alone.
const ALONE_LOOKS: usize = 5;
/// Part of a row's time before anything counts: the number in flight is to follow.
const WARM_UP_PART: f64 = 0.4;
/// Load of the last row of each set-up: more frames than any number in flight can answer.
const SATURATED_LOAD: f64 = 8.0;
/// Between two checks whether a row has its first answer.
const ANSWER_POLL: Duration = Duration::from_millis(20);
/// How long the first answer may take behind the time of the row.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Between two checks whether the last looks of a row have ended.
const DRAIN_POLL: Duration = Duration::from_millis(20);
/// By how many pictures the first ones of two cameras differ.
const FIRST_PICTURES_APART: usize = 5;
/// Grace for the last looks and the engine.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// The name of this machine's device.
pub const REAL: &str = "real";

/// This machine's device.
#[derive(Clone, Debug)]
pub struct RealOptions {
    pub settings: ModelSettings,
    /// Random weights in the shape of this model instead of the configured one.
    pub noise: Option<ModelConfig>,
    /// Pixels across and down of the frames.
    pub size: (usize, usize),
    /// Of each row; longer until its first answer.
    pub time: Duration,
}

/// A row of this machine's device.
#[derive(Clone, Debug, Serialize)]
pub struct RealRow {
    #[serde(flatten)]
    pub row: CapacityRow,
    /// Cameras have more frames than the engine can answer, so the rate is the highest.
    pub is_saturated: bool,
    /// Median of looks with nothing else in the engine. Under light load ages are as low: no look waits for a batch.
    pub alone_ms: f64,
}

/// `Display` gives the table, serde the JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct RealTable {
    pub rows: Vec<RealRow>,
}

impl fmt::Display for RealTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows.iter().map(|real| real.row.clone()).collect();
        write!(f, "{}", CapacityTable { rows })?;
        let saturated = self.rows.iter().filter(|real| real.is_saturated);
        for RealRow { row, alone_ms, .. } in saturated {
            let CapacityRow {
                cameras,
                prompts,
                objects,
                looks_per_s,
                ..
            } = row;
            write!(
                f,
                "\n{cameras} cameras, {prompts} prompts, {objects} objects: alone {alone_ms:.1} ms, saturated {looks_per_s:.1} looks/s"
            )?;
        }
        Ok(())
    }
}

/// Measures every combination of cameras, prompts and objects under every load and saturated. Blocks.
pub fn real_capacity(
    options: &CapacityOptions,
    real: &RealOptions,
    progress: impl Fn(&str),
) -> anyhow::Result<RealTable> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let mut rows = Vec::new();
    for &objects in &options.objects {
        for &prompts in &options.prompts {
            progress(&format!(
                "opening the engine: {prompts} prompts, {objects} objects"
            ));
            let case = RealCase { objects, prompts };
            let measured = runtime.block_on(case.rows(options, real, &progress))?;
            rows.extend(measured);
        }
    }
    Ok(RealTable { rows })
}

/// Looks of one kind; an engine is opened for each, because its answers have a fixed length.
#[derive(Clone, Copy)]
struct RealCase {
    objects: u64,
    prompts: usize,
}

/// The engine of a case, with the time of a look that is alone.
struct OpenedBox {
    slot: EngineSlot,
    looks: LooksInFlight,
    engine: EngineHandle,
    device: String,
    alone: Duration,
    sampler: Arc<Sampler>,
    pictures: Arc<[Picture]>,
    clock: Arc<dyn Clock>,
    configured: Vec<CameraConfig>,
}

impl RealCase {
    async fn rows(
        self,
        options: &CapacityOptions,
        real: &RealOptions,
        progress: &impl Fn(&str),
    ) -> anyhow::Result<Vec<RealRow>> {
        let mut opened = self.open(real).await?;
        let mut rows = Vec::new();
        for &cameras in &options.cameras {
            let loads = options.loads.iter().copied().chain([SATURATED_LOAD]);
            for load in loads {
                progress(&format!(
                    "{}: {cameras} cameras, load {load}",
                    opened.device
                ));
                rows.push(self.row(&mut opened, cameras, load, real.time).await?);
            }
        }
        let OpenedBox {
            mut slot, engine, ..
        } = opened;
        drop(engine);
        slot.close(STOP_LIMIT, false).await;
        Ok(rows)
    }

    async fn open(self, real: &RealOptions) -> anyhow::Result<OpenedBox> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let (width, height) = real.size;
        let pictures: Arc<[Picture]> = noise(width, height)?.into();
        let settings = ModelSettings {
            max_objects: self.objects.max(1) as u32,
            budget: budget(),
            ..real.settings.clone()
        };
        let (own, its_pictures) = (Arc::clone(&clock), Arc::clone(&pictures));
        let shape = real.noise.clone();
        let build = move || {
            let shared = Arc::clone(&own);
            let built = open::build_endless_engine(&settings, shape, calibration_pictures, shared);
            let (mut engine, card) = built?;
            let tasks: Vec<_> = tasks(self.prompts).collect();
            let look = open::measured_look(&mut engine, &tasks, own.as_ref())?;
            let expected = ExpectedLook {
                width: width as u32,
                tasks: tasks.clone(),
            };
            open::warm_up(&mut engine, &[expected], own.as_ref())?;
            let mut alone = Vec::new();
            for picture in its_pictures.iter().take(ALONE_LOOKS) {
                let look = Look::still(picture.clone(), tasks.iter().cloned());
                let from = own.now();
                engine.look(look).map_err(|error| error.to_string())?;
                alone.push(own.now().since(from));
            }
            alone.sort();
            let rule = card.look_rule(settings.budget);
            Ok((engine, rule, (card, look, alone[alone.len() / 2])))
        };
        let started = handle::start_and_report(build).await?;
        let (engine, end, (card, look, alone)) = started;
        let sampler = Sampler::new(&[], Arc::clone(&clock));
        let share = sampler.share(TimeLimits::new(budget(), look));
        let (label, started) = (card.label.clone(), (engine.clone(), end));
        let looks = LooksInFlight::default();
        let mut slot = EngineSlot::new(label, started, share);
        slot.begin_looks(&looks, &Arc::default());
        Ok(OpenedBox {
            slot,
            looks,
            engine,
            device: format!("{}, {}", card.label, card.precision),
            alone,
            sampler,
            pictures,
            clock,
            configured: Vec::new(),
        })
    }

    async fn row(
        self,
        opened: &mut OpenedBox,
        cameras: usize,
        load: f64,
        time: Duration,
    ) -> anyhow::Result<RealRow> {
        let looks_hz = load / opened.alone.as_secs_f64().max(1e-6);
        let configured = configured_cameras(cameras, self.prompts, false, looks_hz)?;
        let change = ConfigChange::between(&opened.configured, &configured);
        opened.sampler.change(&change);
        opened.configured.clone_from(&configured);
        let ids: Vec<CameraId> = configured.iter().map(|camera| camera.id.clone()).collect();
        opened.slot.set_cameras(ids, &opened.sampler);
        let source = FrameSource::start(&configured, opened)?;
        let mut run = RealRun {
            log: LookLog::new(&configured),
            steps: HashSet::new(),
            in_flight: 0,
            has_objects: self.objects > 0,
        };
        let warm_up = time.mul_f64(WARM_UP_PART);
        run.until(opened, warm_up).await?;
        run.log.records.clear();
        run.steps.clear();
        run.in_flight = 0;
        let from = opened.clock.now();
        run.until(opened, time - warm_up).await?;
        // A row without an answer has no figures, however slow or busy the device is.
        let patience = opened.clock.now().after(ANSWER_LIMIT);
        while !run.has_answer() {
            let is_late = opened.clock.now() > patience;
            anyhow::ensure!(
                !is_late,
                "no look of {cameras} cameras was answered within {ANSWER_LIMIT:?}; use fewer cameras"
            );
            run.until(opened, ANSWER_POLL).await?;
        }
        let took = opened.clock.now().since(from);
        source.stop();
        let row = self.figures(opened, &run, (load, took));
        // The looks in flight belong to no row.
        opened.slot.set_cameras(Vec::new(), &opened.sampler);
        while opened.in_flight() > 0 {
            run.until(opened, DRAIN_POLL).await?;
        }
        Ok(row)
    }

    fn figures(self, opened: &OpenedBox, run: &RealRun, of: (f64, Duration)) -> RealRow {
        let ((load, took), cameras) = (of, run.log.cameras().len());
        let mut figures = RunFigures::of(&run.log.records, cameras, took);
        let late = (figures.begun - figures.answered) as f64;
        // What late looks cost is not reported; at most as much as answered ones.
        figures.wasted_share = late / figures.begun.max(1) as f64;
        figures.images_per_step = figures.answered as f64 / run.steps.len().max(1) as f64;
        let load = CapacityLoad {
            device: opened.device.clone(),
            cameras,
            prompts: self.prompts,
            objects: self.objects,
            load,
            bound: budget().max(opened.alone.mul_f64(LOOKS_ALONE)),
        };
        figures.in_flight = run.in_flight;
        let is_saturated = load.load >= SATURATED_LOAD;
        let row = CapacityRow::new(load, figures, None);
        RealRow {
            row,
            is_saturated,
            alone_ms: opened.alone.as_secs_f64() * 1e3,
        }
    }
}

impl OpenedBox {
    fn in_flight(&self) -> u64 {
        let counters = self.sampler.counters();
        counters.iter().map(|(_, frames)| frames.in_flight).sum()
    }
}

/// The looks of a row.
struct RealRun {
    log: LookLog,
    /// Images of one step are all encoded at the same nanosecond, those of two steps are not.
    steps: HashSet<Mono>,
    /// The most looks that were allowed, or inside, at once.
    in_flight: usize,
    /// Every answer of a case has as many, also those that come too late.
    has_objects: bool,
}

impl RealRun {
    fn has_answer(&self) -> bool {
        let mut ends = self.log.records.iter().map(|look| look.end);
        ends.any(|end| end == LookEnd::Answered)
    }

    async fn until(&mut self, opened: &mut OpenedBox, time: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + time;
        loop {
            tokio::select! {
                () = sleep_until(end) => return Ok(()),
                reason = opened.slot.ended() => return Err(reason.into()),
                news = opened.looks.news() => {
                    // None are allowed while one is in a hurry, which is inside.
                    let places = *opened.engine.places().borrow();
                    self.in_flight = self.in_flight.max(places).max(opened.in_flight() as usize);
                    for news in news {
                        self.publish(news, opened.clock.now())?;
                    }
                }
            }
        }
    }

    fn publish(&mut self, news: LookNews, now: Mono) -> anyhow::Result<()> {
        match &news {
            LookNews::Answer { answer, .. } => {
                self.steps.insert(answer.marks.encoded);
            }
            LookNews::Ended(Outcome::Failed(_, reason)) => bail!("a look failed: {reason}"),
            LookNews::Piece { .. } | LookNews::ShortAnswered(_) | LookNews::Ended(_) => {}
        }
        let has_objects = self.has_objects;
        self.log.add(news, now, |_| has_objects);
        Ok(())
    }
}

/// The cameras: a thread that delivers every frame when it is due.
struct FrameSource {
    stops: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl FrameSource {
    fn start(cameras: &[CameraConfig], opened: &OpenedBox) -> anyhow::Result<Self> {
        let (clock, pictures) = (Arc::clone(&opened.clock), Arc::clone(&opened.pictures));
        let mut all = FrameSender::all(cameras, &opened.sampler, clock.now())?;
        let stops = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stops);
        let body = move || {
            while !is_over.load(Ordering::Relaxed) {
                let cameras = all.iter_mut().enumerate();
                let next = cameras.min_by_key(|(_, camera)| camera.next);
                let Some((index, camera)) = next else {
                    return;
                };
                thread::sleep(camera.next.since(clock.now()));
                // No two cameras show the same.
                let picture = index * FIRST_PICTURES_APART + camera.frames as usize + 1;
                camera.deliver(pictures[picture % pictures.len()].clone(), clock.now());
            }
        };
        let thread = thread::Builder::new().name("cameras".into()).spawn(body)?;
        Ok(Self { stops, thread })
    }

    fn stop(self) {
        self.stops.store(true, Ordering::Relaxed);
        // It only sleeps and puts frames in; a panic of it is in the log.
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_config::{DevicePreference, ModelSource};

    /// The embedded model on the processor.
    #[test]
    fn real_device_answers_every_row_and_the_saturated_one() {
        let options = CapacityOptions {
            device: Some(REAL.into()),
            cameras: vec![1, 2],
            prompts: vec![1],
            objects: vec![1],
            has_query: false,
            loads: vec![0.5],
            looks: 0,
        };
        let real = RealOptions {
            settings: ModelSettings {
                device: DevicePreference::Cpu,
                ..ModelSettings::of(ModelSource::Embedded)
            },
            noise: None,
            size: (64, 48),
            // Each row waits for its first answer.
            time: Duration::from_millis(200),
        };
        let table = real_capacity(&options, &real, |_| {}).expect("the embedded model");
        let saturated: Vec<bool> = table.rows.iter().map(|real| real.is_saturated).collect();
        assert_eq!(saturated, [false, true, false, true]);
        for real in &table.rows {
            let row = &real.row;
            assert!(row.answered > 0 && row.answered <= row.begun, "{row:?}");
            assert!(row.in_flight > 0 && real.alone_ms > 0.0, "{row:?}");
        }
        let json = serde_json::to_value(&table).expect("numbers");
        assert_eq!(json[1]["is_saturated"], true);
        assert_eq!(json[1]["cameras"], 1);
    }
}
