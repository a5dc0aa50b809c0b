//! One box in virtual time: cameras, sampler, permits, engine on a simulated device, tracker, in one thread.
//!
//! ```text
//!   frames ─▶ Sampler ─▶ EngineSlot ─▶ EngineLoop ─▶ SimBackend     the device's wait is where time passes:
//!                           │                                       frames arrive and looks begin in it
//!                           └─▶ answers in order ─▶ Tracker
//! ```
//!
//! Nothing depends on real time or on chance, so a run gives the same figures each time.

use std::{cell::RefCell, path::PathBuf, rc::Rc, sync::Arc, time::Duration};

use anyhow::Context as _;
use tokio::{runtime::Runtime, task::yield_now};

use super::{
    cameras::{FrameSender, configured_cameras, tasks},
    devices::DeviceProfile,
    look_log::{LookLog, LookRecord, TextRecord, has_objects},
};
use spotter::app::{engine_slot::EngineSlot, looks::LooksInFlight};
use spotter_cameras::sampler::{Sampler, TimeLimits};
use spotter_config::{ModelSettings, ModelSource};
use spotter_core::{CameraId, Clock as _, Look, LookNews, ManualClock, Mono, Picture};
use spotter_engine::{
    model::{ModelConfig, VisionConfig, load_model},
    scheduler::{backend::BackendLimits, sequence::Bounds},
    service::{Engine, EngineModel, InFlight, LookRule, engine_loop::EngineLoop, handle},
    sim::{SimBackend, SimModel},
};

const PAGE_TOKENS: usize = 16;
/// Pixels of a frame that become one: those of a side of Moondream 2's patches, so that a small picture is cut into as many crops.
const FRAME_SCALE: usize = 14;
const ROWS: usize = 32;
/// Turns of the runtime after which nothing more happens: a look begins or ends in four.
const SETTLED_AFTER: usize = 8;

/// A box and its cameras.
#[derive(Clone, Debug)]
pub struct BoxSetup {
    pub model: SimulatedModel,
    pub device: DeviceProfile,
    pub cameras: usize,
    pub prompts: usize,
    /// Each camera has a question besides, with a free text as its answer, at each look that may ask it.
    pub has_query: bool,
    /// Objects of an answer, mean of a geometric distribution.
    pub objects: u64,
    /// Looks a second that all cameras ask for together.
    pub looks_hz: f64,
    pub in_flight: InFlight,
}

impl BoxSetup {
    fn rule(&self) -> LookRule {
        LookRule {
            in_flight: self.in_flight,
            budget: budget(),
        }
    }

    /// Pixels of the pictures that stand for the device's frames.
    fn picture_size(&self) -> (usize, usize) {
        let (width, height) = self.device.frame;
        (width / FRAME_SCALE, height / FRAME_SCALE)
    }
}

/// What the engine did between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceUse {
    pub busy: Duration,
    pub wasted: Duration,
    pub images: u64,
    pub image_steps: u64,
}

/// A box that runs.
pub struct SimulatedBox {
    clock: ManualClock,
    engine: EngineLoop,
    outside: Rc<RefCell<Outside>>,
}

/// All but the engine; the simulated device's wait turns it.
struct Outside {
    clock: ManualClock,
    runtime: Runtime,
    _slot: EngineSlot,
    looks: LooksInFlight,
    #[cfg(test)]
    sampler: Arc<Sampler>,
    /// Of the cameras' pictures.
    size: (usize, usize),
    cameras: Vec<FrameSender>,
    /// Answers what came too late, to know what was lost.
    reference: Engine,
    log: LookLog,
}

impl SimulatedBox {
    /// Measures a look as the daemon does at its start, then connects the cameras.
    pub fn new(setup: &BoxSetup) -> anyhow::Result<Self> {
        let clock = ManualClock::default();
        clock.advance(Duration::from_secs(10));
        let outside: Rc<RefCell<Option<Rc<RefCell<Outside>>>>> = Rc::default();
        let (waiting, waiting_clock) = (Rc::clone(&outside), clock.clone());
        let backend = simulated_backend(setup, clock.clone()).on_wait(move |until| {
            let outside = waiting.borrow().clone();
            match outside {
                Some(outside) => outside.borrow_mut().advance(until),
                None => waiting_clock.advance(until.since(waiting_clock.now())),
            }
        });
        let mut engine = simulated_engine(setup, backend, clock.clone());
        let cameras = configured_cameras(
            setup.cameras,
            setup.prompts,
            setup.has_query,
            setup.looks_hz,
        )?;
        let measured = measured_look(&mut engine, &clock, setup)?;
        let limits = TimeLimits::new(budget(), Some(measured));
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let (handle, end, engine) = handle::start_here(engine, setup.rule());
        let sampler = Sampler::new(&cameras, Arc::new(clock.clone()));
        let ids: Vec<CameraId> = cameras.iter().map(|camera| camera.id.clone()).collect();
        let mut slot = EngineSlot::new("simulated".into(), (handle, end), sampler.share(limits));
        slot.set_cameras(ids, &sampler);
        let looks = LooksInFlight::default();
        runtime.block_on(async { slot.begin_looks(&looks, &Arc::default()) });
        let reference_clock = ManualClock::default();
        let reference = simulated_backend(setup, reference_clock.clone());
        let all = Rc::new(RefCell::new(Outside {
            clock: clock.clone(),
            runtime,
            _slot: slot,
            looks,
            size: setup.picture_size(),
            cameras: FrameSender::all(&cameras, &sampler, clock.now())?,
            #[cfg(test)]
            sampler,
            reference: simulated_engine(setup, reference, reference_clock),
            log: LookLog::new(&cameras),
        }));
        *outside.borrow_mut() = Some(Rc::clone(&all));
        Ok(Self {
            clock,
            engine,
            outside: all,
        })
    }

    /// Runs until this many looks have ended, at most for `limit`.
    pub fn run(&mut self, looks: usize, limit: Duration) -> anyhow::Result<()> {
        let (wanted, until) = {
            let outside = self.outside.borrow();
            (
                outside.log.records.len() + looks,
                self.clock.now().after(limit),
            )
        };
        while self.outside.borrow().log.records.len() < wanted && self.clock.now() < until {
            self.outside.borrow_mut().settle();
            self.engine.take_waiting();
            match self.engine.is_idle() {
                true => self.outside.borrow_mut().next_frame(),
                false => self.engine.turn()?,
            }
        }
        Ok(())
    }

    /// All looks that have ended so far.
    pub fn records(&self) -> Vec<LookRecord> {
        self.outside.borrow().log.records.clone()
    }

    /// All free texts so far.
    pub fn texts(&self) -> Vec<TextRecord> {
        self.outside.borrow().log.texts.clone()
    }

    /// The frames of all cameras.
    #[cfg(test)]
    pub fn frames(&self) -> Vec<spotter_core::FrameCounters> {
        let counters = self.outside.borrow().sampler.counters();
        counters.into_iter().map(|(_, frames)| frames).collect()
    }

    /// Since the start.
    pub fn device_use(&mut self) -> DeviceUse {
        let work = self.engine.engine().worker().work();
        DeviceUse {
            busy: work.busy,
            wasted: work.wasted,
            images: work.images,
            image_steps: work.image_steps,
        }
    }

    pub fn now(&self) -> Mono {
        self.clock.now()
    }

    /// The looks that may be in flight now.
    pub fn in_flight(&self) -> usize {
        self.engine.in_flight()
    }
}

impl Outside {
    /// Lets time pass until a moment: frames arrive when they are due.
    fn advance(&mut self, until: Mono) {
        while self.next_due() <= until {
            self.next_frame();
        }
        self.clock.advance(until.since(self.clock.now()));
    }

    fn next_due(&self) -> Mono {
        let due = self.cameras.iter().map(|camera| camera.next);
        due.min().unwrap_or(Mono::from_nanos(u64::MAX))
    }

    /// The next frame of any camera arrives.
    fn next_frame(&mut self) {
        let due = self.next_due();
        self.clock.advance(due.since(self.clock.now()));
        for camera in &mut self.cameras {
            if camera.next == due
                && let Some(picture) = picture_of(&camera.id, camera.frames + 1, self.size)
            {
                camera.deliver(picture, due);
            }
        }
        self.settle();
    }

    /// Looks begin while there are permits and frames; answers reach the tracker.
    fn settle(&mut self) {
        let Self { runtime, looks, .. } = self;
        let all = runtime.block_on(async {
            let mut all = Vec::new();
            let settled = async {
                for _ in 0..SETTLED_AFTER {
                    yield_now().await;
                }
            };
            tokio::pin!(settled);
            loop {
                tokio::select! {
                    biased;
                    news = looks.news() => all.extend(news),
                    () = &mut settled => return all,
                }
            }
        });
        for news in all {
            self.publish(news);
        }
    }

    fn publish(&mut self, news: LookNews) {
        let Self {
            log,
            reference,
            clock,
            ..
        } = self;
        log.add(news, clock.now(), |look| would_find(reference, look));
    }
}

fn would_find(reference: &mut Engine, look: &Look) -> bool {
    let mut look = look.clone();
    let never = Mono::from_nanos(u64::MAX);
    (look.start_by, look.answer_by) = (never, never);
    let found = reference.look(look);
    found.is_ok_and(|found| found.answers.iter().any(has_objects))
}

/// The simulated model's answer is a function of the picture, so each is another one.
fn picture_of(camera: &CameraId, number: u64, size: (usize, usize)) -> Option<Picture> {
    let (width, height) = size;
    let mut pixels = vec![0; width * height * 3];
    pixels[..8].copy_from_slice(&number.to_le_bytes());
    for (pixel, byte) in pixels[8..12].iter_mut().zip(camera.as_str().bytes().rev()) {
        *pixel = byte;
    }
    Picture::from_rgb(width, height, pixels).ok()
}

/// Time of a look that finds nothing and is alone on the device.
pub fn time_of_empty_look(setup: &BoxSetup) -> anyhow::Result<Duration> {
    let setup = BoxSetup {
        objects: 0,
        ..setup.clone()
    };
    let clock = ManualClock::default();
    let backend = simulated_backend(&setup, clock.clone());
    let mut engine = simulated_engine(&setup, backend, clock.clone());
    measured_look(&mut engine, &clock, &setup)
}

/// As the daemon measures one at its start.
fn measured_look(
    engine: &mut Engine,
    clock: &ManualClock,
    setup: &BoxSetup,
) -> anyhow::Result<Duration> {
    let began = clock.now();
    let (width, height) = setup.picture_size();
    let pixels = vec![128; width * height * 3];
    let picture = Picture::from_rgb(width, height, pixels).context("a picture")?;
    engine.look(Look::still(picture, tasks(setup.prompts)))?;
    Ok(clock.now().since(began))
}

/// `[model]` of a configuration that sets nothing but a directory.
fn settings() -> ModelSettings {
    ModelSettings::of(ModelSource::Directory(PathBuf::new()))
}

/// `model.budget`
pub fn budget() -> Duration {
    settings().budget
}

/// What the engine needs of a model beside its weights, which are simulated.
#[derive(Clone, Debug)]
pub struct SimulatedModel(EngineModel);

impl SimulatedModel {
    /// Dimensions and tokenizer of the embedded model, because costs do not depend on them; but it sees pictures as Moondream 2 does, with
    /// patches of one pixel.
    pub fn load() -> anyhow::Result<Self> {
        let loaded = load_model(&ModelSource::Embedded)?;
        let mut config = loaded.config;
        let released = ModelConfig::default();
        config.text.max_context = released.text.max_context;
        config.vision = VisionConfig {
            enc_patch_size: 1,
            crop_size: released.vision.crop_size / FRAME_SCALE,
            ..released.vision
        };
        Ok(Self(EngineModel {
            config,
            tokenizer: loaded.tokenizer,
            explains_strips: true,
        }))
    }
}

fn simulated_backend(setup: &BoxSetup, clock: ManualClock) -> SimBackend {
    let config = &setup.model.0.config;
    let prefix_positions = config.prefix_positions();
    let context = prefix_positions + 64 + 3 * settings().max_objects as usize;
    let limits = BackendLimits {
        slots: 2,
        rows: ROWS,
        pages: ROWS * context.div_ceil(PAGE_TOKENS),
        page_tokens: PAGE_TOKENS,
        context,
        prefix_positions,
        images: setup.device.images_a_step,
        positions: ROWS * context,
        tokens: ROWS * context,
        picks: usize::MAX,
        picture_pixels: usize::MAX,
        kept_crops: 0,
        adapters: 0,
    };
    let model = SimModel {
        vocab: config.text.vocab_size,
        // A mean of `objects` before the end.
        objects: setup.objects + 1,
        crops: 1,
        memory: true,
    };
    SimBackend::new(limits, model, setup.device.costs(), clock)
}

fn simulated_engine(setup: &BoxSetup, backend: SimBackend, clock: ManualClock) -> Engine {
    let bounds = Bounds {
        max_objects: settings().max_objects as usize,
        max_tokens: 128,
    };
    Engine::new(
        Box::new(backend),
        setup.model.0.clone(),
        bounds,
        Arc::new(clock),
    )
}
