//! The score of stays as a table and as JSON, each figure with its requirement.

use std::fmt;

use serde::Serialize;
use spotter_street::score::MatchTally;

use super::TrackOptions;
use crate::bench::{
    report::{EvalFigure, share_text, write_figures},
    stays::{StayTally, Stays},
};

/// Required figures, per stay.
mod required {
    pub const SWITCHES_MAX: f64 = 0.02;
    pub const EVENTS_MIN: f64 = 0.95;
    pub const EVENTS_MAX: f64 = 1.05;
}

/// What is printed; `Display` gives the table, serde the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrackReport {
    pub model: String,
    /// Time of the street.
    pub minutes: u32,
    pub looks_per_s: u32,
    /// Seed of the street.
    pub seed: u64,
    /// Rate of the H.264 that the street went through; `None` without.
    pub kbit_per_s: Option<u32>,
    /// Over everything.
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
            model: options.model.clone(),
            minutes: options.minutes,
            looks_per_s: options.looks_per_s,
            seed: options.seed,
            kbit_per_s: options.kbit_per_s,
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
        share("names that switched", all.switches).at_most(required::SWITCHES_MAX),
        share("events a stay", all.events).within(required::EVENTS_MIN, required::EVENTS_MAX),
        share("event by the first look", first),
        share("event by the second look", second),
        share("event by the third look", third),
        share("event when it was due", all.in_time),
        EvalFigure::new("detect F1 at IoU 0.5", boxes.f1(), things),
    ]
}

impl fmt::Display for TrackReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = match self.kbit_per_s {
            Some(kbit_per_s) => format!("through H.264 at {kbit_per_s} kbit/s"),
            None => "not compressed".into(),
        };
        writeln!(
            f,
            "{}: {} minutes of street {}, {} looks/s, {rate}\n",
            self.model, self.minutes, self.seed, self.looks_per_s
        )?;
        write_figures(f, &self.figures)?;
        writeln!(
            f,
            "\n{:<26}{:>8}{:>9}{:>11}{:>16}",
            "by class", "stays", "events", "switches", "event by second"
        )?;
        for class in &self.classes {
            let by_second = share_text(class.reported_by_second);
            writeln!(
                f,
                "  {:<24}{:>8}{:>9}{:>11}{by_second:>16}",
                class.class, class.stays, class.events, class.switches
            )?;
        }
        Ok(())
    }
}
