//! `[camera.*]` with its zones and prompts, and `[defaults]`, which fills in what a camera does not say.

use super::{
    CameraConfig, CameraTls, Decode, EventConfig, MotionConfig, PromptConfig, SourceConfig,
    Transport, WeeklySchedule, ZoneConfig, ZonePoint,
    address::{self, CameraUrl},
    choices, defaults as d,
    load::Scope,
    parse, polygon,
    reader::{ConfigValue, Reader},
    schedule::schedule,
    sections::{INSECURE, login},
};
use crate::{CameraId, PromptId, Task, ZoneId};

/// All cameras in the order of the file. `[defaults]` is read on the way.
pub(super) fn cameras(scope: &Scope<'_>, root: &mut Reader<'_>) -> Vec<CameraConfig> {
    let mut settings = CameraDefaults::default();
    if let Some(mut table) = root.table("defaults") {
        settings = CameraDefaults::read(&mut table, &settings);
        table.finish();
    }
    let tables = root.tables("camera", CameraId::new);
    if tables.is_empty() {
        root.missing(
            &["camera"],
            "no camera; add [camera.NAME] with a url and a prompt",
        );
    }
    let read = |(id, table)| camera(scope, id, table, &settings);
    tables.into_iter().filter_map(read).collect()
}

/// What `[defaults]` and `[camera.*]` have in common.
#[derive(Clone)]
struct CameraDefaults {
    rate_hz: f64,
    width: u32,
    transport: Transport,
    stall: std::time::Duration,
    first_frame: std::time::Duration,
    decode: Decode,
    motion: MotionConfig,
    schedule: Option<WeeklySchedule>,
    events: EventConfig,
}

impl Default for CameraDefaults {
    fn default() -> Self {
        Self {
            rate_hz: d::RATE_HZ,
            width: d::WIDTH as u32,
            transport: d::TRANSPORT,
            stall: d::STALL,
            first_frame: d::FIRST_FRAME,
            decode: Decode::All,
            motion: MotionConfig {
                on: false,
                threshold: d::MOTION_THRESHOLD,
                hold: d::MOTION_HOLD,
                at_least_every: d::MOTION_AT_LEAST_EVERY,
            },
            schedule: None,
            events: EventConfig {
                confirm: d::CONFIRM,
                end_after: d::END_AFTER,
                still_after: d::STILL_AFTER,
            },
        }
    }
}

impl CameraDefaults {
    /// The settings of a table; `base` where it says nothing.
    fn read(table: &mut Reader<'_>, base: &Self) -> Self {
        let rate_hz = table.get("rate").and_then(|v| v.number());
        let width = table.get("width").and_then(|v| v.whole());
        let transports = [
            ("tcp", Transport::Tcp),
            ("udp", Transport::Udp),
            ("auto", Transport::Auto),
        ];
        let transport = table.get("transport").and_then(|v| v.choice(&transports));
        let stall = table.get("stall").and_then(|v| v.duration());
        let first_frame = table.get("first_frame").and_then(|v| v.duration());
        let decodes = [("all", Decode::All), ("keyframes", Decode::KeyFrames)];
        let decode = table.get("decode").and_then(|v| v.choice(&decodes));
        let schedule = table.get("schedule").and_then(|v| v.parsed(schedule));
        Self {
            rate_hz: rate_hz.unwrap_or(base.rate_hz),
            width: width.map_or(base.width, |width| width as u32),
            transport: transport.unwrap_or(base.transport),
            stall: stall.unwrap_or(base.stall),
            first_frame: first_frame.unwrap_or(base.first_frame),
            decode: decode.unwrap_or(base.decode),
            motion: motion(table.table("motion"), base.motion),
            schedule: schedule.or_else(|| base.schedule.clone()),
            events: events(table.table("events"), base.events),
        }
    }
}

fn camera(
    scope: &Scope<'_>,
    id: CameraId,
    mut table: Reader<'_>,
    base: &CameraDefaults,
) -> Option<CameraConfig> {
    let settings = CameraDefaults::read(&mut table, base);
    let source = source(scope, &mut table, settings.transport);
    let mask = table
        .get("mask")
        .and_then(|value| value.list())
        .unwrap_or_default();
    let mask = mask.iter().filter_map(corners).collect();
    let zones = table.tables("zone", ZoneId::new).into_iter();
    let zones: Vec<ZoneConfig> = zones.map(|(id, table)| zone(id, table)).collect();
    let prompts = table.tables("prompt", PromptId::new);
    if prompts.is_empty() {
        let example = format!("[camera.{id}.prompt.NAME] with detect, point or query");
        table.missing(&["prompt"], format!("no prompt; add {example}"));
    }
    table.finish();
    let surroundings = Surroundings {
        camera: &id,
        rate_hz: settings.rate_hz,
        zones: &zones,
        events: settings.events,
    };
    let read = |(id, table)| prompt(id, table, &surroundings);
    let prompts = prompts.into_iter().filter_map(read).collect();
    Some(CameraConfig {
        id,
        enabled: true,
        source: source?,
        rate_hz: settings.rate_hz,
        width: settings.width,
        stall: settings.stall,
        first_frame: settings.first_frame,
        decode: settings.decode,
        motion: settings.motion,
        mask,
        zones,
        schedule: settings.schedule,
        prompts,
    })
}

/// `url` with what belongs to it: user, password, tls, transport.
fn source(scope: &Scope<'_>, table: &mut Reader<'_>, transport: Transport) -> Option<SourceConfig> {
    let url = table.get("url");
    if url.is_none() {
        table.missing(&["url"], "no url; add url = \"rtsp://HOST/PATH\"");
    }
    let of_rtsp = ["user", "password", "tls", "transport"].map(|key| table.get(key));
    let (user, password) = login(scope, table);
    let address = url.as_ref()?.parsed(address::camera)?;
    if !matches!(address, CameraUrl::Rtsp { .. }) {
        for value in of_rtsp.iter().flatten() {
            value.error("is only for rtsp and rtsps cameras");
        }
    }
    let [_, _, tls, _] = of_rtsp;
    Some(match address {
        CameraUrl::Rtsp { url: text, secure } => {
            if let (false, Some(_), Some(url)) = (secure, &tls, &url) {
                url.error("rtsp:// together with tls; did you mean rtsps://?");
            }
            SourceConfig::Rtsp {
                url: text,
                user,
                password,
                transport,
                tls: tls
                    .and_then(|value| camera_tls(&value))
                    .unwrap_or(CameraTls::Verify),
            }
        }
        CameraUrl::File { path, looped } => SourceConfig::File { path, looped },
        CameraUrl::Usb { device } => SourceConfig::Usb { device },
        CameraUrl::Test => SourceConfig::Test,
    })
}

/// `{ fingerprint = "sha256:…" }` or `{ insecure = true }`.
fn camera_tls(value: &ConfigValue<'_>) -> Option<CameraTls> {
    let mut table = value.table()?;
    let fingerprint = table.get("fingerprint");
    let insecure = table.get("insecure").and_then(|value| value.flag()) == Some(true);
    table.finish();
    match (fingerprint, insecure) {
        (Some(_), true) => {
            value.error("use either fingerprint or insecure");
            None
        }
        (Some(fingerprint), false) => fingerprint
            .parsed(parse::fingerprint)
            .map(CameraTls::Fingerprint),
        (None, true) => {
            value.warning(INSECURE);
            Some(CameraTls::Insecure)
        }
        (None, false) => None,
    }
}

fn motion(table: Option<Reader<'_>>, base: MotionConfig) -> MotionConfig {
    let Some(mut table) = table else {
        return base;
    };
    let on = table.get("on").and_then(|v| v.flag());
    let threshold = table.get("threshold").and_then(|v| v.number());
    let hold = table.get("hold").and_then(|v| v.duration());
    let every = table.get("at_least_every");
    let every = every.and_then(|v| v.duration());
    table.finish();
    MotionConfig {
        on: on.unwrap_or(base.on),
        threshold: threshold.unwrap_or(base.threshold),
        hold: hold.unwrap_or(base.hold),
        at_least_every: every.unwrap_or(base.at_least_every),
    }
}

fn events(table: Option<Reader<'_>>, base: EventConfig) -> EventConfig {
    let Some(mut table) = table else {
        return base;
    };
    let confirm = table.get("confirm").and_then(|v| v.parsed(parse::confirm));
    let end_after = table.get("end_after").and_then(|v| v.duration());
    let still_after = table.get("still_after").and_then(|v| v.duration());
    table.finish();
    EventConfig {
        confirm: confirm.unwrap_or(base.confirm),
        end_after: end_after.unwrap_or(base.end_after),
        still_after: still_after.unwrap_or(base.still_after),
    }
}

/// A zone; with a wrong polygon it is still one, so that prompts may name it.
fn zone(id: ZoneId, mut table: Reader<'_>) -> ZoneConfig {
    let polygon = table.get("polygon");
    if polygon.is_none() {
        table.missing(
            &["polygon"],
            "no polygon; add polygon = [[x, y], …], shares of the picture",
        );
    }
    let points = [("bottom", ZonePoint::Bottom), ("centre", ZonePoint::Centre)];
    let point = table.get("point").and_then(|value| value.choice(&points));
    table.finish();
    ZoneConfig {
        id,
        polygon: polygon.as_ref().and_then(corners).unwrap_or_default(),
        point: point.unwrap_or(ZonePoint::Bottom),
    }
}

/// `[[x, y], …]`, checked to be an area.
fn corners(value: &ConfigValue<'_>) -> Option<Vec<(f64, f64)>> {
    let mut corners = Vec::new();
    for corner in value.list()? {
        let numbers = corner.list()?;
        let [x, y] = numbers.as_slice() else {
            corner.error(format!(
                "a point is [x, y], this one has {} numbers",
                numbers.len()
            ));
            return None;
        };
        // The range is polygon::check's to judge: its message counts the points.
        let any = f64::NEG_INFINITY..=f64::INFINITY;
        corners.push((x.number_in(any.clone())?, y.number_in(any)?));
    }
    value.checked(polygon::check(&corners))?;
    Some(corners)
}

/// What a prompt takes from its camera.
struct Surroundings<'a> {
    camera: &'a CameraId,
    rate_hz: f64,
    zones: &'a [ZoneConfig],
    events: EventConfig,
}

fn prompt(id: PromptId, mut table: Reader<'_>, camera: &Surroundings<'_>) -> Option<PromptConfig> {
    let task = task(&mut table);
    let rate = table.get("rate");
    let rate_hz = rate.as_ref().and_then(|value| value.number());
    let rate_hz = rate_hz.unwrap_or(camera.rate_hz);
    if let (true, Some(rate)) = (rate_hz > camera.rate_hz, &rate) {
        let ceiling = camera.rate_hz;
        rate.error(format!(
            "{rate_hz} is above the camera's {ceiling}; the camera rate is the ceiling"
        ));
    }
    let min_score = table.get("min_score").and_then(|v| v.number());
    let area = table.get("min_area");
    let zones = table.get("zones");
    let snapshot = table.get("snapshot").and_then(|v| v.flag());
    let verify = table.get("verify");
    let events = events(table.table("events"), camera.events);
    table.finish();

    // A key that cannot have an effect would only seem to filter.
    let (no_boxes, no_places): (&[_], &[_]) = match &task {
        Some(Task::Point { .. }) => (&[&area], &[]),
        Some(Task::Query { .. }) => (&[&area], &[&zones, &verify]),
        _ => (&[], &[]),
    };
    for value in no_boxes.iter().chain(no_places).copied().flatten() {
        value.error("has no effect on an answer without boxes; use it with detect");
    }
    Some(PromptConfig {
        id,
        enabled: true,
        revision: 1,
        task: task?,
        rate_hz,
        min_score: min_score.unwrap_or(0.0),
        min_area: area.and_then(|v| v.number()).unwrap_or(0.0),
        zones: zones
            .and_then(|value| prompt_zones(&value, camera))
            .unwrap_or_default(),
        snapshot: snapshot.unwrap_or(false),
        verify: verify.and_then(|value| value.parsed(parse::prompt_text)),
        events,
    })
}

/// Exactly one of detect, point, query; with query also the choices.
fn task(table: &mut Reader<'_>) -> Option<Task> {
    const ONE: &str = "give exactly one of detect, point, query";
    const KEYS: [&str; 3] = ["detect", "point", "query"];
    let given = KEYS.map(|key| table.get(key));
    let choices = table.get("choices");
    if given.iter().flatten().count() > 1 {
        table.error(ONE);
        return None;
    }
    if let ([Some(_), ..] | [_, Some(_), _], Some(choices)) = (&given, &choices) {
        choices.error("has no effect on an answer that is not text; use it with query");
    }
    let words = |value: ConfigValue<'_>| value.parsed(parse::prompt_text);
    match given {
        [Some(value), _, _] => words(value).map(|object| Task::Detect { object }),
        [_, Some(value), _] => words(value).map(|object| Task::Point { object }),
        [_, _, Some(value)] => {
            let choices = choices.map_or(Some(Vec::new()), |value| choices::read(&value));
            let question = words(value);
            Some(Task::Query {
                question: question?,
                choices: choices?,
            })
        }
        [None, None, None] => {
            table.missing(&KEYS, ONE);
            None
        }
    }
}

fn prompt_zones(value: &ConfigValue<'_>, camera: &Surroundings<'_>) -> Option<Vec<ZoneId>> {
    let names: Vec<_> = camera.zones.iter().map(|zone| zone.id.as_str()).collect();
    let has = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    let mut ids = Vec::new();
    for element in value.list()? {
        let name = element.text()?;
        match camera.zones.iter().find(|zone| zone.id.as_str() == name) {
            Some(zone) => ids.push(zone.id.clone()),
            None => {
                let camera = camera.camera;
                element.error(format!(
                    "{name:?} is not a zone of camera {camera}; has: {has}"
                ));
            }
        }
    }
    Some(ids)
}
