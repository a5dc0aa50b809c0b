//! `[camera.NAME.prompt.NAME]`: what the model looks for, and when its events start and end.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use super::{
    area::{LineConfig, ZoneConfig},
    region::region,
};
use crate::{
    forms::{choices::choice_list, prelude::*, text::hits_of_looks},
    read::prelude::*,
};
use spotter_core::{
    LineId, LookRate, PromptId, PromptRegion, PromptText, Setting, Share, StripShape, Task, ZoneId,
};

/// From the oldest frame of a strip to the newest.
pub(crate) const STRIP_OVER_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(500)..=Duration::from_mins(1);

/// A prompt with its filters.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptConfig {
    pub id: PromptId,
    /// It is asked: always in the file; a command can change it.
    pub enabled: bool,
    /// Rises by one with each change of the words while Spotter runs; 1 in the file.
    pub revision: u32,
    pub task: Task,
    /// The part of the picture that it is about.
    pub region: PromptRegion,
    /// The most crops of its look; `None` = as many as the model's rule makes.
    pub crops_max: Option<u8>,
    /// Looks a second; at most the camera's.
    pub rate: LookRate,
    /// Found things below it are not reported; default 0.
    pub min_score: Share,
    /// Smaller boxes are not reported, share of the picture; default 0.
    pub min_area: f64,
    /// Only boxes in one of these zones count; empty = everywhere.
    pub zones: Vec<ZoneId>,
    /// Lines at which its objects are counted; empty = none.
    pub lines: Vec<LineId>,
    /// An object that is so long in a zone is reported.
    pub dwell: BTreeMap<ZoneId, Duration>,
    /// A picture of the best moment is published.
    pub snapshot: bool,
    /// Yes/no question asked before an event starts.
    pub verify: Option<String>,
    /// A question about the object of each event, asked when it starts; its answer is part of the event.
    pub describe: Option<String>,
    /// The question of `query` or `describe` is about a strip of several frames; `None`: about one frame.
    pub strip: Option<StripShape>,
    /// Life cycle of events, presence.
    pub events: EventConfig,
}

impl PromptConfig {
    /// Its words as a value that a command may change; `None`: it has none, as a caption.
    pub fn text_setting(&self) -> Option<Setting> {
        let text = PromptText::new(self.task.text()).ok()?;
        Some(Setting::Text(self.id.clone(), text))
    }
}

/// Hysteresis of presence and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventConfig {
    /// `confirm.0` of the last `confirm.1` looks must see it; default 2 of 3.
    pub confirm: (u32, u32),
    /// Unseen for so long = gone; default 3 s.
    pub end_after: Duration,
    /// Unmoved for so long = still; default 30 s.
    pub still_after: Duration,
}

impl Default for EventConfig {
    fn default() -> Self {
        Self {
            confirm: (2, 3),
            end_after: Duration::from_secs(3),
            still_after: Duration::from_secs(30),
        }
    }
}

/// Reads `events`; where the table has no value, that of `events` counts.
pub(crate) fn events(mut table: Reader<'_>, mut events: EventConfig) -> EventConfig {
    let times = || time(Duration::from_millis(100)..=Duration::from_hours(24));
    keys! { table into events in "`events`", "When events start and end. In `[defaults]`, `[camera.NAME]` and `[camera.NAME.prompt.NAME]`.",
            "events = { confirm = \"2 of 3\", end_after = \"3s\", still_after = \"30s\" }";
        /// An object must be found in HITS of the last LOOKS looks before its event starts.
        confirm = hits_of_looks().or(events.confirm), r#"events = { confirm = "3 of 5" }"#;
        /// An event ends when its object was not found for this time.
        end_after = times().or(events.end_after), r#"events = { end_after = "5s" }"#;
        /// An object that did not move for this time is reported as still.
        still_after = times().or(events.still_after), r#"events = { still_after = "30s" }"#;
    }
    table.finish();
    events
}

/// What of a camera its prompts depend on: the values of those that have none of their own, and what they may name.
#[derive(Clone, Copy)]
pub(crate) struct PromptScope<'a> {
    pub(crate) rate: LookRate,
    pub(crate) crops_max: Option<u8>,
    pub(crate) events: EventConfig,
    pub(crate) zones: &'a [ZoneConfig],
    pub(crate) lines: &'a [LineConfig],
}

/// Reads a prompt; `None` without a task.
pub(crate) fn prompt(
    id: PromptId,
    mut table: Reader<'_>,
    camera: PromptScope<'_>,
) -> Option<PromptConfig> {
    let task = task(&mut table);
    let zone_ids: Vec<ZoneId> = camera.zones.iter().map(|zone| zone.id.clone()).collect();
    let line_ids = camera.lines.iter().map(|line| line.id.clone()).collect();
    keys! { table;
        /// Looks per second for this prompt; at most the camera's rate.
        rate = look_rate().or_as("the camera's rate", camera.rate), "rate = 0.2";
        /// The part of the picture that the model sees, cut from the camera's full-size frame: left, top, right, bottom; the box around a zone, with a tenth of its size on each side; or the box in which something moved (see [Regions](gpu.md#regions)). Positions in messages stay those in the whole picture.
        region = region(camera.zones).or_as("the whole picture", PromptRegion::Whole), "region = [0.4, 0.3, 0.6, 0.5]";
        /// The most crops of this prompt's look. Prompts with the same `region` and `crops` share the encoding of their image.
        crops = crops().or_as("the camera's `crops`", camera.crops_max), "crops = 1";
        /// Objects with a lower score are not reported.
        min_score = share().or(Share::nearest(0.0)), "min_score = 0.4";
        /// Smaller boxes are not reported. Only for `detect`.
        min_area = number(0.0..=1.0, "share of the picture").or(0.0), "min_area = 0.002";
        /// Only objects in one of these zones count. Not for `query`.
        zones = list(known_id("zone names of this camera", "zone of this camera", zone_ids.clone())).or_as("the whole picture", Vec::new()), r#"zones = ["drive"]"#;
        /// Lines at which the objects are counted when they cross. Not for `query`.
        lines = list(known_id("line names of this camera", "line of this camera", line_ids)).or_as("none", Vec::new()), r#"lines = ["door"]"#;
        /// An object that has been in a zone for this time is reported, and also when it leaves the zone: a time for each of the prompt's zones, or for those in the table. Not for `query`.
        dwell = dwell(&zones, zone_ids).or_as("none", BTreeMap::new()), r#"dwell = { drive = "30s" }"#;
        /// Publishes a picture of each event's best moment.
        snapshot = flag().or(false), "snapshot = true";
        /// A yes/no question that the model must answer with yes before an event starts. Not for `query`.
        verify = prompt_words().optional("none"), r#"verify = "Is there a parcel?""#;
        /// A question about the object of each event, asked of the part of the picture around it as soon as the event starts. The answer is published as an update of the event. Not for `query`.
        describe = prompt_words().optional("none"), r#"describe = "What is the person doing?""#;
        /// How many frames the question of `query` or `describe` is about: with 4 or 9, the model sees a strip, one picture with the last frames of the camera in rows, the oldest first (see [Film strips](gpu.md#film-strips)). Not with `region = "motion"` of a `query`.
        frames = frames().or(1), "frames = 9";
        /// Time from the oldest to the newest frame of a strip. The frames are spread evenly over it.
        over = time(STRIP_OVER_RANGE).or(Duration::from_secs(4)), r#"over = "4s""#;
        /// When events of this prompt start and end.
        events = sub_table("the camera's `events`"), r#"events = { confirm = "2 of 2" }"#;
    }
    let events = self::events(events, camera.events);
    check_effects(&table, task.as_ref());
    if let Some(value) = table.given("rate")
        && rate > camera.rate
    {
        let ceiling = camera.rate;
        value.error(format!(
            "{rate} is above the camera's {ceiling}; the camera rate is the ceiling"
        ));
    }
    check_strip(&table, task.as_ref(), region);
    table.finish();
    Some(PromptConfig {
        id,
        enabled: true,
        revision: 1,
        task: task?,
        region,
        crops_max: crops,
        rate,
        min_score,
        min_area,
        zones,
        lines,
        dwell,
        snapshot,
        verify: verify.map(String::from),
        describe: describe.map(String::from),
        strip: (frames > 1).then_some(StripShape { frames, over }),
        events,
    })
}

/// Exactly one of detect, point, query; with query also the choices.
fn task(table: &mut Reader<'_>) -> Option<Task> {
    const ONE: &str = "give exactly one of detect, point, query";
    keys! { table in "`[camera.NAME.prompt.NAME]`", "What the model looks for. Exactly one of `detect`, `point` and `query` is required.",
            "[camera.gate.prompt.person]\ndetect = \"person\"\nzones = [\"drive\"]\nmin_score = 0.4";
        /// Objects to find, in plain words. The answer is a list of boxes.
        detect = prompt_words().optional("none"), r#"detect = "red car""#;
        /// Objects to find, in plain words. The answer is a list of points.
        point = prompt_words().optional("none"), r#"point = "crane hook""#;
        /// A question about the picture. The answer is text.
        query = prompt_words().optional("none"), r#"query = "Is the door open?""#;
        /// The only answers to `query` that the model may give.
        choices = choice_list().or_as("any text", Vec::new()), r#"choices = ["open", "closed"]"#;
    }
    let kinds = ["detect", "point", "query"];
    let given = kinds.map(|key| table.given(key).is_some());
    match given.iter().filter(|is_given| **is_given).count() {
        0 => table.error(ONE),
        1 => {}
        _ => {
            table.error(ONE);
            return None;
        }
    }
    if let ([true, ..] | [_, true, _], Some(choices)) = (given, table.given("choices")) {
        choices.error("has no effect on an answer that is not text; use it with query");
    }
    let detect = detect.map(|words| Task::Detect {
        object: words.into(),
    });
    let point = point.map(|words| Task::Point {
        object: words.into(),
    });
    let query = query.map(|words| Task::Query {
        question: words.into(),
        choices,
        options: Default::default(),
    });
    detect.or(point).or(query)
}

/// A key that cannot have an effect would only seem to filter.
fn check_effects(table: &Reader<'_>, task: Option<&Task>) {
    let keys: &[&str] = match task {
        Some(Task::Point { .. }) => &["min_area"],
        Some(Task::Query { .. }) => &["min_area", "zones", "lines", "dwell", "verify", "describe"],
        _ => &[],
    };
    for value in keys.iter().filter_map(|key| table.given(key)) {
        value.error("has no effect on an answer without boxes; use it with detect");
    }
}

/// `frames` and `over` need a question, about one place.
fn check_strip(table: &Reader<'_>, task: Option<&Task>, region: PromptRegion) {
    table.requires("over", "frames");
    let Some(frames) = table.given("frames") else {
        return;
    };
    let is_query = matches!(task, Some(Task::Query { .. }));
    if task.is_some() && !is_query && table.given("describe").is_none() {
        frames.error("has no effect without a question; use it with query, or with describe");
    }
    if is_query && region == PromptRegion::Motion {
        frames.error("not together with region = \"motion\", which is elsewhere in each frame; write a fixed region");
    }
}

/// How many frames a question is about.
fn frames() -> Form<'static, u8> {
    let form = Form::new("1, 4 or 9", |value| {
        let frames = value.whole()?;
        let is_square = matches!(frames, 1 | 4 | 9).then_some(frames as u8);
        value.checked(is_square.ok_or_else(|| {
            format!("{frames} frames are no strip; write 4 or 9, or 1 for a single frame")
        }))
    });
    form.written(u8::to_string)
}

/// The most crops of a look; `None`: as many as the model's rule makes.
pub(crate) fn crops() -> Form<'static, Option<u8>> {
    let (auto, number) = (words(&[("auto", None)]), whole(1..=12, ""));
    let shown = (auto.write)(&None);
    let text = format!("{}, or a {}", auto.text, number.text);
    let form = Form::new(text, move |value| match value.as_text() {
        Some(_) => auto.read(value),
        None => number.read(value).map(Some),
    });
    form.written(move |crops| crops.map_or(shown.clone(), |crops: u8| crops.to_string()))
}

/// How long an object is in a zone until it is reported. `named`: the prompt's zones; none = all of the camera.
fn dwell<'f>(named: &[ZoneId], of_camera: Vec<ZoneId>) -> Form<'f, BTreeMap<ZoneId, Duration>> {
    let time = time(Duration::from_millis(100)..=Duration::from_hours(24));
    let text = format!("{}; or a table of zone names with such times", time.text);
    let mut counted = of_camera;
    counted.retain(|zone| named.is_empty() || named.contains(zone));
    Form::new(text, move |value| {
        if counted.is_empty() {
            value.error("the camera has no zone; add [camera.NAME.zone.NAME] with a polygon");
            return None;
        }
        if !value.is_table() {
            let time = time.read(value)?;
            return Some(counted.iter().map(|zone| (zone.clone(), time)).collect());
        }
        let entries = Reader::of_value(value)?.entries().into_iter();
        let times = entries.filter_map(|(name, value)| {
            let zone = find_id(name.get_ref(), "zone of this prompt", &counted);
            Some((value.checked(zone)?.clone(), time.read(&value)?))
        });
        Some(times.collect())
    })
}
