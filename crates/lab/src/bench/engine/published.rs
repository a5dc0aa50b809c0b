//! The check of the pipeline's structure without a GPU: the simulated device gets published step costs, the host gets the
//! rest of the published blocking period, and the engine runs at depth 1 and 2. Nothing else is set, and nothing is tuned.
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

/// A device with its published step costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedDevice {
    pub name: &'static str,
    /// At 1, 8 and 32 streams.
    pub steps: [PublishedStep; 3],
}

/// Milliseconds of a decode step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedStep {
    pub forward_ms: f64,
    pub sampling_ms: f64,
}

/// A device under a number of streams, each always decoding one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedConfiguration {
    pub device: PublishedDevice,
    /// Requests at a time.
    pub streams: usize,
    /// Period of the blocking loop, milliseconds.
    pub blocking_ms: f64,
    /// Period of the pipelined loop, milliseconds.
    pub pipelined_ms: f64,
    /// Prediction of the gain in tokens per second.
    pub predicted_gain_percent: f64,
    /// Gain of a whole run.
    pub measured_gain_percent: f64,
}

/// Streams of the published step costs.
const STREAMS: [usize; 3] = [1, 8, 32];

const fn step(forward_ms: f64, sampling_ms: f64) -> PublishedStep {
    PublishedStep {
        forward_ms,
        sampling_ms,
    }
}

const RTX_3090: PublishedDevice = PublishedDevice {
    name: "RTX 3090",
    steps: [step(4.87, 0.20), step(6.66, 0.27), step(10.24, 0.26)],
};
const B200: PublishedDevice = PublishedDevice {
    name: "B200",
    steps: [step(2.45, 0.14), step(3.12, 0.14), step(3.80, 0.14)],
};

/// The six published ones.
pub const CONFIGURATIONS: [PublishedConfiguration; 6] = [
    PublishedConfiguration {
        device: RTX_3090,
        streams: 1,
        blocking_ms: 5.44,
        pipelined_ms: 5.10,
        predicted_gain_percent: 5.7,
        measured_gain_percent: 6.5,
    },
    PublishedConfiguration {
        device: RTX_3090,
        streams: 8,
        blocking_ms: 7.52,
        pipelined_ms: 6.97,
        predicted_gain_percent: 7.6,
        measured_gain_percent: 7.8,
    },
    PublishedConfiguration {
        device: RTX_3090,
        streams: 32,
        blocking_ms: 11.74,
        pipelined_ms: 10.52,
        predicted_gain_percent: 11.1,
        measured_gain_percent: 11.6,
    },
    PublishedConfiguration {
        device: B200,
        streams: 1,
        blocking_ms: 3.11,
        pipelined_ms: 2.63,
        predicted_gain_percent: 17.2,
        measured_gain_percent: 17.6,
    },
    PublishedConfiguration {
        device: B200,
        streams: 8,
        blocking_ms: 4.04,
        pipelined_ms: 3.30,
        predicted_gain_percent: 22.2,
        measured_gain_percent: 21.9,
    },
    PublishedConfiguration {
        device: B200,
        streams: 32,
        blocking_ms: 5.55,
        pipelined_ms: 3.98,
        predicted_gain_percent: 39.1,
        measured_gain_percent: 35.4,
    },
];

/// Tokens of a request, the end included.
const TOKENS: std::ops::RangeInclusive<usize> = 104..=115;
/// Requests of each stream: enough that the first fill of the pipeline does not show.
const REQUESTS: usize = 24;

/// Figures of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedRun {
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
pub fn run(
    configuration: &PublishedConfiguration,
    depth: usize,
) -> Result<PublishedRun, DeviceError> {
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
    Ok(PublishedRun { whole, ..steady })
}

fn measure(worker: &Worker, clock: &ManualClock) -> PublishedRun {
    let (work, so_far) = (worker.work(), clock.now().since(Mono::default()));
    let rows = (work.prefills + work.decodes) as f64;
    let useful = rows - work.zombies as f64;
    PublishedRun {
        cost: worker.costs().per_step(),
        zombies: 1.0 - useful / rows,
        steady_tokens_per_s: useful / so_far.as_secs_f64(),
        whole: so_far,
    }
}

fn worker(configuration: &PublishedConfiguration, depth: usize, clock: ManualClock) -> Worker {
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
    let steps = configuration.device.steps;
    let at = STREAMS.iter().position(|&n| n == configuration.streams);
    let step = steps[at.unwrap_or_default()];
    let costs = SimCosts {
        step: Arc::new(move |rows, _| interpolated(&steps, rows)),
        crop: Duration::ZERO,
        bookkeeping: ms(configuration.blocking_ms - step.forward_ms - step.sampling_ms),
    };
    let backend = SimBackend::new(limits, model, costs, clock.clone());
    let options = Options {
        depth,
        draft: false,
        ..Options::default()
    };
    Worker::new(Box::new(backend), model.vocab, options, Arc::new(clock))
}

/// Forward pass and sampling of a step of `rows` rows, interpolated between the published costs.
fn interpolated(steps: &[PublishedStep; 3], rows: usize) -> (Duration, Duration) {
    let above = usize::from(rows > STREAMS[1]) + 1;
    let (a, b) = (STREAMS[above - 1] as f64, STREAMS[above] as f64);
    let share = ((rows as f64 - a) / (b - a)).clamp(0.0, 1.0);
    let between = |a: f64, b: f64| ms(a + (b - a) * share);
    let (low, high) = (steps[above - 1], steps[above]);
    (
        between(low.forward_ms, high.forward_ms),
        between(low.sampling_ms, high.sampling_ms),
    )
}

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms * 1e-3)
}

/// Its only choice is a text of the chosen length, so the answer has that length; the engine does not know it.
fn request(stream: usize, number: usize) -> LookRequest {
    let spread = TOKENS.end() - TOKENS.start() + 1;
    let tokens = TOKENS.start() + (stream * 5 + number * 7) % spread;
    let bounds = Bounds {
        max_objects: 1,
        max_tokens: TOKENS.end() * 2,
    };
    let grammar = simulated_grammar(Skill::Text);
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
