//! A closed loop: each client submits its next look as soon as its last one is answered.
//!
//! The clients run on the engine's own thread and submit to it directly, so the engine and its device alone are measured.
//! There may be more clients than the device can serve at once; the other looks wait in the engine.

use std::{collections::HashMap, time::Duration};

use anyhow::bail;
use serde::Serialize;

use crate::bench::ask::answers_of;
use spotter_core::{Clock, Look, Mono, WholeLook};
use spotter_engine::{
    scheduler::{
        backend::{SlotId, StepTimes},
        request::{LookId, Work},
        timeline::{TimeSpan, working},
    },
    service::Engine,
};

/// Least number of requests that count, even in a short load.
const LEAST: usize = 4;

/// Requests of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LoadCounters {
    pub asked: usize,
    /// Answered, with all their objects.
    pub answered: usize,
    /// Cancelled when the load ended.
    pub left: usize,
}

/// The clients and what every answer must have.
pub(super) struct Clients<'a> {
    pub count: usize,
    /// The next look of a client.
    pub next: &'a mut dyn FnMut(usize) -> anyhow::Result<Look>,
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
    /// Times of the device for all steps in it.
    pub steps: Vec<(SlotId, StepTimes)>,
    pub counters: LoadCounters,
}

impl CountWindow {
    pub fn seconds(&self) -> f64 {
        self.to.since(self.from).as_secs_f64()
    }

    pub fn busy(&self) -> Duration {
        busy(&self.steps, self.from, self.to)
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
) -> anyhow::Result<CountWindow> {
    let began = clock.now();
    let (count, least) = (clients.count, clients.count.max(LEAST));
    let mut open = ClosedLoop {
        engine,
        clients,
        clock,
        inside: HashMap::new(),
        counters: LoadCounters::default(),
    };
    for client in 0..count {
        open.submit(client)?;
    }
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
                open.engine.worker().record();
                window = Some((clock.now(), open.engine.worker().work()));
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
    let steps = open.leave()?;
    Ok(CountWindow {
        from,
        to,
        request_ms,
        work: [before, after],
        steps,
        counters,
    })
}

/// Clients and their requests in the engine.
struct ClosedLoop<'a, 'b> {
    engine: &'b mut Engine,
    clients: Clients<'a>,
    clock: &'b dyn Clock,
    inside: HashMap<LookId, OpenRequest>,
    counters: LoadCounters,
}

/// A look that a client has in the engine.
struct OpenRequest {
    client: usize,
    at: Mono,
    look: WholeLook,
}

impl ClosedLoop<'_, '_> {
    fn submit(&mut self, client: usize) -> anyhow::Result<()> {
        let at = self.clock.now();
        let look = (self.clients.next)(client)?;
        let open = OpenRequest {
            client,
            at,
            look: WholeLook::new(&look),
        };
        let id = self.engine.submit(look)?;
        self.inside.insert(id, open);
        self.counters.asked += 1;
        Ok(())
    }

    /// One turn of the engine; answered clients submit again. Returns the milliseconds of the answered requests.
    fn turn(&mut self) -> anyhow::Result<Vec<f64>> {
        let mut ended = Vec::new();
        for (id, news) in self.engine.turn()? {
            let Some(open) = self.inside.get_mut(&id) else {
                continue;
            };
            open.look.add(news);
            if open.look.outcome.is_none() {
                continue;
            }
            let Some(OpenRequest { client, at, look }) = self.inside.remove(&id) else {
                continue;
            };
            check_objects(look, self.clients.objects)?;
            let age = self.clock.now().since(at);
            ended.push(age.as_secs_f64() * 1e3);
            self.counters.answered += 1;
            self.submit(client)?;
        }
        Ok(ended)
    }

    /// Cancels the open requests. Returns all steps of the part that counts, those in flight too.
    fn leave(self) -> anyhow::Result<Vec<(SlotId, StepTimes)>> {
        for id in self.inside.into_keys() {
            self.engine.cancel(id);
        }
        while !self.engine.is_idle() {
            self.engine.turn()?;
        }
        let timeline = self.engine.worker().timeline();
        Ok(timeline.map_or_else(Vec::new, |timeline| timeline.steps.clone()))
    }
}

/// Fails if an answer has another number of objects: the figures would be of other work.
fn check_objects(look: WholeLook, objects: usize) -> anyhow::Result<()> {
    let answers = answers_of(look)?;
    let mut counts = answers.iter().map(|answer| answer.body.count());
    match counts.find(|&count| count != Some(objects)) {
        None => Ok(()),
        Some(found) => bail!(
            "an answer has {} objects, must have {objects}: this model still ends its answers by itself",
            found.unwrap_or_default()
        ),
    }
}

/// Time between `from` and `to` in which the device worked ([`working`]) on at least one of the steps.
fn busy(steps: &[(SlotId, StepTimes)], from: Mono, to: Mono) -> Duration {
    let mut spans: Vec<TimeSpan> = steps.iter().flat_map(|(_, times)| working(times)).collect();
    spans.sort_by_key(|span| span.began);
    let mut sum = Duration::ZERO;
    let mut until = from;
    for span in spans {
        let (began, ended) = (span.began.max(until), span.ended.min(to));
        sum += ended.since(began);
        until = until.max(ended);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: u64) -> Mono {
        Mono::from_nanos(ms * 1_000_000)
    }

    fn step(started: u64, rows: u64) -> (SlotId, StepTimes) {
        let times = StepTimes {
            started: at(started),
            rows: ms(rows),
            ..StepTimes::default()
        };
        (SlotId(0), times)
    }

    #[test]
    fn steps_that_overlap_count_once_and_only_inside() {
        let steps = [(0, 10), (5, 10), (20, 5), (24, 1), (40, 10)];
        let steps = steps.map(|(started, rows)| step(started, rows));
        assert_eq!(busy(&steps, at(0), at(100)), ms(15 + 5 + 10));
        assert_eq!(busy(&steps, at(8), at(45)), ms(7 + 5 + 5));
        assert_eq!(busy(&steps, at(60), at(70)), ms(0));
    }

    #[test]
    fn a_wait_for_masks_is_no_work() {
        let (slot, times) = step(0, 10);
        let masked = StepTimes {
            mask_wait: ms(4),
            sampling: ms(1),
            ..times
        };
        assert_eq!(busy(&[(slot, masked)], at(0), at(100)), ms(11));
    }
}
