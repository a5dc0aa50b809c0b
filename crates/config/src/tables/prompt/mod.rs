//! `[camera.NAME.prompt.NAME]`: what the model looks for, and when its events start and end.

mod events;
mod forms;
mod kind;
mod kinds;
mod places;
mod question;

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc, time::Duration};

use super::region::region;
use crate::{forms::prelude::*, read::prelude::*};
use forms::{adapter_id, dwell, frames};
use kind::TaskConfig;
use places::outside;
use spotter_core::{
    AdapterId, LineId, LookRate, PromptId, PromptRegion, PromptText, Setting, Share, StripShape,
    Task, ZoneId,
};

pub use events::EventConfig;
pub(crate) use events::events;
pub(crate) use forms::crops;
pub(crate) use kind::PromptScope;
pub(crate) use kinds::kinds_in_words;
pub use question::AskedOnce;
pub(crate) use question::question;

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
    /// Of the objects of a look, so many at most get an outline afterwards; 0: none.
    pub outlines_max: u8,
    /// The free text of the answer, or of the one to `describe`, is also published in parts.
    pub stream: bool,
    /// What the model answers it with, and its questions; `None`: the model alone.
    pub adapter: Option<AdapterId>,
    /// Why its adapter cannot be used now, so that it is not asked; none in the file.
    pub adapter_fault: Option<Arc<str>>,
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
    /// The keys of its table that depend on what is drawn on the camera, as written: they are read again when that changes.
    pub place_keys: Arc<toml::Table>,
}

/// Keys that depend on zones and lines, besides those of the kinds.
const PLACE_KEYS: [&str; 7] = [
    "refs", "dwell", "zones", "lines", "region", "frames", "describe",
];

impl PromptConfig {
    /// It is enabled, and the model can answer it.
    pub fn is_asked(&self) -> bool {
        self.enabled && self.adapter_fault.is_none()
    }

    /// Its words as a value that a command may change; `None`: it has none, as a caption.
    pub fn text_setting(&self) -> Option<Setting> {
        let text = PromptText::new(self.task.text()).ok()?;
        Some(Setting::Text(self.id.clone(), text))
    }
}

/// Reads a prompt; `None` without a task.
pub(crate) fn prompt(
    id: PromptId,
    mut table: Reader<'_>,
    camera: PromptScope<'_>,
) -> Option<PromptConfig> {
    let asked = kinds::task(&mut table, camera);
    let task = asked.as_ref().map(|asked| &asked.task);
    let zone_ids: Vec<ZoneId> = camera.zones.iter().map(|zone| zone.id.clone()).collect();
    let line_ids = camera.lines.iter().map(|line| line.id.clone()).collect();
    keys! { table;
        /// Looks per second for this prompt; at most the camera's rate.
        rate = look_rate().or_as("the camera's rate", camera.rate), "rate = 0.2";
        /// The part of the picture that the model sees, cut from the camera's full-size frame: left, top, right, bottom; the box around a zone, with a tenth of its size on each side; or the box in which something moved (see [Regions](gpu.md#regions)). Positions in messages stay those in the whole picture.
        region = region(camera.zones).or_as("the whole picture", PromptRegion::Whole), "region = [0.4, 0.3, 0.6, 0.5]";
        /// The most crops of this prompt's look. Prompts with the same `region` and `crops` share the encoding of their image.
        crops = crops().or_as("the camera's `crops`", camera.crops_max), "crops = 1";
        /// The adapter with which the model answers this prompt, its `verify` and its `describe`: the name of an `[adapter.NAME]` table. Prompts with different adapters share the encoding of an image, not its reading (see [Adapters](gpu.md#adapters)).
        adapter = adapter_id(camera.adapters).optional("the model alone"), r#"adapter = "plates""#;
        /// Objects with a lower score are not reported.
        min_score = share().or(Share::nearest(0.0)), "min_score = 0.4";
        /// Smaller boxes are not reported.
        min_area = number(0.0..=1.0, "share of the picture").or(0.0), "min_area = 0.002";
        /// Only objects in one of these zones count.
        zones = list(known_id("zone names of this camera", "zone of this camera", zone_ids.clone())).or_as("the whole picture", Vec::new()), r#"zones = ["drive"]"#;
        /// Lines at which the objects are counted when they cross.
        lines = list(known_id("line names of this camera", "line of this camera", line_ids)).or_as("none", Vec::new()), r#"lines = ["door"]"#;
        /// An object that has been in a zone for this time is reported, and also when it leaves the zone: a time for each of the prompt's zones, or for those in the table.
        dwell = dwell(&zones, zone_ids).or_as("none", BTreeMap::new()), r#"dwell = { drive = "30s" }"#;
        /// Publishes a picture of each event's best moment.
        snapshot = flag().or(false), "snapshot = true";
        /// A yes/no question that the model must answer with yes before an event starts.
        verify = prompt_words().optional("none"), r#"verify = "Is there a parcel?""#;
        /// A question about the object of each event, asked of the part of the picture around it as soon as the event starts. The answer is published as an update of the event.
        describe = prompt_words().optional("none"), r#"describe = "What is the person doing?""#;
        /// How many frames the question of `query` or `describe` is about: with 4 or 9, the model sees a strip, one picture with the last frames of the camera in rows, the oldest first (see [Film strips](gpu.md#film-strips)). Not with `region = "motion"` of a `query`.
        frames = frames().or(1), "frames = 9";
        /// Time from the oldest to the newest frame of a strip. The frames are spread evenly over it.
        over = time(STRIP_OVER_RANGE).or(Duration::from_secs(4)), r#"over = "4s""#;
        /// Also publishes the free text of `query`, `caption` or `describe` in parts, while the model writes it (topic `cam/CAMERA/answer/PROMPT/part`).
        stream = flag().or(false), "stream = true";
        /// When events of this prompt start and end.
        events = sub_table("the camera's `events`"), r#"events = { confirm = "2 of 2" }"#;
    }
    let events = self::events(events, camera.events);
    kinds::check_effects(&table);
    check_rate(&table, rate, camera.rate);
    let strip = (frames > 1).then_some(StripShape { frames, over });
    table.requires("over", "frames");
    check_question(&table, task, region, strip);
    let place_keys = table.written(|key| PLACE_KEYS.contains(&key) || kinds::is_kind(key));
    table.finish();
    let TaskConfig { task, outlines_max } = asked?;
    Some(PromptConfig {
        id,
        enabled: true,
        revision: 1,
        task,
        outlines_max,
        stream,
        adapter,
        adapter_fault: None,
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
        strip,
        events,
        place_keys: Arc::new(place_keys),
    })
}

fn check_rate(table: &Reader<'_>, rate: LookRate, ceiling: LookRate) {
    if let Some(value) = table.given("rate")
        && rate > ceiling
    {
        value.error(format!(
            "{rate} is above the camera's {ceiling}; the camera rate is the ceiling"
        ));
    }
}

/// What a question cannot have together: its places are fixed in one picture, and an answer of `choices` has no parts.
fn check_question(
    table: &Reader<'_>,
    task: Option<&Task>,
    region: PromptRegion,
    strip: Option<StripShape>,
) {
    let Some(Task::Query {
        options, choices, ..
    }) = task
    else {
        return;
    };
    let (frames, refs) = (table.given("frames"), table.given("refs"));
    for value in [&frames, &refs].into_iter().flatten() {
        if region == PromptRegion::Motion {
            value.error("not together with region = \"motion\", which is elsewhere in each frame; write a fixed region");
        }
    }
    if let (Some(refs), Some(_)) = (&refs, strip) {
        refs.error(
            "not together with frames: a strip shows each place several times; ask about one frame",
        );
    }
    if let (Some(refs), PromptRegion::Fixed(region)) = (&refs, region)
        && let Some(number) = outside(&options.places, region.norm_box())
    {
        refs.error(format!(
            "number {number} is not wholly in the prompt's region, which is all that the model sees; move it or write a larger region"
        ));
    }
    if let (Some(stream), false) = (table.given("stream"), choices.is_empty()) {
        stream.error("has no effect with choices, whose answer has no parts; remove one of them");
    }
}
