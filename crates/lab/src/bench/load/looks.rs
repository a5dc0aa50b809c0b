//! Detect requests in a closed loop: by size, clients and objects; by prompts.

use std::fmt;

use serde::Serialize;

use super::{
    Load,
    closed::{Clients, CountWindow, LoadCounters, closed_loop},
    frames::noise,
};
use crate::bench::{
    Spread,
    table::{TableRow, known},
};
use spotter::{cli::out::remark, ops::strain::Strain};
use spotter_core::{CameraId, Look, Picture, Task};
use spotter_engine::{
    model::tiling,
    network::cost::{DetectWork, LookWork, ModelWork},
    scheduler::{Options, request::Decide, sequence::Bounds},
};

/// Prompts on one frame.
const PROMPTS: [usize; 4] = [1, 2, 4, 8];

/// Without reuse of earlier answers or pictures.
const FRESH: Options = Options {
    depth: 2,
    decide: Decide::Device,
    draft: false,
    reuse: None,
};

/// The requests of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoadCase {
    /// Pixels across and down of the frames.
    pub size: (usize, usize),
    /// Each with one request in the engine at a time.
    pub clients: usize,
    /// Detect prompts of a request.
    pub prompts: usize,
    /// Objects of each answer.
    pub objects: usize,
}

impl fmt::Display for LoadCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, height) = self.size;
        write!(
            f,
            "{width}x{height}, {} objects, {} prompts, {} clients",
            self.objects, self.prompts, self.clients
        )
    }
}

/// Requests of one kind under one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadRow {
    #[serde(flatten)]
    pub case: LoadCase,
    /// Requests of the whole load.
    #[serde(rename = "books")]
    pub counters: LoadCounters,
    /// Requests that count: those that were answered in its last half.
    pub requests: usize,
    /// Per second of the last half.
    pub requests_per_s: f64,
    /// From submission to the answer.
    pub latency: Spread,
    /// Steps of the device, each of which may carry many requests.
    pub steps_per_request: f64,
    /// Share of the time in which the device worked.
    pub busy_percent: f64,
    /// Milliseconds in which it did not work, per step.
    pub idle_ms_per_step: f64,
    /// Arithmetic of a request, GFLOP.
    pub gflop: f64,
    /// Arithmetic of the requests per second, TFLOP.
    pub tflop_per_s: f64,
    /// Of what the device sustains in large products, percent.
    pub of_ceiling_percent: Option<f64>,
    /// Time of the arithmetic at that speed, milliseconds: the least distance between two requests.
    pub floor_ms: Option<f64>,
    /// The same with all of it in fp8.
    pub floor_fp8_ms: Option<f64>,
    /// Least latency of a request alone, milliseconds: arithmetic up to the first decisions, then a step for every further
    /// one, each of which reads the decoder's weights (bf16) and the image's keys and values.
    pub floor_alone_ms: Option<f64>,
    /// Power and clock of the GPU.
    pub strain: Option<Strain>,
    /// Energy of a request, J.
    pub joules: Option<f64>,
}

impl LoadRow {
    pub(super) fn cells(&self) -> TableRow {
        let case = self.case;
        let [floor, fp8] = [self.floor_ms, self.floor_fp8_ms].map(|floor| known(floor, 2));
        let [watts, mhz] = [|s: Strain| s.power_w, |s: Strain| s.sm_mhz]
            .map(|part| known(self.strain.and_then(part), 0));
        vec![
            ("size", format!("{}x{}", case.size.0, case.size.1)),
            ("objects", case.objects.to_string()),
            ("prompts", case.prompts.to_string()),
            ("clients", case.clients.to_string()),
            ("/s", format!("{:.2}", self.requests_per_s)),
            ("ms", self.latency.to_string()),
            ("steps", format!("{:.2}", self.steps_per_request)),
            ("TFLOP/s", format!("{:.1}", self.tflop_per_s)),
            ("%", known(self.of_ceiling_percent, 0)),
            ("floor ms (fp8)", format!("{floor} ({fp8})")),
            ("alone", known(self.floor_alone_ms, 2)),
            ("busy %", format!("{:.1}", self.busy_percent)),
            ("idle/step", format!("{:.3}", self.idle_ms_per_step)),
            ("W", watts),
            ("MHz", mhz),
            ("J", known(self.joules, 1)),
        ]
    }
}

/// One frame with several prompts, one client.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromptsRow {
    #[serde(flatten)]
    pub load: LoadRow,
    /// Median against that of one prompt.
    pub ratio: f64,
}

impl PromptsRow {
    pub(super) fn cells(&self) -> TableRow {
        let mut cells = self.load.cells();
        cells.push(("ratio", format!("{:.2}", self.ratio)));
        cells
    }
}

impl Load<'_> {
    /// Every size with every number of clients and objects.
    pub(super) fn looks(&mut self) -> anyhow::Result<Vec<LoadRow>> {
        let args = self.args;
        let mut rows = Vec::new();
        for &size in &args.size {
            let frames = noise(size.0, size.1)?;
            for &objects in &args.objects {
                for &clients in &args.clients {
                    let case = LoadCase {
                        size,
                        clients: clients.get(),
                        prompts: 1,
                        objects: objects.get(),
                    };
                    rows.push(self.figure(case, &frames, FRESH)?.0);
                }
            }
        }
        Ok(rows)
    }

    /// Prompts on one frame, one client.
    pub(super) fn prompts(&mut self) -> anyhow::Result<Vec<PromptsRow>> {
        let size = self.scene_size();
        let frames = noise(size.0, size.1)?;
        let objects = self.args.objects.first().map_or(1, |n| n.get());
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

    /// The size for the parts with only one: 1280x720 if it is among the sizes, else the first.
    fn scene_size(&self) -> (usize, usize) {
        let usual = (1280, 720);
        match self.args.size.first() {
            Some(&first) if !self.args.size.contains(&usual) => first,
            _ => usual,
        }
    }

    fn figure(
        &mut self,
        case: LoadCase,
        frames: &[Picture],
        options: Options,
    ) -> anyhow::Result<(LoadRow, CountWindow)> {
        remark(case);
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
        let window = closed_loop(self.engine, clients, self.load, self.clock)?;
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
            case,
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
            floor_ms: ceilings.product_tflop.map(|ceiling| ceiling.ms(gflop)),
            floor_fp8_ms: ceilings.fp8_tflop.map(|ceiling| ceiling.ms(gflop)),
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
        let tiling = tiling(case.size.0, case.size.1, &config.vision);
        ModelWork::of(config.network()).look(tiling.crops(), &detects)
    }

    fn floor_alone_ms(&self, objects: usize, work: &LookWork) -> Option<f64> {
        let (config, _) = self.engine.model();
        let model = ModelWork::of(config.network());
        let read_mb = model.decoder_mb(1, self.experts) + model.kv_mb(config.prefix_positions());
        // The prompt's prefill decides the first x.
        let steps = (3 * objects - 1) as f64;
        let first = work.vision + work.prefix + work.prompts;
        let ceilings = self.ceilings;
        Some(ceilings.product_tflop?.ms(first) + ceilings.copy_gb?.ms(steps * read_mb))
    }
}

/// Up to eight detect prompts; the first four are those of the demo's camera.
pub(super) fn tasks(count: usize) -> Vec<Task> {
    let objects = [
        "person", "car", "red car", "dog", "bicycle", "truck", "bird", "cat",
    ];
    let task = |object: &str| Task::Detect {
        object: object.into(),
    };
    objects.into_iter().map(task).take(count).collect()
}

/// A camera for each client. They share one pool of frames, so that no two requests in a row have the same frame unless the
/// pool has only one.
struct LoadCameras<'a> {
    looks: Vec<Look>,
    frames: &'a [Picture],
    shown: usize,
}

impl<'a> LoadCameras<'a> {
    fn new(count: usize, tasks: &[Task], frames: &'a [Picture]) -> anyhow::Result<Self> {
        let look = |client| {
            let mut look = Look::still(frames[0].clone(), tasks.iter().cloned());
            look.frame.camera = CameraId::new(&format!("client-{client}"))?;
            anyhow::Ok(look)
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
