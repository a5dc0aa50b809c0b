//! The arguments of every command. Their doc comments are the text of `--help`.

use std::{
    iter,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use clap::{
    Args, Parser, Subcommand,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};

use crate::app::DemoOptions;
use spotter_config::{
    self as config, DevicePreference, Environment, GpuGroup, ModelSource, PrecisionSetting,
};
use spotter_core::{CaptionLength, GpuPrecision, IdError, NodeId, SpatialReference};
use spotter_hub::{KNOWN_MODELS, KnownModel};
use strum::VariantNames;
use url::Url;

/// What the service runs with (systemd/spotter.service).
pub const SERVICE_CONFIG: &str = "/etc/spotter/spotter.toml";

/// A word of an enum.
fn word<T: FromStr + VariantNames + Clone + Send + Sync + 'static>()
-> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(T::VARIANTS).try_map(|word| word.parse().map_err(|_| "unknown word"))
}

/// A precision, or `auto`.
pub fn precision() -> impl TypedValueParser<Value = PrecisionSetting> {
    let words = iter::once(&"auto").chain(GpuPrecision::VARIANTS);
    PossibleValuesParser::new(words).map(|word| word.parse().ok())
}

/// Numbers with commas between them.
fn place(text: &str) -> Result<SpatialReference, String> {
    let shares = text.split(',').map(|number| number.trim().parse());
    let shares: Result<Vec<f64>, _> = shares.collect();
    let shares = shares.map_err(|_| "write 0.4,0.5 for a point, 0.1,0.2,0.5,0.9 for a box")?;
    SpatialReference::from_shares(&shares).map_err(str::to_owned)
}

fn place_box(text: &str) -> Result<SpatialReference, String> {
    match place(text)? {
        area @ SpatialReference::Box(_) => Ok(area),
        SpatialReference::Point { .. } => Err("write X0,Y0,X1,Y1, like 0.1,0.2,0.5,0.9".into()),
    }
}

/// Watches cameras with a vision-language model and publishes detections over MQTT.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, max_term_width = 100)]
pub struct CliArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Watch the cameras of a configuration until stopped (the systemd service runs this)
    Run(RunArgs),
    /// Check a configuration without starting anything
    Check(CheckArgs),
    /// Find the ONVIF cameras of the network, list their streams, and write a first configuration
    Discover(DiscoverArgs),
    /// Try Spotter on this machine: a drawn street as camera, a broker, detections on the terminal
    Demo(DemoOptions),
    /// Fetch, list, check and calibrate models
    #[command(subcommand)]
    Model(ModelCommand),
    /// Test what Spotter needs of this machine: video over RTSP, a decoder, the model on its device
    SelfTest(ModelArgs),
    /// Measure how many cameras this machine can watch
    Bench(BenchArgs),
    /// Show the nodes of a broker; read and write the list of cameras that nodes share
    #[command(subcommand)]
    Fleet(FleetCommand),
    /// Copy what survives a restart: settings, counts, lists
    #[command(subcommand)]
    State(StateCommand),
    /// List, delete and export stored events, also while the service runs
    #[command(subcommand)]
    History(HistoryCommand),
    /// Measure how right a model is about your own labelled pictures, and calibrate its scores
    Eval(EvalPicturesArgs),
    /// The earlier name of `eval --against bf16`
    #[command(hide = true)]
    Compare(EvalPicturesArgs),
    /// Find objects in a picture: boxes
    Detect(AskArgs),
    /// Find objects in a picture: one point each
    Point(AskArgs),
    /// Ask a question about a picture
    Query(QueryArgs),
    /// Draw the outline of one object in a picture (Moondream 3)
    Segment(SegmentArgs),
    /// Describe a picture
    Caption(CaptionArgs),
    /// An engine in a separate process; started by `run` and `demo`
    #[command(hide = true)]
    Engine {
        /// Log more (twice: everything); RUST_LOG overrides
        #[arg(short, long, action = clap::ArgAction::Count)]
        verbose: u8,
    },
}

impl CliCommand {
    /// It may connect to cameras with GStreamer.
    pub fn opens_cameras(&self) -> bool {
        matches!(
            self,
            Self::Run(_) | Self::Check(_) | Self::Demo(_) | Self::SelfTest(_) | Self::Bench(_)
        )
    }
}

/// `spotter run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Print each published JSON message as a line {"topic":…,"payload":…}; the log is on stderr
    #[arg(long)]
    pub json: bool,
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
    /// Also connect to every camera and to the broker; print codec, size, fps, keyframe interval, clock offset
    #[arg(long)]
    pub probe: bool,
    /// Also list what commands and the page changed, which the daemon has in force instead of the file's values
    #[arg(long)]
    pub effective: bool,
}

/// `spotter discover`
#[derive(Debug, Args)]
pub struct DiscoverArgs {
    /// Do not search: the camera is at http://HOST or https://HOST, with the path of its device service unless that is
    /// /onvif/device_service; may be given several times
    #[arg(long, value_name = "URL", value_parser = onvif_address)]
    pub address: Vec<Url>,
    /// How long to wait for answers to the search
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = config::duration)]
    pub wait: Duration,
    /// An ONVIF user of the cameras, to list their streams; the password is in the environment variable ONVIF_PASSWORD
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Accept any certificate of a camera with https; an attacker on the network can then read and change what it answers
    #[arg(long)]
    pub insecure: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write a configuration with these cameras to a new file
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    // Options of earlier versions.
    #[arg(long, hide = true)]
    pub interface: Vec<String>,
    #[arg(long, hide = true, value_parser = asked_host)]
    pub ask: Option<Url>,
    #[arg(long, hide = true)]
    pub password_file: Option<PathBuf>,
}

/// `IP[:PORT]`, with the port of the search.
fn asked_host(text: &str) -> Result<Url, String> {
    let host = text.split_once(':').map_or(text, |(host, _)| host);
    onvif_address(&format!("http://{host}"))
}

fn onvif_address(text: &str) -> Result<Url, String> {
    spotter_onvif::device_address(text).map_err(|wrong| format!("the address {wrong}"))
}

#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// Fetch a model from the Hugging Face hub (HF_ENDPOINT, HF_TOKEN, HTTPS_PROXY); continues a download that was cut
    Get(ModelGetArgs),
    /// List the models that can be fetched, where they are on this machine, and their sizes
    List,
    /// Delete the files of a fetched model that no configuration uses
    Remove(ModelRemoveArgs),
    /// Compare the files of a model directory with its model.toml
    Check {
        /// A model directory
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Measure on your own pictures how large the model's values are and which layers int8 would disturb, for the scales of fp8 and the
    /// layers of int8
    Calibrate(ModelCalibrateArgs),
}

/// `spotter model get`
#[derive(Debug, Args)]
pub struct ModelGetArgs {
    /// Which model
    #[arg(value_name = "NAME", value_parser = known_model())]
    pub name: &'static KnownModel,
    /// Where its files go; default /var/lib/spotter/models/NAME for root, else $XDG_DATA_HOME/spotter/models/NAME
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Accept the licence of a model that has its own, instead of being asked at the terminal
    #[arg(long)]
    pub accept_licence: bool,
}

/// `spotter model remove`
#[derive(Debug, Args)]
pub struct ModelRemoveArgs {
    /// Which model
    #[arg(value_name = "NAME", value_parser = known_model())]
    pub name: &'static KnownModel,
    /// Where its files are, if not where `spotter model get NAME` puts them
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// A configuration that may use the model, besides /etc/spotter/spotter.toml; can be repeated
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
}

/// `spotter model calibrate`
#[derive(Debug, Args)]
pub struct ModelCalibrateArgs {
    /// A folder of pictures (PNG, JPEG) like those of your cameras, by day and by night; 20 are enough, 32 at most are used
    #[arg(value_name = "DIR")]
    pub pictures: PathBuf,
    /// The model directory, which gets the file calibration.toml; default: the model that `spotter model get` fetched
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
}

fn known_model() -> impl TypedValueParser<Value = &'static KnownModel> {
    let possible = KNOWN_MODELS
        .iter()
        .map(|model| PossibleValue::new(model.name).help(model.summary));
    PossibleValuesParser::new(possible)
        .try_map(|name| KnownModel::named(&name).ok_or("unknown model"))
}

#[derive(Debug, Subcommand)]
pub enum StateCommand {
    /// Copy state.db to a new file, also while the service uses it
    Backup {
        /// The new file; a file that exists is not replaced
        #[arg(value_name = "FILE")]
        target: PathBuf,
        /// `node.state_dir` of the configuration; the default is the service's
        #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
        state_dir: PathBuf,
    },
}

/// Where the state of the service is.
const STATE_DIR: &str = "/var/lib/spotter";

#[derive(Debug, Subcommand)]
pub enum HistoryCommand {
    /// Print stored events, the newest first
    List(HistoryListArgs),
    /// Delete events with their pictures; all that is given must fit
    Delete(HistoryDeleteArgs),
    /// Write events and their pictures to a new ZIP file
    Export {
        /// The new file; a file that exists is not replaced
        #[arg(value_name = "FILE")]
        target: PathBuf,
        #[command(flatten)]
        filter: EventFilterArgs,
        /// Only events that a person judged, also objects below `min_score`: `labels.json` in the file is for `spotter eval`
        #[arg(long)]
        labels: bool,
        /// `node.state_dir` of the configuration; the default is the service's
        #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
        state_dir: PathBuf,
    },
}

/// Which events `spotter history list|export` prints
#[derive(Debug, Args)]
pub struct EventFilterArgs {
    /// Only events of this camera
    #[arg(long, value_name = "NAME")]
    pub camera: Option<String>,
    /// Only events of prompts with this name
    #[arg(long, value_name = "NAME")]
    pub prompt: Option<String>,
    /// Only events that were in this zone
    #[arg(long, value_name = "NAME")]
    pub zone: Option<String>,
    /// Only events with this text in their words or description
    #[arg(long, value_name = "TEXT")]
    pub text: Option<String>,
    /// Only events that began at this time or later, like 2026-11-28 or 2026-11-28T18:30
    #[arg(long, value_name = "TIME", value_parser = super::times::time)]
    pub from: Option<i64>,
    /// Only events that began before this time
    #[arg(long, value_name = "TIME", value_parser = super::times::time)]
    pub to: Option<i64>,
}

/// `spotter history list`
#[derive(Debug, Args)]
pub struct HistoryListArgs {
    #[command(flatten)]
    pub filter: EventFilterArgs,
    /// The most events, up to 500
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: u16,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// `node.state_dir` of the configuration; the default is the service's
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub state_dir: PathBuf,
}

/// `spotter history delete`
#[derive(Debug, Args)]
pub struct HistoryDeleteArgs {
    /// The event, as `list` prints it
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// With all events at the place of --id
    #[arg(long, requires = "id")]
    pub repeats: bool,
    /// Events of this camera
    #[arg(long, value_name = "NAME")]
    pub camera: Option<String>,
    /// Events that began at this time or later, like 2026-11-28 or 2026-11-28T18:30
    #[arg(long, value_name = "TIME", value_parser = super::times::time)]
    pub from: Option<i64>,
    /// Events that began before this time
    #[arg(long, value_name = "TIME", value_parser = super::times::time)]
    pub to: Option<i64>,
    /// `node.state_dir` of the configuration; the default is the service's
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub state_dir: PathBuf,
}

#[derive(Clone, Debug, Args)]
pub struct ModelArgs {
    /// A model directory (config.json, model.safetensors, tokenizer.json), or "embedded"; default: the model that
    /// `spotter model get` fetched, else the embedded demonstration model
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// Device; auto uses the GPU if it works, else the CPU; cuda fails without a GPU
    #[arg(long, value_parser = word::<DevicePreference>(), default_value = "auto")]
    pub device: DevicePreference,
    /// The GPU, or 2, 4 or 8 of one model that work as one, as in 0,1
    #[arg(long, value_name = "LIST", default_value = "0")]
    pub gpus: GpuGroup,
    /// Arithmetic on a GPU, and with int8 on the CPU. auto: the fastest that fits into the GPU's memory; bf16: bfloat16; fp8 and int8: 8 bits
    /// in large matrix products, fp8 with compute capability 8.9 or later (Ada, Hopper); int4: the same with 4-bit experts, for models that
    /// have some. Others than bf16 are faster and can change answers
    #[arg(long, value_parser = precision(), default_value = "bf16")]
    pub precision: PrecisionSetting,
    /// The most memory of each GPU; with less, steps have fewer images
    #[arg(long, value_name = "SIZE", value_parser = config::memory_size)]
    pub memory: Option<u64>,
}

impl ModelArgs {
    /// The model that was named, else the fetched one, else the embedded one, with every other setting at its default. Blocks on
    /// the disk.
    pub fn settings(&self) -> config::ModelSettings {
        let model = match &self.model {
            None => config::ModelSettings::of_default(&Environment::process()),
            Some(name) if name == Path::new("embedded") => {
                config::ModelSettings::of(ModelSource::Embedded)
            }
            Some(dir) => config::ModelSettings::of(ModelSource::Directory(dir.clone())),
        };
        config::ModelSettings {
            device: self.device,
            gpus: vec![self.gpus.clone()],
            precision: self.precision,
            memory: self.memory,
            ..model
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Show every node and every fleet below a broker's base, and exit with 2 when something is wrong; publishes nothing
    Status(FleetStatusArgs),
    /// Check a list of cameras, show what changes, and write it to the fleet's store as one revision
    Apply(FleetApplyArgs),
    /// Print the newest list of cameras as it was applied
    Get(FleetStoreArgs),
}

/// `spotter fleet apply`
#[derive(Debug, Args)]
pub struct FleetApplyArgs {
    /// The list: `[defaults]` and `[camera.NAME]` as in a configuration
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub store: FleetStoreArgs,
    /// Show what would change and write nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// The store of a fleet, for `spotter fleet apply` and `spotter fleet get`
#[derive(Debug, Args)]
pub struct FleetStoreArgs {
    /// The NATS server with JetStream: nats://HOST:PORT or tls://HOST:PORT; the servers of a cluster with commas
    #[arg(long, value_name = "URL", value_delimiter = ',', required = true)]
    pub nats: Vec<String>,
    /// The name of the fleet
    #[arg(long, value_name = "NAME", value_parser = fleet_name)]
    pub fleet: NodeId,
    /// The user at the NATS server; the password is in the environment variable NATS_PASSWORD
    #[arg(long, value_name = "NAME", conflicts_with = "credentials")]
    pub user: Option<String>,
    /// A .creds file of the account
    #[arg(long, value_name = "FILE")]
    pub credentials: Option<PathBuf>,
    /// The certificate authority of the NATS server as PEM; default: those of this machine
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Copies of the fleet's data in a cluster of servers, when it is made
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub replicas: u8,
}

fn fleet_name(text: &str) -> Result<NodeId, IdError> {
    NodeId::new(text)
}

/// `spotter fleet status`
#[derive(Debug, Args)]
pub struct FleetStatusArgs {
    /// The broker: mqtt://HOST or mqtts://HOST, with :PORT unless it is 1883 or 8883
    #[arg(long, value_name = "URL", required_unless_present = "nats")]
    pub mqtt: Option<String>,
    /// The user; the password is in the environment variable MQTT_PASSWORD or in a file
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// A file with the password
    #[arg(long, value_name = "FILE", requires = "user")]
    pub password_file: Option<PathBuf>,
    /// The certificate authority of the broker as PEM; default: those of this machine
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// The first level of all topics (`mqtt.base`)
    #[arg(long, value_name = "NAME", default_value = config::DEFAULT_BASE, value_parser = config::topic_level)]
    pub base: String,
    /// How long to listen to the broker: a node of which nothing arrives in this time is silent. At least 12s; 0s prints at once and finds
    /// neither silent nodes nor two nodes with one name
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = listening_time)]
    pub wait: Duration,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[arg(long, hide = true)]
    watch: bool,
    #[arg(long, hide = true)]
    nats: Option<String>,
    #[arg(long, hide = true)]
    fleet: Option<String>,
    #[arg(long, hide = true)]
    credentials: Option<PathBuf>,
    #[arg(long, hide = true)]
    cameras: bool,
}

impl FleetStatusArgs {
    /// Options of earlier versions that are given, with what replaces them.
    pub fn removed(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        const BROKER: &str = "use --mqtt with the broker of the boxes";
        let removed = [
            (
                self.watch,
                "--watch",
                "run the command again, as watch(1) does",
            ),
            (self.nats.is_some(), "--nats", BROKER),
            (self.fleet.is_some(), "--fleet", BROKER),
            (self.credentials.is_some(), "--credentials", BROKER),
            (self.cameras, "--cameras", "--json has the cameras"),
        ];
        let given = removed.into_iter().filter(|(is_given, ..)| *is_given);
        given.map(|(_, option, replacement)| (option, replacement))
    }
}

/// Nodes publish every 10 s.
const LISTENING_MIN: Duration = Duration::from_secs(12);

fn listening_time(text: &str) -> Result<Duration, String> {
    match config::duration(text)? {
        time if time.is_zero() || time >= LISTENING_MIN => Ok(time),
        _ => Err("must be 0s or at least 12s, because nodes publish every 10 s".into()),
    }
}

/// `spotter eval`
#[derive(Debug, Args)]
pub struct EvalPicturesArgs {
    /// Labels: a .json file of objects in COCO's form, and .jsonl files of questions, each line like
    /// {"picture": "a.jpg", "question": "Is the gate open?", "answer": "Yes", "choices": ["Yes", "No"]}; with --against also
    /// folders of pictures (PNG, JPEG)
    #[arg(value_name = "FILE", required_unless_present = "history")]
    pub labels: Vec<PathBuf>,
    /// The events that people judged on the page, also while the service runs
    #[arg(long, conflicts_with = "labels")]
    pub history: bool,
    /// With --history: `node.state_dir` of the configuration; the default is the service's
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub state_dir: PathBuf,
    /// With --history: only events of this camera
    #[arg(long, value_name = "NAME", requires = "history")]
    pub camera: Option<String>,
    /// Where the pictures are; default: beside the file that names them
    #[arg(long, value_name = "DIR")]
    pub pictures: Option<PathBuf>,
    /// Look for boxes of this category; may be given several times. Without --detect and --point: boxes of all categories
    #[arg(long, value_name = "CATEGORY")]
    pub detect: Vec<String>,
    /// Look for points on this category; may be given several times
    #[arg(long, value_name = "CATEGORY")]
    pub point: Vec<String>,
    /// Ask this about all pictures, with --against; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub query: Vec<String>,
    /// Take for right, instead of labels, what the model answers in this precision: bf16 shows what --precision int8 changes
    #[arg(long, value_name = "PRECISION", value_parser = PossibleValuesParser::new(["bf16"]).map(|_| GpuPrecision::Bf16))]
    pub against: Option<GpuPrecision>,
    /// With --against: where the ten most different pictures are drawn
    #[arg(long, value_name = "DIR", default_value = "spotter-eval")]
    pub draw: PathBuf,
    /// Write the maps of scores to model.toml in the model directory: a score of 0.8 then means that eight in ten are right.
    /// With --against, the maps of that precision are carried over
    #[arg(long)]
    pub write: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `spotter bench`
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Looks per second at each camera
    #[arg(long, value_name = "HZ", default_value_t = 1.0, value_parser = positive)]
    pub rate: f64,
    /// Prompts per look
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=32))]
    pub prompts: u16,
    /// Size of the frames; multiples of 8 pixels
    #[arg(long, value_name = "WxH", default_value = "1280x720", value_parser = frame_size)]
    pub size: (u32, u32),
    /// Frames per second that a camera sends
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=60))]
    pub fps: u16,
    /// How long the engine is measured under load
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("must be a number greater than 0, like 2 or 0.5".into()),
    }
}

/// `1280x720`; the encoder of the recorded stream needs multiples of 8.
fn frame_size(text: &str) -> Result<(u32, u32), String> {
    let side = |side: &str| {
        side.parse::<u32>()
            .ok()
            .filter(|px| (64..=8192).contains(px) && px % 8 == 0)
    };
    text.split_once('x')
        .and_then(|(width, height)| side(width).zip(side(height)))
        .ok_or_else(|| {
            "must be WIDTHxHEIGHT, like 1280x720, both multiples of 8 from 64 to 8192".into()
        })
}

/// `spotter query`
#[derive(Debug, Args)]
pub struct QueryArgs {
    /// The question and the picture
    #[command(flatten)]
    pub ask: AskArgs,
    /// An allowed answer; give two or more, and the answer is one of them
    #[arg(long = "choice", value_name = "TEXT")]
    pub choices: Vec<String>,
    /// A place that the question is about, in shares of the picture from its top left corner: a point (x,y) or a box (x0,y0,x1,y1). May
    /// be given several times
    #[arg(long = "ref", value_name = "PLACE", value_parser = place)]
    pub places: Vec<SpatialReference>,
    /// Let the model write down its thoughts before it answers
    #[arg(long)]
    pub reasoning: bool,
}

/// A picture, and what answers about it.
#[derive(Debug, Args)]
pub struct PictureArgs {
    /// A picture (PNG, JPEG) or a video, of which the first frame is used
    #[arg(value_name = "IMAGE-OR-VIDEO")]
    pub media: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The file of an adapter of the model, which answers then
    #[arg(long, value_name = "FILE")]
    pub adapter: Option<PathBuf>,
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `spotter detect|point`, and most of `spotter query|segment`
#[derive(Debug, Args)]
pub struct AskArgs {
    #[command(flatten)]
    pub picture: PictureArgs,
    /// What to look for, or the question
    pub prompt: String,
    /// Write the picture with the found objects drawn into it
    #[arg(long, value_name = "PNG")]
    pub draw: Option<PathBuf>,
}

/// `spotter segment`
#[derive(Debug, Args)]
pub struct SegmentArgs {
    /// The object and the picture
    #[command(flatten)]
    pub ask: AskArgs,
    /// Where the object is, in shares of the picture from its top left corner
    #[arg(long = "box", value_name = "X0,Y0,X1,Y1", value_parser = place_box)]
    pub area: Option<SpatialReference>,
}

/// `spotter caption`
#[derive(Debug, Args)]
pub struct CaptionArgs {
    #[command(flatten)]
    pub picture: PictureArgs,
    /// How long the caption may be: a few words, a sentence, several sentences
    #[arg(long, value_parser = word::<CaptionLength>(), default_value = "normal")]
    pub length: CaptionLength,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn arguments_are_consistent() {
        super::CliArguments::command().debug_assert();
    }
}
