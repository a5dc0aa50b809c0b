//! `[camera.*]` with its zones, lines and prompts, and `[defaults]`, which fills in the settings that a camera does not have.

use super::{
    CameraConfig, Decode, EventConfig, LineConfig, MotionConfig, PromptConfig, SharedCamera,
    Transport, WeeklySchedule, ZoneConfig, choices, crops, defaults as d, dwell, fleet,
    keys::{self, prompt as prompt_keys, settings},
    load::Scope,
    parse, polygon,
    reader::{ConfigValue, Reader},
    region,
    schedule::{schedule, weekly_time},
    source::source,
    strip::{self, StripKeys, StripQuestion},
    trigger::triggers,
};
use crate::{CameraId, DirectionId, LineId, LookRate, PromptId, PromptRegion, Task, ZoneId};

/// All cameras in the order of the file. `[defaults]` is read on the way.
pub(super) fn cameras(scope: &Scope<'_>, root: &mut Reader<'_>) -> Vec<CameraConfig> {
    read_cameras(root, |id, table, settings| {
        camera(scope, id, table, settings)
    })
}

/// In a fleet, the file has no cameras.
pub(super) fn no_cameras(root: &mut Reader<'_>) -> Vec<CameraConfig> {
    for key in [&keys::root::DEFAULTS, &keys::root::CAMERA] {
        if let Some(value) = root.get(key) {
            value.error("not together with [fleet]: write it to the fleet's list with `spotter fleet apply FILE`");
        }
    }
    Vec::new()
}

fn read_cameras<'a, C>(
    root: &mut Reader<'a>,
    read: impl Fn(CameraId, Reader<'a>, &CameraDefaults) -> Option<C>,
) -> Vec<C> {
    let mut table = root.table(&keys::root::DEFAULTS);
    let settings = CameraDefaults::read(&mut table, None);
    table.finish();
    let tables = root.tables(&keys::root::CAMERA, CameraId::new);
    if tables.is_empty() {
        root.missing(
            &["camera"],
            "no camera; add [camera.NAME] with a url and a prompt",
        );
    }
    let read = |(id, table)| read(id, table, &settings);
    tables.into_iter().filter_map(read).collect()
}

/// The cameras of a fleet's list.
pub(super) fn fleet_cameras(scope: &Scope<'_>, root: &mut Reader<'_>) -> Vec<SharedCamera> {
    let fleet_camera = |id, mut table: Reader<'_>, settings: &CameraDefaults| {
        let label = table.parsed(&keys::fleet_camera::LABEL, fleet::label);
        let priority = table.read_or_default(&keys::fleet_camera::PRIORITY) as u8;
        let sessions = table.read_or_default(&keys::fleet_camera::SESSIONS);
        Some(SharedCamera {
            camera: camera(scope, id, table, settings)?,
            label,
            priority,
            has_one_session: sessions == 1,
        })
    };
    read_cameras(root, fleet_camera)
}

/// What `[defaults]` and `[camera.*]` have in common.
struct CameraDefaults {
    rate: LookRate,
    width: u32,
    crops_max: Option<u8>,
    transport: Transport,
    stall: std::time::Duration,
    first_frame: std::time::Duration,
    decode: Decode,
    motion: MotionConfig,
    schedule: Option<WeeklySchedule>,
    events: EventConfig,
}

impl CameraDefaults {
    /// The settings of a table; where it has none, those of `base` or, without it, the defaults.
    fn read(table: &mut Reader<'_>, base: Option<&Self>) -> Self {
        let width = base.map(|base| base.width.into());
        let schedule = table.parsed(&settings::SCHEDULE, schedule);
        Self {
            rate: table.read_or(&settings::RATE, base.map(|base| base.rate)),
            width: table.read_or(&settings::WIDTH, width) as u32,
            crops_max: crops::read(
                table.get(&settings::CROPS),
                base.and_then(|base| base.crops_max),
            ),
            transport: table.read_or(&settings::TRANSPORT, base.map(|base| base.transport)),
            stall: table.read_or(&settings::STALL, base.map(|base| base.stall)),
            first_frame: table.read_or(&settings::FIRST_FRAME, base.map(|base| base.first_frame)),
            decode: table.read_or(&settings::DECODE, base.map(|base| base.decode)),
            motion: motion(table.table(&settings::MOTION), base.map(|base| base.motion)),
            schedule: schedule.or_else(|| base?.schedule.clone()),
            events: events(
                table.table(&settings::EVENTS),
                base.map_or(d::EVENTS, |base| base.events),
            ),
        }
    }
}

fn camera(
    scope: &Scope<'_>,
    id: CameraId,
    mut table: Reader<'_>,
    base: &CameraDefaults,
) -> Option<CameraConfig> {
    let settings = CameraDefaults::read(&mut table, Some(base));
    let source = source(scope, &mut table, settings.transport);
    let mask = table
        .get(&keys::camera::MASK)
        .and_then(|value| value.list())
        .unwrap_or_default();
    let mask = mask.iter().filter_map(corners).collect();
    let zones = table.tables(&keys::camera::ZONE, ZoneId::new).into_iter();
    let zones: Vec<ZoneConfig> = zones.map(|(id, table)| zone(id, table)).collect();
    let lines = table.tables(&keys::camera::LINE, LineId::new).into_iter();
    let read_lines: Vec<ReadLine<'_>> = lines.map(|(id, table)| line(id, table)).collect();
    let lines: Vec<LineConfig> = read_lines.iter().map(|read| read.line.clone()).collect();
    let triggers = triggers(scope, &mut table, source.as_ref());
    let prompts = table.tables(&keys::camera::PROMPT, PromptId::new);
    if prompts.is_empty() {
        let example = format!("[camera.{id}.prompt.NAME] with detect, point or query");
        table.missing(&["prompt"], format!("no prompt; add {example}"));
    }
    table.finish();
    let of_camera = PromptScope {
        rate: settings.rate,
        crops_max: settings.crops_max,
        events: settings.events,
        zones: &zones,
        lines: &lines,
    };
    let read = |(id, table)| prompt(id, table, of_camera);
    let prompts: Vec<PromptConfig> = prompts.into_iter().filter_map(read).collect();
    warn_of_unused(&read_lines, &prompts);
    Some(CameraConfig {
        id,
        enabled: true,
        source: source?,
        rate: settings.rate,
        width: settings.width,
        crops_max: settings.crops_max,
        stall: settings.stall,
        first_frame: settings.first_frame,
        decode: settings.decode,
        motion: settings.motion,
        mask,
        zones,
        lines,
        triggers: triggers.triggers,
        onvif_url: triggers.onvif_url,
        schedule: settings.schedule,
        events: settings.events,
        prompts,
    })
}

fn motion(mut table: Reader<'_>, base: Option<MotionConfig>) -> MotionConfig {
    let every = base.map(|base| base.at_least_every);
    let motion = MotionConfig {
        on: table.read_or(&keys::motion::ON, base.map(|base| base.on)),
        threshold: table.read_or(&keys::motion::THRESHOLD, base.map(|base| base.threshold)),
        hold: table.read_or(&keys::motion::HOLD, base.map(|base| base.hold)),
        at_least_every: table.read_or(&keys::motion::AT_LEAST_EVERY, every),
    };
    table.finish();
    motion
}

fn events(mut table: Reader<'_>, base: EventConfig) -> EventConfig {
    let confirm = table.parsed(&keys::events::CONFIRM, parse::confirm);
    let events = EventConfig {
        confirm: confirm.unwrap_or(base.confirm),
        end_after: table.read_or(&keys::events::END_AFTER, Some(base.end_after)),
        still_after: table.read_or(&keys::events::STILL_AFTER, Some(base.still_after)),
    };
    table.finish();
    events
}

/// A zone; with a wrong polygon it is still one, so that prompts may name it.
fn zone(id: ZoneId, mut table: Reader<'_>) -> ZoneConfig {
    let polygon = table.get(&keys::zone::POLYGON);
    if polygon.is_none() {
        table.missing(
            &["polygon"],
            "no polygon; add polygon = [[x, y], …], shares of the picture",
        );
    }
    let point = table.read_or_default(&keys::zone::POINT);
    table.finish();
    ZoneConfig {
        id,
        polygon: polygon.as_ref().and_then(corners).unwrap_or_default(),
        point,
    }
}

/// A line as the file has it.
struct ReadLine<'a> {
    line: LineConfig,
    points: Option<ConfigValue<'a>>,
}

/// A line; with wrong points it is still one, so that prompts may name it.
fn line<'a>(id: LineId, mut table: Reader<'a>) -> ReadLine<'a> {
    let points = table.get(&keys::line::POINTS);
    if points.is_none() {
        table.missing(
            &["points"],
            "no points; add points = [[x, y], [x, y]], shares of the picture",
        );
    }
    let directions = table.get(&keys::line::DIRECTIONS);
    let point = table.read_or_default(&keys::line::POINT);
    let reset = table.parsed(&keys::line::RESET, weekly_time);
    table.finish();
    let line = LineConfig {
        id,
        points: points.as_ref().and_then(line_points).unwrap_or_default(),
        directions: directions
            .and_then(|value| self::directions(&value))
            .unwrap_or_else(DirectionId::in_and_out),
        point,
        reset,
    };
    ReadLine { line, points }
}

fn line_points(value: &ConfigValue<'_>) -> Option<Vec<(f64, f64)>> {
    let points = points(value)?;
    value.checked(polygon::check_line(&points))?;
    Some(points)
}

/// Two different names.
fn directions(value: &ConfigValue<'_>) -> Option<[DirectionId; 2]> {
    let name = |element: &ConfigValue<'_>| {
        let text = element.text()?;
        element.checked(DirectionId::new(text).map_err(|error| error.to_string()))
    };
    let elements = value.list()?;
    let [first, second] = elements.as_slice() else {
        let count = elements.len();
        value.error(format!(
            "needs two names, has {count}; write [\"in\", \"out\"]"
        ));
        return None;
    };
    let (first, second) = (name(first), name(second));
    let (first, second) = (first?, second?);
    if first == second {
        value.error("both directions have the same name");
        return None;
    }
    Some([first, second])
}

/// A line that no prompt names counts nothing.
fn warn_of_unused(lines: &[ReadLine<'_>], prompts: &[PromptConfig]) {
    for ReadLine { line, points } in lines {
        let is_used = prompts.iter().any(|prompt| prompt.lines.contains(&line.id));
        if let (false, Some(points)) = (is_used, points) {
            let id = &line.id;
            points.warning(format!(
                "no prompt counts at this line; add lines = [\"{id}\"] to a prompt"
            ));
        }
    }
}

/// `[[x, y], …]`, checked to be an area.
fn corners(value: &ConfigValue<'_>) -> Option<Vec<(f64, f64)>> {
    let corners = points(value)?;
    value.checked(polygon::check(&corners))?;
    Some(corners)
}

/// `[[x, y], …]`, each of two numbers.
fn points(value: &ConfigValue<'_>) -> Option<Vec<(f64, f64)>> {
    let mut points = Vec::new();
    for corner in value.list()? {
        let numbers = corner.list()?;
        let [x, y] = numbers.as_slice() else {
            corner.error(format!(
                "a point is [x, y], this one has {} numbers",
                numbers.len()
            ));
            return None;
        };
        // `polygon` checks the range: its message counts the points.
        let any = f64::NEG_INFINITY..=f64::INFINITY;
        points.push((x.number(any.clone())?, y.number(any)?));
    }
    Some(points)
}

/// What of a camera its prompts depend on: the values of those that have none of their own, and what they may name.
#[derive(Clone, Copy)]
pub(super) struct PromptScope<'a> {
    pub rate: LookRate,
    pub crops_max: Option<u8>,
    pub events: EventConfig,
    pub zones: &'a [ZoneConfig],
    pub lines: &'a [LineConfig],
}

pub(super) fn prompt(
    id: PromptId,
    mut table: Reader<'_>,
    camera: PromptScope<'_>,
) -> Option<PromptConfig> {
    let task = task(&mut table);
    let rate_value = table.get(&keys::prompt::RATE);
    let rate = rate_value.as_ref().and_then(ConfigValue::look_rate);
    let rate = rate.unwrap_or(camera.rate);
    if let (true, Some(value)) = (rate > camera.rate, &rate_value) {
        let ceiling = camera.rate;
        value.error(format!(
            "{rate} is above the camera's {ceiling}; the camera rate is the ceiling"
        ));
    }
    let region = table.get(&keys::prompt::REGION);
    let crops_max = crops::read(table.get(&keys::prompt::CROPS), camera.crops_max);
    let min_score = table.read_or_default(&keys::prompt::MIN_SCORE);
    let area = table.get(&keys::prompt::MIN_AREA);
    let min_area = table.read_or_default(&keys::prompt::MIN_AREA);
    let zones = table.get(&keys::prompt::ZONES);
    let lines = table.get(&keys::prompt::LINES);
    let dwell = table.get(&keys::prompt::DWELL);
    let snapshot = table.read_or_default(&keys::prompt::SNAPSHOT);
    let verify = table.get(&keys::prompt::VERIFY);
    let describe = table.get(&keys::prompt::DESCRIBE);
    let strip_keys = StripKeys {
        frames: table.get(&keys::prompt::FRAMES),
        over: table.get(&keys::prompt::OVER),
    };
    let events = events(table.table(&keys::prompt::EVENTS), camera.events);
    table.finish();

    // A key that cannot have an effect would only seem to filter.
    let (no_boxes, no_places): (&[_], &[_]) = match &task {
        Some(Task::Point { .. }) => (&[&area], &[]),
        Some(Task::Query { .. }) => (&[&area], &[&zones, &lines, &dwell, &verify, &describe]),
        _ => (&[], &[]),
    };
    for value in no_boxes.iter().chain(no_places).copied().flatten() {
        value.error("has no effect on an answer without boxes; use it with detect");
    }
    let region = region.and_then(|value| region::read(&value, camera.zones));
    let region = region.unwrap_or_default();
    let question = StripQuestion {
        task: task.as_ref(),
        is_describing: describe.is_some(),
        region,
    };
    let strip = strip::read(&strip_keys, question);
    let zones = zones.and_then(|value| {
        let named = named(&value, "zone", camera.zones, |zone| &zone.id)?;
        let outside = region::zones_outside_region(region, &named, camera.zones);
        outside.into_iter().for_each(|text| value.error(text));
        Some(named)
    });
    let zones = zones.unwrap_or_default();
    let dwell = dwell.and_then(|value| dwell::read(&value, &zones, camera.zones));
    let lines = lines.and_then(|value| prompt_lines(&value, camera, region, &zones));
    Some(PromptConfig {
        id,
        enabled: true,
        revision: 1,
        task: task?,
        region,
        crops_max,
        rate,
        min_score,
        min_area,
        zones,
        lines: lines.unwrap_or_default(),
        dwell: dwell.unwrap_or_default(),
        snapshot,
        verify: verify.and_then(|value| value.parsed(parse::prompt_text)),
        describe: describe.and_then(|value| value.parsed(parse::prompt_text)),
        strip,
        events,
    })
}

/// Exactly one of detect, point, query; with query also the choices.
fn task(table: &mut Reader<'_>) -> Option<Task> {
    const ONE: &str = "give exactly one of detect, point, query";
    let keys = [
        &prompt_keys::DETECT,
        &prompt_keys::POINT,
        &prompt_keys::QUERY,
    ];
    let given = keys.map(|key| table.get(key));
    let choices = table.get(&prompt_keys::CHOICES);
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
                options: Default::default(),
            })
        }
        [None, None, None] => {
            table.missing(&keys.map(|key| key.name), ONE);
            None
        }
    }
}

/// The lines that a prompt names, each of which its objects can cross.
fn prompt_lines(
    value: &ConfigValue<'_>,
    camera: PromptScope<'_>,
    region: PromptRegion,
    zones: &[ZoneId],
) -> Option<Vec<LineId>> {
    let named = named(value, "line", camera.lines, |line| &line.id)?;
    let zones = camera.zones.iter().filter(|zone| zones.contains(&zone.id));
    let lines = camera.lines.iter().filter(|line| named.contains(&line.id));
    let (zones, lines): (Vec<_>, Vec<_>) = (zones.collect(), lines.collect());
    let outside = region::lines_out_of_reach(region, &zones, &lines);
    outside.into_iter().for_each(|text| value.error(text));
    Some(named)
}

/// The ids in a list of names, each of which must be the name of one of `known`, which are of this `kind`.
fn named<T, I: Clone + std::fmt::Display>(
    value: &ConfigValue<'_>,
    kind: &str,
    known: &[T],
    id: impl Fn(&T) -> &I,
) -> Option<Vec<I>> {
    let names: Vec<String> = known.iter().map(|known| id(known).to_string()).collect();
    let has = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    let mut ids = Vec::new();
    for element in value.list()? {
        let name = element.text()?;
        match names.iter().position(|known| known == name) {
            Some(index) => ids.push(id(&known[index]).clone()),
            None => element.error(format!(
                "{name:?} is not a {kind} of this camera; has: {has}"
            )),
        }
    }
    Some(ids)
}
