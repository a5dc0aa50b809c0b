//! Counts of the work that the engine saves on the demo's street: four prompts on every frame, each feature off and on. Every
//! case gives the same answers.

use std::fmt;

use serde::Serialize;

use super::street_camera::{
    EngineBuilder, PromptGrouping, StreetCamera, StreetDriver, StreetMotion,
};
use crate::bench::{ask::MeasureError, progress::ProgressLine, spread::Spread};
use spotter_core::{Clock, Task};
use spotter_engine::scheduler::{Options, request::Work};

/// The prompts of `configs/demo.toml` that are due on every frame.
const OBJECTS: [&str; 4] = ["person", "car", "red car", "dog"];
/// Cameras that share steps in the case of several looks.
const CAMERAS: usize = 4;

/// The four detect prompts of the demo's camera.
pub(super) fn prompts() -> impl Iterator<Item = Task> + Clone {
    OBJECTS.into_iter().map(|object| Task::Detect {
        object: object.into(),
    })
}

#[derive(Clone, Copy, Debug)]
struct StreetCase {
    name: &'static str,
    grouping: PromptGrouping,
    draft: bool,
    tile_reuse: bool,
    cameras: usize,
}

const OFF: StreetCase = StreetCase {
    name: "nothing shared, all off",
    grouping: PromptGrouping::Apart,
    draft: false,
    tile_reuse: false,
    cameras: 1,
};
const TOGETHER: StreetCase = StreetCase {
    name: "image prefix shared",
    grouping: PromptGrouping::Together,
    ..OFF
};
const ALL_ON: StreetCase = StreetCase {
    name: "  + draft + tile reuse (default)",
    draft: true,
    tile_reuse: true,
    ..TOGETHER
};
const CASES: [StreetCase; 6] = [
    OFF,
    TOGETHER,
    StreetCase {
        name: "  + draft",
        draft: true,
        ..TOGETHER
    },
    StreetCase {
        name: "  + tile reuse",
        tile_reuse: true,
        ..TOGETHER
    },
    ALL_ON,
    StreetCase {
        name: "  default, 4 cameras in a batch",
        cameras: CAMERAS,
        ..ALL_ON
    },
];

/// Work of one case. Everything but the counts of boxes is of a frame with its four prompts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreetRow {
    /// `moving`, `still` or `frozen`.
    pub street: &'static str,
    pub case: &'static str,
    pub frames: usize,
    /// Boxes found in all of them.
    pub boxes: u64,
    /// Crops through the vision encoder.
    pub crops_encoded: f64,
    /// Crops that were reused.
    pub crops_reused: f64,
    /// Positions prefilled: image prefixes, prompts and drafts.
    pub prefill_positions: f64,
    /// Positions of prompts that were in the cache already.
    pub known_positions: f64,
    /// Steps of the device.
    pub steps: f64,
    /// Rows of one position for each box; `None` without boxes.
    pub decode_rows_per_box: Option<f64>,
    /// Decisions offered as drafts, all frames.
    pub drafted: u64,
    /// Of these, confirmed by the model.
    pub accepted: u64,
    /// From the frame to its last answer.
    pub frame_ms: Spread,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreetReport {
    pub model: String,
    /// By street and case.
    pub rows: Vec<StreetRow>,
}

/// Streets of the table.
const STREETS: [StreetMotion; 3] = [
    StreetMotion::Moving,
    StreetMotion::Still,
    StreetMotion::Frozen,
];

/// Frames that the progress counts.
pub(super) fn progress_steps(frames: usize) -> usize {
    STREETS.len() * CASES.len() * frames
}

/// Runs every case on every street, each in a new engine. Blocks for all of it.
pub(super) fn street(
    build: &mut EngineBuilder,
    frames: usize,
    clock: &dyn Clock,
    progress: &mut ProgressLine,
) -> Result<StreetReport, MeasureError> {
    let mut report = StreetReport {
        model: String::new(),
        rows: Vec::new(),
    };
    let mut driver = StreetDriver { clock, progress };
    for motion in STREETS {
        let pictures = motion.frames(frames)?;
        for case in CASES {
            let options = Options {
                draft: case.draft,
                tile_reuse: case.tile_reuse,
                ..Options::default()
            };
            let (mut engine, model) = build(options).map_err(MeasureError::Build)?;
            report.model = model;
            let camera = |i| {
                let tasks = prompts().collect();
                let camera = StreetCamera::new(i, tasks, case.grouping, pictures.clone())?;
                // Together they show what one camera shows.
                Ok::<_, MeasureError>(camera.starting_at(i * frames / case.cameras))
            };
            let cameras: Result<Vec<_>, _> = (0..case.cameras).map(camera).collect();
            let times = driver.drive(&mut engine, &mut cameras?, frames)?;
            let run = CaseRun {
                frames,
                work: engine.worker().work(),
                prefix: engine.model().0.prefix_positions() as u64,
                frame_ms: Spread::of(times.frame_ms),
            };
            report.rows.push(case.row(motion, &run));
        }
    }
    Ok(report)
}

/// What one case did with its frames.
struct CaseRun {
    frames: usize,
    work: Work,
    /// Positions of an image prefix.
    prefix: u64,
    frame_ms: Spread,
}

impl StreetCase {
    fn row(&self, motion: StreetMotion, run: &CaseRun) -> StreetRow {
        let work = &run.work;
        let each = |count: u64| count as f64 / run.frames.max(1) as f64;
        let prefilled = work.images * run.prefix + work.prefill_positions;
        let decodes_per_box = || work.decodes as f64 / work.objects as f64;
        StreetRow {
            street: motion.name(),
            case: self.name,
            frames: run.frames,
            boxes: work.objects,
            crops_encoded: each(work.crops_encoded),
            crops_reused: each(work.crops_reused),
            prefill_positions: each(prefilled),
            known_positions: each(work.known_positions),
            steps: each(work.steps),
            decode_rows_per_box: (work.objects > 0).then(decodes_per_box),
            drafted: work.drafted,
            accepted: work.accepted,
            frame_ms: run.frame_ms,
        }
    }
}

impl fmt::Display for StreetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "work on the demo's street, {}; a frame has four prompts; crops, positions and steps are per frame
\
             known: prompt positions found in the cache. Prompts of one step do not find each other, and looks share none",
            self.model
        )?;
        for motion in STREETS {
            let mut rows = self
                .rows
                .iter()
                .filter(|row| row.street == motion.name())
                .peekable();
            let Some(first) = rows.peek() else { continue };
            writeln!(
                f,
                "\n{:32}{:>8}{:>8}{:>9}{:>7}{:>7}{:>7}{:>12}{:>13}{:>10}",
                format!("{} street, {} frames", first.street, first.frames),
                "encoded",
                "reused",
                "prefill",
                "known",
                "steps",
                "boxes",
                "decodes/box",
                "drafts taken",
                "ms (p50)"
            )?;
            for row in rows {
                writeln!(f, "{row}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for StreetRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decodes = self.decode_rows_per_box;
        let decodes = decodes.map_or_else(|| "-".into(), |rows| format!("{rows:.2}"));
        let taken = match self.drafted {
            0 => "-".into(),
            drafted => format!("{:.0} %", 100.0 * self.accepted as f64 / drafted as f64),
        };
        write!(
            f,
            "{:32}{:>8.2}{:>8.2}{:>9.1}{:>7.1}{:>7.2}{:>7}{decodes:>12}{taken:>13}{:>10.1}",
            self.case,
            self.crops_encoded,
            self.crops_reused,
            self.prefill_positions,
            self.known_positions,
            self.steps,
            self.boxes,
            self.frame_ms.median_ms
        )
    }
}
