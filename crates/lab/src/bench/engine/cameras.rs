//! Speed with the model on this machine: depth 2 against depth 1, by prompts on a frame and by cameras, with predicted and
//! observed gain.

use std::{fmt, sync::Arc, time::Duration};

use serde::Serialize;

use super::{
    depth::{COLUMNS, DepthCost, StepSums, percent},
    street::prompts,
    street_camera::{
        EngineBuilder, PromptGrouping, StreetCamera, StreetDriver, StreetMotion, share,
    },
};
use crate::bench::{ask::MeasureError, progress::ProgressLine, spread::Spread};
use spotter_core::{Clock, Picture, Task};
use spotter_engine::{
    scheduler::{Options, timeline::Timeline},
    service::Engine,
};

/// Cameras, and prompts on each frame of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CameraLoad {
    cameras: usize,
    prompts: usize,
}

const fn load(cameras: usize, prompts: usize) -> CameraLoad {
    CameraLoad { cameras, prompts }
}

const LOADS: [CameraLoad; 6] = [
    load(1, 1),
    load(1, 2),
    load(1, 4),
    load(1, 8),
    load(4, 4),
    load(16, 4),
];
/// The load whose timeline is kept, at depth 2.
const TRACED: CameraLoad = load(4, 4);
/// Turns of each depth; both alternate, so that a machine that slows down slows both.
const TURNS: usize = 2;
/// Frames between the first frames of two cameras, so that they do not all show the same.
const APART: usize = 5;

/// One load at both depths.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineCamerasRow {
    /// Cameras, each with one look in the engine at a time.
    pub cameras: usize,
    /// Detect prompts on each frame.
    pub prompts: usize,
    /// Depth 1.
    pub blocking: DepthRun,
    /// Depth 2.
    pub pipelined: DepthRun,
    /// Gain that the cost model predicts from the costs at depth 1 and the zombies at depth 2, if a zombie costs what a row
    /// costs.
    pub predicted_percent: f64,
    /// The same if zombies cost nothing, as on this device.
    pub predicted_free_zombies_percent: f64,
    /// Gain in looks a second.
    pub observed_percent: f64,
}

/// One load at one depth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DepthRun {
    /// Steps in flight.
    pub depth: usize,
    /// Answered looks a second.
    pub looks_per_s: f64,
    /// From a frame to its last answer.
    pub look: Spread,
    #[serde(flatten)]
    pub cost: DepthCost,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineCamerasReport {
    pub model: String,
    /// Looks of each row and depth.
    pub looks: usize,
    pub rows: Vec<EngineCamerasRow>,
}

/// Looks that the progress counts.
pub(super) fn progress_steps(looks: usize) -> usize {
    LOADS.len() * 2 * looks
}

/// Runs every load at both depths; returns the timeline of one of them too. Blocks for all of it.
pub(super) fn cameras(
    build: &mut EngineBuilder,
    looks: usize,
    clock: &dyn Clock,
    progress: &mut ProgressLine,
) -> Result<(EngineCamerasReport, Option<Timeline>), MeasureError> {
    let pictures = StreetMotion::Moving.frames(looks)?;
    let mut engine = |depth| {
        let options = Options {
            depth,
            ..Options::default()
        };
        build(options).map_err(MeasureError::Build)
    };
    let ((blocking, model), (pipelined, _)) = (engine(1)?, engine(2)?);
    let mut engines = [blocking, pipelined];
    let mut timeline = None;
    let mut rows = Vec::new();
    for load in LOADS {
        if load == TRACED {
            engines[1].worker().record();
        }
        let run = LoadRun {
            load,
            pictures: &pictures,
            looks,
            clock,
        };
        let [blocking, pipelined] = run.at_both_depths(&mut engines, progress)?;
        rows.push(row(load, &blocking, &pipelined));
        if load == TRACED {
            timeline = engines[1].worker().timeline().cloned();
        }
    }
    let report = EngineCamerasReport { model, looks, rows };
    Ok((report, timeline))
}

/// The run of one load.
struct LoadRun<'a> {
    load: CameraLoad,
    pictures: &'a Arc<[Picture]>,
    looks: usize,
    clock: &'a dyn Clock,
}

impl LoadRun<'_> {
    /// Both engines in turns.
    fn at_both_depths(
        &self,
        engines: &mut [Engine; 2],
        progress: &mut ProgressLine,
    ) -> Result<[DepthTotals; 2], MeasureError> {
        let mut cameras = [self.cameras()?, self.cameras()?];
        // Every camera's first answer is the draft of its second; the first looks also warm up the machine.
        let mut warm_up = StreetDriver {
            clock: self.clock,
            progress: &mut ProgressLine::silent(),
        };
        for (engine, cameras) in engines.iter_mut().zip(&mut cameras) {
            warm_up.drive(engine, cameras, self.load.cameras)?;
        }
        let mut driver = StreetDriver {
            clock: self.clock,
            progress,
        };
        let mut totals = [DepthTotals::default(), DepthTotals::default()];
        for turn in 0..TURNS {
            let looks = share(self.looks, turn, TURNS);
            for ((engine, cameras), totals) in engines.iter_mut().zip(&mut cameras).zip(&mut totals)
            {
                totals.add_turn(engine, cameras, looks, &mut driver)?;
            }
        }
        Ok(totals)
    }

    fn cameras(&self) -> Result<Vec<StreetCamera>, MeasureError> {
        let camera = |i| {
            let pictures = Arc::clone(self.pictures);
            let tasks = tasks(self.load.prompts);
            let camera = StreetCamera::new(i, tasks, PromptGrouping::Together, pictures)?;
            Ok(camera.starting_at(i * APART))
        };
        (0..self.load.cameras).map(camera).collect()
    }
}

/// Up to eight detect prompts; the first four are the demo's.
pub(in crate::bench) fn tasks(count: usize) -> Vec<Task> {
    let more = ["bicycle", "truck", "bird", "cat"].map(|object| Task::Detect {
        object: object.into(),
    });
    prompts().chain(more).take(count).collect()
}

/// What the turns at one depth add up to.
#[derive(Clone, Debug, Default)]
struct DepthTotals {
    took: Duration,
    look_ms: Vec<f64>,
    sums: StepSums,
}

impl DepthTotals {
    fn add_turn(
        &mut self,
        engine: &mut Engine,
        cameras: &mut [StreetCamera],
        looks: usize,
        driver: &mut StreetDriver,
    ) -> Result<(), MeasureError> {
        let before = engine.worker().work();
        engine.worker().reset_costs();
        let times = driver.drive(engine, cameras, looks)?;
        let after = engine.worker().work();
        self.took += times.took;
        self.look_ms.extend(times.frame_ms);
        self.sums
            .add(engine.worker().costs().clone(), &before, &after);
        Ok(())
    }

    fn report(&self, depth: usize) -> DepthRun {
        DepthRun {
            depth,
            looks_per_s: self.look_ms.len() as f64 / self.took.as_secs_f64(),
            look: Spread::of(self.look_ms.iter().copied()),
            cost: self.sums.cost(),
        }
    }
}

fn row(load: CameraLoad, blocking: &DepthTotals, pipelined: &DepthTotals) -> EngineCamerasRow {
    let sums = &blocking.sums;
    let (blocking, pipelined) = (blocking.report(1), pipelined.report(2));
    EngineCamerasRow {
        cameras: load.cameras,
        prompts: load.prompts,
        predicted_percent: sums.predicted_percent(pipelined.cost.zombies),
        predicted_free_zombies_percent: sums.predicted_percent(0.0),
        observed_percent: percent(pipelined.looks_per_s / blocking.looks_per_s),
        blocking,
        pipelined,
    }
}

impl fmt::Display for EngineCamerasReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "speed, {}; {} looks a row; each camera has one look in the engine at a time\n\
             per step, milliseconds: forward, sampling, bookkeeping, what of it was exposed (the device did nothing\n\
             meanwhile), period, and the device idle: no step from the host, no masks, nothing asked. z: rows of zombies.\n\
             gain of depth 2, percent: predicted from depth 1's costs with z as rows, predicted with z for free (as on this\n\
             device), observed in looks a second\n",
            self.model, self.looks
        )?;
        write!(
            f,
            "{:>7}{:>8}{:>6}{:>9}{:>16}",
            "cameras", "prompts", "depth", "looks/s", "look ms"
        )?;
        for (name, width) in COLUMNS {
            write!(f, "{name:>width$}")?;
        }
        writeln!(f, "{:>22}", "gain %")?;
        for row in &self.rows {
            for run in [&row.blocking, &row.pipelined] {
                write!(f, "{:>7}{:>8}{run}", row.cameras, row.prompts)?;
                if run.depth > 1 {
                    let gains = [
                        row.predicted_percent,
                        row.predicted_free_zombies_percent,
                        row.observed_percent,
                    ];
                    let gain = gains.map(|gain| format!("{gain:+.1}")).join(", ");
                    write!(f, "{gain:>22}")?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for DepthRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>6}{:>9.1}{:>16}{}",
            self.depth,
            self.looks_per_s,
            self.look.to_string(),
            self.cost,
        )
    }
}
