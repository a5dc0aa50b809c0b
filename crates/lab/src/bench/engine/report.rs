//! Runs the chosen parts in their order and collects their reports.

use std::{fmt, sync::Arc};

use serde::Serialize;

use super::{
    cameras::{self, EngineCamerasReport},
    host::{self, HostReport},
    pipeline::{PipelineReport, pipeline},
    street::{self, StreetReport},
    street_camera::EngineBuilder,
};
use crate::bench::{ask::MeasureError, progress::ProgressLine};
use spotter::ops::machine::Machine;
use spotter_core::Clock;
use spotter_engine::{scheduler::timeline::Timeline, service::EngineError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnginePart {
    /// Gains on a simulated device, compared with published ones.
    Published,
    /// The host's work for a step.
    Step,
    /// Work saved on the demo's street.
    Street,
    /// Speed by prompts, cameras and depth.
    Cameras,
}

impl EnginePart {
    pub const ALL: [Self; 4] = [Self::Published, Self::Step, Self::Street, Self::Cameras];
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    pub parts: Vec<EnginePart>,
    /// Frames or looks of each row that the model answers.
    pub looks: usize,
}

impl EngineOptions {
    fn has(&self, part: EnginePart) -> bool {
        self.parts.contains(&part)
    }

    /// Steps of the progress line; the parts without a model take a second.
    pub fn steps(&self) -> u64 {
        let steps = |part| match part {
            EnginePart::Published | EnginePart::Step => 0,
            EnginePart::Street => street::progress_steps(self.looks),
            EnginePart::Cameras => cameras::progress_steps(self.looks),
        };
        let all = EnginePart::ALL.into_iter().filter(|&part| self.has(part));
        all.map(steps).sum::<usize>() as u64
    }
}

/// `Display` gives the tables, serde the JSON. A part that was not chosen is `None`.
#[derive(Clone, Debug, Serialize)]
pub struct EngineReport {
    pub machine: Machine,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<PipelineReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<HostReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub street: Option<StreetReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cameras: Option<EngineCamerasReport>,
    /// Four cameras at depth 2, of [`EnginePart::Cameras`].
    #[serde(skip)]
    pub timeline: Option<Timeline>,
}

/// Measures the parts in their order. Blocks for all of it.
pub fn engine(
    build: &mut EngineBuilder,
    options: &EngineOptions,
    clock: &Arc<dyn Clock>,
    progress: &mut ProgressLine,
) -> Result<EngineReport, MeasureError> {
    let mut report = EngineReport {
        machine: Machine::now(),
        published: None,
        step: None,
        street: None,
        cameras: None,
        timeline: None,
    };
    if options.has(EnginePart::Published) {
        let fatal = |e| MeasureError::Engine(EngineError::Device(e));
        report.published = Some(pipeline().map_err(fatal)?);
    }
    if options.has(EnginePart::Step) {
        report.step = Some(host::host(clock)?);
    }
    if options.has(EnginePart::Street) {
        let street = street::street(build, options.looks, clock.as_ref(), progress)?;
        report.street = Some(street);
    }
    if options.has(EnginePart::Cameras) {
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
