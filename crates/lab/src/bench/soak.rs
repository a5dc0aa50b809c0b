//! `spotter-lab soak`: random load for a long time, on any device.
//!
//! ```text
//!   each request alone ─▶ its answer ─┐
//!                                     ├─▶ compared (compare)      memory, counters, pages ─▶ verdict (report)
//!   the same in random order, many ───┘
//!   at once
//! ```
//!
//! The worker is called turn by turn: requests of a small pool (`pool`) arrive at random, some with a deadline that they may
//! miss, some cancelled before their answer, sometimes one at a time and sometimes more than the device has rows for. Cameras,
//! drafts and the reuse of tiles are included. Every answer must be the one that the request got alone.
//!
//! A soak is a sequence of shifts on one device. Each has an engine of its own, which ends with some looks answered and some
//! cancelled, idle and without a page in use. In every second shift the device offers so few pages that rows are evicted.

mod compare;
mod pool;
mod report;

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc, time::Duration};

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

pub use self::report::{SoakMemory, SoakReport};
use self::{
    compare::{AnswerPromise, Likeness, compare, is_sure},
    pool::{PoolRequest, pool_requests, short_of_pages},
};
use spotter::ops::{machine::Machine, process};
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

/// A look that has not ended after this number of turns counts as lost.
const TURNS_MAX: u64 = 50_000;
/// Between two measurements of memory and reports of progress.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// Looks of a shift.
const SHIFT_LOOKS: u64 = 64;
/// Looks inside at once; the number changes after some turns.
const WAVES: [usize; 5] = [1, 3, 8, 16, 24];
const CAMERAS: usize = 6;

#[derive(Debug, thiserror::Error)]
pub enum SoakError {
    #[error("after {0} looks: {1}")]
    Device(u64, DeviceError),
    /// A mistake in this program.
    #[error("drawing a picture: {0}")]
    Picture(#[from] PictureError),
    #[error("a prompt: {0}")]
    Prompt(String),
    #[error("request {0} cannot be answered alone: {1}")]
    Alone(usize, String),
}

pub struct SoakSubject {
    pub backend: Box<dyn Backend>,
    /// Dimensions of the model on it.
    pub config: ModelConfig,
    /// `None`: prompts are random ids.
    pub tokenizer: Option<Tokenizer>,
    /// It computes in f32: a request's answer is the same to the bit in every step.
    pub exact: bool,
    pub device: String,
    pub model: String,
    pub clock: Arc<dyn Clock>,
}

#[derive(Clone, Copy, Debug)]
pub struct SoakOptions {
    /// Ends the soak,
    pub time: Duration,
    /// as does this number of looks.
    pub looks: u64,
    pub seed: u64,
}

/// Blocks for all of it. `gpu_free_mib` measures the GPU's free memory, `report_progress` gets the report so far from time to
/// time.
pub fn soak(
    subject: SoakSubject,
    options: &SoakOptions,
    gpu_free_mib: impl Fn() -> Option<f64>,
    mut report_progress: impl FnMut(&SoakReport),
) -> Result<SoakReport, SoakError> {
    let clock = Arc::clone(&subject.clock);
    let requests = pool_requests(&subject.config, subject.tokenizer.as_ref())?;
    let mut run = SoakRun::new(subject, requests, options.seed)?;
    run.measure(gpu_free_mib());
    let mut reported = clock.now();
    while run.elapsed() < options.time && run.report.tally.asked < options.looks {
        if run.report.tally.asked >= run.shift_ends {
            run.end_shift()?;
        }
        run.admit();
        run.turn()?;
        if clock.now().since(reported) >= REPORT_EVERY {
            reported = clock.now();
            run.measure(gpu_free_mib());
            report_progress(&run.report);
        }
    }
    run.end_shift()?;
    run.measure(gpu_free_mib());
    Ok(run.report)
}

struct LookInside {
    /// Index in the pool.
    request: usize,
    /// Turn at which it was admitted.
    since: u64,
    /// Turn at which it is cancelled.
    cancel: Option<u64>,
}

struct SoakRun {
    device: SharedBackend,
    vocab: usize,
    worker: Worker,
    /// Looks that were asked when the shift ends, and whether it has few pages.
    shift_ends: u64,
    is_short: bool,
    clock: Arc<dyn Clock>,
    requests: Vec<PoolRequest>,
    /// For each request its answers alone.
    alone: Vec<Vec<SequenceOutput>>,
    /// Mean time of a look alone.
    look: Duration,
    promise: AnswerPromise,
    cameras: Vec<CameraId>,
    inside: HashMap<LookId, LookInside>,
    random: Pcg64,
    began: Mono,
    turns: u64,
    /// Looks inside at once, until that turn.
    wave: (usize, u64),
    report: SoakReport,
}

impl SoakRun {
    /// Answers every request of the pool alone first.
    fn new(subject: SoakSubject, requests: Vec<PoolRequest>, seed: u64) -> Result<Self, SoakError> {
        let clock = subject.clock;
        let device: SharedBackend = Rc::new(RefCell::new(subject.backend));
        let vocab = subject.config.text.vocab_size;
        let camera = |i| CameraId::new(&format!("c{i}")).ok();
        let mut run = Self {
            worker: worker(&device, vocab, false, &clock),
            device,
            vocab,
            shift_ends: SHIFT_LOOKS,
            is_short: false,
            began: clock.now(),
            clock,
            requests,
            alone: Vec::new(),
            look: Duration::ZERO,
            promise: if subject.exact {
                AnswerPromise::Exact
            } else {
                AnswerPromise::Rounded
            },
            cameras: (0..CAMERAS).filter_map(camera).collect(),
            inside: HashMap::new(),
            random: Pcg64::seed_from_u64(seed),
            turns: 0,
            wave: (1, 0),
            report: SoakReport {
                machine: Machine::now(),
                device: subject.device,
                model: subject.model,
                ..SoakReport::default()
            },
        };
        for request in 0..run.requests.len() {
            let answers = run.answer_alone(request)?;
            run.alone.push(answers);
        }
        run.look = run.elapsed() / run.requests.len().max(1) as u32;
        run.began = run.clock.now();
        Ok(run)
    }

    fn answer_alone(&mut self, request: usize) -> Result<Vec<SequenceOutput>, SoakError> {
        self.worker.admit(self.requests[request].alone());
        for _ in 0..TURNS_MAX {
            let events = self.worker.turn().map_err(|e| SoakError::Device(0, e))?;
            for event in events {
                match event {
                    LookEvent::Answered { findings, .. } => {
                        return Ok(findings.into_iter().map(|f| f.found).collect());
                    }
                    LookEvent::Failed { why, .. } => {
                        return Err(SoakError::Alone(request, why.to_string()));
                    }
                    LookEvent::Late { .. } | LookEvent::Object(..) => {}
                }
            }
        }
        Err(SoakError::Alone(
            request,
            format!("no answer after {TURNS_MAX} turns"),
        ))
    }

    fn elapsed(&self) -> Duration {
        self.clock.now().since(self.began)
    }

    /// Admits random looks, at most as many as the wave allows.
    fn admit(&mut self) {
        if self.turns >= self.wave.1 {
            let most = WAVES[self.random.random_range(0..WAVES.len())];
            self.wave = (most, self.turns + self.random.random_range(20..200));
        }
        while self.inside.len() < self.wave.0
            && (self.inside.is_empty() || self.random.random_bool(0.5))
        {
            let index = self.random.random_range(0..self.requests.len());
            let camera = self.random.random_range(0..self.cameras.len());
            let limits = self.limits();
            let request = self.requests[index].request(self.cameras.get(camera), limits);
            let cancel = self.random.random_bool(0.1);
            let cancel = cancel.then(|| self.turns + self.random.random_range(0..60));
            let id = self.worker.admit(request);
            let since = self.turns;
            self.inside.insert(
                id,
                LookInside {
                    request: index,
                    since,
                    cancel,
                },
            );
            self.report.tally.asked += 1;
        }
    }

    /// Mostly none; else times that a busy device misses sometimes.
    fn limits(&mut self) -> [Mono; 2] {
        let now = self.clock.now();
        let mut limit = |looks: f64| match self.random.random_bool(0.15) {
            true => now.after(self.look.mul_f64(self.random.random_range(0.0..looks))),
            false => Mono::from_nanos(u64::MAX),
        };
        [limit(6.0), limit(20.0)]
    }

    /// Cancels the looks whose turn has come, and turns the engine.
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
        // Counted once, and forgotten.
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
                    self.compare(look.request, &found);
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

    fn compare(&mut self, request: usize, found: &[SequenceOutput]) {
        for (index, (alone, beside)) in self.alone[request].iter().zip(found).enumerate() {
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
                            "request {request}, prompt {index}: alone {alone:?}, beside others {beside:?}"
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
            rss_mib: process::resident_mib(),
            gpu_free_mib,
        });
    }

    /// Cancels half of the looks inside and waits for the others; then another engine gets the device.
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

/// The device, used by one engine after the other.
type SharedBackend = Rc<RefCell<Box<dyn Backend>>>;

fn worker(device: &SharedBackend, vocab: usize, is_short: bool, clock: &Arc<dyn Clock>) -> Worker {
    let limits = device.borrow().limits();
    let pages = match is_short {
        true => short_of_pages(&limits),
        false => limits.pages,
    };
    let device = Box::new(FewPagesBackend {
        device: Rc::clone(device),
        pages,
    });
    Worker::new(device, vocab, Options::default(), Arc::clone(clock))
}

/// A device that offers fewer pages than it has.
struct FewPagesBackend {
    device: SharedBackend,
    pages: usize,
}

impl Backend for FewPagesBackend {
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
