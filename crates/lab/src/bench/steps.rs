//! Costs of steps on a device: images by size and number, rows by number, one step after the other and two in flight.
//!
//! The backend is called as by the engine, but every step is the same, so that its time is that of one kind of work.
//! Each figure is compared with the least arithmetic and memory traffic of the step.

use std::{fmt, time::Duration};

use serde::Serialize;

use super::{
    spread::Spread,
    work::{decoder_mb, kv_mb, look_work, vision_mb},
};
use spotter::ops::machine::Machine;
use spotter_core::{Clock, Mono, Picture, PictureError};
use spotter_engine::{
    model::ModelConfig,
    scheduler::backend::{
        Backend, BackendError, DecoderInput, Feed, ImageJob, KvTable, PageId, Pick, Row, SlotId,
        Step, StepTimes,
    },
};

/// A step of images, each with one prompt.
#[derive(Clone, Copy)]
struct ImageStep {
    images: usize,
    width: usize,
    height: usize,
}

const fn images(images: usize, width: usize, height: usize) -> ImageStep {
    ImageStep {
        images,
        width,
        height,
    }
}

const IMAGE_STEPS: [ImageStep; 7] = [
    images(1, 378, 378),
    images(4, 378, 378),
    images(8, 378, 378),
    images(1, 1280, 720),
    images(4, 1280, 720),
    images(8, 1280, 720),
    images(1, 1920, 1080),
];

/// A step of decoding rows, and the images whose prefixes they share.
#[derive(Clone, Copy)]
struct DecodeStep {
    rows: usize,
    images: usize,
}

const fn decode(rows: usize, images: usize) -> DecodeStep {
    DecodeStep { rows, images }
}

const DECODE_STEPS: [DecodeStep; 6] = [
    decode(1, 1),
    decode(4, 4),
    decode(8, 8),
    decode(16, 8),
    decode(32, 8),
    decode(32, 32),
];

/// A row of a step.
struct StepRow {
    /// Number of the row.
    row: usize,
    /// Number of the image whose prefix it has.
    image: usize,
    /// Images of the step, whose prefixes are in the first pages.
    images: usize,
    /// First position behind the prefix that it computes.
    from: usize,
    /// Positions that it computes.
    tokens: usize,
}

/// Positions of a prompt.
const PROMPT: usize = 10;
/// Steps before the measured ones.
const WARM_UP: usize = 3;
/// Measured steps, at least, for a figure that is compared with others.
pub const STEPS_MIN: usize = 10;

#[derive(Debug, thiserror::Error)]
pub enum StepsError {
    #[error("device: {0}")]
    Backend(#[from] BackendError),
    /// A mistake in this program.
    #[error("drawing a picture: {0}")]
    Picture(#[from] PictureError),
}

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
    /// Load for each figure, of which the last half counts: a hot GPU is slower.
    pub load: Duration,
    /// Measured steps for each figure, at least.
    pub steps_min: usize,
    /// Real time.
    pub clock: &'a dyn Clock,
}

impl Steps<'_> {
    /// Measures every kind of step that fits the device. Blocks for all of it; `done` is called after each.
    pub fn run(&mut self, mut done: impl FnMut()) -> Result<Vec<StepsRow>, StepsError> {
        let limits = self.backend.limits();
        let mut rows = Vec::new();
        for ImageStep {
            images,
            width,
            height,
        } in IMAGE_STEPS
            .into_iter()
            .filter(|step| step.images <= limits.images)
        {
            let bytes = (0..width * height * 3)
                .map(|i| (i * 31 % 255) as u8)
                .collect();
            let picture = Picture::from_rgb(width, height, bytes)?;
            let step = self.image_step(images, &picture);
            let work = look_work(self.config, width, height, &[]).total() * images as f64;
            let what = format!("{images} x {width}x{height}");
            let read_mb = decoder_mb(self.config) + vision_mb(self.config);
            rows.push(self.measure(what, &step, work, read_mb)?);
            done();
        }
        for decode in DECODE_STEPS {
            let Some(step) = self.decode_step(decode) else {
                continue;
            };
            let DecodeStep {
                rows: count,
                images,
            } = decode;
            let what = format!("decode {count}, {images} images");
            let text = &self.config.text;
            let per_row = 2.0
                * (text.n_layers * (4 * text.dim * text.dim + 2 * text.dim * text.ff_dim)) as f64
                * 1e-9;
            let prefixes = images * self.config.prefix_positions();
            let read_mb = decoder_mb(self.config) + kv_mb(self.config, prefixes);
            rows.push(self.measure(what, &step, per_row * count as f64, read_mb)?);
            done();
        }
        Ok(rows)
    }

    /// Number of kinds of steps that fit the device.
    pub fn kinds(&self) -> usize {
        let limits = self.backend.limits();
        let images = IMAGE_STEPS
            .iter()
            .filter(|step| step.images <= limits.images);
        let decodes = DECODE_STEPS
            .iter()
            .filter(|step| self.decode_step(**step).is_some());
        images.count() + decodes.count()
    }

    fn prefix(&self, image: usize) -> Vec<PageId> {
        let limits = self.backend.limits();
        let pages = limits.prefix_positions.div_ceil(limits.page_tokens);
        (0..pages)
            .map(|page| PageId((image * pages + page) as u32))
            .collect()
    }

    fn row(&self, plan: StepRow) -> Row {
        let limits = self.backend.limits();
        let first = self
            .prefix(plan.images)
            .first()
            .map_or(0, |page| page.0 as usize);
        let own = (PROMPT + 1).div_ceil(limits.page_tokens);
        Row {
            inputs: Feed::Host(vec![DecoderInput::Token(7); plan.tokens]),
            position: limits.prefix_positions + plan.from,
            kv: KvTable {
                prefix: self.prefix(plan.image),
                prefix_positions: limits.prefix_positions,
                own: (0..own)
                    .map(|page| PageId((first + plan.row * own + page) as u32))
                    .collect(),
            },
            picks: vec![Pick::CoordOrEnd],
        }
    }

    fn image_step(&self, images: usize, picture: &Picture) -> Step {
        let job = |image| ImageJob {
            picture: picture.clone(),
            pages: self.prefix(image),
            camera: None,
        };
        Step {
            images: (0..images).map(job).collect(),
            rows: (0..images)
                .map(|i| {
                    self.row(StepRow {
                        row: i,
                        image: i,
                        images,
                        from: 0,
                        tokens: PROMPT,
                    })
                })
                .collect(),
        }
    }

    /// `None` when it does not fit. The prefixes are those of the steps before, or zeros.
    fn decode_step(&self, DecodeStep { rows, images }: DecodeStep) -> Option<Step> {
        let limits = self.backend.limits();
        let rows: Vec<Row> = (0..rows)
            .map(|i| {
                self.row(StepRow {
                    row: i,
                    image: i % images,
                    images,
                    from: PROMPT,
                    tokens: 1,
                })
            })
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
    ) -> Result<StepsRow, StepsError> {
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
    fn periods(
        &mut self,
        step: &Step,
        depth: usize,
    ) -> Result<(Spread, Vec<StepTimes>), StepsError> {
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
        writeln!(
            f,
            "{:<22}{:>9}{:>9}{:>9}{:>9}{:>10}{:>11}{:>10}{:>10}{:>9}",
            "step",
            "prepare",
            "encode",
            "forward",
            "decide",
            "blocking",
            "pipelined",
            "GFLOP",
            "TFLOP/s",
            "read MB"
        )?;
        for row in &self.rows {
            writeln!(
                f,
                "{:<22}{:>9.3}{:>9.3}{:>9.3}{:>9.3}{:>10.3}{:>11.3}{:>10.1}{:>10.1}{:>9.0}",
                row.what,
                row.prepare_ms,
                row.encode_ms,
                row.forward_ms,
                row.decide_ms,
                row.blocking.median_ms,
                row.pipelined.median_ms,
                row.gflop,
                row.gflop / row.pipelined.median_ms.max(1e-9),
                row.read_mb,
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::bench::tests::micro_backend;
    use spotter_core::{ManualClock, SystemClock};

    #[test]
    fn every_kind_that_fits_is_measured_at_both_depths() {
        let (mut backend, config) = micro_backend(Arc::new(SystemClock::new()));
        let clock = ManualClock::default();
        let mut steps = Steps {
            backend: backend.as_mut(),
            config: &config,
            load: Duration::ZERO,
            steps_min: 2,
            clock: &clock,
        };
        let (kinds, mut done) = (steps.kinds(), 0);
        let rows = steps.run(|| done += 1).unwrap();
        // The small backend accepts eight rows and four images.
        assert_eq!((rows.len(), kinds, done), (8, 8, 8));
        assert!(rows.iter().all(|row| row.gflop > 0.0 && row.read_mb > 0.0));
        let encoded = rows.iter().filter(|row| !row.what.starts_with("decode"));
        assert!(encoded.clone().count() > 0 && encoded.clone().all(|row| row.encode_ms > 0.0));
    }
}
