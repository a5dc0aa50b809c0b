//! `spotter bench` and `spotter eval`: builds the engine and prints what the measuring room found.

use std::{fmt, sync::Arc};

use anyhow::bail;
use serde::Serialize;

use super::args::{BenchArgs, BenchWhat, EvalArgs};
use super::out::say;
use crate::{
    app::{self, ModelCard},
    bench::{self, EvalOptions, LooksOptions, Progress},
    config, cpu,
    domain::{Clock, SystemClock},
    front::Engine,
};

fn engine(
    source: config::ModelSource,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<(Engine, ModelCard)> {
    let settings = config::Model::of(source);
    app::build_engine(&settings, Arc::clone(clock)).map_err(anyhow::Error::msg)
}

/// `spotter bench`
pub fn bench(args: &BenchArgs) -> anyhow::Result<()> {
    if let Some(BenchWhat::Engine { json }) = args.what {
        return print(&bench::pipeline()?, json);
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let (mut engine, card) = engine(args.model.source(), &clock)?;
    let options = LooksOptions {
        looks: args.looks,
        model: card.name.to_string(),
        ceiling_gflop_per_s: Some(cpu::product_gflop_per_s(clock.as_ref())),
    };
    let mut progress = Progress::on_stderr("looks", options.steps());
    let report = bench::looks(&mut engine, &options, clock.as_ref(), &mut progress)?;
    print(&report, args.json)
}

/// `spotter eval`
pub fn eval(args: &EvalArgs) -> anyhow::Result<()> {
    if args.scenes == 0 {
        bail!("--scenes 0: at least one scene is needed");
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let (mut engine, card) = engine(args.model.source(), &clock)?;
    let options = EvalOptions {
        model: card.name.to_string(),
        scenes: args.scenes,
        first_seed: args.seed,
        kbit_per_s: (args.bitrate > 0).then_some(args.bitrate),
    };
    let mut progress = Progress::on_stderr("scenes", options.scenes);
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
