//! The arguments of every command. What `--help` shows is written here.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::app::DemoOptions;
use spotter_core::{
    CaptionLength,
    config::{self, ModelSource},
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
    /// An engine in a process of its own; only `run` and `demo` start it
    #[command(hide = true)]
    Engine(EngineArgs),
}

/// `spotter run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Print each JSON message that goes to the broker as a line {"topic":…,"payload":…}; the log is on stderr
    #[arg(long)]
    pub json: bool,
    /// Log more (twice: everything); RUST_LOG overrides
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// `spotter engine`
#[derive(Debug, Args)]
pub struct EngineArgs {
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
    /// Arithmetic on a GPU; fp8 is faster from compute capability 8.9 on (Ada, Hopper) and a little less exact
    #[arg(long, value_enum, default_value = "bf16")]
    pub precision: PrecisionChoice,
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

impl From<DeviceChoice> for config::DevicePreference {
    fn from(device: DeviceChoice) -> Self {
        match device {
            DeviceChoice::Auto => Self::Auto,
            DeviceChoice::Cpu => Self::Cpu,
            DeviceChoice::Cuda => Self::Cuda,
        }
    }
}

/// Arithmetic on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum PrecisionChoice {
    /// bfloat16
    Bf16,
    /// 8 bits in products of many rows
    Fp8,
}

impl From<PrecisionChoice> for config::GpuPrecision {
    fn from(precision: PrecisionChoice) -> Self {
        match precision {
            PrecisionChoice::Bf16 => Self::Bf16,
            PrecisionChoice::Fp8 => Self::Fp8,
        }
    }
}

impl ModelArgs {
    /// The directory that was named, else the embedded model, with every other setting at its default.
    pub fn settings(&self) -> config::ModelSettings {
        let source = self.model.clone();
        config::ModelSettings {
            device: self.device.into(),
            precision: self.precision.into(),
            ..config::ModelSettings::of(
                source.map_or(ModelSource::Embedded, ModelSource::Directory),
            )
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn arguments_are_consistent() {
        super::Arguments::command().debug_assert();
    }
}
