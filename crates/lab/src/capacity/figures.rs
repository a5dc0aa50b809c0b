//! The figures of runs. Pure.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::Serialize;

use super::{
    look_log::{LookEnd, LookRecord, TextRecord},
    simulated_box::{BoxSetup, DeviceUse},
};
use crate::bench::{Spread, TextTable};
use spotter_core::Mono;

/// Of one run.
#[derive(Clone, Debug, Default)]
pub struct RunFigures {
    pub begun: usize,
    pub answered: usize,
    /// Answered of those that find something; of those that find nothing. `None` without any.
    pub with_objects: Option<f64>,
    pub without_objects: Option<f64>,
    pub looks_per_s: f64,
    pub p50_ms: f64,
    pub p95_ms: f64,
    /// The camera with the fewest answers against the mean.
    pub fairness: f64,
    pub texts_per_s: f64,
    pub text_p95_ms: f64,
    pub wasted_share: f64,
    pub images_per_step: f64,
    /// At the end.
    pub in_flight: usize,
    /// Age of each answered look, milliseconds, by camera and the time of its frame.
    pub ages_ms: BTreeMap<(usize, Mono), f64>,
}

impl RunFigures {
    pub fn of(records: &[LookRecord], cameras: usize, took: Duration) -> Self {
        let answered: Vec<&LookRecord> = records
            .iter()
            .filter(|look| look.end == LookEnd::Answered)
            .collect();
        let ages_ms: BTreeMap<_, _> = answered
            .iter()
            .map(|look| {
                let age = look.ended.since(look.received);
                ((look.camera, look.received), age.as_secs_f64() * 1e3)
            })
            .collect();
        let ages = Spread::of(ages_ms.values().copied());
        let share = |with_objects: bool| {
            let of = |look: &&LookRecord| look.has_objects == with_objects;
            let begun = records.iter().filter(of).count();
            let answered = answered.iter().filter(|look| of(look)).count();
            (begun > 0).then(|| answered as f64 / begun as f64)
        };
        let mut per_camera = vec![0_usize; cameras];
        for look in &answered {
            per_camera[look.camera] += 1;
        }
        let mean = answered.len() as f64 / cameras as f64;
        let least = per_camera.iter().min().copied().unwrap_or_default();
        Self {
            begun: records.len(),
            answered: answered.len(),
            with_objects: share(true),
            without_objects: share(false),
            looks_per_s: answered.len() as f64 / took.as_secs_f64().max(1e-9),
            p50_ms: ages.median_ms,
            p95_ms: ages.p95_ms,
            fairness: least as f64 / mean.max(1e-9),
            ages_ms,
            ..Self::default()
        }
    }

    /// Free texts that were published in the run.
    pub fn texts(&mut self, texts: &[TextRecord], took: Duration) {
        let age_ms = |text: &TextRecord| text.ended.since(text.received).as_secs_f64() * 1e3;
        self.text_p95_ms = Spread::of(texts.iter().map(age_ms)).p95_ms;
        self.texts_per_s = texts.len() as f64 / took.as_secs_f64().max(1e-9);
    }

    pub fn device(&mut self, before: DeviceUse, after: DeviceUse) {
        let busy = after.busy.saturating_sub(before.busy).as_secs_f64();
        let wasted = after.wasted.saturating_sub(before.wasted).as_secs_f64();
        self.wasted_share = wasted / busy.max(1e-9);
        let steps = (after.image_steps - before.image_steps).max(1);
        self.images_per_step = (after.images - before.images) as f64 / steps as f64;
    }
}

/// What a row is about.
#[derive(Clone, Debug)]
pub struct CapacityLoad {
    pub device: String,
    pub cameras: usize,
    pub prompts: usize,
    /// Mean of an answer.
    pub objects: u64,
    pub load: f64,
    /// What the 95th percentile of ages keeps to.
    pub bound: Duration,
}

/// A device under a load.
#[derive(Clone, Debug, Serialize)]
pub struct CapacityRow {
    pub device: String,
    pub cameras: usize,
    pub prompts: usize,
    /// Mean of an answer.
    pub objects: u64,
    pub load: f64,
    pub begun: usize,
    pub answered: usize,
    pub answered_share: f64,
    pub answered_share_with_objects: Option<f64>,
    pub answered_share_without_objects: Option<f64>,
    pub looks_per_s: f64,
    /// The highest rate of a fixed number in flight whose `p95_ms` keeps to `bound_ms`; `None`: no number does.
    pub best_fixed_looks_per_s: Option<f64>,
    /// That number.
    pub best_fixed: Option<usize>,
    /// The learned number at the end.
    pub in_flight: usize,
    /// Age at publication, of the last short answer of each look.
    pub p50_ms: f64,
    pub p95_ms: f64,
    /// What `p95_ms` keeps to.
    pub bound_ms: f64,
    pub wasted_share: f64,
    pub images_per_step: f64,
    pub fairness: f64,
    /// With a query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<QueryFigures>,
}

/// What a question with a free text on every camera costs.
#[derive(Clone, Debug, Serialize)]
pub struct QueryFigures {
    pub texts_per_s: f64,
    /// Age of the texts.
    pub text_p95_ms: f64,
    /// When no camera has the question.
    pub looks_per_s_without: f64,
    /// Ages of the looks at frames that are looked at with the question and without it.
    pub common_p95_ms: f64,
    pub common_p95_ms_without: f64,
    /// By how many decode steps they are older with it: the mean over these frames, because their 95th percentile scatters by ten.
    pub more_steps: f64,
}

impl QueryFigures {
    /// Of two runs with the same load, with the question and without it.
    pub fn of(setup: &BoxSetup, with: &RunFigures, without: &RunFigures) -> Self {
        // A long answer takes many times as long as a short one, so the same answers are compared.
        let ages = with.ages_ms.iter();
        let common =
            ages.filter_map(|(frame, age_ms)| Some((*age_ms, *without.ages_ms.get(frame)?)));
        let (with_ms, without_ms): (Vec<f64>, Vec<f64>) = common.unzip();
        let more_ms = with_ms.iter().sum::<f64>() - without_ms.iter().sum::<f64>();
        let frames = with_ms.len().max(1) as f64;
        Self {
            texts_per_s: with.texts_per_s,
            text_p95_ms: with.text_p95_ms,
            looks_per_s_without: without.looks_per_s,
            common_p95_ms: Spread::of(with_ms).p95_ms,
            common_p95_ms_without: Spread::of(without_ms).p95_ms,
            more_steps: more_ms / frames / setup.device.decode_ms(1),
        }
    }
}

impl CapacityRow {
    /// `best`: the number of a fixed number in flight, and what it gives.
    pub fn new(load: CapacityLoad, learned: RunFigures, best: Option<(usize, RunFigures)>) -> Self {
        Self {
            device: load.device,
            cameras: load.cameras,
            prompts: load.prompts,
            objects: load.objects,
            load: load.load,
            begun: learned.begun,
            answered: learned.answered,
            answered_share: learned.answered as f64 / learned.begun.max(1) as f64,
            answered_share_with_objects: learned.with_objects,
            answered_share_without_objects: learned.without_objects,
            looks_per_s: learned.looks_per_s,
            best_fixed_looks_per_s: best.as_ref().map(|(_, best)| best.looks_per_s),
            best_fixed: best.map(|(looks, _)| looks),
            in_flight: learned.in_flight,
            p50_ms: learned.p50_ms,
            p95_ms: learned.p95_ms,
            bound_ms: load.bound.as_secs_f64() * 1e3,
            wasted_share: learned.wasted_share,
            images_per_step: learned.images_per_step,
            fairness: learned.fairness,
            query: None,
        }
    }
}

/// `Display` gives the table, serde the JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct CapacityTable {
    pub rows: Vec<CapacityRow>,
}

impl fmt::Display for CapacityTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent =
            |share: Option<f64>| share.map_or_else(|| "-".into(), |s| format!("{:.1}", s * 100.0));
        let cells = |row: &CapacityRow| {
            let best = match (row.best_fixed, row.best_fixed_looks_per_s) {
                (Some(looks), Some(rate)) => format!("{rate:.2} ({looks})"),
                _ => "-".into(),
            };
            let mut cells = vec![
                ("device", row.device.clone()),
                ("cameras", row.cameras.to_string()),
                ("prompts", row.prompts.to_string()),
                ("objects", row.objects.to_string()),
                ("load", row.load.to_string()),
                ("begun", row.begun.to_string()),
                ("answered %", percent(Some(row.answered_share))),
                ("with", percent(row.answered_share_with_objects)),
                ("without", percent(row.answered_share_without_objects)),
                ("looks/s", format!("{:.2}", row.looks_per_s)),
                ("best fixed", best),
                ("in flight", row.in_flight.to_string()),
                ("p50 ms", format!("{:.0}", row.p50_ms)),
                ("p95 ms", format!("{:.0}", row.p95_ms)),
                ("bound ms", format!("{:.0}", row.bound_ms)),
                ("wasted %", percent(Some(row.wasted_share))),
                ("images/step", format!("{:.2}", row.images_per_step)),
                ("fairness", format!("{:.2}", row.fairness)),
            ];
            if let Some(query) = &row.query {
                cells.extend([
                    (
                        "without: looks/s",
                        format!("{:.2}", query.looks_per_s_without),
                    ),
                    ("common p95 ms", format!("{:.1}", query.common_p95_ms)),
                    ("without", format!("{:.1}", query.common_p95_ms_without)),
                    ("more steps", format!("{:.2}", query.more_steps)),
                    ("texts/s", format!("{:.2}", query.texts_per_s)),
                    ("text p95 ms", format!("{:.0}", query.text_p95_ms)),
                ]);
            }
            cells
        };
        write!(f, "{}", TextTable::new(self.rows.iter().map(cells)))
    }
}
