//! Detect requests in a closed loop: by size, clients and objects; by prompts; on a picture that stays the same.

use super::{
    LoadBench,
    closed::{Clients, CountWindow, closed_loop},
    frames::{noise, still_street},
    rows::{LoadRow, PromptsRow, SteadyRow},
};
use crate::bench::{
    ask::MeasureError,
    engine::tasks,
    spread::Spread,
    work::{DetectWork, LookWork, decoder_mb, kv_mb, look_work},
};
use spotter_core::{CameraId, Look, Picture, Task};
use spotter_engine::scheduler::{Options, request::Decide, sequence::Bounds};

/// Prompts on one frame.
pub(super) const PROMPTS: [usize; 4] = [1, 2, 4, 8];
/// Prompts of the steady scene: those of the demo's camera.
const STEADY_PROMPTS: usize = 4;

/// Without reuse of earlier answers or pictures.
const FRESH: Options = Options {
    depth: 2,
    decide: Decide::Device,
    draft: false,
    tile_reuse: false,
};

/// The requests of a figure.
#[derive(Clone, Copy)]
struct LoadCase {
    size: (usize, usize),
    clients: usize,
    prompts: usize,
    objects: usize,
}

impl LoadBench<'_> {
    /// Every size with every number of clients and objects.
    pub(super) fn looks(&mut self) -> Result<Vec<LoadRow>, MeasureError> {
        let options = self.options;
        let mut rows = Vec::new();
        for &size in &options.sizes {
            let frames = noise(size.0, size.1)?;
            for &objects in &options.objects {
                for &clients in &options.clients {
                    let case = LoadCase {
                        size,
                        clients,
                        prompts: 1,
                        objects,
                    };
                    rows.push(self.figure(case, &frames, FRESH)?.0);
                }
            }
        }
        Ok(rows)
    }

    /// Prompts on one frame, one client.
    pub(super) fn prompts(&mut self) -> Result<Vec<PromptsRow>, MeasureError> {
        let size = self.options.scene_size();
        let frames = noise(size.0, size.1)?;
        let objects = self.options.objects.first().copied().unwrap_or(1);
        let mut rows: Vec<PromptsRow> = Vec::new();
        for prompts in PROMPTS {
            let case = LoadCase {
                size,
                clients: 1,
                prompts,
                objects,
            };
            let (load, _) = self.figure(case, &frames, FRESH)?;
            let one = rows.first().map_or(&load, |row| &row.load).latency;
            let ratio = load.latency.median_ms / one.median_ms;
            rows.push(PromptsRow { load, ratio });
        }
        Ok(rows)
    }

    /// The still street, without and with reuse.
    pub(super) fn steady(&mut self) -> Result<Vec<SteadyRow>, MeasureError> {
        let options = self.options;
        let size = options.scene_size();
        let frames = [still_street(size.0, size.1)?];
        let objects = options.objects.last().copied().unwrap_or(1);
        let mut rows = Vec::new();
        for &clients in &options.clients {
            for reuse in [false, true] {
                let case = LoadCase {
                    size,
                    clients,
                    prompts: STEADY_PROMPTS,
                    objects,
                };
                let options = Options {
                    draft: reuse,
                    tile_reuse: reuse,
                    ..FRESH
                };
                let (load, window) = self.figure(case, &frames, options)?;
                rows.push(steady_row(reuse, load, &window));
            }
        }
        Ok(rows)
    }

    fn figure(
        &mut self,
        case: LoadCase,
        frames: &[Picture],
        options: Options,
    ) -> Result<(LoadRow, CountWindow), MeasureError> {
        let bounds = Bounds {
            max_objects: case.objects,
            max_tokens: 1,
        };
        self.engine.restart(bounds, options);
        let tasks = tasks(case.prompts);
        let mut cameras = LoadCameras::new(case.clients, &tasks, frames)?;
        let clients = Clients {
            count: case.clients,
            next: &mut |client| Ok(cameras.look(client)),
            objects: case.objects,
        };
        let window = closed_loop(self.engine, clients, self.options.load, self.clock)?;
        self.progress.step();
        self.timeline = Some(window.timeline.clone());
        Ok((self.row(case, &tasks, &window), window))
    }

    fn row(&self, case: LoadCase, tasks: &[Task], window: &CountWindow) -> LoadRow {
        let (requests, seconds) = (window.request_ms.len(), window.seconds());
        let per_s = requests as f64 / seconds.max(1e-9);
        let steps = window.count(|work| work.steps) as f64;
        let busy = window.busy().as_secs_f64();
        let work = self.work(case, tasks);
        let gflop = work.total();
        let tflop_per_s = gflop * per_s * 1e-3;
        let ceilings = self.ceilings;
        let strain = self
            .gauge
            .and_then(|gauge| gauge.between(window.from, window.to));
        LoadRow {
            size: case.size,
            clients: case.clients,
            prompts: case.prompts,
            objects: case.objects,
            counters: window.counters,
            requests,
            requests_per_s: per_s,
            latency: Spread::of(window.request_ms.iter().copied()),
            steps_per_request: steps / requests.max(1) as f64,
            busy_percent: 100.0 * busy / seconds.max(1e-9),
            idle_ms_per_step: (seconds - busy) * 1e3 / steps.max(1.0),
            gflop,
            tflop_per_s,
            of_ceiling_percent: ceilings
                .product_tflop
                .map(|ceiling| 100.0 * tflop_per_s / ceiling.per_s),
            floor_ms: ceilings.product_ms(gflop),
            floor_fp8_ms: ceilings.fp8_ms(gflop),
            floor_alone_ms: self.floor_alone_ms(case.objects, &work),
            strain,
            joules: strain.and_then(|s| s.power_w).map(|watts| watts / per_s),
        }
    }

    fn work(&self, case: LoadCase, tasks: &[Task]) -> LookWork {
        let (config, tokenizer) = self.engine.model();
        let detect = |task| DetectWork {
            tokens: config
                .family
                .prompt(task, config, tokenizer)
                .map_or(0, |prompt| prompt.inputs.len()),
            boxes: case.objects,
        };
        let detects: Vec<DetectWork> = tasks.iter().map(detect).collect();
        look_work(config, case.size.0, case.size.1, &detects)
    }

    fn floor_alone_ms(&self, objects: usize, work: &LookWork) -> Option<f64> {
        let (config, _) = self.engine.model();
        let read_mb = decoder_mb(config) + kv_mb(config, config.prefix_positions());
        // The prompt's prefill decides the first x.
        let steps = (3 * objects - 1) as f64;
        let first = work.vision + work.prefix + work.prompts;
        Some(self.ceilings.product_ms(first)? + self.ceilings.read_ms(steps * read_mb)?)
    }
}

fn steady_row(reuse: bool, load: LoadRow, window: &CountWindow) -> SteadyRow {
    let each = |count: u64| count as f64 / load.requests.max(1) as f64;
    SteadyRow {
        reuse,
        crops_encoded: each(window.count(|work| work.crops_encoded)),
        crops_reused: each(window.count(|work| work.crops_reused)),
        drafted: each(window.count(|work| work.drafted)),
        accepted: each(window.count(|work| work.accepted)),
        load,
    }
}

/// A camera for each client. They share one pool of frames, so that no two requests in a row have the same frame unless the
/// pool has only one.
struct LoadCameras<'a> {
    looks: Vec<Look>,
    frames: &'a [Picture],
    shown: usize,
}

impl<'a> LoadCameras<'a> {
    fn new(count: usize, tasks: &[Task], frames: &'a [Picture]) -> Result<Self, MeasureError> {
        let look = |client| {
            let mut look = Look::still(frames[0].clone(), tasks.iter().cloned())?;
            look.frame.camera = CameraId::new(&format!("client-{client}"))?;
            Ok::<Look, MeasureError>(look)
        };
        let looks = (0..count).map(look).collect::<Result<_, _>>()?;
        Ok(Self {
            looks,
            frames,
            shown: 0,
        })
    }

    fn look(&mut self, client: usize) -> Look {
        self.shown += 1;
        let mut look = self.looks[client].clone();
        look.frame.number = self.shown as u64;
        look.frame.picture = self.frames[self.shown % self.frames.len()].clone();
        look
    }
}
