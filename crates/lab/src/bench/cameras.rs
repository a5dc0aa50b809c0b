//! Statistics of `spotter-lab cameras`: costs and delays of cameras. Pure.
//!
//! ```text
//!   every frame's delays ─▶ Delays ─▶ median, p95, and the trend over the run ─┐
//!   processor time, memory, threads, counters (read by the caller) ────────────┴─▶ CamerasReport
//! ```
//!
//! [`Delays`] has a constant size, because a long run measures memory too.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::{
    Spread,
    table::{TextTable, known},
};
use spotter::ops::machine::Machine;
use spotter_core::FrameCounters;

/// Resolution of the delays; all delays above the last step are one.
const STEP_MS: f64 = 0.1;
const STEPS: usize = 20_000;
/// Parts of a run, each with its median: the trend is that of parts, because the seconds depend on each other.
const PARTS: usize = 60;
/// Standard deviations of a normal distribution around 95 of 100 values.
const SIGMAS: f64 = 1.96;

/// Delays of a run, second by second.
#[derive(Clone, Debug)]
pub struct Delays {
    counts: Vec<u32>,
    second: usize,
    recent_ms: Vec<f32>,
    medians_ms: Vec<(f64, f64)>,
}

impl Delays {
    /// For a run of `seconds` with at most `per_second` delays in each.
    pub fn new(seconds: usize, per_second: usize) -> Self {
        Self {
            counts: vec![0; STEPS],
            second: 0,
            recent_ms: Vec::with_capacity(per_second),
            medians_ms: Vec::with_capacity(seconds + 1),
        }
    }

    /// `at_s` is counted from the start of the run.
    pub fn add(&mut self, at_s: f64, delay_ms: f64) {
        let step = (delay_ms / STEP_MS).clamp(0.0, (STEPS - 1) as f64) as usize;
        self.counts[step] += 1;
        let second = at_s as usize;
        if second > self.second {
            self.end_second();
            self.second = second;
        }
        if self.recent_ms.len() < self.recent_ms.capacity() {
            self.recent_ms.push(delay_ms as f32);
        }
    }

    pub fn spread(&self) -> Spread {
        Spread {
            median_ms: self.percentile(50),
            p95_ms: self.percentile(95),
        }
    }

    /// Trend of the medians; `None` for a run of less than ten seconds.
    pub fn trend(&self) -> Option<Trend> {
        Trend::of(&self.course())
    }

    /// Time and median of each sixtieth of the run, or of each second if it is shorter than a minute.
    pub fn course(&self) -> Vec<(f64, f64)> {
        let seconds = self.medians_ms.len().div_ceil(PARTS).max(1);
        let part = |part: &[(f64, f64)]| {
            let mut middles: Vec<f64> = part.iter().map(|(_, ms)| *ms).collect();
            middles.sort_by(f64::total_cmp);
            let at_s = part.iter().map(|(at_s, _)| at_s).sum::<f64>() / part.len() as f64;
            (at_s, middles[middles.len() / 2])
        };
        self.medians_ms.chunks(seconds).map(part).collect()
    }

    /// Keeps the median, not the mean: one busy moment of the machine is no trend.
    fn end_second(&mut self) {
        let at = self.recent_ms.len() / 2;
        if at > 0 && self.medians_ms.len() < self.medians_ms.capacity() {
            let (_, median_ms, _) = self.recent_ms.select_nth_unstable_by(at, f32::total_cmp);
            let point = (self.second as f64, f64::from(*median_ms));
            self.medians_ms.push(point);
        }
        self.recent_ms.clear();
    }

    /// Nearest rank, at the upper end of its step.
    fn percentile(&self, percent: u64) -> f64 {
        let total: u64 = self.counts.iter().map(|&count| u64::from(count)).sum();
        let rank = (total * percent).div_ceil(100).max(1);
        let mut below = 0;
        for (step, &count) in self.counts.iter().enumerate() {
            below += u64::from(count);
            if below >= rank {
                return (step + 1) as f64 * STEP_MS;
            }
        }
        0.0
    }
}

/// A straight line through the delays of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trend {
    pub ms_per_hour: f64,
    /// Half of the interval around the slope that contains the true one in 95 of 100 runs, if a disturbance lasts no longer
    /// than some points. A machine that gets slower for an hour looks like a delay that grows.
    pub ci95_ms_per_hour: f64,
}

impl Trend {
    /// Least squares through points of seconds and milliseconds; `None` for fewer than ten. Neighbouring points are
    /// correlated, so they count for fewer: `n (1 - r) / (1 + r)`, with the autocorrelation `r` of the residuals
    /// (Santer et al., Journal of Geophysical Research 105, 2000).
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        if points.len() < 10 {
            return None;
        }
        let line = Line::through(points)?;
        let residual = |p: &(f64, f64)| p.1 - line.middle.1 - line.slope * (p.0 - line.middle.0);
        let residuals: Vec<f64> = points.iter().map(residual).collect();
        let squares: f64 = residuals.iter().map(|ms| ms * ms).sum();
        let products: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
        // A negative correlation would make points count for more.
        let correlation = (products / squares.max(f64::MIN_POSITIVE)).clamp(0.0, 0.99);
        let count = (points.len() as f64 * (1.0 - correlation) / (1.0 + correlation)).max(3.0);
        let error = (squares / (count - 2.0) / line.spread).sqrt();
        Some(Self {
            ms_per_hour: line.slope * 3600.0,
            ci95_ms_per_hour: SIGMAS * error * 3600.0,
        })
    }

    /// The slope is significant; a growth that is not may need a longer run.
    pub fn grows(&self) -> bool {
        self.ms_per_hour > self.ci95_ms_per_hour
    }
}

/// Slope of memory over cameras, MiB a camera; `None` for fewer than two numbers of cameras.
pub fn memory_slope(rows: &[CamerasRow]) -> Option<f64> {
    let points = rows
        .iter()
        .filter_map(|row| Some((row.cameras as f64, row.rss_mib?)));
    let points: Vec<(f64, f64)> = points.collect();
    Some(Line::through(&points)?.slope)
}

/// A line of least squares.
struct Line {
    slope: f64,
    /// Mean of both coordinates.
    middle: (f64, f64),
    /// Sum of the squared distances of the first coordinates from their mean.
    spread: f64,
}

impl Line {
    /// `None` when all points have the same first coordinate.
    fn through(points: &[(f64, f64)]) -> Option<Self> {
        let sum = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
        let count = points.len() as f64;
        let middle = (sum(&|p| p.0) / count, sum(&|p| p.1) / count);
        let spread = sum(&|p| (p.0 - middle.0).powi(2));
        let together = sum(&|p| (p.0 - middle.0) * (p.1 - middle.1));
        (spread > 0.0).then(|| Self {
            slope: together / spread,
            middle,
            spread,
        })
    }
}

/// Threads of one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadUse {
    /// Their name without its number.
    pub name: String,
    /// How many there are.
    pub count: usize,
    /// What they used, percent of one core.
    pub cpu_pct: f64,
}

/// A counter of frames with its name in the report.
type NamedCounter = (&'static str, fn(&FrameCounters) -> u64);

const FRAME_COUNTERS: [NamedCounter; 7] = [
    ("arrived", |frames| frames.arrived),
    ("skipped", |frames| frames.skipped),
    ("replaced", |frames| frames.replaced),
    ("gated", |frames| frames.gated),
    ("late", |frames| frames.late),
    ("failed", |frames| frames.failed),
    ("looked", |frames| frames.looked),
];

/// The frames of all cameras between two readings of each camera's counters, by name.
pub fn frames_between<'a>(
    readings: impl IntoIterator<Item = (&'a FrameCounters, &'a FrameCounters)>,
) -> BTreeMap<&'static str, u64> {
    let mut frames = BTreeMap::new();
    for (before, after) in readings {
        for (name, count) in FRAME_COUNTERS {
            *frames.entry(name).or_default() += count(after) - count(before);
        }
    }
    frames
}

/// Least cost of decoding on this machine: libav alone, one thread, at full speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DecodeFloor {
    /// Processor time of a picture.
    pub ms_per_picture: f64,
    /// Percent of one core, for a camera.
    pub cpu_pct: f64,
}

/// The run of one number of cameras.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CamerasRow {
    pub cameras: usize,
    pub seconds: f64,
    /// This process, percent of one core.
    pub cpu_pct: f64,
    /// The process that serves the cameras, percent of one core.
    pub server_cpu_pct: f64,
    /// Everything else on the machine, percent of one core.
    pub others_cpu_pct: f64,
    /// This process's memory at the end.
    pub rss_mib: Option<f64>,
    /// Threads of this process.
    pub threads: Vec<ThreadUse>,
    /// From a frame's first packet to its place in the sampler.
    pub decode: Spread,
    /// From a frame's capture, in the camera's own time, to its place in the sampler.
    pub behind: Spread,
    pub trend: Option<Trend>,
    /// Median of `behind` in each sixtieth of the run.
    pub course_ms: Vec<f64>,
    /// By their ends ([`FrameCounters`]).
    pub frames: BTreeMap<&'static str, u64>,
}

impl CamerasRow {
    /// The share of one camera.
    fn each(&self, total: f64) -> f64 {
        total / self.cameras.max(1) as f64
    }
}

/// What is printed; `Display` gives the table, serde the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CamerasReport {
    pub machine: Machine,
    /// Pixels across and down, frames a second, and thousands of bits a second of each camera.
    pub stream: (usize, usize, u32, u32),
    /// Looks a second at each camera.
    pub looks_hz: f64,
    pub floor: DecodeFloor,
    /// The same, measured again after the runs: the speed of a machine changes.
    pub floor_after: DecodeFloor,
    /// Memory of one more camera.
    pub mib_per_camera: Option<f64>,
    /// By number of cameras.
    pub rows: Vec<CamerasRow>,
}

impl fmt::Display for CamerasReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, height, fps, kbit_per_s) = self.stream;
        writeln!(f, "{}", self.machine)?;
        writeln!(
            f,
            "cameras: RTSP over TCP, H.264 {width}x{height}, {fps} frames/s, {kbit_per_s} kbit/s, {} looks/s each, \
             answered by a simulated device",
            self.looks_hz
        )?;
        writeln!(
            f,
            "CPU in percent of one core; delays: median / p95, milliseconds\n"
        )?;
        let cells = |row: &CamerasRow| {
            let threads: usize = row.threads.iter().map(|threads| threads.count).sum();
            vec![
                ("cameras", row.cameras.to_string()),
                ("s", format!("{:.0}", row.seconds)),
                ("CPU", format!("{:.1}", row.cpu_pct)),
                ("CPU/camera", format!("{:.2}", row.each(row.cpu_pct))),
                ("floor", format!("{:.2}", self.floor.cpu_pct)),
                ("server", format!("{:.1}", row.server_cpu_pct)),
                ("others", format!("{:.0}", row.others_cpu_pct)),
                ("RSS MiB", known(row.rss_mib, 0)),
                ("threads", threads.to_string()),
                ("decode", row.decode.to_string()),
                ("behind capture", row.behind.to_string()),
            ]
        };
        write!(f, "{}", TextTable::new(self.rows.iter().map(cells)))?;
        let [before, after] = [self.floor, self.floor_after].map(|floor| floor.ms_per_picture);
        writeln!(
            f,
            "\nfloor: libav decodes a picture in {before:.2} ms of one core, and in {after:.2} ms after the runs"
        )?;
        if let Some(mib) = self.mib_per_camera {
            writeln!(f, "memory: {mib:.1} MiB more with each camera")?;
        }
        match self.rows.last() {
            Some(last) => self.write_last(f, last),
            None => Ok(()),
        }
    }
}

impl CamerasReport {
    /// The row that ran for the whole time.
    fn write_last(&self, f: &mut fmt::Formatter<'_>, row: &CamerasRow) -> fmt::Result {
        writeln!(
            f,
            "\nwith {} cameras for {:.0} s:",
            row.cameras, row.seconds
        )?;
        let frames = FRAME_COUNTERS.map(|(name, _)| (row.frames.get(name).unwrap_or(&0), name));
        let arrived_hz = row.each(*frames[0].0 as f64) / row.seconds.max(1e-9);
        writeln!(
            f,
            "frames: {}; {arrived_hz:.2} of {} a second and camera arrived",
            frames
                .map(|(count, name)| format!("{count} {name}"))
                .join(", "),
            self.stream.2,
        )?;
        if let Some(trend) = row.trend {
            let verdict = if trend.grows() {
                "grows"
            } else {
                "no growth seen"
            };
            writeln!(
                f,
                "delay behind capture: {:+.1} ± {:.1} ms an hour ({verdict})",
                trend.ms_per_hour, trend.ci95_ms_per_hour
            )?;
            let twelfth = row.course_ms.len().div_ceil(12).max(1);
            let means = row.course_ms.chunks(twelfth);
            let means = means.map(|part| part.iter().sum::<f64>() / part.len() as f64);
            let means: Vec<String> = means.map(|ms| format!("{ms:.1}")).collect();
            writeln!(f, "in the course of the run, ms: {}", means.join(" "))?;
        }
        let cells = |threads: &ThreadUse| {
            vec![
                ("threads", threads.name.clone()),
                ("count", threads.count.to_string()),
                ("CPU/camera", format!("{:.2}", row.each(threads.cpu_pct))),
            ]
        };
        let busy = row.threads.iter().filter(|threads| threads.cpu_pct >= 0.05);
        write!(f, "\n{}", TextTable::new(busy.map(cells)))
    }
}

#[cfg(test)]
mod tests;
