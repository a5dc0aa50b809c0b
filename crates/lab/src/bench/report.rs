//! Scores as a table and as JSON, each figure with its requirement.

use std::fmt;

use serde::Serialize;
use spotter_street::score::{HitShare, MatchTally};

use super::{
    calibration::{Calibration, CalibrationBin},
    scores::{Aspect, Scores},
};

/// Accuracy that the embedded model must have on unseen scenes.
mod required {
    pub const DETECT_F1: f64 = 0.95;
    pub const DETECT_MEAN_IOU: f64 = 0.85;
    pub const POINT_INSIDE: f64 = 0.96;
    pub const ABSENT_MAX: f64 = 0.01;
    pub const YES_NO: f64 = 0.98;
    pub const COUNT: f64 = 0.93;
    pub const COLOUR: f64 = 0.95;
}

/// What is printed; `Display` gives the table, serde the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvalReport {
    pub model: String,
    pub scenes: u64,
    /// Seed of the first; the others follow.
    pub first_seed: u64,
    /// Rate of the H.264 that the scenes went through; `None` without.
    pub kbit_per_s: Option<u32>,
    /// Over everything.
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
    pub by: Aspect,
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

/// The figures of `scores`, with what is required.
pub(super) fn figures(scores: &Scores) -> Vec<EvalFigure> {
    use required::*;
    let (detect, point) = (&scores.detect, &scores.point);
    let things = |tally: &MatchTally| tally.found + tally.missed;
    let answers = |tally: &MatchTally| tally.found + tally.wrong;
    vec![
        EvalFigure::new("detect F1 at IoU 0.5", detect.f1(), things(detect)).at_least(DETECT_F1),
        EvalFigure::new("detect precision", detect.precision(), answers(detect)),
        EvalFigure::new("detect recall", detect.recall(), things(detect)),
        EvalFigure::new("detect mean IoU", detect.mean_iou(), detect.found)
            .at_least(DETECT_MEAN_IOU),
        EvalFigure::new("point inside", point.precision(), answers(point)).at_least(POINT_INSIDE),
        EvalFigure::new("things pointed at", point.recall(), things(point)),
        EvalFigure::share("boxes for something absent", scores.absent()).at_most(ABSENT_MAX),
        EvalFigure::share("boxes for an absent class", scores.absent_class),
        EvalFigure::share("boxes for an absent colour", scores.absent_colour),
        EvalFigure::share("boxes for unknown words", scores.unknown),
        EvalFigure::share("yes/no right", scores.yes_no).at_least(YES_NO),
        EvalFigure::share("count exact", scores.count).at_least(COUNT),
        EvalFigure::share("colour right", scores.colour).at_least(COLOUR),
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

    fn share(name: &'static str, share: HitShare) -> Self {
        Self::new(name, share.value(), share.asked)
    }

    fn at_least(self, least: f64) -> Self {
        let short_by = self.value.map(|value| least - value);
        self.with_target(Target::AtLeast(least), short_by)
    }

    pub(super) fn at_most(self, most: f64) -> Self {
        let over_by = self.value.map(|value| value - most);
        self.with_target(Target::AtMost(most), over_by)
    }

    pub(super) fn within(self, least: f64, most: f64) -> Self {
        let off_by = self.value.map(|value| (least - value).max(value - most));
        self.with_target(Target::Within(least, most), off_by)
    }

    fn with_target(self, target: Target, off_by: Option<f64>) -> Self {
        Self {
            target: Some(target),
            missed_by: off_by.filter(|&off_by| off_by > 0.0),
            ..self
        }
    }

    fn verdict(&self) -> String {
        match (self.value, self.target, self.missed_by) {
            (_, _, Some(distance)) => format!("missed by {distance:.4}"),
            (Some(_), Some(_), None) => "held".into(),
            _ => String::new(),
        }
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
        let rate = match self.kbit_per_s {
            Some(kbit_per_s) => format!("through H.264 at {kbit_per_s} kbit/s"),
            None => "not compressed".into(),
        };
        let (scenes, seed) = (self.scenes, self.first_seed);
        writeln!(
            f,
            "{}: {scenes} scenes from seed {seed}, {rate}\n",
            self.model
        )?;
        write_figures(f, &self.figures)?;
        self.write_parts(f)?;
        self.write_scores(f)
    }
}

impl EvalReport {
    fn write_parts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = None;
        for part in &self.detect_by {
            if before != Some(part.by) {
                let by = aspect_text(part.by);
                writeln!(
                    f,
                    "\ndetect by {by:<16}{:>8}{:>9}{:>11}{:>9}{:>10}",
                    "things", "F1", "precision", "recall", "mean IoU"
                )?;
                before = Some(part.by);
            }
            let [f1, precision, recall, iou] =
                [part.f1, part.precision, part.recall, part.mean_iou].map(share_text);
            let (name, things) = (part.name, part.things);
            writeln!(
                f,
                "  {name:<24}{things:>8}{f1:>9}{precision:>11}{recall:>9}{iou:>10}"
            )?;
        }
        Ok(())
    }
}

impl EvalReport {
    fn write_scores(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in self.scores.iter().filter(|kind| !kind.bins.is_empty()) {
            let title = format!("score of {}", kind.of);
            writeln!(
                f,
                "\n{title:<26}{:>8}{:>9}{:>11}",
                "answers", "score", "right"
            )?;
            for bin in &kind.bins {
                let (from, answers) = (bin.from, bin.answers);
                let [score, right] = [bin.score, bin.right].map(|share| share_text(Some(share)));
                writeln!(f, "  from {from:<19}{answers:>8}{score:>9}{right:>11}")?;
            }
            writeln!(
                f,
                "  off by {:<17}{:>8}{:>9}",
                "",
                "",
                share_text(kind.error)
            )?;
        }
        Ok(())
    }
}

/// A line for each, with its requirement.
pub(super) fn write_figures(f: &mut fmt::Formatter<'_>, figures: &[EvalFigure]) -> fmt::Result {
    let header = ["", "value", "of", "required", ""];
    write_line(f, header.map(str::to_owned))?;
    for figure in figures {
        let target = figure.target.map(|t| t.to_string()).unwrap_or_default();
        let (name, value) = (figure.name.to_owned(), share_text(figure.value));
        write_line(
            f,
            [name, value, figure.of.to_string(), target, figure.verdict()],
        )?;
    }
    Ok(())
}

fn write_line(f: &mut fmt::Formatter<'_>, columns: [String; 5]) -> fmt::Result {
    let [name, value, of, target, verdict] = columns;
    let line = format!("{name:<28}{value:>8}{of:>9}   {target:<10}{verdict}");
    writeln!(f, "{}", line.trim_end())
}

fn aspect_text(aspect: Aspect) -> &'static str {
    match aspect {
        Aspect::Class => "class",
        Aspect::Size => "size",
        Aspect::Light => "light",
        Aspect::Scene => "scene",
    }
}

pub(super) fn share_text(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.4}"))
}

#[cfg(test)]
mod tests;
