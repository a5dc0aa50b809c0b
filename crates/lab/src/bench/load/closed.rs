//! A closed loop: some clients, each of which asks again as soon as it is answered.
//!
//! The clients live on the engine's own thread and hand their looks straight to it, so what is measured is the engine and
//! its device. Nothing keeps them from being more than the device can serve at once; the rest waits inside.

use std::{collections::HashMap, time::Duration};

use super::{busy::busy, rows::LoadCounters};
use crate::bench::ask::MeasureError;
use spotter_core::{Clock, Look, Mono, Outcome};
use spotter_engine::{
    scheduler::{
        request::{LookId, Work},
        timeline::Timeline,
    },
    service::{Engine, News},
};

/// Requests that count at least, however short the load.
const LEAST: usize = 4;

/// The next look of a client.
pub(super) type NextLoadLook<'a> = dyn FnMut(usize) -> Result<Look, MeasureError> + 'a;

/// Who asks, and what every answer must have.
pub(super) struct Clients<'a> {
    /// How many.
    pub count: usize,
    /// What they ask next.
    pub next: &'a mut NextLoadLook<'a>,
    /// Objects in every answer.
    pub objects: usize,
}

/// The part of a load that counts, with the books of all of it.
#[derive(Clone, Debug)]
pub(super) struct CountWindow {
    pub from: Mono,
    pub to: Mono,
    /// From asking to the answer, of each request that was answered in it.
    pub request_ms: Vec<f64>,
    /// The engine's work before it and after it.
    pub work: [Work; 2],
    pub timeline: Timeline,
    pub books: LoadCounters,
}

impl CountWindow {
    pub fn seconds(&self) -> f64 {
        self.to.since(self.from).as_secs_f64()
    }

    pub fn busy(&self) -> Duration {
        busy(&self.timeline.steps, self.from, self.to)
    }

    /// What happened in it, by any of the engine's counts.
    pub fn count(&self, of: fn(&Work) -> u64) -> u64 {
        of(&self.work[1]) - of(&self.work[0])
    }
}

/// Keeps the clients asking for `load`, of which the last half counts. Blocks for it; leaves the engine idle.
pub(super) fn closed_loop(
    engine: &mut Engine,
    clients: Clients,
    load: Duration,
    clock: &dyn Clock,
) -> Result<CountWindow, MeasureError> {
    let began = clock.now();
    let (count, least) = (clients.count, clients.count.max(LEAST));
    let mut open = OpenRequest::new(engine, clients, clock)?;
    let mut window: Option<(Mono, Work)> = None;
    let mut request_ms = Vec::new();
    let (from, before) = loop {
        let ended = open.turn()?;
        if ended.is_empty() {
            continue;
        }
        let past = clock.now().since(began);
        match window {
            None if past >= load / 2 && open.books.answered >= count => {
                window = Some(open.record())
            }
            None => {}
            Some(begun) => {
                request_ms.extend(ended);
                if past >= load && request_ms.len() >= least {
                    break begun;
                }
            }
        }
    };
    let (to, after) = (clock.now(), open.engine.worker().work());
    let books = LoadCounters {
        left: open.inside.len(),
        ..open.books
    };
    let timeline = open.leave()?;
    Ok(CountWindow {
        from,
        to,
        request_ms,
        work: [before, after],
        timeline,
        books,
    })
}

/// Requests on their way.
struct OpenRequest<'a, 'b> {
    engine: &'b mut Engine,
    clients: Clients<'a>,
    clock: &'b dyn Clock,
    inside: HashMap<LookId, (usize, Mono)>,
    books: LoadCounters,
}

impl<'a, 'b> OpenRequest<'a, 'b> {
    /// Every client asks.
    fn new(
        engine: &'b mut Engine,
        clients: Clients<'a>,
        clock: &'b dyn Clock,
    ) -> Result<Self, MeasureError> {
        let mut open = Self {
            engine,
            clients,
            clock,
            inside: HashMap::new(),
            books: LoadCounters::default(),
        };
        for client in 0..open.clients.count {
            open.ask(client)?;
        }
        Ok(open)
    }

    fn ask(&mut self, client: usize) -> Result<(), MeasureError> {
        let at = self.clock.now();
        let look = (self.clients.next)(client)?;
        let id = self.engine.submit(look, false)?;
        self.inside.insert(id, (client, at));
        self.books.asked += 1;
        Ok(())
    }

    /// One turn; who was answered asks again. Milliseconds of the requests that ended.
    fn turn(&mut self) -> Result<Vec<f64>, MeasureError> {
        let mut ended = Vec::new();
        for (id, news) in self.engine.turn()? {
            let News::Ended(outcome) = news else { continue };
            let Some((client, at)) = self.inside.remove(&id) else {
                continue;
            };
            complete(&outcome, self.clients.objects)?;
            let age = self.clock.now().since(at);
            ended.push(age.as_secs_f64() * 1e3);
            self.books.answered += 1;
            self.ask(client)?;
        }
        Ok(ended)
    }

    /// From now on it counts.
    fn record(&mut self) -> (Mono, Work) {
        let worker = self.engine.worker();
        worker.record();
        (self.clock.now(), worker.work())
    }

    /// Nobody waits any more. Gives all steps since [`Self::record`], those that were in flight too.
    fn leave(self) -> Result<Timeline, MeasureError> {
        for id in self.inside.into_keys() {
            self.engine.cancel(id);
        }
        while !self.engine.is_idle() {
            self.engine.turn()?;
        }
        let timeline = self.engine.worker().timeline();
        Ok(timeline.cloned().unwrap_or_default())
    }
}

/// Fails when the answers are not as long as they were meant to be: the figures would be of other work.
fn complete(outcome: &Outcome, objects: usize) -> Result<(), MeasureError> {
    let answers = match outcome {
        Outcome::Answered { answers, .. } => answers,
        Outcome::Late(_) => return Err(MeasureError::Unanswered("the look came too late".into())),
        Outcome::Failed(_, reason) => return Err(MeasureError::Unanswered(reason.clone())),
    };
    let mut counts = answers.iter().map(|answer| answer.body.count());
    match counts.find(|&count| count != Some(objects)) {
        None => Ok(()),
        Some(found) => Err(MeasureError::Unanswered(format!(
            "an answer has {} objects, must have {objects}: this model still ends its answers by itself",
            found.unwrap_or_default()
        ))),
    }
}
