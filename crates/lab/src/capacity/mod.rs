//! `spotter-lab capacity`: what a box answers at every load, through the daemon's own path: on simulated devices in virtual time
//! (below), or on the device of this machine in real time (`real_box`).
//!
//! ```text
//!   devices ─▶ simulated_box ─▶ LookRecords ─▶ figures ─▶ CapacityTable
//! ```
//!
//! Load 1 is the rate of looks that find nothing, one after the other. Each load is run with the learned number of looks in
//! flight, and with every fixed number; the best of these is that with the highest rate whose ages keep to the same bound.
//! With a query, each load is also run without it: free texts may delay no other answer by more than two decode steps.
//! Publishing takes no virtual time: an age ends when the tracker has the answer.

mod cameras;
mod devices;
mod figures;
mod look_log;
mod real_box;
mod simulated_box;

pub use figures::{CapacityRow, CapacityTable};
pub use real_box::{REAL, RealOptions, real_capacity};

use std::time::Duration;

use devices::DeviceProfile;
use figures::{CapacityLoad, QueryFigures, RunFigures};
use simulated_box::{BoxSetup, SimulatedBox, SimulatedModel, budget, time_of_empty_look};
use spotter_engine::service::InFlight;

/// Looks that are run before anything counts: the number in flight is to follow within 20.
const WARM_UP_LOOKS: usize = 100;
/// A box that answers less than a look in this time is measured for as long as its looks would take at this rate.
const LONGEST_LOOK: Duration = Duration::from_millis(750);
/// Of the looks of a run: this many are run one after the other, for the age of a look alone.
const ALONE_PART: usize = 4;
const ALONE_LOAD: f64 = 0.2;
/// Answers may be as old as this many looks alone, or as the budget.
const LOOKS_ALONE: f64 = 2.5;

/// What is measured.
#[derive(Clone, Debug)]
pub struct CapacityOptions {
    /// `None`: all.
    pub device: Option<String>,
    pub cameras: Vec<usize>,
    pub prompts: Vec<usize>,
    pub objects: Vec<u64>,
    /// Each camera also has a question with a free text as its answer.
    pub has_query: bool,
    pub loads: Vec<f64>,
    /// Looks of each run. Ages at the 95th percentile scatter by some percent with 800 of them, by 1 to 2 with 4,000.
    pub looks: usize,
}

/// Runs everything; `progress` gets the name of each device. Blocks. Fails for a device that is not in the file.
pub fn capacity(
    options: &CapacityOptions,
    progress: impl Fn(&str),
) -> anyhow::Result<CapacityTable> {
    let mut rows = Vec::new();
    for setup in setups(options)? {
        let BoxSetup {
            device,
            cameras,
            prompts,
            ..
        } = &setup;
        progress(&format!(
            "{}: {cameras} cameras, {prompts} prompts",
            device.name
        ));
        let runs = Runs {
            looks: options.looks,
        };
        let alone = runs.look_alone(&setup)?;
        for &load in &options.loads {
            rows.push(runs.row(setup.clone(), alone, load)?);
        }
    }
    Ok(CapacityTable { rows })
}

/// Every combination of device, cameras, prompts and objects.
fn setups(options: &CapacityOptions) -> anyhow::Result<Vec<BoxSetup>> {
    let model = SimulatedModel::load()?;
    let mut setups = Vec::new();
    for device in chosen(options.device.as_deref())? {
        for &cameras in &options.cameras {
            for &prompts in &options.prompts {
                setups.extend(options.objects.iter().map(|&objects| BoxSetup {
                    model: model.clone(),
                    device: device.clone(),
                    cameras,
                    prompts,
                    has_query: options.has_query,
                    objects,
                    looks_hz: 0.0,
                    in_flight: InFlight::Fixed(1),
                }));
            }
        }
    }
    Ok(setups)
}

/// The device of this name, or all.
fn chosen(name: Option<&str>) -> anyhow::Result<Vec<DeviceProfile>> {
    let mut all = DeviceProfile::all()?;
    if let Some(name) = name {
        let known: Vec<String> = all.iter().map(|device| device.name.clone()).collect();
        all.retain(|device| device.name.eq_ignore_ascii_case(name));
        anyhow::ensure!(
            !all.is_empty(),
            "--device {name:?}: unknown; known are {}",
            known.join(", ")
        );
    }
    Ok(all)
}

/// What one look costs on a box that has nothing else to do.
#[derive(Clone, Copy)]
struct LookAlone {
    /// One that finds nothing.
    empty: Duration,
    /// What the 95th percentile of ages is to keep to.
    bound: Duration,
}

/// Runs of so many looks each.
#[derive(Clone, Copy, Debug)]
struct Runs {
    looks: usize,
}

impl Runs {
    fn look_alone(self, setup: &BoxSetup) -> anyhow::Result<LookAlone> {
        let empty = time_of_empty_look(setup)?;
        let mean = self.age_alone(setup, empty)?;
        Ok(LookAlone {
            empty,
            bound: budget().max(mean.mul_f64(LOOKS_ALONE)),
        })
    }

    /// Mean age of looks of one camera that asks for few.
    fn age_alone(self, setup: &BoxSetup, empty: Duration) -> anyhow::Result<Duration> {
        let setup = BoxSetup {
            cameras: 1,
            has_query: false,
            looks_hz: ALONE_LOAD / empty.as_secs_f64(),
            in_flight: InFlight::Fixed(1),
            ..setup.clone()
        };
        let mut site = SimulatedBox::new(&setup)?;
        site.run(self.looks / ALONE_PART, self.limit())?;
        let records = site.records();
        let ages = records.iter().map(|look| look.ended.since(look.received));
        Ok(ages.sum::<Duration>() / records.len().max(1) as u32)
    }

    fn row(self, mut setup: BoxSetup, alone: LookAlone, load: f64) -> anyhow::Result<CapacityRow> {
        let bound = alone.bound;
        setup.looks_hz = load / alone.empty.as_secs_f64();
        let permits = setup.device.permits();
        setup.in_flight = InFlight::Learned(permits);
        let learned = self.run(&setup)?;
        let query = match setup.has_query {
            true => {
                let without = BoxSetup {
                    has_query: false,
                    ..setup.clone()
                };
                Some(QueryFigures::of(&setup, &learned, &self.run(&without)?))
            }
            false => None,
        };
        let best = self.best_fixed(&setup, permits, bound)?;
        let load = CapacityLoad {
            device: setup.device.name,
            cameras: setup.cameras,
            prompts: setup.prompts,
            objects: setup.objects,
            load,
            bound,
        };
        let mut row = CapacityRow::new(load, learned, best);
        row.query = query;
        Ok(row)
    }

    /// The fixed number in flight with the highest rate whose ages keep to the bound, if one does.
    fn best_fixed(
        self,
        setup: &BoxSetup,
        permits: usize,
        bound: Duration,
    ) -> anyhow::Result<Option<(usize, RunFigures)>> {
        let mut best: Option<(usize, RunFigures)> = None;
        for looks in 1..=permits {
            let fixed = self.run(&BoxSetup {
                in_flight: InFlight::Fixed(looks),
                ..setup.clone()
            })?;
            let keeps = fixed.p95_ms <= bound.as_secs_f64() * 1e3;
            let is_better = best
                .as_ref()
                .is_none_or(|(_, best)| fixed.looks_per_s > best.looks_per_s);
            if keeps && is_better {
                best = Some((looks, fixed));
            }
        }
        Ok(best)
    }

    fn run(self, setup: &BoxSetup) -> anyhow::Result<RunFigures> {
        let mut site = SimulatedBox::new(setup)?;
        site.run(WARM_UP_LOOKS, self.limit())?;
        let (from, skipped, before) = (site.now(), site.records().len(), site.device_use());
        let texts_before = site.texts().len();
        site.run(self.looks, self.limit())?;
        let records = site.records();
        let took = site.now().since(from);
        let mut figures = RunFigures::of(&records[skipped..], setup.cameras, took);
        figures.texts(&site.texts()[texts_before..], took);
        figures.device(before, site.device_use());
        figures.in_flight = site.in_flight();
        Ok(figures)
    }

    fn limit(self) -> Duration {
        LONGEST_LOOK * self.looks as u32
    }
}

#[cfg(test)]
mod tests;
