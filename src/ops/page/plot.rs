//! Plots as inline SVG, without scripts or styles of their own; colours are classes of the style sheet.
//!
//! Every plot has its numbers as text beside it, for screen readers.

use maud::{Markup, html};

use super::{
    status::{COLUMNS, EngineStatus, LookBar, MinuteLatency, STAGES},
    words::{counted, millis},
};

/// Parts of a look's way through the engine, as the classes of their colours, which are those of the stages.
const PHASES: [usize; 4] = [2, 3, 4, 5];
/// Units of a drawing's coordinates across.
const WIDTH: f64 = 300.0;
/// Units of the latency plot down.
const PLOT_HEIGHT: f64 = 56.0;
/// Units of a lane of the timeline down.
const LANE_HEIGHT: f64 = 12.0;
/// Lanes that are drawn at most.
const LANES: usize = 16;

/// The last minute of a camera: columns of mean stage times, on one scale that starts at zero.
pub fn latency(latency: &MinuteLatency, stages: &[&str]) -> Markup {
    let total = |column: &[f64; STAGES]| column.iter().sum::<f64>();
    let columns = latency.columns_ms.iter().flatten();
    let top = round_up(columns.map(total).fold(0.0, f64::max));
    let shown = |ms: Option<f64>| ms.map_or_else(|| "unknown".to_owned(), millis);
    let label = format!(
        "Latency of the last minute, half of it below {}, 95 percent below {}; scale to {}",
        shown(latency.p50_ms),
        shown(latency.p95_ms),
        millis(top)
    );
    let width = WIDTH / COLUMNS as f64;
    html! {
        svg.plot role="img" aria-label=(label) viewBox=(format!("0 0 {WIDTH} {PLOT_HEIGHT}")) preserveAspectRatio="none" {
            line.grid x1="0" x2=(WIDTH) y1=(PLOT_HEIGHT / 2.0) y2=(PLOT_HEIGHT / 2.0) {}
            @for (index, column) in latency.columns_ms.iter().enumerate() {
                @if let Some(column) = column {
                    (stack(column, stages, top, index as f64 * width, width - 1.0))
                }
            }
            line.axis x1="0" x2=(WIDTH) y1=(PLOT_HEIGHT) y2=(PLOT_HEIGHT) {}
        }
    }
}

fn stack(column: &[f64; STAGES], stages: &[&str], top: f64, x: f64, width: f64) -> Markup {
    let mut below = 0.0;
    let boxes = column.iter().enumerate().map(|(stage, ms)| {
        let height = ms / top * PLOT_HEIGHT;
        below += height;
        (stage, PLOT_HEIGHT - below, height)
    });
    html! {
        @for (stage, y, height) in boxes {
            @if height >= 0.05 {
                rect class=(format!("s{stage}")) x=(two(x)) y=(two(y)) width=(two(width)) height=(two(height)) {
                    title { (stages.get(stage).copied().unwrap_or_default()) " " (millis(column[stage])) }
                }
            }
        }
    }
}

/// The smallest of 1, 2, 5, 10, 20 … milliseconds that is not below `ms`.
pub fn round_up(ms: f64) -> f64 {
    let ms = ms.clamp(1.0, 1e9);
    let decade = 10f64.powf(ms.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
    // A rounding error of the logarithm may make the last one too small by a hair.
    steps.into_iter().find(|step| *step >= ms).unwrap_or(ms)
}

/// Looks on their way through an engine, each in the first lane that is free.
pub fn timeline(engine: &EngineStatus) -> Markup {
    let span = engine.span_ms.max(1) as f64;
    let (placed, lanes) = in_lanes(&engine.bars);
    let height = lanes as f64 * LANE_HEIGHT;
    let label = format!(
        "{} in the last {} on {}, busy {:.0} percent of the time",
        counted(engine.bars.len(), "look"),
        millis(span),
        engine.device,
        engine.busy_pct
    );
    html! {
        svg class=(format!("timeline lanes{lanes}")) role="img" aria-label=(label)
            viewBox=(format!("0 0 {WIDTH} {height}")) preserveAspectRatio="none" {
            @for quarter in 1..4 {
                @let x = f64::from(quarter) * WIDTH / 4.0;
                line.grid x1=(x) x2=(x) y1="0" y2=(height) {}
            }
            @for (bar, lane) in placed {
                g {
                    title { (bar.camera) " " (millis(bar.marks_ms[4] - bar.marks_ms[0])) }
                    @for (phase, ends) in PHASES.iter().zip(bar.marks_ms.windows(2)) {
                        @let [from, to] = [ends[0], ends[1]].map(|ms| ms.clamp(0.0, span) / span * WIDTH);
                        @if to > from {
                            rect class=(format!("s{phase}")) x=(two(from)) width=(two(to - from))
                                y=(two(lane as f64 * LANE_HEIGHT + 1.0)) height=(LANE_HEIGHT - 2.0) {}
                        }
                    }
                }
            }
        }
    }
}

/// The lane of each bar, and how many lanes there are.
fn in_lanes(bars: &[LookBar]) -> (Vec<(&LookBar, usize)>, usize) {
    let mut begun: Vec<&LookBar> = bars.iter().collect();
    begun.sort_by(|a, b| a.marks_ms[0].total_cmp(&b.marks_ms[0]));
    let mut ends: Vec<f64> = Vec::new();
    let mut placed = Vec::new();
    for bar in begun {
        let free = ends.iter().position(|end| *end <= bar.marks_ms[0]);
        let lane = free.unwrap_or(ends.len());
        if lane == LANES {
            continue;
        }
        if lane == ends.len() {
            ends.push(0.0);
        }
        ends[lane] = bar.marks_ms[4];
        placed.push((bar, lane));
    }
    let lanes = ends.len().max(1);
    (placed, lanes)
}

/// Rounded to two decimals.
pub fn two(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_at_round_numbers() {
        let tops = [0.0, 1.0, 1.1, 20.0, 20.1, 66.0, 1000.0, 1000.1].map(round_up);
        assert_eq!(tops, [1.0, 1.0, 2.0, 20.0, 50.0, 100.0, 1000.0, 2000.0]);
    }

    #[test]
    fn overlapping_looks_use_different_lanes_and_free_lanes_are_reused() {
        let bar = |from: f64, to: f64| LookBar {
            camera: "gate".into(),
            marks_ms: [from, from, from, from, to],
        };
        let bars = [
            bar(0.0, 10.0),
            bar(5.0, 15.0),
            bar(10.0, 20.0),
            bar(11.0, 12.0),
        ];
        let (placed, lanes) = in_lanes(&bars);
        let of: Vec<usize> = placed.iter().map(|(_, lane)| *lane).collect();
        assert_eq!((of, lanes), (vec![0, 1, 0, 2], 3));
        assert_eq!(in_lanes(&[]).1, 1);
        let crowd: Vec<LookBar> = (0..40).map(|_| bar(0.0, 1.0)).collect();
        assert_eq!(in_lanes(&crowd).1, LANES);
    }
}
