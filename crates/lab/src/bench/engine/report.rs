//! The parts that were asked for, one after the other, and what they found.

use std::{fmt, sync::Arc};

use serde::Serialize;

use super::{
    cameras::{self, CamerasReport},
    host::{self, HostReport},
    pipeline::{PipelineReport, pipeline},
    street::{self, StreetReport},
    watch::Build,
};
use crate::bench::{ask::MeasureError, machine::Machine, progress::Progress};
use spotter_core::Clock;
use spotter_engine::{scheduler::timeline::Timeline, service::EngineError};

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Gains on a simulated device, beside published ones.
    Published,
    /// The host's work for a step.
    Step,
    /// Work saved on the demo's street.
    Street,
    /// Speed by prompts, cameras and depth.
    Cameras,
}

impl Part {
    /// Every part.
    pub const ALL: [Self; 4] = [Self::Published, Self::Step, Self::Street, Self::Cameras];
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Which parts.
    pub parts: Vec<Part>,
    /// Frames or looks of each row that the model answers.
    pub looks: usize,
}

impl EngineOptions {
    fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    /// Looks that the progress counts; the parts without a model take a second.
    pub fn steps(&self) -> u64 {
        let steps = |part| match part {
            Part::Published | Part::Step => 0,
            Part::Street => street::progress_steps(self.looks),
            Part::Cameras => cameras::progress_steps(self.looks),
        };
        let all = Part::ALL.into_iter().filter(|&part| self.has(part));
        all.map(steps).sum::<usize>() as u64
    }
}

/// What is printed; `Display` gives the tables, serde the JSON. A part that was not asked for is `None`.
#[derive(Clone, Debug, Serialize)]
pub struct EngineReport {
    /// Where it ran.
    pub machine: Machine,
    /// [`Part::Published`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<PipelineReport>,
    /// [`Part::Step`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<HostReport>,
    /// [`Part::Street`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub street: Option<StreetReport>,
    /// [`Part::Cameras`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cameras: Option<CamerasReport>,
    /// Four cameras at depth 2, of [`Part::Cameras`].
    #[serde(skip)]
    pub timeline: Option<Timeline>,
}

/// Measures the parts in their order. Blocks for all of it.
pub fn engine(
    build: &mut Build,
    options: &EngineOptions,
    clock: &Arc<dyn Clock>,
    progress: &mut Progress,
) -> Result<EngineReport, MeasureError> {
    let mut report = EngineReport {
        machine: Machine::now(),
        published: None,
        step: None,
        street: None,
        cameras: None,
        timeline: None,
    };
    if options.has(Part::Published) {
        let fatal = |e| MeasureError::Engine(EngineError::Device(e));
        report.published = Some(pipeline().map_err(fatal)?);
    }
    if options.has(Part::Step) {
        report.step = Some(host::host(clock)?);
    }
    if options.has(Part::Street) {
        let street = street::street(build, options.looks, clock.as_ref(), progress)?;
        report.street = Some(street);
    }
    if options.has(Part::Cameras) {
        let (cameras, timeline) = cameras::cameras(build, options.looks, clock.as_ref(), progress)?;
        (report.cameras, report.timeline) = (Some(cameras), timeline);
    }
    report.machine = Machine::now();
    Ok(report)
}

impl fmt::Display for EngineReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        let parts: [Option<&dyn fmt::Display>; 4] = [
            self.published.as_ref().map(|part| part as _),
            self.step.as_ref().map(|part| part as _),
            self.street.as_ref().map(|part| part as _),
            self.cameras.as_ref().map(|part| part as _),
        ];
        for part in parts.into_iter().flatten() {
            write!(f, "\n{part}")?;
        }
        Ok(())
    }
}
