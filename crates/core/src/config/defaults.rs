//! Default of each key, and the range of each number. `keys` and the readers of the sections use these constants alone.

use std::{
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    ops::RangeInclusive,
    time::Duration,
};

use super::{
    Commands, Decode, DevicePreference, Discovery, FramePlace, GpuPrecision, OverridePersistence,
    Transport, ZonePoint,
};

/// Version of the file's shape (`schema`).
pub(super) const SCHEMA: u64 = 1;

/// `node.state_dir` when it is `auto` and the environment names neither a state directory nor a home.
pub(super) const STATE_DIR: &str = "/var/lib/spotter";

/// `http.listen`: metrics and health, for this machine only.
pub(super) const HTTP_LISTEN: SocketAddr =
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9464));

pub(super) const MQTT_PORT: u16 = 1883;
pub(super) const MQTTS_PORT: u16 = 8883;
/// `mqtt.base`: first level of all topics.
pub(super) const MQTT_BASE: &str = "spotter";
/// The default of `mqtt.commands`.
pub(super) const COMMANDS: Commands = Commands::Basic;
/// The default of `mqtt.overrides`.
pub(super) const OVERRIDES: OverridePersistence = OverridePersistence::Keep;
/// The default of `mqtt.ha.discovery`.
pub(super) const DISCOVERY: Discovery = Discovery::Device;
/// `mqtt.ha.prefix`: Home Assistant's own default.
pub(super) const HA_PREFIX: &str = "homeassistant";
/// `mqtt.spool.events`: events kept while the broker is away.
pub(super) const SPOOL_EVENTS: u64 = 5000;
pub(super) const SPOOL_EVENTS_RANGE: RangeInclusive<u64> = 0..=1_000_000;
/// `mqtt.spool.max_age`: older events are dropped.
pub(super) const SPOOL_MAX_AGE: Duration = hours(24);
pub(super) const SPOOL_MAX_AGE_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=hours(24 * 30);
/// `mqtt.spool.max_mb`: megabytes on disk.
pub(super) const SPOOL_MAX_MB: u64 = 20;
pub(super) const SPOOL_MAX_MB_RANGE: RangeInclusive<u64> = 1..=10_000;

/// `model.gpus`: the first GPU.
pub(super) const GPUS: [u32; 1] = [0];
/// The default of `model.device`.
pub(super) const DEVICE: DevicePreference = DevicePreference::Auto;
/// The default of `model.precision`.
pub(super) const PRECISION: GpuPrecision = GpuPrecision::Bf16;
/// The default of `model.frames`.
pub(super) const FRAMES: FramePlace = FramePlace::Host;
/// Range of one index in `model.gpus`.
pub(super) const GPU_RANGE: RangeInclusive<u64> = 0..=63;
/// `model.budget` with a model directory.
pub(super) const BUDGET: Duration = Duration::from_millis(250);
/// `model.budget` with the embedded model, which runs on a small machine's CPU.
pub(super) const BUDGET_EMBEDDED: Duration = Duration::from_secs(1);
pub(super) const BUDGET_RANGE: RangeInclusive<Duration> = Duration::from_millis(10)..=minutes(1);
/// `model.max_objects`: the limit of the published model's own code.
pub(super) const MAX_OBJECTS: u64 = 50;
pub(super) const MAX_OBJECTS_RANGE: RangeInclusive<u64> = 1..=1000;
/// `model.tile_difference`: only a tile of the same bytes is unchanged.
pub(super) const TILE_DIFFERENCE: f64 = 0.0;
/// Range of `model.tile_difference`, in steps of a byte.
pub(super) const TILE_DIFFERENCE_RANGE: RangeInclusive<f64> = 0.0..=255.0;

/// `rate`: looks a second.
pub(super) const RATE_HZ: f64 = 1.0;
/// `transport`: TCP first, UDP when the camera refuses TCP.
pub(super) const TRANSPORT: Transport = Transport::Auto;
/// The default of `decode`.
pub(super) const DECODE: Decode = Decode::All;
/// Range of every `rate`.
pub const RATE_HZ_RANGE: RangeInclusive<f64> = 0.01..=30.0;
/// `width`: pixels across after decoding.
pub(super) const WIDTH: u64 = 1280;
pub(super) const WIDTH_RANGE: RangeInclusive<u64> = 64..=7680;
/// `stall`: no frame for this time means that the stream has stalled.
pub(super) const STALL: Duration = Duration::from_secs(5);
pub(super) const STALL_RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=minutes(10);
/// `first_frame`: from connecting to the first frame.
pub(super) const FIRST_FRAME: Duration = Duration::from_secs(15);
pub(super) const FIRST_FRAME_RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=minutes(10);

/// `motion.threshold`: share of the picture that must change.
pub(super) const MOTION_THRESHOLD: f64 = 0.02;
/// `motion.hold`: the gate stays open for this time after motion.
pub(super) const MOTION_HOLD: Duration = Duration::from_secs(10);
pub(super) const MOTION_HOLD_RANGE: RangeInclusive<Duration> = Duration::ZERO..=hours(1);
/// `motion.at_least_every`: longest time between two looks, also without motion.
pub(super) const MOTION_AT_LEAST_EVERY: Duration = Duration::from_secs(30);
pub(super) const MOTION_AT_LEAST_EVERY_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=hours(24);
/// Range of scores, thresholds, coordinates and areas.
pub const SHARE_RANGE: RangeInclusive<f64> = 0.0..=1.0;

/// `events.confirm`: 2 of the last 3 looks must see it.
pub const CONFIRM: (u32, u32) = (2, 3);
/// `min_score`: every object is reported.
pub(super) const MIN_SCORE: f64 = 0.0;
/// `min_area`: boxes of every size are reported.
pub(super) const MIN_AREA: f64 = 0.0;
/// `point` of a zone.
pub(super) const ZONE_POINT: ZonePoint = ZonePoint::Bottom;
/// The most looks that `events.confirm` may span.
pub(super) const CONFIRM_LOOKS_MAX: u32 = 100;
/// `events.end_after`: not found for this time means gone.
pub const END_AFTER: Duration = Duration::from_secs(3);
/// `events.still_after`: unmoved for this time means still.
pub const STILL_AFTER: Duration = Duration::from_secs(30);
/// Range of `events.end_after` and `events.still_after`.
pub(super) const EVENT_TIME_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(100)..=hours(24);

/// The longest prompt text, in characters.
pub const PROMPT_TEXT_MAX_CHARS: usize = 200;
/// How many texts `choices` may have.
pub(super) const CHOICES_RANGE: RangeInclusive<usize> = 2..=16;
/// The longest text of `choices`, in characters.
pub(super) const CHOICE_MAX_CHARS: usize = 40;

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

const fn hours(count: u64) -> Duration {
    minutes(60 * count)
}
