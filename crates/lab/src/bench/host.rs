//! `spotter-lab engine`: the host's work for a step, in real time: the real scheduler, 32 detect rows that all decode, and a simulated device
//! that costs nothing, so that what is left is plan, launch, finalize and commit.
//!
//! The rows are those of eight looks with four prompts and Moondream 2's dimensions: a prefix of 730 positions, answers of
//! up to 50 boxes. The spans are the engine's own, from its timeline.

use std::{fmt, sync::Arc, time::Duration};

use serde::Serialize;

use super::{Spread, table::TextTable};
use spotter::ops::machine::Machine;
use spotter_core::{Clock, ManualClock, Mono, Picture, WallTime};
use spotter_engine::{
    model::{ModelConfig, Skill},
    scheduler::{
        Options,
        backend::{BackendLimits, DecoderInput},
        constraint::Choices,
        request::{Ask, Decide, LookId, LookRequest},
        sequence::{Bounds, Sequence},
        timeline::{Host, TimeSpan, Timeline},
        worker::{DeviceError, Worker},
    },
    sim::{SimBackend, SimCosts, SimModel},
};

const LOOKS: usize = 8;
const PROMPTS: usize = 4;
const OBJECTS: usize = 50;
/// Steps recorded of each answer: three for each box, less the first and the last, where not all rows decode.
const STEPS: usize = 3 * OBJECTS - 20;
/// How often all looks are submitted.
const ROUNDS: usize = 8;
const PROMPT_TOKENS: usize = 6;

const LIMITS: BackendLimits = BackendLimits {
    slots: 2,
    rows: LOOKS * PROMPTS,
    pages: 46 * LOOKS + 12 * LOOKS * PROMPTS,
    page_tokens: 16,
    context: 2048,
    prefix_positions: 730,
    images: LOOKS,
    positions: 4096,
    tokens: 4096,
    picks: usize::MAX,
    picture_pixels: usize::MAX,
    kept_crops: 0,
    adapters: 0,
};

/// A model that never ends an answer by itself. Its vocabulary is small, because the search for its token would be measured
/// too.
const MODEL: SimModel = SimModel {
    vocab: 32,
    objects: u64::MAX,
    crops: 1,
    memory: false,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostWorkKind {
    DeviceDecides,
    HostDecides,
    HostMasks,
}

const KINDS: [(HostWorkKind, &str); 3] = [
    (HostWorkKind::DeviceDecides, "detect, the device decides"),
    (HostWorkKind::HostDecides, "detect, the host decides"),
    (HostWorkKind::HostMasks, "choices, the host's masks"),
];

/// The host's work for steps of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostRow {
    pub kind: &'static str,
    pub steps: usize,
    /// Chooses the rows of the next step.
    pub plan: Spread,
    /// Launches it; with the simulated device's own work.
    pub launch: Spread,
    /// Computes the masks and finalizes; with the simulated device's own work. `None` without masks.
    pub finalize: Option<Spread>,
    /// Reads decisions and completes answers.
    pub commit: Spread,
    /// Plan and commit of a step together.
    pub plan_commit: Spread,
}

/// `Display` gives the table, serde the JSON.
#[derive(Clone, Debug, Serialize)]
pub struct HostReport {
    pub machine: Machine,
    pub step: StepWork,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepWork {
    /// Rows of each step.
    pub step_rows: usize,
    pub rows: Vec<HostRow>,
}

/// Measures all kinds. Blocks for a second or less.
pub fn host(clock: &Arc<dyn Clock>) -> Result<HostReport, DeviceError> {
    let mut rows = Vec::new();
    for (kind, name) in KINDS {
        let mut worker = worker(kind, Arc::clone(clock));
        let mut timelines = Vec::new();
        for _ in 0..ROUNDS {
            timelines.push(round(kind, &mut worker)?);
        }
        rows.push(row(name, &timelines));
    }
    Ok(HostReport {
        machine: Machine::now(),
        step: StepWork {
            step_rows: LIMITS.rows,
            rows,
        },
    })
}

/// Submits all looks, and records steps while all rows decode.
fn round(kind: HostWorkKind, worker: &mut Worker) -> Result<Timeline, DeviceError> {
    let before = worker.work().prefills;
    let looks: Vec<LookId> = (0..LOOKS).map(|_| worker.admit(request(kind))).collect();
    while worker.work().prefills - before < LIMITS.rows as u64 {
        worker.turn()?;
    }
    // The steps that carry the prompts are settled.
    for _ in 0..4 {
        worker.turn()?;
    }
    worker.record();
    let until = worker.work().steps + STEPS as u64;
    while worker.work().steps < until {
        worker.turn()?;
    }
    let timeline = worker.timeline().cloned().unwrap_or_default();
    for look in looks {
        worker.cancel(look);
    }
    while !worker.is_idle() {
        worker.turn()?;
    }
    Ok(timeline)
}

fn row(kind: &'static str, timelines: &[Timeline]) -> HostRow {
    let spans_ms = |what: Host| -> Vec<f64> {
        let spans = timelines.iter().flat_map(|one| host_spans(one, what));
        spans
            .map(|span| span.duration().as_secs_f64() * 1e3)
            .collect()
    };
    let (plan, finalize, commit) = (
        spans_ms(Host::Plan),
        spans_ms(Host::Finalize),
        spans_ms(Host::Commit),
    );
    let both = plan.iter().zip(&commit).map(|(plan, commit)| plan + commit);
    HostRow {
        kind,
        steps: plan.len(),
        plan_commit: Spread::of(both),
        plan: Spread::of(plan),
        launch: Spread::of(spans_ms(Host::Launch)),
        finalize: (!finalize.is_empty()).then(|| Spread::of(finalize)),
        commit: Spread::of(commit),
    }
}

fn host_spans(timeline: &Timeline, what: Host) -> impl Iterator<Item = TimeSpan> + '_ {
    let named = timeline.host.iter().filter(move |(kind, _)| *kind == what);
    named.map(|(_, span)| *span)
}

/// The device has a clock that does not advance, the host has real time.
fn worker(kind: HostWorkKind, clock: Arc<dyn Clock>) -> Worker {
    let costs = SimCosts::constant(Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let device_clock = ManualClock::at(WallTime::default());
    let backend = SimBackend::new(LIMITS, MODEL, costs, device_clock);
    let decide = match kind {
        HostWorkKind::HostDecides => Decide::Host,
        HostWorkKind::DeviceDecides | HostWorkKind::HostMasks => Decide::Device,
    };
    let options = Options {
        decide,
        ..Options::default()
    };
    Worker::new(Box::new(backend), MODEL.vocab, options, clock)
}

fn request(kind: HostWorkKind) -> LookRequest {
    let ask = || Ask {
        sequence: sequence(kind),
        draft: None,
        in_pieces: false,
        has_follow_up: false,
    };
    LookRequest {
        crops: 1,
        view: Default::default(),
        camera: None,
        picture: Picture::from_rgb(2, 2, vec![0; 12]).ok(),
        measured: None,
        start_by: Mono::from_nanos(u64::MAX),
        answer_by: Mono::from_nanos(u64::MAX),
        asks: (0..PROMPTS).map(|_| ask()).collect(),
        adapter: None,
    }
}

fn sequence(kind: HostWorkKind) -> Sequence {
    let bounds = Bounds {
        max_objects: OBJECTS,
        max_tokens: 3 * OBJECTS,
    };
    let prompt = vec![DecoderInput::Token(9); PROMPT_TOKENS];
    match kind {
        HostWorkKind::DeviceDecides | HostWorkKind::HostDecides => Sequence::new(
            ModelConfig::default().grammar(Skill::Detect),
            prompt,
            bounds,
        ),
        HostWorkKind::HostMasks => {
            let text = ModelConfig::default().grammar(Skill::Text);
            let sequence = Sequence::new(text, prompt, bounds);
            match Choices::new([[10; 3 * OBJECTS].as_slice()]) {
                Some(choices) => sequence.choices(Arc::new(choices)),
                None => sequence,
            }
        }
    }
}

impl fmt::Display for HostReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.machine)?;
        writeln!(
            f,
            "host's work for a step of {} rows, real time; median / p95, microseconds\n\
             launch and finalize with the simulated device's own work\n",
            self.step.step_rows
        )?;
        let cells = |row: &HostRow| {
            vec![
                ("rows", row.kind.into()),
                ("steps", row.steps.to_string()),
                ("plan", micros(row.plan)),
                ("launch", micros(row.launch)),
                ("finalize", row.finalize.map_or_else(|| "-".into(), micros)),
                ("commit", micros(row.commit)),
                ("plan + commit", micros(row.plan_commit)),
            ]
        };
        write!(f, "{}", TextTable::new(self.step.rows.iter().map(cells)))
    }
}

fn micros(spread: Spread) -> String {
    let [median, p95] = [spread.median_ms, spread.p95_ms].map(|ms| ms * 1e3);
    format!("{median:.1} / {p95:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row must be in every measured step, and each plan must have its commit.
    #[test]
    fn each_measured_step_carries_all_rows() {
        for (kind, _) in KINDS {
            let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(WallTime::default()));
            let mut worker = worker(kind, clock);
            let timeline = round(kind, &mut worker).expect("a sound device");
            let work = worker.work();
            let count = |what| host_spans(&timeline, what).count();
            assert_eq!(count(Host::Plan), STEPS, "{kind:?}");
            assert!(count(Host::Commit).abs_diff(STEPS) <= 1, "{kind:?}");
            let masks = usize::from(kind == HostWorkKind::HostMasks) * STEPS;
            assert!(count(Host::Finalize).abs_diff(masks) <= 1, "{kind:?}");
            assert_eq!(work.decodes % LIMITS.rows as u64, 0, "{kind:?}: {work:?}");
            assert_eq!(work.objects % LIMITS.rows as u64, 0, "{kind:?}: {work:?}");
            assert_eq!(worker.pages_in_use(), 0);
        }
    }
}
