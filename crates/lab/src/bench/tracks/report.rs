//! The score of stays as a table and as JSON, each figure with its requirement.

use std::fmt;

use serde::Serialize;
use spotter_street::score::MatchTally;

use super::TrackOptions;
use crate::bench::{
    report::{EvalFigure, Target, figures_table, rate_text, share_text},
    stays::{StayTally, Stays},
    table::TextTable,
};

/// What is printed; `Display` gives the table, serde the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrackReport {
    #[serde(flatten)]
    pub options: TrackOptions,
    pub figures: Vec<EvalFigure>,
    /// Classes with stays or events.
    pub classes: Vec<ClassStays>,
}

/// The stays of one class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassStays {
    pub class: &'static str,
    pub stays: usize,
    /// Events that were started.
    pub events: usize,
    /// Times that an object got another track id within a stay.
    pub switches: usize,
    /// Share of the stays whose event was started by the second look from entering; `None` without stays.
    #[serde(rename = "told_by_second")]
    pub reported_by_second: Option<f64>,
}

impl TrackReport {
    pub(super) fn new(options: &TrackOptions, stays: &Stays, boxes: &MatchTally) -> Self {
        let classes = stays
            .tallies()
            .iter()
            .filter(|(_, tally)| tally.stays + tally.events > 0)
            .map(|(class, tally)| ClassStays {
                class: class.name(),
                stays: tally.stays,
                events: tally.events,
                switches: tally.switches,
                reported_by_second: tally.share(tally.reported_by[1]),
            });
        Self {
            options: options.clone(),
            figures: figures(stays.all(), boxes),
            classes: classes.collect(),
        }
    }
}

fn figures(all: StayTally, boxes: &MatchTally) -> Vec<EvalFigure> {
    let share = |name, part| EvalFigure::new(name, all.share(part), all.stays as u64);
    let [first, second, third] = all.reported_by;
    let things = boxes.found + boxes.missed;
    vec![
        share("names that switched", all.switches).required(Target::AtMost(0.02)),
        share("events a stay", all.events).required(Target::Within(0.95, 1.05)),
        share("event by the first look", first),
        share("event by the second look", second),
        share("event by the third look", third),
        share("event when it was due", all.in_time),
        EvalFigure::new("detect F1 at IoU 0.5", boxes.f1(), things),
    ]
}

impl fmt::Display for TrackReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TrackOptions {
            model,
            minutes,
            looks_per_s,
            seed,
            kbit_per_s,
        } = &self.options;
        let rate = rate_text(*kbit_per_s);
        writeln!(
            f,
            "{model}: {minutes} minutes of street {seed}, {looks_per_s} looks/s, {rate}\n"
        )?;
        writeln!(f, "{}", figures_table(&self.figures))?;
        let cells = |class: &ClassStays| {
            vec![
                ("class", class.class.into()),
                ("stays", class.stays.to_string()),
                ("events", class.events.to_string()),
                ("switches", class.switches.to_string()),
                ("event by second", share_text(class.reported_by_second)),
            ]
        };
        write!(f, "{}", TextTable::new(self.classes.iter().map(cells)))
    }
}
