//! The arguments of `spotter bench` and what it can measure. What `--help` shows is written here.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use super::args::ModelArgs;
use crate::bench::{LoadPart, engine::Part};

/// `spotter bench`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    /// What is measured; looks when absent
    #[command(subcommand)]
    pub what: Option<BenchWhat>,
    /// Looks to measure for each row of the table
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub looks: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which model
    #[command(flatten)]
    pub model: ModelArgs,
}

/// What `spotter bench` can measure besides looks.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchWhat {
    /// Measure the pipelined engine: what it gains over a blocking one, what it saves, what it costs (two minutes)
    Engine(BenchEngineArgs),
    /// Measure the engine under load, beside what the device sustains: requests by size, clients and objects, several
    /// prompts, a scene that stands still, text (five minutes)
    Load(BenchLoadArgs),
    /// Measure the device alone: images by size, rows by number, one step after the other and two in flight
    Steps(BenchStepsArgs),
    /// Measure what cameras cost: processor time, memory, and whether their frames stay in time (two minutes)
    Cameras(BenchCamerasArgs),
    /// The cameras of `bench cameras`, which starts this
    #[command(hide = true)]
    ServeCameras {
        /// How many
        cameras: usize,
    },
    /// Test that the engine stays right and alive under everything at once: chance, cancels, deadlines, too little memory
    Soak(BenchSoakArgs),
}

/// `spotter bench cameras`
#[derive(Clone, Debug, Args)]
pub struct BenchCamerasArgs {
    /// How many cameras, one number after the other
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "1,8,16"
    )]
    pub cameras: Vec<NonZeroUsize>,
    /// How long the most cameras are measured, seconds; a slow growth of delay or memory shows within an hour
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// What answers the looks
    #[arg(long, value_enum, default_value = "sim")]
    pub engine: FleetEngine,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which model, with `--engine model`
    #[command(flatten)]
    pub model: ModelArgs,
}

/// What answers the looks of `spotter bench cameras`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FleetEngine {
    /// A simulated device, which costs next to nothing: the figures are those of the cameras
    Sim,
    /// The model, whose cost is added
    Model,
}

/// `spotter bench soak`
#[derive(Clone, Debug, Args)]
pub struct BenchSoakArgs {
    /// How long, seconds
    #[arg(long, value_name = "N", default_value_t = 600)]
    pub seconds: u64,
    /// Seed of all chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Noise in the shape of a model instead of a model: tests load and memory, but hardly the answers
    #[arg(long, value_enum, conflicts_with = "model")]
    pub shape: Option<Shape>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which model
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `spotter bench steps`
#[derive(Clone, Debug, Args)]
pub struct BenchStepsArgs {
    /// Noise in the shape of a model instead of a model: speed does not depend on what weights say
    #[arg(long, value_enum, conflicts_with = "model")]
    pub shape: Option<Shape>,
    /// Seconds of load for each figure; a card that gets hot is slower after some
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    pub seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which model
    #[command(flatten)]
    pub model: ModelArgs,
}

/// Shapes of models.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shape {
    /// Moondream 2
    Moondream2,
}

/// `spotter bench load`
#[derive(Clone, Debug, Args)]
pub struct BenchLoadArgs {
    /// Measure this part only; may be given several times
    #[arg(long, value_enum, value_name = "PART")]
    pub part: Vec<BenchLoadPart>,
    /// Noise in the shape of a model instead of a model: speed does not depend on what weights say
    #[arg(long, value_enum, conflicts_with = "model")]
    pub shape: Option<Shape>,
    /// Frames, pixels across and down
    #[arg(long, value_name = "WxH,…", value_delimiter = ',', value_parser = size,
        default_value = "378x378,640x360,1280x720,1920x1080")]
    pub size: Vec<(usize, usize)>,
    /// Clients, each of which asks again as soon as it is answered
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "1,4,16,32"
    )]
    pub clients: Vec<NonZeroUsize>,
    /// Objects that every answer has
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,5")]
    pub objects: Vec<NonZeroUsize>,
    /// Streams of text; more than the device has rows for are left out
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "1,8,32"
    )]
    pub streams: Vec<NonZeroUsize>,
    /// Tokens of each answer in text
    #[arg(long, value_name = "N", default_value = "110")]
    pub tokens: NonZeroUsize,
    /// Seconds of load for each figure, of which the last half counts; a card that gets hot is slower after some
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    pub seconds: f64,
    /// Write a timeline of host and device of the last figure for ui.perfetto.dev
    #[arg(long, value_name = "JSON")]
    pub trace: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which model; its answers end at their bounds alone
    #[command(flatten)]
    pub model: ModelArgs,
}

/// Parts of `spotter bench load`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum BenchLoadPart {
    /// Requests with one prompt, by size, objects and clients
    Looks,
    /// 1, 2, 4 and 8 prompts on one frame
    Prompts,
    /// The street standing still, draft and tile reuse off and on
    Steady,
    /// Text of several streams, blocking against pipelined, with the cost model's figures
    Text,
}

impl From<BenchLoadPart> for LoadPart {
    fn from(part: BenchLoadPart) -> Self {
        match part {
            BenchLoadPart::Looks => Self::Looks,
            BenchLoadPart::Prompts => Self::Prompts,
            BenchLoadPart::Steady => Self::Steady,
            BenchLoadPart::Text => Self::Text,
        }
    }
}

/// `1280x720`
fn size(text: &str) -> Result<(usize, usize), String> {
    let wrong = || format!("{text:?} is no size; write it like 1280x720");
    let (width, height) = text.split_once('x').ok_or_else(wrong)?;
    let pixels = |side: &str| side.parse::<NonZeroUsize>().map(NonZeroUsize::get);
    match (pixels(width), pixels(height)) {
        (Ok(width), Ok(height)) => Ok((width, height)),
        _ => Err(wrong()),
    }
}

/// `spotter bench engine`
#[derive(Clone, Debug, Args)]
pub struct BenchEngineArgs {
    /// Measure this part only; may be given several times
    #[arg(long, value_enum, value_name = "PART")]
    pub part: Vec<BenchPart>,
    /// Looks to measure for each row of `street` and `cameras`
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub looks: usize,
    /// Write a timeline of host and device (four cameras, depth 2) for ui.perfetto.dev
    #[arg(long, value_name = "JSON")]
    pub trace: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which model
    #[command(flatten)]
    pub model: ModelArgs,
}

/// Parts of `spotter bench engine`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum BenchPart {
    /// Depth 2 against depth 1 on a simulated device with published step costs
    Published,
    /// The host's work for a step of 32 rows, on a simulated device
    Step,
    /// Work saved on the demo's street, each feature off and on
    Street,
    /// Looks a second by prompts, cameras and depth, with the cost model's figures
    Cameras,
}

impl From<BenchPart> for Part {
    fn from(part: BenchPart) -> Self {
        match part {
            BenchPart::Published => Self::Published,
            BenchPart::Step => Self::Step,
            BenchPart::Street => Self::Street,
            BenchPart::Cameras => Self::Cameras,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_they_are_written() {
        assert_eq!(size("1280x720"), Ok((1280, 720)));
        for wrong in ["1280", "0x720", "1280x", "-1x5", "1280x720x3"] {
            let told = size(wrong).unwrap_err();
            assert!(told.contains("like 1280x720"), "{told}");
        }
    }
}
