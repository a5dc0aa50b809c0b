//! `spotter-lab soak`: random load for a long time, on any device.
//!
//! ```text
//!   each request alone ─▶ its answer ─┐
//!                                     ├─▶ compared (compare) ─▶ verdict (report)
//!   the same in random order, many ───┘
//!   at once
//! ```
//!
//! The worker is called turn by turn: requests of a small pool (`pool`) arrive at random, some are cancelled before their
//! answer, sometimes one at a time and sometimes more than the device has rows for. Cameras, drafts and the reuse of tiles are
//! included. Every answer must be the one that the request got alone, every look must end, and every page must be free
//! afterwards.

mod compare;
mod pool;
mod report;

use std::{collections::HashMap, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

pub use self::report::SoakReport;
use self::{
    compare::{Likeness, compare, is_sure},
    pool::{PoolRequest, pool_requests},
};
use spotter::ops::machine::Machine;
use spotter_core::{CameraId, Clock};
use spotter_engine::{
    model::{ModelConfig, SequenceOutput, Tokenizer},
    scheduler::{
        Options,
        backend::Backend,
        request::{LookEvent, LookId},
        worker::Worker,
    },
};

/// A look that has not ended after this number of turns counts as lost.
const TURNS_MAX: u64 = 50_000;
/// Between two reports of progress.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// Looks inside at once; the number changes after some turns.
const WAVES: [usize; 5] = [1, 3, 8, 16, 24];
const CAMERAS: usize = 6;

pub struct SoakSubject {
    pub backend: Box<dyn Backend>,
    /// Dimensions of the model on it.
    pub config: ModelConfig,
    pub tokenizer: Tokenizer,
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

/// Blocks for all of it. `report_progress` gets the report so far from time to time.
pub fn soak(
    subject: SoakSubject,
    options: &SoakOptions,
    mut report_progress: impl FnMut(&SoakReport),
) -> anyhow::Result<SoakReport> {
    let clock = Arc::clone(&subject.clock);
    let mut run = SoakRun::new(subject, options.seed)?;
    let (began, mut reported) = (clock.now(), clock.now());
    while clock.now().since(began) < options.time && run.report.tally.asked < options.looks {
        run.admit();
        run.turn()?;
        if clock.now().since(reported) >= REPORT_EVERY {
            reported = clock.now();
            run.report.seconds = reported.since(began).as_secs_f64();
            report_progress(&run.report);
        }
    }
    run.finish()?;
    run.report.seconds = clock.now().since(began).as_secs_f64();
    Ok(run.report)
}

struct LookInside {
    /// Of each prompt, when it is answered.
    found: Vec<SequenceOutput>,
    /// Index in the pool.
    request: usize,
    /// Turn at which it was admitted.
    since: u64,
    /// Turn at which it is cancelled.
    cancel: Option<u64>,
}

struct SoakRun {
    worker: Worker,
    requests: Vec<PoolRequest>,
    /// For each request its answers alone.
    alone: Vec<Vec<SequenceOutput>>,
    exact: bool,
    cameras: Vec<CameraId>,
    inside: HashMap<LookId, LookInside>,
    random: Pcg64,
    turns: u64,
    /// Looks inside at once, until that turn.
    wave: (usize, u64),
    report: SoakReport,
}

impl SoakRun {
    /// Answers every request of the pool alone first.
    fn new(subject: SoakSubject, seed: u64) -> anyhow::Result<Self> {
        let vocab = subject.config.text.vocab_size;
        let camera = |i| CameraId::new(&format!("c{i}")).ok();
        let mut run = Self {
            worker: Worker::new(subject.backend, vocab, Options::default(), subject.clock),
            requests: pool_requests(&subject.config, &subject.tokenizer)?,
            alone: Vec::new(),
            exact: subject.exact,
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
            let answers = run.answer_alone(request);
            let answers = answers.with_context(|| format!("request {request} alone"))?;
            run.alone.push(answers);
        }
        Ok(run)
    }

    fn answer_alone(&mut self, request: usize) -> anyhow::Result<Vec<SequenceOutput>> {
        let request = self.requests[request].request(None);
        let mut found = vec![SequenceOutput::default(); request.asks.len()];
        self.worker.admit(request);
        for _ in 0..TURNS_MAX {
            for event in self.worker.turn()? {
                match event {
                    LookEvent::Answer { prompt, result, .. } => found[prompt] = result.found,
                    LookEvent::Answered { .. } => return Ok(found),
                    LookEvent::Failed { why, .. } => bail!("{why}"),
                    LookEvent::Late { .. }
                    | LookEvent::Piece(..)
                    | LookEvent::ShortAnswered { .. } => {}
                }
            }
        }
        bail!("no answer after {TURNS_MAX} turns")
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
            let request = self.requests[index].request(self.cameras.get(camera));
            let cancel = self.random.random_bool(0.1);
            let look = LookInside {
                request: index,
                found: vec![SequenceOutput::default(); request.asks.len()],
                since: self.turns,
                cancel: cancel.then(|| self.turns + self.random.random_range(0..60)),
            };
            self.inside.insert(self.worker.admit(request), look);
            self.report.tally.asked += 1;
        }
    }

    /// Cancels the looks whose turn has come, and turns the engine.
    fn turn(&mut self) -> anyhow::Result<()> {
        self.turns += 1;
        let turns = self.turns;
        let (worker, tally) = (&mut self.worker, &mut self.report.tally);
        self.inside.retain(|id, look| {
            let cancelled = look.cancel.is_some_and(|at| turns >= at) && worker.cancel(*id);
            tally.cancelled += u64::from(cancelled);
            !cancelled
        });
        let asked = tally.asked;
        let events = worker.turn();
        for event in events.with_context(|| format!("after {asked} looks"))? {
            self.event(event);
        }
        // Counted once, and forgotten.
        let before = self.inside.len();
        self.inside.retain(|_, look| turns - look.since < TURNS_MAX);
        self.report.never_ended += (before - self.inside.len()) as u64;
        Ok(())
    }

    fn event(&mut self, event: LookEvent) {
        match event {
            LookEvent::Answer {
                look,
                prompt,
                result,
                ..
            } => {
                if let Some(look) = self.inside.get_mut(&look) {
                    look.found[prompt] = result.found;
                }
            }
            LookEvent::Answered { look } => {
                if let Some(look) = self.inside.remove(&look) {
                    self.report.tally.answered += 1;
                    self.compare(look.request, &look.found);
                }
            }
            LookEvent::Late { look } | LookEvent::Failed { look, .. } => {
                let failed = self.inside.remove(&look).is_some();
                self.report.tally.failed += u64::from(failed);
            }
            LookEvent::Piece(..) | LookEvent::ShortAnswered { .. } => {}
        }
    }

    fn compare(&mut self, request: usize, found: &[SequenceOutput]) {
        for (index, (alone, beside)) in self.alone[request].iter().zip(found).enumerate() {
            let tally = &mut self.report.tally;
            tally.sure += u64::from(is_sure(alone));
            match compare(alone, beside, self.exact) {
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

    /// Cancels half of the looks inside and waits for the others.
    fn finish(&mut self) -> anyhow::Result<()> {
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
        self.report.steps = self.worker.work().steps;
        self.report.pages_lost = self.worker.pages_in_use();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
