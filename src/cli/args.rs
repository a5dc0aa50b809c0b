//! The arguments of every command. What `--help` shows is written here.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{
    app::DemoOptions,
    bench::engine::Part,
    config::{self, ModelSource},
    domain::CaptionLength,
};

/// Watches cameras with a vision-language model and tells over MQTT what it sees.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, max_term_width = 100)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch the cameras of a configuration until stopped (what the systemd service runs)
    Run(RunArgs),
    /// Test a configuration without starting anything
    Check(CheckArgs),
    /// Show it all on this machine: a drawn street as camera, a broker, detections on the terminal
    Demo(DemoArgs),
    /// Find things in a picture: boxes
    Detect(AskArgs),
    /// Find things in a picture: one point each
    Point(AskArgs),
    /// Ask a question about a picture
    Query(QueryArgs),
    /// Describe a picture
    Caption(CaptionArgs),
    /// Measure looks on this machine: time of each stage, cost of further prompts; or the engine
    Bench(BenchArgs),
    /// Measure the accuracy of a model on drawn street scenes with known truth
    Eval(EvalArgs),
}

/// `spotter run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Log more (twice: everything); RUST_LOG overrides
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// `spotter check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The configuration file
    #[arg(value_name = "FILE")]
    pub config: PathBuf,
    /// Also connect to every camera and to the broker, and report codec, size, fps, key-frame distance, clock offset
    #[arg(long)]
    pub probe: bool,
}

/// `spotter demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "configs/demo.toml")]
    pub config: PathBuf,
    /// Stop by itself after so many seconds (0 = at Ctrl-C)
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seconds: u64,
    /// Which street is drawn
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub seed: u64,
    /// Draw the street as it will be so many seconds from now (negative: as it was). Its traffic, light and weather
    /// follow from the seed and the time, so this repeats a moment
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    pub ahead: i64,
    /// Log more (twice: everything); RUST_LOG overrides
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

impl From<DemoArgs> for DemoOptions {
    fn from(args: DemoArgs) -> Self {
        Self {
            config: args.config,
            seed: args.seed,
            ahead_s: args.ahead,
            seconds: (args.seconds > 0).then_some(args.seconds),
            verbose: args.verbose,
        }
    }
}

/// Which model answers.
#[derive(Clone, Debug, Args)]
pub struct ModelArgs {
    /// A model directory (config.json, model.safetensors, tokenizer.json); the embedded demonstration model when absent
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// What it runs on; auto takes the GPU when it works
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceChoice,
}

/// Devices on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum DeviceChoice {
    /// The GPU when it works, else the CPU
    Auto,
    /// The CPU
    Cpu,
    /// The GPU or nothing
    Cuda,
}

impl From<DeviceChoice> for config::Device {
    fn from(device: DeviceChoice) -> Self {
        match device {
            DeviceChoice::Auto => Self::Auto,
            DeviceChoice::Cpu => Self::Cpu,
            DeviceChoice::Cuda => Self::Cuda,
        }
    }
}

impl ModelArgs {
    /// The directory that was named, else the embedded model, with every other setting at its default.
    pub fn settings(&self) -> config::Model {
        let source = self.model.clone();
        config::Model {
            device: self.device.into(),
            ..config::Model::of(source.map_or(ModelSource::Embedded, ModelSource::Directory))
        }
    }
}

/// `spotter query`
#[derive(Debug, Args)]
pub struct QueryArgs {
    /// The question and the picture
    #[command(flatten)]
    pub ask: AskArgs,
    /// A text that the answer may be; give two or more, and it is one of them
    #[arg(long = "choice", value_name = "TEXT")]
    pub choices: Vec<String>,
}

/// `spotter detect|point`, and most of `spotter query`
#[derive(Debug, Args)]
pub struct AskArgs {
    /// A picture (PNG, JPEG) or a video; of a video the first frame is taken
    #[arg(value_name = "IMAGE-OR-VIDEO")]
    pub media: PathBuf,
    /// What to look for, or the question
    pub prompt: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write the picture with what was found drawn into it
    #[arg(long, value_name = "PNG")]
    pub draw: Option<PathBuf>,
    /// Which model
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `spotter caption`
#[derive(Debug, Args)]
pub struct CaptionArgs {
    /// A picture (PNG, JPEG) or a video; of a video the first frame is taken
    #[arg(value_name = "IMAGE-OR-VIDEO")]
    pub media: PathBuf,
    /// How long the caption may be
    #[arg(long, value_enum, default_value = "normal")]
    pub length: Length,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which model
    #[command(flatten)]
    pub model: ModelArgs,
}

/// Caption lengths on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Length {
    /// A few words
    Short,
    /// A sentence
    Normal,
    /// All that is known
    Long,
}

impl From<Length> for CaptionLength {
    fn from(length: Length) -> Self {
        match length {
            Length::Short => Self::Short,
            Length::Normal => Self::Normal,
            Length::Long => Self::Long,
        }
    }
}

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
    /// Measure the device alone: images by size, rows by number, one step after the other and two in flight
    Steps(BenchStepsArgs),
    /// Test that the engine stays right and alive under everything at once: chance, cancels, deadlines, too little memory
    Soak(BenchSoakArgs),
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

/// `spotter eval`
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// How many scenes
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub scenes: u64,
    /// Seed of the first scene; training used seeds below 2^40
    #[arg(long, value_name = "N", default_value_t = 1 << 41)]
    pub seed: u64,
    /// Bit rate of the H.264 that the scenes pass through, kbit/s; 0 = none
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

    #[test]
    fn arguments_are_consistent() {
        super::Arguments::command().debug_assert();
    }
}
