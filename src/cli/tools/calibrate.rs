//! `spotter model calibrate`: what the user's pictures show of a model's layers, for fp8 and int8.

use std::path::PathBuf;

use anyhow::Context as _;

use super::pictures::{pictures_in, spread};
use crate::cli::{
    args::ModelCalibrateArgs,
    ask,
    out::{remark, say},
};
use spotter_config::{Environment, ModelSource};
use spotter_core::Picture;
use spotter_engine::{
    cpu,
    model::{self, CalibrationState, ModelCalibration},
};

/// More pictures show hardly larger values, and their states would fill the memory: 30 MB each.
const PICTURES_MAX: usize = 32;
/// Blocks between two lines of progress.
const PROGRESS_EVERY: usize = 5;
/// Layers whose errors are shown.
const SHOWN: usize = 5;

/// Blocks for minutes with a Moondream 2.
pub fn calibrate(args: &ModelCalibrateArgs) -> anyhow::Result<()> {
    let directory = directory(args)?;
    let paths = pictures_in(&args.pictures)?;
    let pictures = spread(&paths, PICTURES_MAX).into_iter();
    let pictures = pictures.map(|path| ask::load(path));
    let pictures: Vec<Picture> = pictures.collect::<anyhow::Result<_>>()?;
    let model = model::load_model(&ModelSource::Directory(directory.clone()))?;
    remark(format_args!(
        "{}: measuring {} pictures in f32 on the CPU, which takes a Moondream 2 a minute or more each on few cores",
        model.name,
        pictures.len()
    ));
    let mut progress = |cpu::MeasuredBlocks { done, all }| {
        if done % PROGRESS_EVERY == 0 || done == all {
            remark(format_args!("block {done} of {all}"));
        }
    };
    let measured = cpu::measure_layers(&model.config, model.weights, &pictures, &mut progress)?;
    let errors = measured.by_error();
    let path = directory.join(ModelCalibration::FILE);
    measured
        .write(&directory, &model.weights_sha256, &model.config)
        .with_context(|| format!("writing {}", path.display()))?;
    say(CalibrationState::Measured(measured).about_int8("bf16"))?;
    say("the largest errors in int8:")?;
    for (layer, error) in errors.into_iter().take(SHOWN) {
        say(format_args!("{:>6.2} %  {layer}", 100.0 * error))?;
    }
    say(format_args!(
        "{}: written; fp8 and int8 use it from the next start on",
        path.display()
    ))
}

/// The model that is calibrated. The embedded one has no directory.
fn directory(args: &ModelCalibrateArgs) -> anyhow::Result<PathBuf> {
    let fetched = || Environment::process().fetched_model();
    args.model.clone().or_else(fetched).context(
        "no model was fetched, and the embedded one cannot be calibrated; run `spotter model get moondream2`, or name a model directory with --model",
    )
}
