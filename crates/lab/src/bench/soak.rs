//! `spotter bench soak`: everything at once, for a long time, on any device.
//!
//! ```text
//!   each request alone ─▶ its answer ─┐
//!                                     ├─▶ compared (compare)      memory, books, pages ─▶ verdict (report)
//!   the same by chance, many at once ─┘
//! ```
//!
//! The engine is driven below its words, turn by turn: requests of a small pool (`pool`) arrive by chance, some with a
//! deadline that they may miss, some cancelled on the way, now one at a time and now more than the device has rows for.
//! Cameras, drafts and the reuse of tiles are in it too. Every answer must be the one that the request got alone.
//!
//! A soak is many shifts on one device. Each has an engine of its own, which ends with some looks answered and some
//! cancelled, idle and without a page in use. In every second shift the device offers so few pages that rows are sent back.

mod compare;
mod pool;
mod report;

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc, time::Duration};

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

pub use self::report::{SoakMemory, SoakReport, SoakTally};
use self::{
    compare::{AnswerPromise, Likeness, compare, is_sure},
    pool::{Card, cards, short_of_pages},
};
use spotter::ops::machine::{Machine, rss_mib};
use spotter_core::{CameraId, Clock, Mono, PictureError};
use spotter_engine::{
    model::{ModelConfig, SequenceOutput, Tokenizer},
    scheduler::{
        Options,
        backend::{Backend, BackendError, BackendLimits, Committed, PageId, RowMask, SlotId, Step},
        request::{LookEvent, LookId},
        worker::{DeviceError, Worker},
    },
};

/// A look that has not ended after so many turns never will.
const TURNS_MAX: u64 = 50_000;
/// SoakMemory is measured, and progress told, so often.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Looks of a shift.
const SHIFT_LOOKS: u64 = 64;
/// Looks inside at once; changes every some turns.
const WAVES: [usize; 5] = [1, 3, 8, 16, 24];
const CAMERAS: usize = 6;

/// Why a soak ended early.
#[derive(Debug, thiserror::Error)]
pub enum SoakError {
    /// The device.
    #[error("after {0} looks: {1}")]
    Device(u64, DeviceError),
    /// A mistake in this program.
    #[error("drawing a picture: {0}")]
    Picture(#[from] PictureError),
    /// The model cannot read the words.
    #[error("a prompt: {0}")]
    Prompt(String),
    /// A request that must fit does not.
    #[error("request {0} cannot be answered alone: {1}")]
    Alone(usize, String),
}

/// What is soaked.
pub struct Soaked {
    /// The device, alone.
    pub backend: Box<dyn Backend>,
    /// Dimensions of the model on it.
    pub config: ModelConfig,
    /// Its words; `None` asks with ids that mean nothing.
    pub tokenizer: Option<Tokenizer>,
    /// It computes in f32, and a request's answer is the same to the bit whatever is beside it.
    pub exact: bool,
    /// For the report.
    pub device: String,
    /// For the report.
    pub model: String,
}

/// How long.
#[derive(Clone, Copy, Debug)]
pub struct SoakOptions {
    /// Until so much time has passed,
    pub time: Duration,
    /// or so many looks were asked.
    pub looks: u64,
    /// Of all chance.
    pub seed: u64,
}

/// Blocks for all of it. `gpu_free_mib` measures the GPU's free memory, `tell` gets the report so far from time to time.
pub fn soak(
    soaked: Soaked,
    options: &SoakOptions,
    clock: &Arc<dyn Clock>,
    gpu_free_mib: impl Fn() -> Option<f64>,
    mut tell: impl FnMut(&SoakReport),
) -> Result<SoakReport, SoakError> {
    let cards = cards(&soaked.config, soaked.tokenizer.as_ref())?;
    let mut storm = Storm::new(soaked, cards, options.seed, clock)?;
    storm.measure(gpu_free_mib());
    let mut told = clock.now();
    while storm.elapsed() < options.time && storm.report.tally.asked < options.looks {
        if storm.report.tally.asked >= storm.shift_ends {
            storm.end_shift()?;
        }
        storm.admit();
        storm.turn()?;
        if clock.now().since(told) >= TELL_EVERY {
            told = clock.now();
            storm.measure(gpu_free_mib());
            tell(&storm.report);
        }
    }
    storm.end_shift()?;
    storm.measure(gpu_free_mib());
    Ok(storm.report)
}

/// A look inside.
struct LooksInside {
    card: usize,
    /// Turn at which it came.
    since: u64,
    /// Turn at which it is cancelled.
    cancel: Option<u64>,
}

struct Storm {
    device: SharedBackend,
    vocab: usize,
    worker: Worker,
    /// Looks that were asked when the shift ends, and whether it has few pages.
    shift_ends: u64,
    is_short: bool,
    clock: Arc<dyn Clock>,
    cards: Vec<Card>,
    /// For each card its answers alone.
    alone: Vec<Vec<SequenceOutput>>,
    /// Time of a look alone, on average.
    look: Duration,
    promise: AnswerPromise,
    cameras: Vec<CameraId>,
    inside: HashMap<LookId, LooksInside>,
    random: Pcg64,
    began: Mono,
    turns: u64,
    /// Looks inside at once, until that turn.
    wave: (usize, u64),
    report: SoakReport,
}

impl Storm {
    /// Asks every card alone first.
    fn new(
        soaked: Soaked,
        cards: Vec<Card>,
        seed: u64,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, SoakError> {
        let device: SharedBackend = Rc::new(RefCell::new(soaked.backend));
        let vocab = soaked.config.text.vocab_size;
        let camera = |i| CameraId::new(&format!("c{i}")).ok();
        let mut storm = Self {
            worker: worker(&device, vocab, false, clock),
            device,
            vocab,
            shift_ends: SHIFT_LOOKS,
            is_short: false,
            clock: Arc::clone(clock),
            cards,
            alone: Vec::new(),
            look: Duration::ZERO,
            promise: if soaked.exact {
                AnswerPromise::Exact
            } else {
                AnswerPromise::Rounded
            },
            cameras: (0..CAMERAS).filter_map(camera).collect(),
            inside: HashMap::new(),
            random: Pcg64::seed_from_u64(seed),
            began: clock.now(),
            turns: 0,
            wave: (1, 0),
            report: SoakReport {
                machine: Machine::now(),
                device: soaked.device,
                model: soaked.model,
                ..SoakReport::default()
            },
        };
        for card in 0..storm.cards.len() {
            let answers = storm.ask_alone(card)?;
            storm.alone.push(answers);
        }
        storm.look = storm.elapsed() / storm.cards.len().max(1) as u32;
        storm.began = storm.clock.now();
        Ok(storm)
    }

    fn ask_alone(&mut self, card: usize) -> Result<Vec<SequenceOutput>, SoakError> {
        self.worker.admit(self.cards[card].alone());
        for _ in 0..TURNS_MAX {
            let events = self.worker.turn().map_err(|e| SoakError::Device(0, e))?;
            for event in events {
                match event {
                    LookEvent::Answered { findings, .. } => {
                        return Ok(findings.into_iter().map(|f| f.found).collect());
                    }
                    LookEvent::Failed { why, .. } => {
                        return Err(SoakError::Alone(card, why.to_string()));
                    }
                    LookEvent::Late { .. } | LookEvent::Object(..) => {}
                }
            }
        }
        Err(SoakError::Alone(
            card,
            format!("no answer after {TURNS_MAX} turns"),
        ))
    }

    fn elapsed(&self) -> Duration {
        self.clock.now().since(self.began)
    }

    /// Looks that arrive now: as many as the wave has room for, mostly.
    fn admit(&mut self) {
        if self.turns >= self.wave.1 {
            let most = WAVES[self.random.random_range(0..WAVES.len())];
            self.wave = (most, self.turns + self.random.random_range(20..200));
        }
        while self.inside.len() < self.wave.0
            && (self.inside.is_empty() || self.random.random_bool(0.5))
        {
            let card = self.random.random_range(0..self.cards.len());
            let camera = self.random.random_range(0..self.cameras.len());
            let limits = self.limits();
            let request = self.cards[card].request(self.cameras.get(camera), limits);
            let cancel = self.random.random_bool(0.1);
            let cancel = cancel.then(|| self.turns + self.random.random_range(0..60));
            let id = self.worker.admit(request);
            let since = self.turns;
            self.inside.insert(
                id,
                LooksInside {
                    card,
                    since,
                    cancel,
                },
            );
            self.report.tally.asked += 1;
        }
    }

    /// Mostly none; else times that a busy device misses now and then.
    fn limits(&mut self) -> [Mono; 2] {
        let now = self.clock.now();
        let mut limit = |looks: f64| match self.random.random_bool(0.15) {
            true => now.after(self.look.mul_f64(self.random.random_range(0.0..looks))),
            false => Mono::from_nanos(u64::MAX),
        };
        [limit(6.0), limit(20.0)]
    }

    /// Cancels what is to be cancelled, and turns the engine.
    fn turn(&mut self) -> Result<(), SoakError> {
        self.turns += 1;
        let turns = self.turns;
        let (worker, tally) = (&mut self.worker, &mut self.report.tally);
        self.inside.retain(|id, look| {
            let cancelled = look.cancel.is_some_and(|at| turns >= at) && worker.cancel(*id);
            tally.cancelled += u64::from(cancelled);
            !cancelled
        });
        let asked = self.report.tally.asked;
        let events = self
            .worker
            .turn()
            .map_err(|e| SoakError::Device(asked, e))?;
        for event in events {
            self.event(event);
        }
        // Told once, and not waited for.
        let before = self.inside.len();
        self.inside.retain(|_, look| turns - look.since < TURNS_MAX);
        self.report.never_ended += (before - self.inside.len()) as u64;
        Ok(())
    }

    fn event(&mut self, event: LookEvent) {
        let tally = &mut self.report.tally;
        match event {
            LookEvent::Answered { look, findings, .. } => {
                if let Some(look) = self.inside.remove(&look) {
                    tally.answered += 1;
                    let found: Vec<SequenceOutput> =
                        findings.into_iter().map(|f| f.found).collect();
                    self.compare(look.card, &found);
                }
            }
            LookEvent::Late { look } => {
                tally.late += u64::from(self.inside.remove(&look).is_some())
            }
            LookEvent::Failed { look, .. } => {
                tally.failed += u64::from(self.inside.remove(&look).is_some());
            }
            LookEvent::Object(..) => {}
        }
    }

    fn compare(&mut self, card: usize, found: &[SequenceOutput]) {
        for (index, (alone, beside)) in self.alone[card].iter().zip(found).enumerate() {
            let tally = &mut self.report.tally;
            tally.sure += u64::from(is_sure(alone));
            match compare(alone, beside, self.promise) {
                Likeness::Same => tally.same += 1,
                Likeness::Near => tally.near += 1,
                Likeness::Close => tally.close += 1,
                Likeness::Wrong => {
                    tally.wrong += 1;
                    let what = || {
                        format!(
                            "request {card}, prompt {index}: alone {alone:?}, beside others {beside:?}"
                        )
                    };
                    self.report.first_wrong.get_or_insert_with(what);
                }
            }
        }
    }

    fn measure(&mut self, gpu_free_mib: Option<f64>) {
        let at_s = self.elapsed().as_secs_f64();
        self.report.seconds = at_s;
        self.report.memory.push(SoakMemory {
            at_s,
            rss_mib: rss_mib(),
            gpu_free_mib,
        });
    }

    /// Half of those inside are waited for, the others are cancelled; then another engine takes the device.
    fn end_shift(&mut self) -> Result<(), SoakError> {
        let now = self.turns;
        for (index, look) in self.inside.values_mut().enumerate() {
            if index % 2 == 0 {
                look.cancel = Some(now);
            }
        }
        let ends = now + 2 * TURNS_MAX;
        while !(self.inside.is_empty() && self.worker.is_idle()) && self.turns < ends {
            self.turn()?;
        }
        let (work, report) = (self.worker.work(), &mut self.report);
        report.steps += work.steps;
        report.evicted += work.evicted;
        report.pages_lost += self.worker.pages_in_use();
        self.is_short = !self.is_short;
        self.worker = worker(&self.device, self.vocab, self.is_short, &self.clock);
        self.shift_ends = self.report.tally.asked + SHIFT_LOOKS;
        Ok(())
    }
}

/// The device, that one engine after the other drives.
type SharedBackend = Rc<RefCell<Box<dyn Backend>>>;

fn worker(device: &SharedBackend, vocab: usize, is_short: bool, clock: &Arc<dyn Clock>) -> Worker {
    let limits = device.borrow().limits();
    let pages = match is_short {
        true => short_of_pages(&limits),
        false => limits.pages,
    };
    let device = Box::new(Short {
        device: Rc::clone(device),
        pages,
    });
    Worker::new(device, vocab, Options::default(), Arc::clone(clock))
}

/// A device that offers fewer pages than it has.
struct Short {
    device: SharedBackend,
    pages: usize,
}

impl Backend for Short {
    fn limits(&self) -> BackendLimits {
        BackendLimits {
            pages: self.pages,
            ..self.device.borrow().limits()
        }
    }
    fn launch(&mut self, slot: SlotId, step: Step) -> Result<(), BackendError> {
        self.device.borrow_mut().launch(slot, step)
    }
    fn finalize(&mut self, slot: SlotId, masks: Vec<RowMask>) -> Result<(), BackendError> {
        self.device.borrow_mut().finalize(slot, masks)
    }
    fn commit(&mut self, slot: SlotId) -> Result<Committed, BackendError> {
        self.device.borrow_mut().commit(slot)
    }
    fn release(&mut self, pages: &[PageId]) {
        self.device.borrow_mut().release(pages);
    }
}

#[cfg(test)]
mod tests;
