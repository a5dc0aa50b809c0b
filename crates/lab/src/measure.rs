//! The commands: they build an engine, measure it and print the report.

use std::{fmt, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use serde::Serialize;

use spotter::cli::{
    args::ModelArgs,
    out::{remark, say},
};

use crate::bench::{
    self, Ceiling, CheckOptions, EvalOptions, LabelOptions, Load, LoadSubject, MachineCeilings,
    ProgressLine, RegionOptions, STEPS_MIN, SoakOptions, SoakSubject, Steps, StepsReport,
    StillOptions, TrackOptions,
};
use crate::{
    args::{
        CamerasArgs, CapacityArgs, EngineBenchArgs, EvalArgs, FleetBenchArgs, LabelsArgs, LoadArgs,
        NoiseShape, RegionsArgs, SoakArgs, StepsArgs, StillArgs,
    },
    cameras,
    capacity::{self, CapacityOptions, REAL, RealOptions},
    fleet::{self, FleetBenchOptions},
};
use spotter::ops::{gpu_stats::Gauge, machine::Machine};
use spotter_config::{self as config, GpuGroup};
use spotter_core::{Clock, ManualClock, SystemClock};
use spotter_engine::{
    cpu, cuda,
    model::{ModelConfig, load_model},
    network::format::Number,
    open::{self, Bare, ModelCard, ModelOpening},
    service::Engine,
};
use spotter_street::calibration_pictures;

/// Between two readings of a GPU's power and clock.
const GAUGED_EVERY: Duration = Duration::from_millis(200);

fn noise(shape: Option<NoiseShape>) -> Option<ModelConfig> {
    shape.and_then(NoiseShape::config)
}

fn real_clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

fn build_backend(
    settings: &config::ModelSettings,
    noise: Option<ModelConfig>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Bare> {
    let bare = open::build_backend(settings, noise, calibration_pictures, Arc::clone(clock));
    bare.map_err(anyhow::Error::msg)
}

pub fn steps(args: &StepsArgs) -> anyhow::Result<()> {
    let load = length(args.seconds)?;
    let clock = real_clock();
    let mut bare = build_backend(&args.model.settings(), noise(args.shape), &clock)?;
    let mut steps = Steps {
        backend: bare.placed.backend.as_mut(),
        config: &bare.config,
        experts: number_of_experts(bare.placed.precision),
        load,
        steps_min: STEPS_MIN,
        clock: clock.as_ref(),
    };
    let rows = steps.run(|row| remark(&row.what))?;
    let report = StepsReport {
        machine: Machine::now(),
        device: format!("{}, {}", bare.placed.device, bare.placed.precision),
        model: bare.name,
        rows,
    };
    print(&report, args.json)
}

fn length(seconds: f64) -> anyhow::Result<Duration> {
    let length = Duration::try_from_secs_f64(seconds);
    length.with_context(|| format!("--seconds {seconds}: no length of time"))
}

pub fn fleet(args: &FleetBenchArgs) -> anyhow::Result<()> {
    let report = fleet::measure(&FleetBenchOptions {
        boxes: args.boxes as usize,
        cameras: args.cameras as usize,
        nats_servers: args.nats.into(),
        length: length(args.minutes * 60.0)?,
        seed: args.seed,
        is_calm: args.calm,
    })?;
    print(&report, args.json)?;
    report.check()
}

pub fn capacity(args: &CapacityArgs) -> anyhow::Result<()> {
    let count = |all: &[std::num::NonZeroUsize]| all.iter().map(|one| one.get()).collect();
    let options = CapacityOptions {
        device: args.device.clone(),
        cameras: count(&args.cameras),
        prompts: count(&args.prompts),
        objects: args.objects.clone(),
        has_query: args.query,
        loads: args.load.clone(),
        looks: args.looks as usize,
    };
    let is_real = |name: &String| name.eq_ignore_ascii_case(REAL);
    if !args.device.as_ref().is_some_and(is_real) {
        let report = capacity::capacity(&options, |row| remark(row))?;
        return print(&report, args.json);
    }
    let model = ModelArgs {
        model: args.model.clone(),
        device: config::DevicePreference::Auto,
        gpus: GpuGroup::one(0),
        precision: args.precision,
        memory: None,
    };
    let real = RealOptions {
        settings: model.settings(),
        noise: noise(args.shape),
        size: args.size,
        time: length(args.seconds)?,
    };
    let report = capacity::real_capacity(&options, &real, |row| remark(row))?;
    print(&report, args.json)
}

pub fn load(args: &LoadArgs) -> anyhow::Result<()> {
    let load = length(args.seconds)?;
    let clock = real_clock();
    let mut settings = args.model.settings();
    let objects = args.objects.iter().max().map_or(0, |n| n.get() as u32);
    settings.max_objects = settings.max_objects.max(objects);
    let built = open::build_endless_engine(
        &settings,
        noise(args.shape),
        calibration_pictures,
        Arc::clone(&clock),
    );
    let (mut engine, card) = built.map_err(anyhow::Error::msg)?;
    let (ceilings, gauge) = ceilings(&card, load, &clock)?;
    let load = Load {
        engine: &mut engine,
        experts: number_of_experts(&card.precision),
        clock: clock.as_ref(),
        gauge: gauge.as_ref(),
        ceilings,
        subject: LoadSubject {
            model: card.name.to_string(),
            device: format!("{}, {}", card.device, card.precision),
            permits: card.permits,
        },
        args,
        load,
    };
    print(&load.run()?, args.json)
}

/// What a device stores experts in. A file in bf16 has twice as much, but released ones are in e4m3.
fn number_of_experts(precision: &str) -> Number {
    match precision {
        "int4" => Number::Int4,
        _ => Number::E4m3,
    }
}

/// What the engine's device sustains, or the first of its GPUs, and the gauge of that GPU. Blocks for one load per figure.
fn ceilings(
    card: &ModelCard,
    load: Duration,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<(MachineCeilings, Option<Gauge>)> {
    let Some(gpu) = card.gpus.first() else {
        let per_s = cpu::product_gflop_per_s(clock.as_ref()) * 1e-3;
        let ceilings = MachineCeilings {
            product_tflop: Some(Ceiling {
                per_s,
                strain: None,
            }),
            ..MachineCeilings::default()
        };
        return Ok((ceilings, None));
    };
    let gauge = Gauge::start(&gpu.uuid, GAUGED_EVERY, Arc::clone(clock));
    let found = cuda::measure_ceilings(gpu.index, load, clock.as_ref())?;
    let ceiling = |sustained: cuda::SustainedSpeed| Ceiling {
        per_s: sustained.per_s,
        strain: gauge
            .as_ref()
            .and_then(|gauge| gauge.between(sustained.from, sustained.to)),
    };
    let ceilings = MachineCeilings {
        product_tflop: Some(ceiling(found.bf16_tflop)),
        fp8_tflop: found.fp8_tflop.map(ceiling),
        copy_gb: Some(ceiling(found.copy_gb)),
    };
    Ok((ceilings, gauge))
}

pub fn cameras(args: &CamerasArgs) -> anyhow::Result<()> {
    let mut cameras: Vec<usize> = args.cameras.iter().map(|n| n.get()).collect();
    cameras.sort_unstable();
    cameras.dedup();
    print(
        &cameras::measure(&cameras, args.seconds, &real_clock())?,
        args.json,
    )
}

/// `spotter-lab soak`. A problem is an error.
pub fn soak(args: &SoakArgs) -> anyhow::Result<()> {
    let clock = real_clock();
    let bare = build_backend(&args.model.settings(), None, &clock)?;
    let subject = SoakSubject {
        exact: bare.placed.gpus.is_empty(),
        backend: bare.placed.backend,
        config: bare.config,
        tokenizer: bare.tokenizer.context("a model without a tokenizer")?,
        device: bare.placed.device,
        model: bare.name,
        clock,
    };
    let options = SoakOptions {
        time: Duration::from_secs(args.seconds),
        looks: u64::MAX,
        seed: args.seed,
    };
    let report = bench::soak(subject, &options, |so_far| remark(so_far.line()))?;
    print(&report, args.json)?;
    let problems = report.problems();
    anyhow::ensure!(problems.is_empty(), "not sound: {}", problems.join("; "));
    Ok(())
}

pub fn engine(args: &EngineBenchArgs) -> anyhow::Result<()> {
    print(&bench::host(&real_clock())?, args.json)
}

pub fn eval(args: &EvalArgs) -> anyhow::Result<()> {
    if args.scenes == 0 {
        bail!("--scenes 0: at least one scene is needed");
    }
    let opened = Engine::open(&args.model.settings(), calibration_pictures, real_clock());
    let (mut engine, card) = opened.map_err(anyhow::Error::msg)?;
    let model = card.name.to_string();
    let kbit_per_s = (args.bitrate > 0).then_some(args.bitrate);
    if args.track {
        let options = TrackOptions {
            model,
            minutes: args.minutes,
            looks_per_s: args.rate,
            seed: args.seed,
            kbit_per_s,
        };
        let mut progress = ProgressLine::new("looks", options.looks().into());
        let report = bench::track(&mut engine, &options, &mut progress)?;
        return print(&report, args.json);
    }
    let options = EvalOptions {
        model,
        scenes: args.scenes,
        first_seed: args.seed,
        kbit_per_s,
    };
    let mut progress = ProgressLine::new("scenes", options.scenes);
    let report = bench::eval(&mut engine, &options, &mut progress)?;
    print(&report, args.json)
}

/// `spotter-lab labels`
pub fn labels(args: &LabelsArgs) -> anyhow::Result<()> {
    let options = LabelOptions {
        folder: args.folder.clone(),
        scenes: args.scenes,
        first_seed: args.seed,
        kbit_per_s: (args.bitrate > 0).then_some(args.bitrate),
    };
    let mut progress = ProgressLine::new("scenes", options.scenes);
    bench::write_labels(&options, &mut progress)
}

/// `spotter-lab regions`
pub fn regions(args: &RegionsArgs) -> anyhow::Result<()> {
    let clock = real_clock();
    let opened = Engine::open(
        &args.model.settings(),
        calibration_pictures,
        Arc::clone(&clock),
    );
    let (mut engine, card) = opened.map_err(anyhow::Error::msg)?;
    let options = RegionOptions {
        model: card.name.to_string(),
        scenes: args.scenes,
        first_seed: args.seed,
        far: args.far,
        picture: (args.size.0 as u32, args.size.1 as u32),
        region_px: args.region,
    };
    let mut progress = ProgressLine::new("scenes", options.scenes);
    let report = bench::regions(&mut engine, &options, clock.as_ref(), &mut progress)?;
    print(&report, args.json)
}

/// `spotter-lab still`
pub fn still(args: &StillArgs) -> anyhow::Result<()> {
    if !args.check {
        let options = StillOptions {
            sizes: args.size.clone(),
            kbit_per_s: args.bitrate.clone(),
            scenes: args.scene.clone(),
            videos: args.video.clone(),
            seconds: args.seconds,
        };
        return print(&bench::still(&options, |row| remark(row))?, args.json);
    }
    if args.scenes == 0 {
        bail!("--scenes 0: at least one scene is needed");
    }
    let kbit_per_s = args.bitrate.first().copied();
    let options = CheckOptions {
        scenes: args.scenes,
        first_seed: args.seed,
        kbit_per_s: kbit_per_s.context("--bitrate: no bit rate")?,
    };
    let settings = args.model.settings();
    let mut loaded = load_model(&settings.source).map_err(|e| anyhow::Error::msg(e.to_string()))?;
    if settings.source == config::ModelSource::Embedded {
        loaded.config.vision.max_crops = args.tiles as usize;
    }
    let device = open::choose_one(&settings).map_err(anyhow::Error::msg)?;
    // Times are of no importance, so none passes.
    let clock = Arc::new(ManualClock::default());
    let opened = Engine::open_on(ModelOpening {
        device,
        settings: &settings,
        adapter_slots: 0,
        loaded,
        calibration: calibration_pictures,
        clock,
    });
    let (mut engine, card) = opened.map_err(anyhow::Error::msg)?;
    let mut progress = ProgressLine::new("scenes", options.scenes);
    let report = bench::check_still(&mut engine, &card.name, &options, &mut progress)?;
    print(&report, args.json)
}

fn print(report: &(impl fmt::Display + Serialize), as_json: bool) -> anyhow::Result<()> {
    if as_json {
        say(serde_json::to_string_pretty(report)?)?;
    } else {
        say(report)?;
    }
    Ok(())
}
