//! What a golden set shows of a backend, in figures.
//!
//! Belongs here: what is printed, and counts over all cases of a set. Not here: a single case ([`tally`](super::tally)), and
//! what the figures are held to, which depends on the backend's arithmetic and so is with its tests.

use serde_json::Value;

use super::{
    figures::Figures,
    golden_run::ReferenceRun,
    tally::{ComparedDecision, Share, bins, choices, reference_bins},
};
use crate::model::ModelConfig;

/// What a set shows of a backend.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub figures: Figures,
    /// Bins of points and boxes.
    pub bins: Vec<ComparedDecision>,
    pub choices: Vec<ComparedDecision>,
    /// Bins of the reference's own run in bf16, as far as it went the same way as in f32.
    pub reference: Vec<bool>,
    /// The backend's at the same places.
    pub beside_reference: Vec<bool>,
}

impl Report {
    pub fn print(&self, title: &str) {
        self.figures.print(title);
        for (what, decided) in [("bins", &self.bins), ("choices", &self.choices)] {
            let share = |open: fn(&ComparedDecision) -> bool| {
                Share::of(decided.iter().filter(|d| open(d)).map(|d| d.right))
            };
            println!("  {what} as in f32: {}", share(|_| true));
            println!("    margin that bf16 decides: {}", share(|d| !d.open));
            println!("    margin that it does not: {}", share(|d| d.open));
            for wrong in decided.iter().filter(|d| !d.right) {
                let open = if wrong.open { "open" } else { "WRONG" };
                println!("    {open}: {}", wrong.what);
            }
        }
        let [reference, ours] =
            [&self.reference, &self.beside_reference].map(|bins| Share::of(bins.iter().copied()));
        if reference.of > 0 {
            println!("  bins of the reference in bf16: {reference}; at the same places: {ours}");
        }
    }

    /// Fails where a decision is another although its margin is one that bf16 decides.
    #[track_caller]
    pub fn assert_decided_right(&self) {
        let all = self.bins.iter().chain(&self.choices);
        let wrong: Vec<_> = all.filter(|d| !d.right && !d.open).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// Counts the decisions of a case. `errors` are the largest of the logits of bins and of tokens in bf16; `run` is
    /// the reference's output in bf16, where it is known.
    pub fn count(
        &mut self,
        (name, expected): (&str, &Value),
        followed: &ReferenceRun,
        errors: [f64; 2],
        run: Option<&Value>,
        config: &ModelConfig,
    ) {
        let named = |decided: ComparedDecision| ComparedDecision {
            what: format!("{name}, {}", decided.what),
            ..decided
        };
        let found = bins(expected, followed, errors[0]);
        if let (Some(run), true) = (run, expected["objects"].is_array()) {
            let reference = reference_bins(expected, run);
            let beside = found.iter().take(reference.len()).map(|bin| bin.right);
            self.beside_reference.extend(beside);
            self.reference.extend(reference);
        }
        self.bins.extend(found.into_iter().map(named));
        let chosen = choices(expected, followed, errors[1], config);
        self.choices.extend(chosen.into_iter().map(named));
    }
}
