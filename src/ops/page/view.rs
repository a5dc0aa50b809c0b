//! What the page shows: plain words and numbers at one moment. The daemon fills it, `/status.json` is exactly it. No login
//! and no address of a camera is in it.

use serde::Serialize;

/// Stages of a latency account; `decode` to `out`.
pub const STAGES: usize = 8;
/// Columns of a latency plot.
pub const COLUMNS: usize = 30;

/// How good a state is. The page gives each a shape and a word besides its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mood {
    /// As it should be.
    Good,
    /// On its way there.
    #[default]
    Busy,
    /// Somebody should look.
    Bad,
    /// Off on purpose.
    Off,
}

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct View {
    /// Version of these keys; new keys do not raise it.
    pub v: u32,
    /// Now, Unix milliseconds.
    pub time_ms: i64,
    /// This box.
    pub node: Node,
    /// Names of the stages, in the order of every account.
    pub stages: Vec<&'static str>,
    /// In the order of the configuration.
    pub cameras: Vec<Camera>,
    /// One for each device.
    pub engines: Vec<Engine>,
    /// The way to the world.
    pub broker: Broker,
    /// What runs, and what was refused.
    pub config: Config,
}

/// This box.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Node {
    /// Level of the topics.
    pub name: String,
    /// Of the program.
    pub version: &'static str,
    /// Which model looks.
    pub model: String,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Looks a second over the last seconds; unknown at the start.
    pub looks_per_s: Option<f64>,
    /// Reception to publication over the last minute, 95th percentile.
    pub total_p95_ms: Option<f64>,
    /// Resident memory.
    pub rss_mib: Option<f64>,
    /// Of one core.
    pub cpu_pct: Option<f64>,
}

/// One camera.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Camera {
    /// Its name.
    pub id: String,
    /// How good its state is.
    pub mood: Mood,
    /// The contract's word.
    pub state: String,
    /// Why it does not deliver, and what to do.
    pub reason: Option<String>,
    /// When the state began, Unix milliseconds.
    pub since_ms: i64,
    /// Seconds until the next try.
    pub next_retry_s: Option<f64>,
    /// What comes.
    pub stream: Stream,
    /// The look whose picture is shown, else the last one.
    pub look: Option<Look>,
    /// In the order of the configuration.
    pub prompts: Vec<Prompt>,
    /// Over the last minute.
    pub latency: Latency,
    /// What became of its frames since the start.
    pub frames: Frames,
}

/// What comes from a camera, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stream {
    /// `h264`, `h265`, `jpeg`, `raw`.
    pub codec: Option<String>,
    /// Pixels across and down.
    pub size: Option<(u32, u32)>,
    /// What arrives.
    pub fps: Option<f64>,
    /// `tcp` or `udp`.
    pub transport: Option<String>,
    /// The element that decodes.
    pub decoder: Option<String>,
    /// Packets lost since the start.
    pub rtp_lost: u64,
    /// Broken frames since the start.
    pub frames_corrupt: u64,
    /// Frames that were not decoded because decoding had fallen behind, since the start.
    pub frames_late: u64,
    /// Times it came back within the last hour.
    pub reconnects_1h: u32,
    /// Times it stalled within the last hour.
    pub stalls_1h: u32,
    /// Its clock.
    pub clock: Clock,
}

/// A camera's clock against ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Clock {
    /// It dates the frames.
    pub trusted: bool,
    /// Camera minus ours.
    pub offset_ms: Option<f64>,
    /// How fast the offset grows.
    pub drift_ppm: Option<f64>,
    /// Why it is not trusted.
    pub note: Option<String>,
}

/// One look.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Look {
    /// Number of its frame.
    pub frame: u64,
    /// When the frame was received, Unix milliseconds.
    pub time_ms: i64,
    /// How long ago that was.
    pub age_ms: u64,
    /// Pixels across and down.
    pub size: (u32, u32),
    /// `/camera/<id>.jpg` has its picture.
    pub pictured: bool,
    /// What was found, after the prompts' filters.
    pub found: Vec<Found>,
}

/// One thing found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Found {
    /// Which prompt, by its place among the camera's.
    pub prompt: usize,
    /// Where, shares of the picture: left, top, right, bottom, or x and y.
    pub place: Place,
    /// 0..1.
    pub score: f64,
}

/// Where a thing is, shares of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// Left, top, right, bottom.
    Box([f64; 4]),
    /// Across, down.
    Point([f64; 2]),
}

impl Default for Place {
    fn default() -> Self {
        Self::Point([0.0; 2])
    }
}

/// One prompt with its last answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Prompt {
    /// Its name.
    pub id: String,
    /// `detect`, `point`, `query`, `caption`.
    pub kind: &'static str,
    /// The user's words.
    pub words: String,
    /// What it answered last.
    pub answer: Option<Answer>,
}

/// An answer in short.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Answer {
    /// How long ago the frame was received.
    pub age_ms: u64,
    /// How many things; `None` for words.
    pub count: Option<usize>,
    /// The words.
    pub text: Option<String>,
    /// Of the words, or the highest of the things; 0..1.
    pub score: Option<f64>,
}

/// The way of messages over the last minute.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// How many messages it is about.
    pub messages: u64,
    /// Reception to publication, median.
    pub p50_ms: Option<f64>,
    /// 95th percentile.
    pub p95_ms: Option<f64>,
    /// Mean of each stage.
    pub mean_ms: [f64; STAGES],
    /// Means of short pieces of the minute, oldest first; `None` where there was no message.
    pub columns_ms: Vec<Option<[f64; STAGES]>>,
}

/// What became of frames since the start. `arrived` is the sum of all others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Frames {
    /// Decoded.
    pub arrived: u64,
    /// Answered.
    pub looked: u64,
    /// None was due.
    pub skipped: u64,
    /// Nothing moved.
    pub gated: u64,
    /// A newer one came first.
    pub replaced: u64,
    /// Too old.
    pub late: u64,
    /// The engine or the picture failed.
    pub failed: u64,
    /// Waiting or with the engine.
    pub open: u64,
}

/// What an engine is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineState {
    /// Looks.
    #[default]
    Runs,
    /// Comes: another model is being opened.
    Opens,
    /// Failed.
    Ended,
}

/// One engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Engine {
    /// `cpu`, or `cuda 1`.
    pub device: String,
    /// What it is at.
    pub state: EngineState,
    /// Share of the span with a look under way, percent.
    pub busy_pct: f64,
    /// Frames with it now.
    pub under_way: u64,
    /// What the bars look back over.
    pub span_ms: u64,
    /// Looks that ended in the span, oldest first.
    pub bars: Vec<Bar>,
}

/// A look on its way through an engine. Moments are milliseconds from the beginning of the span; a look that was begun
/// before has negative ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Bar {
    /// Whose frame.
    pub camera: String,
    /// Taken, prepared, encoded, first prompt begun to answer, last one answered.
    pub marks_ms: [f64; 5],
}

/// The connection to the broker.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Broker {
    /// How good its state is.
    pub mood: Mood,
    /// One word or two.
    pub state: String,
    /// What is wrong and what to do.
    pub reason: Option<String>,
    /// Seconds until the next try.
    pub next_retry_s: Option<f64>,
    /// Host and port, without login.
    pub address: String,
    /// First levels of all topics.
    pub topics: String,
    /// Messages handed over since the start, without states.
    pub sent: u64,
    /// Messages dropped since the start, by reason.
    pub dropped: Vec<(&'static str, u64)>,
    /// Events waiting on disk.
    pub spooled: u64,
    /// Hand-over to acknowledgement, 95th percentile.
    pub puback_p95_ms: Option<f64>,
}

/// The configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Config {
    /// First digits of the hash of the one that runs.
    pub hash: String,
    /// When it was last read, RFC 3339.
    pub at: String,
    /// What was wrong with one that was refused since.
    pub errors: Vec<String>,
}
