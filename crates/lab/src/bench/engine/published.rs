//! The check of the pipeline's structure without a GPU: the simulated device gets published step costs, the host gets the
//! published blocking period less these, and the engine runs at depth 1 and 2. Nothing else is set, and nothing is tuned.
//!
//! Source: Moondream's article on its engine Photon: forward and sampling of a decode step at 1, 8 and 32 streams, the
//! period of the blocking loop, and the gain of the pipelined one, predicted and measured.

use std::{sync::Arc, time::Duration};

use super::simulated_grammar;
use spotter_core::{Clock as _, ManualClock, Mono, WallTime};
use spotter_engine::{
    model::Skill,
    scheduler::{
        backend::{BackendLimits, DecoderInput},
        constraint::Choices,
        cost::StepCost,
        request::{Ask, LookEvent, LookId, LookRequest, Options},
        sequence::{Bounds, Sequence},
        worker::{DeviceError, Worker},
    },
    sim::{SimBackend, SimCosts, SimModel},
};

/// A device under a number of streams, each always decoding one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Configuration {
    /// Device.
    pub name: &'static str,
    /// Requests at a time.
    pub streams: usize,
    /// Milliseconds of the forward pass and of sampling at 1, 8 and 32 streams.
    pub steps: [(f64, f64); 3],
    /// Published period of the blocking loop, milliseconds.
    pub blocking_ms: f64,
    /// Published period of the pipelined loop.
    pub pipelined_ms: f64,
    /// Published prediction of the gain in tokens per second.
    pub predicted_gain_percent: f64,
    /// Published gain of a whole run.
    pub measured_gain_percent: f64,
}

/// Streams of the published step costs.
const STREAMS: [usize; 3] = [1, 8, 32];
const RTX_3090: [(f64, f64); 3] = [(4.87, 0.20), (6.66, 0.27), (10.24, 0.26)];
const B200: [(f64, f64); 3] = [(2.45, 0.14), (3.12, 0.14), (3.80, 0.14)];

const fn configuration(
    (name, steps): (&'static str, [(f64, f64); 3]),
    streams: usize,
    (blocking_ms, pipelined_ms): (f64, f64),
    (predicted_gain_percent, measured_gain_percent): (f64, f64),
) -> Configuration {
    Configuration {
        name,
        streams,
        steps,
        blocking_ms,
        pipelined_ms,
        predicted_gain_percent,
        measured_gain_percent,
    }
}

/// The six published ones.
pub const CONFIGURATIONS: [Configuration; 6] = [
    configuration(("RTX 3090", RTX_3090), 1, (5.44, 5.10), (5.7, 6.5)),
    configuration(("RTX 3090", RTX_3090), 8, (7.52, 6.97), (7.6, 7.8)),
    configuration(("RTX 3090", RTX_3090), 32, (11.74, 10.52), (11.1, 11.6)),
    configuration(("B200", B200), 1, (3.11, 2.63), (17.2, 17.6)),
    configuration(("B200", B200), 8, (4.04, 3.30), (22.2, 21.9)),
    configuration(("B200", B200), 32, (5.55, 3.98), (39.1, 35.4)),
];

/// Tokens of a request, the end included.
const TOKENS: std::ops::RangeInclusive<usize> = 104..=115;
/// Requests of each stream: enough that the first fill of the pipeline does not show.
const REQUESTS: usize = 24;

/// What a run showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Of a step, while all streams decode.
    pub cost: StepCost,
    /// Share of the rows that were zombies then.
    pub zombies: f64,
    /// Tokens in a second then.
    pub steady_tokens_per_s: f64,
    /// From the first request to the end of the last.
    pub whole: Duration,
}

/// Runs the configuration at a depth. Every token is chosen under a mask that the host makes, as in the published engine.
pub fn run(configuration: &Configuration, depth: usize) -> Result<Run, DeviceError> {
    let clock = ManualClock::at(WallTime::default());
    let mut worker = worker(configuration, depth, clock.clone());
    let mut streams: Vec<(LookId, usize)> = (0..configuration.streams)
        .map(|stream| (worker.admit(request(stream, 0)), 0))
        .collect();
    let mut steady = None;
    while !worker.is_idle() {
        for event in worker.turn()? {
            let LookEvent::Answered { look, .. } = event else {
                continue;
            };
            for (stream, (running, done)) in streams.iter_mut().enumerate() {
                if *running == look {
                    *done += 1;
                    match *done < REQUESTS {
                        true => *running = worker.admit(request(stream, *done)),
                        // From here on a stream is missing.
                        false => drop(steady.get_or_insert_with(|| measure(&worker, &clock))),
                    }
                }
            }
        }
    }
    let whole = clock.now().since(Mono::default());
    let steady = steady.unwrap_or_else(|| measure(&worker, &clock));
    Ok(Run { whole, ..steady })
}

fn measure(worker: &Worker, clock: &ManualClock) -> Run {
    let (work, so_far) = (worker.work(), clock.now().since(Mono::default()));
    let rows = (work.prefills + work.decodes) as f64;
    let useful = rows - work.zombies as f64;
    Run {
        cost: worker.costs().per_step(),
        zombies: 1.0 - useful / rows,
        steady_tokens_per_s: useful / so_far.as_secs_f64(),
        whole: so_far,
    }
}

fn worker(configuration: &Configuration, depth: usize, clock: ManualClock) -> Worker {
    let limits = BackendLimits {
        slots: depth,
        rows: configuration.streams,
        pages: configuration.streams * 9,
        page_tokens: 16,
        context: 128,
        prefix_positions: 0,
        images: 1,
        positions: configuration.streams * 128,
        tokens: configuration.streams * 128,
    };
    let model = SimModel {
        vocab: 32,
        objects: 1,
        crops: 1,
        memory: false,
    };
    let steps = configuration.steps;
    let at = STREAMS.iter().position(|&n| n == configuration.streams);
    let (forward, sampling) = steps[at.unwrap_or_default()];
    let costs = SimCosts {
        step: Arc::new(move |rows, _| interpolated(&steps, rows)),
        crop: Duration::ZERO,
        bookkeeping: ms(configuration.blocking_ms - forward - sampling),
    };
    let backend = SimBackend::new(limits, model, costs, clock.clone());
    let options = Options {
        depth,
        draft: false,
        ..Options::default()
    };
    Worker::new(Box::new(backend), model.vocab, options, Arc::new(clock))
}

/// Step costs between the published ones lie on lines.
fn interpolated(steps: &[(f64, f64); 3], rows: usize) -> (Duration, Duration) {
    let above = usize::from(rows > STREAMS[1]) + 1;
    let (a, b) = (STREAMS[above - 1] as f64, STREAMS[above] as f64);
    let share = ((rows as f64 - a) / (b - a)).clamp(0.0, 1.0);
    let between = |a: f64, b: f64| ms(a + (b - a) * share);
    let (low, high) = (steps[above - 1], steps[above]);
    (between(low.0, high.0), between(low.1, high.1))
}

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms * 1e-3)
}

/// The only text allowed is one of the wanted length, so the answer has it; the engine does not know that.
fn request(stream: usize, number: usize) -> LookRequest {
    let spread = TOKENS.end() - TOKENS.start() + 1;
    let tokens = TOKENS.start() + (stream * 5 + number * 7) % spread;
    let bounds = Bounds {
        max_objects: 1,
        max_tokens: TOKENS.end() * 2,
    };
    let grammar = simulated_grammar(Skill::Text { reasoning: false });
    let mut sequence = Sequence::new(grammar, vec![DecoderInput::Token(9)], bounds);
    if let Some(choices) = Choices::new([vec![10; tokens - 1].as_slice()]) {
        sequence = sequence.choices(Arc::new(choices));
    }
    LookRequest {
        camera: None,
        picture: None,
        start_by: Mono::from_nanos(u64::MAX),
        answer_by: Mono::from_nanos(u64::MAX),
        asks: vec![Ask {
            sequence,
            draft: None,
        }],
        objects: false,
    }
}

#[cfg(test)]
mod tests;
