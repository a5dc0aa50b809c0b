//! `[camera.*]`, and `[defaults]`, which fills in the settings that a camera does not have.

use std::time::Duration;

use super::{
    area::{DrawnAreas, LineConfig, ZoneConfig, areas},
    prompt::{EventConfig, PromptConfig, PromptScope, crops, events, kinds_in_words, prompt},
    source::{SourceConfig, Transport, source, transports},
    trigger::{TriggerConfig, trigger},
};
use crate::{forms::prelude::*, read::prelude::*};
use spotter_core::{
    AdapterId, AnswerShape, CameraId, LineId, LookRate, NormBox, Prompt, PromptId, PromptRegion,
    PromptView, RegionBox, Setting, SpatialReference, Task, TriggerId, WeeklySchedule, ZoneId,
};

/// One camera with everything filled in (from `[defaults]` where it has no value).
#[derive(Clone, Debug, PartialEq)]
pub struct CameraConfig {
    pub id: CameraId,
    /// It is watched: always in the file; a command can change it.
    pub enabled: bool,
    /// Where its pictures come from.
    pub source: SourceConfig,
    /// Looks a second at most; 0.01 to 30, default 1. The newest frame wins.
    pub rate: LookRate,
    /// Pictures are scaled to this width while decoding, aspect kept; never enlarged. Default 1280. With a prompt that has a region
    /// they are not scaled, see [`CameraConfig::frame_width`].
    pub width: u32,
    /// The most crops of a look at the whole picture or at a region; `None` = as many as the model's rule makes.
    pub crops_max: Option<u8>,
    /// No frame for so long = stalled; default 5 s.
    pub stall: Duration,
    /// Time from connecting to the first frame; default 15 s.
    pub first_frame: Duration,
    pub decode: Decode,
    pub motion: MotionConfig,
    /// Areas blacked out before the model, polygons in shares of the picture.
    pub mask: Vec<Vec<(f64, f64)>>,
    pub zones: Vec<ZoneConfig>,
    pub lines: Vec<LineConfig>,
    /// The camera is looked at while one of them is active; empty = always.
    pub triggers: Vec<TriggerConfig>,
    /// Address of its ONVIF service; `None` = the usual one on the host of its source.
    pub onvif_url: Option<String>,
    /// When the camera is looked at; `None` = always. Checked text such as `Mon-Fri 18:00-06:00 Europe/Berlin`.
    pub schedule: Option<WeeklySchedule>,
    /// Of the prompts that have no rules of their own.
    pub events: EventConfig,
    /// What is looked for; at least one.
    pub prompts: Vec<PromptConfig>,
}

impl CameraConfig {
    /// A camera without prompts, with the default of each setting.
    pub fn new(id: CameraId, source: SourceConfig) -> Self {
        Self {
            id,
            enabled: true,
            source,
            rate: LookRate::nearest(1.0),
            width: 1280,
            crops_max: None,
            stall: Duration::from_secs(5),
            first_frame: Duration::from_secs(15),
            decode: Decode::All,
            motion: MotionConfig {
                on: false,
                threshold: 0.02,
                hold: Duration::from_secs(10),
                at_least_every: Duration::from_secs(30),
            },
            mask: Vec::new(),
            zones: Vec::new(),
            lines: Vec::new(),
            triggers: Vec::new(),
            onvif_url: None,
            schedule: None,
            events: EventConfig::default(),
            prompts: Vec::new(),
        }
    }

    /// The zones in which the objects of a prompt are counted: those that it names, or all.
    pub fn zones_counted(&self, prompt: &PromptConfig) -> Vec<ZoneId> {
        let all = self.zones.iter().map(|zone| &zone.id);
        all.filter(|zone| prompt.zones.is_empty() || prompt.zones.contains(zone))
            .cloned()
            .collect()
    }

    /// The lines at which the objects of a prompt are counted: those that it names.
    pub fn lines_counted(&self, prompt: &PromptConfig) -> impl Iterator<Item = &LineConfig> {
        let all = self.lines.iter();
        all.filter(|line| prompt.lines.contains(&line.id))
    }

    /// Width to which frames are scaled while decoding; `None`: a prompt has a region or describes its objects, which are cut from the camera's
    /// own pixels.
    pub fn frame_width(&self) -> Option<u32> {
        let is_whole = |prompt: &PromptConfig| {
            prompt.region == PromptRegion::Whole && prompt.describe.is_none()
        };
        self.prompts.iter().all(is_whole).then_some(self.width)
    }

    /// `adapters`: those of the box; `None`: not known here.
    pub(crate) fn prompt_scope<'a>(&'a self, adapters: Option<&'a [AdapterId]>) -> PromptScope<'a> {
        PromptScope {
            rate: self.rate,
            crops_max: self.crops_max,
            events: self.events,
            zones: &self.zones,
            lines: &self.lines,
            adapters,
        }
    }

    /// What the model is asked in each look.
    pub fn model_prompt(&self, prompt: &PromptConfig) -> Prompt {
        Prompt {
            view: self.view_of(prompt),
            adapter: prompt.adapter.clone(),
            outlines_max: prompt.outlines_max,
            in_pieces: prompt.stream && prompt.task.shape() == AnswerShape::Text,
            ..Prompt::new(prompt.id.clone(), prompt.revision, prompt.task.clone())
        }
    }

    /// All that the model may be asked because of a prompt, each with its key: the prompt, an outline, its questions before and about an event.
    pub fn model_prompts(&self, prompt: &PromptConfig) -> Vec<(&'static str, Prompt)> {
        let own = self.model_prompt(prompt);
        let once = |task| Prompt::new(prompt.id.clone(), Prompt::ONCE, task);
        let question = |text: &String| once(Task::question(text));
        let verify = prompt.verify.as_ref().map(question);
        let describe = prompt.describe.as_ref().map(|text| Prompt {
            view: PromptView {
                strip: prompt.strip,
                ..PromptView::default()
            },
            ..question(text)
        });
        let outline = (prompt.outlines_max > 0).then(|| {
            let picture = NormBox::from_corners(0.0, 0.0, 1.0, 1.0);
            once(Task::Segment {
                object: prompt.task.text().to_owned(),
                places: vec![SpatialReference::Box(RegionBox::new(picture))],
            })
        });
        let kind = own.kind();
        let all = [
            (kind, Some(own)),
            (kind, outline),
            ("verify", verify),
            ("describe", describe),
        ];
        let asked = all
            .into_iter()
            .filter_map(|(key, asked)| Some((key, asked?)));
        asked.collect()
    }

    /// How a prompt of this camera sees the picture.
    pub fn view_of(&self, prompt: &PromptConfig) -> PromptView {
        let is_query = matches!(prompt.task, Task::Query { .. });
        let strip = prompt.strip.filter(|_| is_query);
        PromptView {
            region: prompt.region,
            crops_max: prompt.crops_max,
            width_max: (prompt.region == PromptRegion::Whole && strip.is_none())
                .then_some(self.width),
            strip,
        }
    }

    /// The values that a command may change.
    pub fn changeable_settings(&self) -> Vec<Setting> {
        let mut settings = vec![
            Setting::Enabled(self.enabled),
            Setting::Rate(self.rate),
            Setting::MotionGate(self.motion.on),
        ];
        for prompt in &self.prompts {
            let id = || prompt.id.clone();
            settings.extend(prompt.text_setting());
            settings.extend([
                Setting::PromptEnabled(id(), prompt.enabled),
                Setting::MinScore(id(), prompt.min_score),
            ]);
        }
        settings
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decode {
    All,
    /// Key frames only: cheapest.
    KeyFrames,
}

/// The motion gate: frames without motion are not looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MotionConfig {
    pub on: bool,
    /// Share of the picture that must change.
    pub threshold: f64,
    /// The gate stays open so long after motion.
    pub hold: Duration,
    /// A look is taken at least so often, motion or not.
    pub at_least_every: Duration,
}

/// What `[defaults]` and `[camera.*]` have in common.
#[derive(Clone)]
pub(crate) struct CameraDefaults {
    /// A camera with these settings and nothing else.
    camera: CameraConfig,
    transport: Transport,
}

/// Reads `[defaults]`, and with it the tables of `[camera]`, in the order of the file; there must be one.
pub(crate) fn cameras<'a, C>(
    root: &mut Reader<'a>,
    read: impl Fn(CameraId, Reader<'a>, &CameraDefaults) -> Option<C>,
) -> Vec<C> {
    keys! { root;
        /// Settings of all cameras that do not have their own.
        defaults = sub_table("see `[defaults]`"), "[defaults]";
        /// The cameras. The name in the header is the camera's id in MQTT topics: 1 to 32 characters of a-z 0-9 _ -.
        camera = tables(CameraId::new, "camera", "required"), "[camera.gate]";
    }
    let mut table = defaults;
    let mut defaults = CameraDefaults {
        camera: CameraConfig::new(CameraId::of_still(), SourceConfig::Test),
        transport: Transport::Auto,
    };
    defaults.read(&mut table);
    table.finish();
    if camera.is_empty() {
        let text = "no camera; add [camera.NAME] with a url and a prompt";
        root.error(text);
    }
    let read = |(id, table)| read(id, table, &defaults);
    camera.into_iter().filter_map(read).collect()
}

impl CameraDefaults {
    /// Replaces the settings that a table has.
    fn read(&mut self, table: &mut Reader<'_>) {
        let camera = &mut self.camera;
        keys! { table into camera in "`[defaults]` and `[camera.NAME]`", "A camera uses the value in `[defaults]` for each of these keys that it does not have.",
                "[defaults]\nrate = 2\nevents = { confirm = \"3 of 5\" }";
            /// The most looks per second. Each look uses the newest frame; older frames are dropped and counted.
            rate = look_rate().or(camera.rate), "rate = 2";
            /// Frames are scaled down to this width while decoding. The aspect ratio is kept; frames are never enlarged. A camera with a prompt that has a `region` or `describe` is decoded at its full size, and the width applies to the looks at the whole picture alone.
            width = whole(64..=7680, "pixels").or(camera.width), "width = 1920";
        }
        keys! { table;
            /// The most crops of a look, the crop of the whole picture included. Fewer crops cost less and show less detail. `auto` uses as many as the model's rule makes of the picture's size.
            crops = crops().or(camera.crops_max), "crops = 5";
            /// RTP transport of an RTSP camera. `auto` tries TCP and falls back to UDP when the camera refuses TCP. With UDP, lost packets damage pictures.
            transport = transports().or(self.transport), r#"transport = "udp""#;
        }
        keys! { table into camera;
            /// Without a frame for this time, Spotter reconnects to the camera.
            stall = time(Duration::from_secs(1)..=Duration::from_mins(10)).or(camera.stall), r#"stall = "10s""#;
            /// Longest time from connecting to the first frame; longer than the time between two frames.
            first_frame = time(Duration::from_secs(1)..=Duration::from_mins(10)).or(camera.first_frame), r#"first_frame = "30s""#;
            /// `keyframes` decodes only key frames, which costs least; the rate is then limited by how often the camera sends one.
            decode = words(&[("all", Decode::All), ("keyframes", Decode::KeyFrames)]).or(camera.decode), r#"decode = "keyframes""#;
        }
        keys! { table;
            /// Times at which the camera is watched. A span over midnight belongs to the day on which it starts.
            schedule = schedule().optional("always"), r#"schedule = "Mon-Fri 18:00-06:00 Europe/Berlin""#;
            /// Motion gate.
            motion = sub_table("see `motion`"), "motion = { on = true }";
            /// When events start and end.
            events = sub_table("see `events`"), r#"events = { confirm = "3 of 5" }"#;
        }
        (camera.crops_max, self.transport) = (crops, transport);
        camera.schedule = schedule.or(camera.schedule.take());
        camera.motion.read(motion);
        camera.events = self::events(events, camera.events);
    }
}

impl MotionConfig {
    /// Replaces the values that a table has.
    fn read(&mut self, mut table: Reader<'_>) {
        keys! { table into self in "`motion`", "The motion gate skips frames without motion. In `[defaults]` and `[camera.NAME]`.",
                "motion = { on = true, threshold = 0.02, hold = \"10s\", at_least_every = \"30s\" }";
            /// Enables the gate.
            on = flag().or(self.on), "motion = { on = true }";
            /// Share of the picture that must change to count as motion.
            threshold = number(0.0..=1.0, "share of the picture").or(self.threshold), "motion = { threshold = 0.02 }";
            /// The gate stays open for this time after motion.
            hold = time(Duration::ZERO..=Duration::from_hours(1)).or(self.hold), r#"motion = { hold = "10s" }"#;
            /// Longest time between two looks, also without motion.
            at_least_every = time(Duration::from_secs(1)..=Duration::from_hours(24)).or(self.at_least_every), r#"motion = { at_least_every = "30s" }"#;
        }
        table.finish();
    }
}

/// Reads `[camera.NAME]`.
pub(crate) fn camera(
    scope: &Scope<'_>,
    id: CameraId,
    mut table: Reader<'_>,
    base: &CameraDefaults,
) -> Option<CameraConfig> {
    let mut defaults = base.clone();
    defaults.read(&mut table);
    let (source, onvif_url) = source(scope, &mut table, defaults.transport);
    let DrawnAreas { mask, zones, lines } = areas(&mut table);
    keys! { table;
        /// What the model looks for.
        prompt = tables(PromptId::new, "prompt", "required"), "[camera.gate.prompt.person]";
        /// What starts the looks. A camera with triggers is looked at only while one of them is active: see [Triggers](mqtt.md#triggers).
        trigger = tables(TriggerId::new, "trigger", "always looked at"), "[camera.gate.trigger.bell]";
    }
    let has_host =
        table.given("onvif_url").is_some() || matches!(source, None | Some(SourceConfig::Rtsp(_)));
    let read = |(id, table)| self::trigger(scope, id, table, has_host);
    let triggers = trigger.into_iter().filter_map(read).collect();
    if prompt.is_empty() {
        let example = format!("[camera.{id}.prompt.NAME] with {}", kinds_in_words());
        table.error(format!("no prompt; add {example}"));
    }
    let mut camera = CameraConfig {
        id,
        mask,
        zones,
        lines,
        triggers,
        onvif_url,
        ..defaults.camera
    };
    let adapters = scope.adapters.as_deref();
    let read = |(id, table)| self::prompt(id, table, camera.prompt_scope(adapters));
    camera.prompts = prompt.into_iter().filter_map(read).collect();
    let is_used = |id: &LineId| {
        camera
            .prompts
            .iter()
            .any(|prompt| prompt.lines.contains(id))
    };
    for LineConfig { id, .. } in camera.lines.iter().filter(|line| !is_used(&line.id)) {
        table.warning(format!(
            "no prompt counts at line {id}; add lines = [\"{id}\"] to a prompt"
        ));
    }
    table.finish();
    camera.source = source?;
    Some(camera)
}
