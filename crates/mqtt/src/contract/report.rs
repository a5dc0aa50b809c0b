//! The JSON payloads about the node and its cameras: info, config, stats, health (docs/mqtt.md section 2).
//!
//! Field names and units are those of docs/mqtt.md section 2. Unknown is `null`. They are read by `spotter fleet`, also from nodes of
//! another version: a missing key has its default.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use spotter_core::{Epoch, NodeId, Phase, PromptId, PromptQuality, StreamCounters};

use super::detection::{SCHEMA, add};

/// Adds the schema version to a payload and turns it into bytes.
pub(crate) fn to_json<T: Serialize>(payload: &T) -> Vec<u8> {
    to_json_of(payload, None)
}

/// The same with the epoch of a fleet's camera.
pub(crate) fn to_json_of<T: Serialize>(payload: &T, epoch: Option<Epoch>) -> Vec<u8> {
    let mut payload = json!(payload);
    payload["v"] = json!(SCHEMA);
    add(&mut payload, "epoch", epoch);
    payload.to_string().into_bytes()
}

/// A larger birth message lists the cameras without prompts, zones and lines, and only the first of very many.
const BIRTH_MAX_BYTES: usize = 64 * 1024;
const BIRTH_CAMERAS_MAX: usize = 500;

/// The birth message within its bounds. A shortened one has the feature `info_shortened`.
pub(crate) fn birth_json(mut info: Info) -> Vec<u8> {
    let whole = to_json(&info);
    if whole.len() <= BIRTH_MAX_BYTES {
        return whole;
    }
    info.cams.truncate(BIRTH_CAMERAS_MAX);
    for camera in &mut info.cams {
        camera.prompts.clear();
        camera.zones.clear();
        camera.lines.clear();
        camera.triggers.clear();
    }
    info.features.push("info_shortened".into());
    to_json(&info)
}

/// The birth message. Contains no URL and no user name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Info {
    pub daemon: DaemonInfo,
    pub boot: String,
    /// Unix time in milliseconds.
    pub started_ms: i64,
    pub host: String,
    /// Names of the GPUs in use.
    pub gpus: Vec<String>,
    /// `None` until it is loaded.
    pub model: Option<ModelInfo>,
    pub cams: Vec<CameraInfo>,
    /// First digits of the configuration's hash.
    pub config_hash: String,
    /// Number of overrides in force.
    pub overrides: u32,
    /// Optional functions of this run.
    pub features: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonInfo {
    /// The constant text `spotter`.
    pub name: String,
    pub version: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelInfo {
    pub name: String,
    /// Like `Moondream 2`.
    pub family: String,
    /// Of the weights, in full.
    pub sha256: String,
    /// `f32`, `bf16` or `fp8`.
    pub precision: String,
    /// Objects a prompt may return.
    pub object_limit: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CameraInfo {
    pub id: String,
    /// Ids of its prompts.
    pub prompts: Vec<String>,
    /// Ids of its zones.
    pub zones: Vec<String>,
    /// Ids of its lines.
    pub lines: Vec<String>,
    /// Ids of its triggers.
    pub triggers: Vec<String>,
    /// Looks a second at most.
    pub rate: f64,
}

/// The result of a load of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConfigState {
    Ok,
    /// The previous configuration stays active.
    Rejected,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigReport {
    pub state: ConfigState,
    /// First digits of the file's hash.
    #[serde(default)]
    pub hash: String,
    /// Time of the load, as RFC 3339.
    #[serde(default)]
    pub at: String,
    /// The problems, one line each; only the first of very many.
    #[serde(default)]
    pub errors: Vec<String>,
}

/// A broker closes the connection on a message that is too large, and a state is sent again after each connect.
const ERRORS_MAX: usize = 50;
/// A longer problem is cut.
const ERROR_MAX_CHARS: usize = 500;

impl ConfigReport {
    /// `at` is UTC now.
    pub fn new(hash: String, at: spotter_core::WallTime, mut errors: Vec<String>) -> Self {
        for error in &mut errors {
            if let Some((cut, _)) = error.char_indices().nth(ERROR_MAX_CHARS) {
                error.truncate(cut);
                error.push('…');
            }
        }
        let unlisted = errors.len().saturating_sub(ERRORS_MAX);
        if unlisted > 0 {
            errors.truncate(ERRORS_MAX);
            errors.push(format!("{unlisted} more; `spotter check` shows all"));
        }
        Self {
            state: if errors.is_empty() {
                ConfigState::Ok
            } else {
                ConfigState::Rejected
            },
            hash,
            at: super::detection::rfc3339(at).unwrap_or_default(),
            errors,
        }
    }
}

/// How right the alarms of a camera are, by prompt.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CameraQuality {
    pub prompts: BTreeMap<PromptId, PromptQuality>,
}

/// Figures of the node, flat for time series databases. Rates are per second over the last period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// Unix time in milliseconds.
    pub time_ms: i64,
    /// Names the run, as in `info`: a number, because this payload has only numbers.
    pub started_ms: i64,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Number of cameras that stream.
    pub cams_online: u32,
    /// Number of cameras in the configuration.
    pub cams_total: u32,
    /// Decoded frames of all cameras.
    pub frames_in_ps: f64,
    /// Frames that the model analysed.
    pub frames_analysed_ps: f64,
    /// Frames dropped because they were too old.
    pub frames_late_ps: f64,
    /// Frames not analysed for lack of motion.
    pub frames_gated_ps: f64,
    /// Receive to publish, median; `None` without a message in the window.
    pub lat_total_p50_ms: Option<f64>,
    /// Receive to publish, 95th percentile.
    pub lat_total_p95_ms: Option<f64>,
    /// Receive to publish, 99th percentile.
    pub lat_total_p99_ms: Option<f64>,
    /// Capture to publish, 95th percentile; only of cameras whose clock is trusted.
    pub lat_e2e_p95_ms: Option<f64>,
    /// `model.budget`: what receive to publish may take.
    pub lat_budget_ms: u64,
    /// 1 while the 95th percentile is over the budget, else 0; a number, because time series databases drop booleans.
    pub lat_over_budget: u8,
    /// The first GPU; its keys are absent on a machine without one.
    #[serde(flatten, deserialize_with = "gpu_with_figures")]
    pub gpu: Option<GpuStats>,
    /// Images in a step that encoded any, mean over the last period; `None` without one.
    pub batch_mean: Option<f64>,
    /// Hand-over to acknowledgement by the broker, 95th percentile.
    pub mqtt_puback_p95_ms: Option<f64>,
    /// Messages dropped since the start.
    pub mqtt_dropped: u64,
    /// Events that the broker has not acknowledged, on disk or in memory.
    pub spool_msgs: u64,
    /// Resident memory of the process.
    pub rss_mib: Option<f64>,
    /// Of one core, so 200 is two cores.
    pub cpu_pct: Option<f64>,
}

/// `None` without a key of a GPU.
fn gpu_with_figures<'de, D: Deserializer<'de>>(keys: D) -> Result<Option<GpuStats>, D::Error> {
    let gpu = GpuStats::deserialize(keys)?;
    Ok((gpu != GpuStats::default()).then_some(gpu))
}

/// Figures of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuStats {
    /// Share of time with a kernel of any process, from the driver; `gpu0_busy_pct` is the share of this process.
    pub gpu0_util_pct: Option<f64>,
    /// Share of time with a step of this process in flight.
    pub gpu0_busy_pct: Option<f64>,
    /// Memory in use by all processes.
    pub gpu0_mem_mib: Option<u64>,
    /// Temperature in degrees Celsius.
    pub gpu0_temp_c: Option<u32>,
    /// Its video decoders' share of time.
    pub nvdec_pct: Option<f64>,
}

/// Which node of a fleet watches a camera.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CameraOwner {
    /// `None`: none does.
    #[serde(default)]
    pub node: Option<NodeId>,
    pub epoch: Epoch,
}

/// Why a camera is off without a problem: codes of `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// By `enabled`, in the file or by a command.
    SwitchedOff,
    /// The schedule switches it off.
    Schedule,
    /// The end of its file.
    Ended,
}

impl Off {
    pub const ALL: [Self; 3] = [Self::SwitchedOff, Self::Schedule, Self::Ended];

    pub fn code(self) -> &'static str {
        match self {
            Self::SwitchedOff => "switched_off",
            Self::Schedule => "schedule",
            Self::Ended => "ended",
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::SwitchedOff => "by `enabled`, in the configuration or by a command",
            Self::Schedule => "its `schedule` leaves this time out",
            Self::Ended => {
                "the file was played to its end; with `?loop` behind its name it begins again"
            }
        }
    }
}

/// The health of a camera. `state` is one of the values in docs/mqtt.md section 2.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CameraHealth {
    pub state: Phase,
    /// A short code and a text, without the login: why the camera does not stream.
    pub reason: Option<String>,
    /// When the state began, Unix milliseconds.
    pub since_ms: i64,
    /// Attempts since it last streamed.
    pub attempts: u32,
    /// Seconds until the next attempt.
    pub next_retry_s: Option<f64>,
    /// One of `h264`, `h265`, `jpeg`; `raw` for frames that are not encoded.
    pub codec: Option<String>,
    /// Width of a frame in pixels.
    pub w: Option<u32>,
    /// Height of a frame in pixels.
    pub h: Option<u32>,
    /// As declared by the camera.
    pub fps_declared: Option<f64>,
    /// Frames per second that arrive.
    pub fps_measured: Option<f64>,
    /// Seconds between key frames.
    pub gop_s: Option<f64>,
    /// RTSP transport: `tcp` or `udp`.
    pub transport: Option<String>,
    /// GStreamer's name of the element that decodes, or did last.
    pub decoder: Option<String>,
    /// What is odd about a stream that is shown all the same: `faster_than_declared`.
    pub note: Option<String>,
    /// Losses since the start, each under its own key.
    #[serde(flatten)]
    pub counters: StreamCounters,
    /// Within the last hour.
    pub reconnects_1h: u32,
    /// Within the last hour.
    pub stalls_1h: u32,
    /// Pipelines that did not end, since the start; after some of them the daemon exits.
    pub abandoned: u32,
    pub clock: CameraClockHealth,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CameraClockHealth {
    /// The capture times come from its sender reports.
    pub trusted: bool,
    /// Camera time minus the node's time.
    pub offset_ms: Option<f64>,
    /// How fast the offset grows.
    pub drift_ppm: Option<f64>,
    /// Age of the last sender report.
    pub sr_age_s: Option<f64>,
    /// Why it is not trusted.
    pub note: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use spotter_core::WallTime;

    fn value(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn config_reports_say_when_and_what() {
        let at = WallTime::from_unix_millis(1_787_393_730_123);
        let report = |errors| ConfigReport::new("ab12".into(), at, errors);
        let bad = value(&to_json(&report(vec!["x".into()])));
        let expected = json!({"v": 1, "state": "rejected", "hash": "ab12",
            "at": "2026-08-22T10:15:30.123Z", "errors": ["x"]});
        assert_eq!(bad, expected);
        assert_eq!(report(vec![]).state, ConfigState::Ok);
        let many = report(vec!["x".into(); ERRORS_MAX + 7]);
        assert_eq!(many.errors.len(), ERRORS_MAX + 1);
        assert!(many.errors[ERRORS_MAX].starts_with("7 more"));
        let long = report(vec!["é".repeat(100_000); 1000]);
        assert!(to_json(&long).len() < BIRTH_MAX_BYTES);
    }

    #[test]
    fn birth_message_of_many_cameras_stays_within_its_bound() {
        let camera = |number: usize| CameraInfo {
            id: format!("{number:0>32}"),
            prompts: vec!["p".repeat(32); 8],
            zones: vec!["z".repeat(32); 8],
            lines: vec!["l".repeat(32); 8],
            triggers: Vec::new(),
            rate: 1.0,
        };
        let info = |cameras| Info {
            cams: (0..cameras).map(camera).collect(),
            ..crate::testing::info()
        };
        let few = value(&birth_json(info(16)));
        assert_eq!(few["cams"][15]["zones"].as_array().unwrap().len(), 8);
        let many = birth_json(info(3000));
        assert!(many.len() <= BIRTH_MAX_BYTES, "{} bytes", many.len());
        let many = value(&many);
        assert_eq!(many["cams"].as_array().unwrap().len(), BIRTH_CAMERAS_MAX);
        assert_eq!(many["features"], json!(["info_shortened"]));
    }
}
