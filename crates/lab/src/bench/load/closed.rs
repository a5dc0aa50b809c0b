//! A closed loop: each client submits its next look as soon as its last one is answered.
//!
//! The clients run on the engine's own thread and submit to it directly, so the engine and its device alone are measured.
//! There may be more clients than the device can serve at once; the other looks wait in the engine.

use std::{collections::HashMap, time::Duration};

use super::{busy::busy, rows::LoadCounters};
use crate::bench::ask::{MeasureError, answers_of};
use spotter_core::{Clock, Look, Mono, Outcome};
use spotter_engine::{
    scheduler::{
        request::{LookId, Work},
        timeline::Timeline,
    },
    service::{Engine, LookNews},
};

/// Least number of requests that count, even in a short load.
const LEAST: usize = 4;

/// The next look of a client.
pub(super) type NextLoadLook<'a> = dyn FnMut(usize) -> Result<Look, MeasureError> + 'a;

/// The clients and what every answer must have.
pub(super) struct Clients<'a> {
    pub count: usize,
    pub next: &'a mut NextLoadLook<'a>,
    /// Objects in every answer.
    pub objects: usize,
}

/// The part of a load that counts, with the counters of the whole load.
#[derive(Clone, Debug)]
pub(super) struct CountWindow {
    pub from: Mono,
    pub to: Mono,
    /// From submission to the answer, of each request that was answered in it.
    pub request_ms: Vec<f64>,
    /// The engine's work before it and after it.
    pub work: [Work; 2],
    pub timeline: Timeline,
    pub counters: LoadCounters,
}

impl CountWindow {
    pub fn seconds(&self) -> f64 {
        self.to.since(self.from).as_secs_f64()
    }

    pub fn busy(&self) -> Duration {
        busy(&self.timeline.steps, self.from, self.to)
    }

    /// Increase of one of the engine's counters.
    pub fn count(&self, of: fn(&Work) -> u64) -> u64 {
        of(&self.work[1]) - of(&self.work[0])
    }
}

/// Runs the clients for `load`, of which the last half counts. Blocks for it; leaves the engine idle.
pub(super) fn closed_loop(
    engine: &mut Engine,
    clients: Clients,
    load: Duration,
    clock: &dyn Clock,
) -> Result<CountWindow, MeasureError> {
    let began = clock.now();
    let (count, least) = (clients.count, clients.count.max(LEAST));
    let mut open = ClosedLoop::new(engine, clients, clock)?;
    let mut window: Option<(Mono, Work)> = None;
    let mut request_ms = Vec::new();
    let (from, before) = loop {
        let ended = open.turn()?;
        if ended.is_empty() {
            continue;
        }
        let past = clock.now().since(began);
        match window {
            None if past >= load / 2 && open.counters.answered >= count => {
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
    let counters = LoadCounters {
        left: open.inside.len(),
        ..open.counters
    };
    let timeline = open.leave()?;
    Ok(CountWindow {
        from,
        to,
        request_ms,
        work: [before, after],
        timeline,
        counters,
    })
}

/// Clients and their requests in the engine.
struct ClosedLoop<'a, 'b> {
    engine: &'b mut Engine,
    clients: Clients<'a>,
    clock: &'b dyn Clock,
    inside: HashMap<LookId, (usize, Mono)>,
    counters: LoadCounters,
}

impl<'a, 'b> ClosedLoop<'a, 'b> {
    /// Every client submits a request.
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
            counters: LoadCounters::default(),
        };
        for client in 0..open.clients.count {
            open.submit(client)?;
        }
        Ok(open)
    }

    fn submit(&mut self, client: usize) -> Result<(), MeasureError> {
        let at = self.clock.now();
        let look = (self.clients.next)(client)?;
        let id = self.engine.submit(look, false)?;
        self.inside.insert(id, (client, at));
        self.counters.asked += 1;
        Ok(())
    }

    /// One turn of the engine; answered clients submit again. Returns the milliseconds of the answered requests.
    fn turn(&mut self) -> Result<Vec<f64>, MeasureError> {
        let mut ended = Vec::new();
        for (id, news) in self.engine.turn()? {
            let LookNews::Ended(outcome) = news else {
                continue;
            };
            let Some((client, at)) = self.inside.remove(&id) else {
                continue;
            };
            check_objects(outcome, self.clients.objects)?;
            let age = self.clock.now().since(at);
            ended.push(age.as_secs_f64() * 1e3);
            self.counters.answered += 1;
            self.submit(client)?;
        }
        Ok(ended)
    }

    /// Starts the part that counts.
    fn record(&mut self) -> (Mono, Work) {
        let worker = self.engine.worker();
        worker.record();
        (self.clock.now(), worker.work())
    }

    /// Cancels the open requests. Returns all steps since [`Self::record`], those in flight too.
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

/// Fails if an answer has another number of objects: the figures would be of other work.
fn check_objects(outcome: Outcome, objects: usize) -> Result<(), MeasureError> {
    let answers = answers_of(outcome)?;
    let mut counts = answers.iter().map(|answer| answer.body.count());
    match counts.find(|&count| count != Some(objects)) {
        None => Ok(()),
        Some(found) => Err(MeasureError::Unanswered(format!(
            "an answer has {} objects, must have {objects}: this model still ends its answers by itself",
            found.unwrap_or_default()
        ))),
    }
}
