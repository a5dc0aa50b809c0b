//! The commands: they build an engine, measure it and print the report.

use std::{
    fmt,
    fs::File,
    io::{self, BufWriter, Write as _},
    num::NonZeroUsize,
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use serde::Serialize;

use spotter::cli::out::{remark, say};

use crate::bench::{
    self, Ceiling, EvalOptions, Load, LoadOptions, LoadPart, MachineCeilings, ProgressLine,
    STEPS_MIN, SoakOptions, SoakSubject, Steps, StepsReport, TrackOptions,
    engine::{EngineOptions, EnginePart, chrome_trace},
};
use crate::{
    args::{CamerasArgs, EngineBenchArgs, EvalArgs, FleetEngine, LoadArgs, SoakArgs, StepsArgs},
    fleet,
};
use spotter::ops::machine::Machine;
use spotter_core::{Clock, SystemClock, config};
use spotter_engine::{
    cpu, cuda,
    gpu_stats::Gauge,
    open::{self, ModelCard, OpenOptions},
    scheduler::timeline::Timeline,
    service::Engine,
};

/// Between two readings of a GPU's power and clock.
const GAUGED_EVERY: Duration = Duration::from_millis(200);

fn open_options() -> OpenOptions {
    OpenOptions::calibrated_by(spotter_street::calibration_pictures)
}

fn build_engine(
    settings: config::ModelSettings,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<(Engine, ModelCard)> {
    Engine::open(&settings, open_options(), Arc::clone(clock)).map_err(anyhow::Error::msg)
}

/// `spotter-lab steps`
pub fn steps(args: &StepsArgs) -> anyhow::Result<()> {
    let load = length(args.seconds)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let settings = args.model.settings();
    let built = open::build_backend(
        &settings,
        args.shape.is_some(),
        open_options(),
        Arc::clone(&clock),
    );
    let mut bare = built.map_err(anyhow::Error::msg)?;
    let mut steps = Steps {
        backend: bare.placed.backend.as_mut(),
        config: &bare.config,
        load,
        steps_min: STEPS_MIN,
        clock: clock.as_ref(),
    };
    let mut progress = ProgressLine::on_stderr("kinds of steps", steps.kinds() as u64);
    let rows = steps.run(|| progress.step())?;
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

/// `spotter-lab load`
pub fn load(args: &LoadArgs) -> anyhow::Result<()> {
    let options = load_options(args)?;
    let trace = args.trace.as_deref().map(Trace::create).transpose()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut settings = args.model.settings();
    let objects = options.objects.iter().copied().max().unwrap_or_default();
    settings.max_objects = settings.max_objects.max(objects as u32);
    let built = open::build_endless_engine(
        &settings,
        args.shape.is_some(),
        open_options(),
        Arc::clone(&clock),
    );
    let (mut engine, card) = built.map_err(anyhow::Error::msg)?;
    let (ceilings, gauge) = ceilings(&settings, &card, options.load, &clock)?;
    let figures = options.figures(engine.worker().limits().rows);
    let mut progress = ProgressLine::on_stderr("figures", figures as u64);
    let load = Load {
        engine: &mut engine,
        clock: clock.as_ref(),
        gauge: gauge.as_ref(),
        ceilings,
        model: card.name.to_string(),
        device: format!("{}, {}", card.device, card.precision),
        permits: card.permits,
    };
    let report = load.run(&options, &mut progress)?;
    if let (Some(trace), Some(timeline)) = (trace, &report.timeline) {
        trace.write(timeline)?;
    }
    print(&report, args.json)
}

fn load_options(args: &LoadArgs) -> anyhow::Result<LoadOptions> {
    let numbers = |list: &[NonZeroUsize]| list.iter().map(|n| n.get()).collect();
    Ok(LoadOptions {
        parts: match args.part.as_slice() {
            [] => LoadPart::ALL.to_vec(),
            some => some.iter().map(|&part| part.into()).collect(),
        },
        sizes: args.size.clone(),
        clients: numbers(&args.clients),
        objects: numbers(&args.objects),
        streams: numbers(&args.streams),
        tokens: args.tokens.get(),
        load: length(args.seconds)?,
    })
}

/// What the engine's device sustains, and its gauge if it is a GPU. Blocks for one load per figure.
fn ceilings(
    settings: &config::ModelSettings,
    card: &ModelCard,
    load: Duration,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<(MachineCeilings, Option<Gauge>)> {
    if card.gpu.is_none() {
        let per_s = cpu::product_gflop_per_s(clock.as_ref()) * 1e-3;
        let ceilings = MachineCeilings {
            product_tflop: Some(Ceiling {
                per_s,
                strain: None,
            }),
            ..MachineCeilings::default()
        };
        return Ok((ceilings, None));
    }
    let index = settings.gpus.first().copied().unwrap_or_default();
    let gauge = Gauge::start(&cuda::open(index)?.uuid, GAUGED_EVERY, Arc::clone(clock));
    let found = cuda::measure_ceilings(index, load, clock.as_ref())?;
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

/// `spotter-lab cameras`
pub fn cameras(args: &CamerasArgs) -> anyhow::Result<()> {
    let mut cameras: Vec<usize> = args.cameras.iter().map(|n| n.get()).collect();
    cameras.sort_unstable();
    cameras.dedup();
    let options = fleet::FleetOptions {
        cameras,
        seconds: args.seconds,
        model: (args.engine == FleetEngine::Model).then(|| args.model.settings()),
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let report = fleet::measure(&options, &clock, |step| remark(step))?;
    print(&report, args.json)
}

/// `spotter-lab soak`. A problem is an error.
pub fn soak(args: &SoakArgs) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let settings = args.model.settings();
    let built = open::build_backend(
        &settings,
        args.shape.is_some(),
        open_options(),
        Arc::clone(&clock),
    );
    let bare = built.map_err(anyhow::Error::msg)?;
    let on_gpu = bare.placed.gpu.is_some();
    let gpu = settings.gpus.first().filter(|_| on_gpu);
    let gpu = gpu.map(|&index| cuda::open(index)).transpose()?;
    let free_mib = || Some(gpu.as_ref()?.free_bytes().ok()? as f64 / f64::from(1 << 20));
    let subject = SoakSubject {
        backend: bare.placed.backend,
        config: bare.config,
        tokenizer: bare.tokenizer,
        exact: !on_gpu,
        device: bare.placed.device,
        model: bare.name,
        clock,
    };
    let options = SoakOptions {
        time: Duration::from_secs(args.seconds),
        looks: u64::MAX,
        seed: args.seed,
    };
    let report = bench::soak(subject, &options, free_mib, |so_far| {
        remark(so_far.line());
    })?;
    print(&report, args.json)?;
    let problems = report.problems();
    anyhow::ensure!(problems.is_empty(), "not sound: {}", problems.join("; "));
    Ok(())
}

/// `spotter-lab engine`
pub fn engine(args: &EngineBenchArgs) -> anyhow::Result<()> {
    if args.looks == 0 {
        bail!("--looks 0: at least one look is needed");
    }
    let parts = match args.part.as_slice() {
        [] => EnginePart::ALL.to_vec(),
        some => some.iter().map(|&part| part.into()).collect(),
    };
    if args.trace.is_some() && !parts.contains(&EnginePart::Cameras) {
        bail!("--trace shows a run of the part `cameras`; add `--part cameras`");
    }
    // Opened now, so that a wrong path is reported before the measurement and not after it.
    let trace = args.trace.as_deref().map(Trace::create).transpose()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let settings = args.model.settings();
    let mut build = |schedule| {
        let options = OpenOptions {
            schedule,
            ..open_options()
        };
        let built = Engine::open(&settings, options, Arc::clone(&clock));
        built.map(|(engine, card)| (engine, card.name.to_string()))
    };
    let options = EngineOptions {
        parts,
        looks: args.looks,
    };
    let mut progress = ProgressLine::on_stderr("looks", options.steps());
    let report = bench::engine::engine(&mut build, &options, &clock, &mut progress)?;
    if let (Some(trace), Some(timeline)) = (trace, &report.timeline) {
        trace.write(timeline)?;
    }
    print(&report, args.json)
}

/// The file of a timeline.
struct Trace<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Trace<'a> {
    fn create(path: &'a Path) -> anyhow::Result<Self> {
        let file = File::create(path);
        let file = file.with_context(|| format!("--trace {}: cannot write", path.display()))?;
        Ok(Self { path, file })
    }

    fn write(self, timeline: &Timeline) -> anyhow::Result<()> {
        let mut file = BufWriter::new(self.file);
        serde_json::to_writer(&mut file, &chrome_trace(timeline))
            .map_err(io::Error::from)
            .and_then(|()| file.flush())
            .with_context(|| format!("--trace {}: cannot write", self.path.display()))
    }
}

/// `spotter-lab eval`
pub fn eval(args: &EvalArgs) -> anyhow::Result<()> {
    if args.scenes == 0 {
        bail!("--scenes 0: at least one scene is needed");
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let (mut engine, card) = build_engine(args.model.settings(), &clock)?;
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
        let mut progress = ProgressLine::on_stderr("looks", options.looks().into());
        let report = bench::track(&mut engine, &options, &mut progress)?;
        return print(&report, args.json);
    }
    let options = EvalOptions {
        model,
        scenes: args.scenes,
        first_seed: args.seed,
        kbit_per_s,
    };
    let mut progress = ProgressLine::on_stderr("scenes", options.scenes);
    let report = bench::eval(&mut engine, &options, &mut progress)?;
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
