//! The arguments of `spotter-lab`. What `--help` shows is written here.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

use spotter::cli::args::{ModelArgs, precision};
use spotter_config::PrecisionSetting;
use spotter_engine::model::{ModelConfig, released_config};

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
    /// Measure the host's work for a step on a simulated device (a second)
    Engine(EngineBenchArgs),
    /// Measure the engine under load, compared with what the device sustains: requests by size, clients and objects,
    /// several prompts (five minutes)
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
    /// Measure how a fleet shares cameras while boxes, NATS, the broker and the network fail
    Fleet(FleetBenchArgs),
    /// A box of `fleet`, which starts this process
    #[command(hide = true)]
    FleetBox(FleetBoxArgs),
    /// Measure what a box answers at every load, on simulated devices through the daemon's own path
    Capacity(CapacityArgs),
    /// Test on this device that answers under random load are those of each request alone
    Soak(SoakArgs),
    /// Measure what unchanged pictures save on encoded video, or with --check whether answers stay right
    Still(StillArgs),
    /// Measure the accuracy of a model on drawn street scenes with known truth
    Eval(EvalArgs),
    /// Write drawn street scenes as pictures with labels for `spotter eval`
    Labels(LabelsArgs),
    /// Measure what a model finds of small things, in the whole picture and in a region of it
    Regions(RegionsArgs),
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
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `spotter-lab fleet`
#[derive(Clone, Debug, Args)]
pub struct FleetBenchArgs {
    /// How many boxes, each a process
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(2..=200))]
    pub boxes: u32,
    /// How many cameras
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub cameras: u32,
    /// How many nats-servers; several are a cluster
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub nats: u8,
    /// How long faults go on
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    pub minutes: f64,
    /// Of the faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// No faults: what a fleet costs while nothing happens
    #[arg(long)]
    pub calm: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `spotter-lab fleet-box`
#[derive(Clone, Debug, Args)]
pub struct FleetBoxArgs {
    #[arg(long)]
    pub name: String,
    /// Which run of this box
    #[arg(long)]
    pub run: u32,
    /// Ports of nats-servers
    #[arg(long, value_delimiter = ',')]
    pub nats: Vec<u16>,
    /// Port of the broker
    #[arg(long)]
    pub broker: u16,
    #[arg(long)]
    pub cameras: usize,
    #[arg(long)]
    pub capacity_hz: f64,
    /// Its state directory
    #[arg(long)]
    pub folder: PathBuf,
}

/// `spotter-lab capacity`
#[derive(Clone, Debug, Args)]
pub struct CapacityArgs {
    /// Only this device; `real` is this machine's, in real time
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Of the device `real`: random weights in the shape of a model instead of a model
    #[arg(long, value_enum, conflicts_with = "model")]
    pub shape: Option<NoiseShape>,
    /// Of the device `real`: a model directory; the embedded demonstration model when absent
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// Of the device `real`: arithmetic on a GPU
    #[arg(long, value_parser = precision(), default_value = "bf16")]
    pub precision: PrecisionSetting,
    /// Of the device `real`: frames, pixels across and down
    #[arg(long, value_name = "WxH", value_parser = size, default_value = "1280x720")]
    pub size: (usize, usize),
    /// Of the device `real`: seconds for each row, of which the last part counts
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    pub seconds: f64,
    /// How many cameras
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "8")]
    pub cameras: Vec<NonZeroUsize>,
    /// How many prompts each camera has
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1")]
    pub prompts: Vec<NonZeroUsize>,
    /// Objects of an answer, mean
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "2")]
    pub objects: Vec<u64>,
    /// Each camera also has a question whose answers are texts of 128 tokens
    #[arg(long)]
    pub query: bool,
    /// Looks asked for, relative to the rate of looks that find nothing, one after the other
    #[arg(
        long,
        value_name = "X,…",
        value_delimiter = ',',
        value_parser = load,
        default_value = "0.5,1,1.5,2,3"
    )]
    pub load: Vec<f64>,
    /// Of simulated devices: looks of each run; more take longer, and ages scatter less
    #[arg(long, value_name = "N", default_value_t = 800, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    pub looks: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
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
    /// Moondream 3.1, with its experts in e4m3
    #[value(name = "moondream3.1")]
    Moondream3,
}

impl NoiseShape {
    pub fn config(self) -> Option<ModelConfig> {
        released_config(match self {
            Self::Moondream2 => "moondream2",
            Self::Moondream3 => "moondream3.1",
        })
    }
}

/// `spotter-lab load`
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// Measure this part only; may be given several times
    #[arg(long, value_enum, value_name = "PART")]
    pub part: Vec<LoadPart>,
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
    /// Seconds of load for each figure, of which the last half counts; a GPU that gets hot is slower after some
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    pub seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which model; its answers end only at their bounds
    #[command(flatten)]
    pub model: ModelArgs,
}

/// Parts of `spotter-lab load`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadPart {
    /// Requests with one prompt, by size, objects and clients
    Looks,
    /// 1, 2, 4 and 8 prompts on one frame
    Prompts,
}

/// Above 0.
fn load(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(load) if (0.001..=1000.0).contains(&load) => Ok(load),
        _ => Err(format!(
            "{text:?} is no load; write a number from 0.001 to 1000"
        )),
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
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `spotter-lab still`
#[derive(Clone, Debug, Args)]
pub struct StillArgs {
    /// Frames, pixels across and down
    #[arg(long, value_name = "WxH,…", value_delimiter = ',', value_parser = size, default_value = "1280x720,1920x1080")]
    pub size: Vec<(usize, usize)>,
    /// Bit rates of the H.264 that the pictures pass through, kbit/s
    #[arg(
        long,
        value_name = "KBIT/S,…",
        value_delimiter = ',',
        default_value = "1000,2000"
    )]
    pub bitrate: Vec<u32>,
    /// Only these scenes
    #[arg(long, value_enum, value_name = "SCENE,…", value_delimiter = ',')]
    pub scene: Vec<StillScene>,
    /// Also these recordings, scaled to 1280x720
    #[arg(long, value_name = "FILE,…", value_delimiter = ',')]
    pub video: Vec<PathBuf>,
    /// Length of each video, seconds; two looks a second
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// Compare answers with and without reuse instead, on drawn scenes where a thing appears, moves by its width, or leaves
    #[arg(long)]
    pub check: bool,
    /// How many scenes
    #[arg(long, value_name = "N", default_value_t = 2000, requires = "check")]
    pub scenes: u64,
    /// Seed of the first scene; training used seeds below 2^40
    #[arg(long, value_name = "N", default_value_t = 1 << 41, requires = "check")]
    pub seed: u64,
    /// Tiles into which the embedded model cuts a picture; it was trained with one
    #[arg(long, value_name = "N", default_value_t = 1, requires = "check", value_parser = clap::value_parser!(u32).range(1..=12))]
    pub tiles: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which model answers with --check
    #[command(flatten)]
    pub model: ModelArgs,
}

/// What a camera of `spotter-lab still` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StillScene {
    /// A street by day where nothing moves; sensor noise of 2 levels
    Standing,
    /// The same by night; sensor noise of 4 levels
    Night,
    /// The same by day under passing clouds
    Light,
    /// The street with its traffic
    Moving,
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

/// `spotter-lab labels`
#[derive(Debug, Args)]
pub struct LabelsArgs {
    /// The folder for the pictures, labels.json and questions.jsonl
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// How many scenes
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub scenes: u64,
    /// Seed of the first scene; training used seeds below 2^40
    #[arg(long, value_name = "N", default_value_t = 1 << 41)]
    pub seed: u64,
    /// Bit rate of the H.264 that the pictures pass through, kbit/s; 0 = none
    #[arg(long, value_name = "KBIT/S", default_value_t = 1000)]
    pub bitrate: u32,
}

/// `spotter-lab regions`
#[derive(Debug, Args)]
pub struct RegionsArgs {
    /// How many scenes
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub scenes: u64,
    /// Seed of the first scene; training used seeds below 2^40
    #[arg(long, value_name = "N", default_value_t = 1 << 41)]
    pub seed: u64,
    /// Pixels of the picture across and down
    #[arg(long, value_name = "WxH", value_parser = size, default_value = "1920x1080")]
    pub size: (usize, usize),
    /// Times as far away as in the scenes of `eval`; at 4, things are 1 to 8 % of the picture's height
    #[arg(long, value_name = "X", default_value_t = 4.0)]
    pub far: f32,
    /// Sides of the region, pixels
    #[arg(long, value_name = "N", default_value_t = 378, value_parser = clap::value_parser!(u32).range(16..=4096))]
    pub region: u32,
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
