//! Costs of steps on a device: images by size and number, rows by number, one step after the other and two in flight.
//!
//! The backend is called as by the engine, but every step is the same, so that its time is that of one kind of work.
//! Each figure is compared with the least arithmetic and memory traffic of the step.

use std::{fmt, ops::Range, sync::Arc, time::Duration};

use serde::Serialize;

use super::{Spread, table::TextTable};
use spotter::ops::machine::Machine;
use spotter_core::{Clock, Mono, Picture};
use spotter_engine::{
    model::{ModelConfig, tiling},
    network::{cost::ModelWork, format::Number},
    scheduler::backend::{
        Backend, DecoderInput, Feed, ImageJob, KvTable, PageId, Pick, Row, SlotId, Step, StepTimes,
    },
};

/// Steps of images, each with one prompt: their number, pixels across and down.
const IMAGE_STEPS: [(usize, usize, usize); 7] = [
    (1, 378, 378),
    (4, 378, 378),
    (8, 378, 378),
    (1, 1280, 720),
    (4, 1280, 720),
    (8, 1280, 720),
    (1, 1920, 1080),
];

/// Steps of decoding rows: their number, and the number of images whose prefixes they share.
const DECODE_STEPS: [(usize, usize); 6] = [(1, 1), (4, 4), (8, 8), (16, 8), (32, 8), (32, 32)];

/// Positions of a prompt.
const PROMPT: usize = 10;
/// Steps before the measured ones.
const WARM_UP: usize = 3;
/// Measured steps, at least, for a figure that is compared with others.
pub const STEPS_MIN: usize = 10;

/// One kind of step; parts are milliseconds of the device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepsRow {
    pub what: String,
    pub prepare_ms: f64,
    pub encode_ms: f64,
    /// Forward pass of prefixes and rows.
    pub forward_ms: f64,
    pub decide_ms: f64,
    /// From one step to the next when each is read before the next is launched.
    pub blocking: Spread,
    /// The same with two in flight.
    pub pipelined: Spread,
    /// Arithmetic of the step, GFLOP.
    pub gflop: f64,
    /// Weights, and keys and values of other positions, that it has to read, MB.
    pub read_mb: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepsReport {
    pub machine: Machine,
    pub device: String,
    pub model: String,
    pub rows: Vec<StepsRow>,
}

pub struct Steps<'a> {
    pub backend: &'a mut dyn Backend,
    /// Dimensions of the model on it.
    pub config: &'a ModelConfig,
    /// What it stores experts in.
    pub experts: Number,
    /// Load for each figure, of which the last half counts: a hot GPU is slower.
    pub load: Duration,
    /// Measured steps for each figure, at least.
    pub steps_min: usize,
    pub clock: &'a dyn Clock,
}

impl Steps<'_> {
    /// Measures every kind of step that fits the device. Blocks for all of it; `done` gets each.
    pub fn run(&mut self, mut done: impl FnMut(&StepsRow)) -> anyhow::Result<Vec<StepsRow>> {
        let limits = self.backend.limits();
        let model = ModelWork::of(self.config.network());
        let mut rows = Vec::new();
        for (images, width, height) in IMAGE_STEPS {
            if images > limits.images {
                continue;
            }
            let bytes = (0..width * height * 3)
                .map(|i| (i * 31 % 255) as u8)
                .collect();
            let picture = Picture::from_rgb(width, height, bytes)?;
            let step = self.image_step(images, &picture);
            let crops = tiling(width, height, &self.config.vision).crops();
            let work = model.look(crops, &[]).total() * images as f64;
            let what = format!("{images} x {width}x{height}");
            let positions = images * self.config.prefix_positions();
            let read_mb = model.decoder_mb(positions, self.experts) + model.vision_mb();
            rows.push(self.measure(what, &step, work, read_mb)?);
            rows.last().into_iter().for_each(&mut done);
        }
        for (count, images) in DECODE_STEPS {
            let Some(step) = self.decode_step(count, images) else {
                continue;
            };
            let what = format!("decode {count}, {images} images");
            let prefixes = images * self.config.prefix_positions();
            let read_mb = model.decoder_mb(count, self.experts) + model.kv_mb(prefixes);
            rows.push(self.measure(what, &step, model.decoder_gflop(count), read_mb)?);
            rows.last().into_iter().for_each(&mut done);
        }
        Ok(rows)
    }

    fn prefix(&self, image: usize) -> Arc<[PageId]> {
        let limits = self.backend.limits();
        let pages = limits.prefix_positions.div_ceil(limits.page_tokens);
        (0..pages)
            .map(|page| PageId((image * pages + page) as u32))
            .collect()
    }

    /// Row number `row` of a step of `images` images with the prefix of one of them; it computes `positions` behind that.
    fn row(&self, row: usize, image: usize, images: usize, positions: Range<usize>) -> Row {
        let limits = self.backend.limits();
        // The prefixes are in the first pages.
        let first = images * limits.prefix_positions.div_ceil(limits.page_tokens);
        let own = (PROMPT + 1).div_ceil(limits.page_tokens);
        Row {
            inputs: Feed::Host(vec![DecoderInput::Token(7); positions.len()]),
            position: limits.prefix_positions + positions.start,
            kv: KvTable {
                prefix: self.prefix(image),
                prefix_positions: limits.prefix_positions,
                own: (0..own)
                    .map(|page| PageId((first + row * own + page) as u32))
                    .collect(),
            },
            picks: vec![Pick::CoordOrEnd],
            adapter: None,
        }
    }

    fn image_step(&self, images: usize, picture: &Picture) -> Step {
        let job = |image| ImageJob {
            view: Default::default(),
            camera: None,
            picture: picture.clone(),
            pages: self.prefix(image),
            crops: Vec::new(),
            adapter: None,
        };
        Step {
            images: (0..images).map(job).collect(),
            rows: (0..images)
                .map(|i| self.row(i, i, images, 0..PROMPT))
                .collect(),
        }
    }

    /// `None` when it does not fit. The prefixes are those of the steps before, or zeros.
    fn decode_step(&self, rows: usize, images: usize) -> Option<Step> {
        let limits = self.backend.limits();
        let rows: Vec<Row> = (0..rows)
            .map(|i| self.row(i, i % images, images, PROMPT..PROMPT + 1))
            .collect();
        let pages = rows
            .iter()
            .flat_map(|row| row.kv.prefix.iter().chain(&row.kv.own));
        let fits = rows.len() <= limits.rows
            && pages
                .max()
                .is_some_and(|page| (page.0 as usize) < limits.pages);
        fits.then(|| Step {
            images: Vec::new(),
            rows,
        })
    }

    fn measure(
        &mut self,
        what: String,
        step: &Step,
        gflop: f64,
        read_mb: f64,
    ) -> anyhow::Result<StepsRow> {
        let (blocking, _) = self.periods(step, 1)?;
        let (pipelined, times) = self.periods(step, 2)?;
        let mean = |part: fn(&StepTimes) -> Duration| {
            let sum: Duration = times.iter().map(part).sum();
            sum.as_secs_f64() * 1e3 / times.len().max(1) as f64
        };
        Ok(StepsRow {
            what,
            prepare_ms: mean(|t| t.prepare),
            encode_ms: mean(|t| t.encode),
            forward_ms: mean(|t| t.rows),
            decide_ms: mean(|t| t.sampling),
            blocking,
            pipelined,
            gflop,
            read_mb,
        })
    }

    /// Times between commits, with `depth` steps in flight, and the device's times of the steps that count.
    fn periods(&mut self, step: &Step, depth: usize) -> anyhow::Result<(Spread, Vec<StepTimes>)> {
        let depth = depth.min(self.backend.limits().slots);
        let began = self.clock.now();
        let (mut commits, mut times): (Vec<Mono>, Vec<StepTimes>) = (Vec::new(), Vec::new());
        let mut launched = 0;
        loop {
            let long = self.clock.now().since(began) >= self.load;
            let enough = long && commits.len() >= WARM_UP + self.steps_min;
            if enough && commits.len() == launched {
                break;
            }
            if !enough {
                self.backend
                    .launch(SlotId(launched % depth), step.clone())?;
                launched += 1;
            }
            // Afterwards every part of a step is one launch, as in a daemon that runs for a while.
            while commits.len() < WARM_UP && self.backend.prepare_shape()? {}
            if enough || launched - commits.len() == depth {
                let slot = SlotId(commits.len() % depth);
                times.push(self.backend.commit(slot)?.times);
                commits.push(self.clock.now());
            }
        }
        let from = (commits.len() / 2).max(WARM_UP);
        let periods = commits[from - 1..].windows(2);
        let periods = periods.map(|pair| pair[1].since(pair[0]).as_secs_f64() * 1e3);
        Ok((Spread::of(periods), times.split_off(from)))
    }
}

impl fmt::Display for StepsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}; {}, {}", self.machine, self.model, self.device)?;
        writeln!(
            f,
            "milliseconds a step: parts on the device (mean), from step to step (median); what it needs at least\n"
        )?;
        let cells = |row: &StepsRow| {
            let ms = |ms: f64| format!("{ms:.3}");
            let tflop_per_s = row.gflop / row.pipelined.median_ms.max(1e-9);
            vec![
                ("step", row.what.clone()),
                ("prepare", ms(row.prepare_ms)),
                ("encode", ms(row.encode_ms)),
                ("forward", ms(row.forward_ms)),
                ("decide", ms(row.decide_ms)),
                ("blocking", ms(row.blocking.median_ms)),
                ("pipelined", ms(row.pipelined.median_ms)),
                ("GFLOP", format!("{:.1}", row.gflop)),
                ("TFLOP/s", format!("{tflop_per_s:.1}")),
                ("read MB", format!("{:.0}", row.read_mb)),
            ]
        };
        write!(f, "{}", TextTable::new(self.rows.iter().map(cells)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::bench::tests::micro_parts;
    use spotter_core::{ManualClock, SystemClock};

    #[test]
    fn each_step_kind_that_fits_is_measured_at_both_depths() {
        let (mut backend, config, _) = micro_parts(Arc::new(SystemClock::new()));
        let clock = ManualClock::default();
        let mut steps = Steps {
            backend: backend.as_mut(),
            config: &config,
            experts: Number::E4m3,
            load: Duration::ZERO,
            steps_min: 2,
            clock: &clock,
        };
        let mut done = 0;
        let rows = steps.run(|_| done += 1).unwrap();
        // The small backend accepts eight rows and four images.
        assert_eq!((rows.len(), done), (8, 8));
        assert!(rows.iter().all(|row| row.gflop > 0.0 && row.read_mb > 0.0));
        let encoded = rows.iter().filter(|row| !row.what.starts_with("decode"));
        assert!(encoded.clone().count() > 0 && encoded.clone().all(|row| row.encode_ms > 0.0));
    }
}
