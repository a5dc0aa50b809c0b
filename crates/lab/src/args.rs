//! The arguments of `spotter-lab`. What `--help` shows is written here.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::bench::{LoadPart, engine::EnginePart};
use spotter::cli::args::ModelArgs;

/// Measures Spotter: how fast it is, what cameras cost, how right the answers are.
#[derive(Debug, Parser)]
#[command(
    name = "spotter-lab",
    version,
    propagate_version = true,
    max_term_width = 100
)]
pub struct LabArguments {
    /// What is measured.
    #[command(subcommand)]
    pub command: LabCommand,
}

#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Measure the pipelined engine: its gain over a blocking one, the work it saves, the host's work (two minutes)
    Engine(EngineBenchArgs),
    /// Measure the engine under load, compared with what the device sustains: requests by size, clients and objects,
    /// several prompts, a still scene, text (five minutes)
    Load(LoadArgs),
    /// Measure the device alone: images by size, rows by number, one step after the other and two in flight
    Steps(StepsArgs),
    /// Measure what cameras cost: processor time, memory and delay (two minutes)
    Cameras(CamerasArgs),
    /// The cameras of `cameras`, which starts this process
    #[command(hide = true)]
    ServeCameras {
        /// How many
        cameras: usize,
    },
    /// Test that answers stay right under random load, cancellation, deadlines and too little memory
    Soak(SoakArgs),
    /// Measure the accuracy of a model on drawn street scenes with known truth
    Eval(EvalArgs),
}

/// `spotter-lab cameras`
#[derive(Clone, Debug, Args)]
pub struct CamerasArgs {
    /// How many cameras; each number is measured in turn
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FleetEngine {
    /// A simulated device, which costs next to nothing: the figures are those of the cameras
    Sim,
    /// The model, whose cost is added
    Model,
}

/// `spotter-lab soak`
#[derive(Clone, Debug, Args)]
pub struct SoakArgs {
    /// How long, seconds
    #[arg(long, value_name = "N", default_value_t = 600)]
    pub seconds: u64,
    /// Seed of all chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Random weights in the shape of a model instead of a model: tests load and memory, but hardly the answers
    #[arg(long, value_enum, conflicts_with = "model")]
    pub shape: Option<NoiseShape>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which model
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `spotter-lab steps`
#[derive(Clone, Debug, Args)]
pub struct StepsArgs {
    /// Random weights in the shape of a model instead of a model: speed does not depend on the weights
    #[arg(long, value_enum, conflicts_with = "model")]
    pub shape: Option<NoiseShape>,
    /// Seconds of load for each figure; a GPU that gets hot is slower after some
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
pub enum NoiseShape {
    /// Moondream 2
    Moondream2,
}

/// `spotter-lab load`
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// Measure this part only; may be given several times
    #[arg(long, value_enum, value_name = "PART")]
    pub part: Vec<BenchLoadPart>,
    /// Random weights in the shape of a model instead of a model: speed does not depend on the weights
    #[arg(long, value_enum, conflicts_with = "model")]
    pub shape: Option<NoiseShape>,
    /// Frames, pixels across and down
    #[arg(long, value_name = "WxH,…", value_delimiter = ',', value_parser = size,
        default_value = "378x378,640x360,1280x720,1920x1080")]
    pub size: Vec<(usize, usize)>,
    /// Clients; each sends its next request when the last one is answered
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
    /// Seconds of load for each figure, of which the last half counts; a GPU that gets hot is slower after some
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    pub seconds: f64,
    /// Write a timeline of host and device of the last figure for ui.perfetto.dev
    #[arg(long, value_name = "JSON")]
    pub trace: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which model; its answers end only at their bounds
    #[command(flatten)]
    pub model: ModelArgs,
}

/// Parts of `spotter-lab load`.
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

/// `spotter-lab engine`
#[derive(Clone, Debug, Args)]
pub struct EngineBenchArgs {
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

/// Parts of `spotter-lab engine`.
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

impl From<BenchPart> for EnginePart {
    fn from(part: BenchPart) -> Self {
        match part {
            BenchPart::Published => Self::Published,
            BenchPart::Step => Self::Step,
            BenchPart::Street => Self::Street,
            BenchPart::Cameras => Self::Cameras,
        }
    }
}

/// `spotter-lab eval`
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// How many scenes
    #[arg(
        long,
        value_name = "N",
        default_value_t = 500,
        conflicts_with = "track"
    )]
    pub scenes: u64,
    /// Follow what moves on one street instead, and score track ids and events
    #[arg(long)]
    pub track: bool,
    /// Minutes of street time
    #[arg(long, value_name = "N", default_value_t = 10, requires = "track", value_parser = clap::value_parser!(u32).range(1..=1440))]
    pub minutes: u32,
    /// Looks a second at the street
    #[arg(long, value_name = "N", default_value_t = 2, requires = "track", value_parser = clap::value_parser!(u32).range(1..=15))]
    pub rate: u32,
    /// Seed of the first scene, or of the street; training used seeds below 2^40
    #[arg(long, value_name = "N", default_value_t = 1 << 41)]
    pub seed: u64,
    /// Bit rate of the H.264 that the pictures pass through, kbit/s; 0 = none
    #[arg(long, value_name = "KBIT/S", default_value_t = 1000)]
    pub bitrate: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which model
    #[command(flatten)]
    pub model: ModelArgs,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn arguments_are_consistent() {
        LabArguments::command().debug_assert();
    }

    #[test]
    fn sizes_as_they_are_written() {
        assert_eq!(size("1280x720"), Ok((1280, 720)));
        for wrong in ["1280", "0x720", "1280x", "-1x5", "1280x720x3"] {
            let error = size(wrong).unwrap_err();
            assert!(error.contains("like 1280x720"), "{error}");
        }
    }
}
