//! Scores as a table and as JSON, each figure with its requirement.

use std::fmt;

use serde::Serialize;
use spotter_street::score::{Calibration, CalibrationBin, HitShare, MatchTally};

use super::{
    scores::Scores,
    table::{TableRow, TextTable, known},
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EvalOptions {
    /// Name of the model, for the report.
    pub model: String,
    pub scenes: u64,
    /// Seed of the first; the others follow. Even ones are random scenes, odd ones live streets.
    pub first_seed: u64,
    /// Rate of the H.264 that every scene passes through; `None` for clean drawings.
    pub kbit_per_s: Option<u32>,
}

/// What is printed; `Display` gives the table, serde the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvalReport {
    #[serde(flatten)]
    pub options: EvalOptions,
    pub figures: Vec<EvalFigure>,
    /// Boxes by class, size, light and scene.
    pub detect_by: Vec<PartFigures>,
    /// Share of right boxes and texts, by their scores.
    pub scores: Vec<ScoreFigures>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvalFigure {
    pub name: &'static str,
    /// A share; `None` without questions.
    pub value: Option<f64>,
    /// Number of things or questions that it is a share of.
    pub of: u64,
    pub target: Option<Target>,
    /// Distance of the value from its target; `None` if it meets it, or has no value or no target.
    pub missed_by: Option<f64>,
}

/// Required value of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// From the first to the second.
    Within(f64, f64),
}

/// Boxes of one part: one class, one size and so on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartFigures {
    pub by: &'static str,
    pub name: &'static str,
    pub things: u64,
    /// Harmonic mean of precision and recall.
    pub f1: Option<f64>,
    /// Share of the boxes that are right.
    pub precision: Option<f64>,
    /// Share of the things that were found.
    pub recall: Option<f64>,
    /// Mean overlap of what was found.
    pub mean_iou: Option<f64>,
}

/// Calibration of the scores of one kind of answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScoreFigures {
    pub of: &'static str,
    /// Mean distance between score and share that is right; `None` without answers.
    pub error: Option<f64>,
    /// By score, lowest first.
    pub bins: Vec<CalibrationBin>,
}

/// The figures of `scores`, with what the embedded model must reach on unseen scenes.
pub(super) fn figures(scores: &Scores) -> Vec<EvalFigure> {
    let (detect, point) = (&scores.detect, &scores.point);
    let things = |tally: &MatchTally| tally.found + tally.missed;
    let answers = |tally: &MatchTally| tally.found + tally.wrong;
    let share = |name, share: HitShare| EvalFigure::new(name, share.value(), share.asked);
    vec![
        EvalFigure::new("detect F1 at IoU 0.5", detect.f1(), things(detect))
            .required(Target::AtLeast(0.95)),
        EvalFigure::new("detect precision", detect.precision(), answers(detect)),
        EvalFigure::new("detect recall", detect.recall(), things(detect)),
        EvalFigure::new("detect mean IoU", detect.mean_iou(), detect.found)
            .required(Target::AtLeast(0.85)),
        EvalFigure::new("point inside", point.precision(), answers(point))
            .required(Target::AtLeast(0.96)),
        EvalFigure::new("things pointed at", point.recall(), things(point)),
        share("boxes for something absent", scores.absent()).required(Target::AtMost(0.01)),
        share("boxes for an absent class", scores.absent_class),
        share("boxes for an absent colour", scores.absent_colour),
        share("boxes for unknown words", scores.unknown),
        share("yes/no right", scores.yes_no).required(Target::AtLeast(0.98)),
        share("count exact", scores.count).required(Target::AtLeast(0.93)),
        share("colour right", scores.colour).required(Target::AtLeast(0.95)),
    ]
}

pub(super) fn score_figures(scores: &Scores) -> Vec<ScoreFigures> {
    let figures = |of, calibration: &Calibration| ScoreFigures {
        of,
        error: calibration.error(),
        bins: calibration.bins(),
    };
    vec![
        figures("boxes", &scores.sure_of_boxes),
        figures("answers in words", &scores.sure_of_words),
    ]
}

/// The detect figures of every part of `scores`.
pub(super) fn parts(scores: &Scores) -> Vec<PartFigures> {
    let parts = scores.detect_by.iter();
    parts
        .map(|(&(by, name), tally)| PartFigures {
            by,
            name,
            things: tally.found + tally.missed,
            f1: tally.f1(),
            precision: tally.precision(),
            recall: tally.recall(),
            mean_iou: tally.mean_iou(),
        })
        .collect()
}

impl EvalFigure {
    pub(super) fn new(name: &'static str, value: Option<f64>, of: u64) -> Self {
        Self {
            name,
            value,
            of,
            target: None,
            missed_by: None,
        }
    }

    pub(super) fn required(mut self, target: Target) -> Self {
        let off_by = |value: f64| match target {
            Target::AtLeast(least) => least - value,
            Target::AtMost(most) => value - most,
            Target::Within(least, most) => (least - value).max(value - most),
        };
        self.target = Some(target);
        self.missed_by = self.value.map(off_by).filter(|&off_by| off_by > 0.0);
        self
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, ">= {least:.2}"),
            Self::AtMost(most) => write!(f, "<= {most:.2}"),
            Self::Within(least, most) => write!(f, "{least:.2}–{most:.2}"),
        }
    }
}

impl fmt::Display for EvalReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EvalOptions {
            model,
            scenes,
            first_seed,
            kbit_per_s,
        } = &self.options;
        let rate = rate_text(*kbit_per_s);
        writeln!(
            f,
            "{model}: {scenes} scenes from seed {first_seed}, {rate}\n"
        )?;
        write!(f, "{}", figures_table(&self.figures))?;
        for parts in self.detect_by.chunk_by(|one, next| one.by == next.by) {
            let table = TextTable::new(parts.iter().map(PartFigures::cells));
            write!(f, "\ndetect by {}\n{table}", parts[0].by)?;
        }
        for kind in self.scores.iter().filter(|kind| !kind.bins.is_empty()) {
            let cells = |bin: &CalibrationBin| {
                vec![
                    ("from", bin.from.to_string()),
                    ("answers", bin.answers.to_string()),
                    ("score", share_text(Some(bin.score))),
                    ("right", share_text(Some(bin.right))),
                ]
            };
            let table = TextTable::new(kind.bins.iter().map(cells));
            let (of, error) = (kind.of, share_text(kind.error));
            write!(f, "\nscore of {of}, off by {error}\n{table}")?;
        }
        Ok(())
    }
}

impl PartFigures {
    fn cells(&self) -> TableRow {
        vec![
            ("", self.name.into()),
            ("things", self.things.to_string()),
            ("F1", share_text(self.f1)),
            ("precision", share_text(self.precision)),
            ("recall", share_text(self.recall)),
            ("mean IoU", share_text(self.mean_iou)),
        ]
    }
}

pub(super) fn rate_text(kbit_per_s: Option<u32>) -> String {
    kbit_per_s.map_or("not compressed".into(), |kbit_per_s| {
        format!("through H.264 at {kbit_per_s} kbit/s")
    })
}

/// A line for each, with its requirement.
pub(super) fn figures_table(figures: &[EvalFigure]) -> TextTable {
    let cells = |figure: &EvalFigure| {
        let target = figure.target.map(|t| t.to_string()).unwrap_or_default();
        let verdict = match (figure.value, figure.target, figure.missed_by) {
            (_, _, Some(distance)) => format!("missed by {distance:.4}"),
            (Some(_), Some(_), None) => "held".into(),
            _ => String::new(),
        };
        vec![
            ("", figure.name.into()),
            ("value", share_text(figure.value)),
            ("of", figure.of.to_string()),
            ("required", target),
            ("", verdict),
        ]
    };
    TextTable::new(figures.iter().map(cells))
}

pub(super) fn share_text(value: Option<f64>) -> String {
    known(value, 4)
}

#[cfg(test)]
mod tests;
