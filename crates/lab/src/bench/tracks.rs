//! How well objects are followed with a real model: looks at a moving street, their answers through the tracker, the
//! tracker's events against the truth (`stays`).
//!
//! Time is the street's time: the next look is at the next moment of the street, however long the last one took. So a slow
//! machine measures the same as a fast one.

use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;

use super::{
    ask::answers_of,
    clip::{HEIGHT, WIDTH, drawn, encoding},
    progress::ProgressLine,
    stays::{Stays, StreetLook},
};
use spotter_config::{self as config, CameraConfig, Environment};
use spotter_core::{
    Answer, Frame, FrameTimes, Location, Look, Mono, NormBox, Picture, Prompt, TrackId,
    TrackedObject, WallTime,
};
use spotter_engine::service::Engine;
use spotter_events::track::Tracker;
use spotter_street::score::{MATCH_IOU, MatchTally, TruthObject, match_boxes};
use spotter_street::{
    Scene, Street, Truth, draw_i420,
    h264::through_h264,
    scene::{Class, ObjectIdentity},
    truth::{SeenObject, truth},
};

mod report;

pub use report::TrackReport;

/// Most frames a second of the stream; it has the largest multiple of the look rate that is not above this.
const FPS: u32 = 15;
/// The first look: 2026-01-01, noon of a street whose seed is a multiple of 8, so that ten minutes contain day, dusk and night.
const START_NS: i64 = 1_767_225_600_000_000_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrackOptions {
    /// Name of the model, for the report.
    pub model: String,
    /// How long, in the street's time.
    pub minutes: u32,
    /// Looks a second, 1..=15.
    pub looks_per_s: u32,
    pub seed: u64,
    /// Rate of the H.264 that the street passes through; `None` for clean drawings.
    pub kbit_per_s: Option<u32>,
}

impl TrackOptions {
    pub fn looks(&self) -> u32 {
        self.minutes * 60 * self.looks_per_s
    }

    fn since_start(&self, look: u32) -> Duration {
        Duration::from_secs(1) * look / self.looks_per_s
    }
}

/// Follows every class over the street's minutes, with one prompt for each class at every look. The same options and
/// model give the same report. Blocks for all of it: a part of a second for each look on a CPU.
pub fn track(
    engine: &mut Engine,
    options: &TrackOptions,
    progress: &mut ProgressLine,
) -> anyhow::Result<TrackReport> {
    let mut watched = WatchedStreet::new(options)?;
    let mut pictures = pictures(options)?;
    for look in 0..options.looks() {
        let picture = pictures.next().context("the encoder lost frames")??;
        watched.look(engine, look, picture)?;
        progress.step();
    }
    Ok(TrackReport::new(options, &watched.stays, &watched.boxes))
}

/// A camera on the street with its tracker and score.
struct WatchedStreet<'a> {
    options: &'a TrackOptions,
    camera: CameraConfig,
    tracker: Tracker,
    stays: Stays,
    boxes: MatchTally,
}

impl<'a> WatchedStreet<'a> {
    fn new(options: &'a TrackOptions) -> anyhow::Result<Self> {
        let camera = camera(options.looks_per_s)?;
        let tracker = Tracker::new("eval".into(), std::slice::from_ref(&camera));
        Ok(Self {
            options,
            camera,
            tracker,
            stays: Stays::default(),
            boxes: MatchTally::default(),
        })
    }

    fn look(&mut self, engine: &mut Engine, look: u32, picture: Picture) -> anyhow::Result<()> {
        let frame = self.frame(look, picture);
        let answers = answers(engine, &self.camera, frame.clone())?;
        let truth = truth(&street_at(
            self.options.seed,
            self.options.since_start(look),
        ));
        self.score(look, &frame, &answers, &truth)
    }

    /// Adds the answers to look number `look` at this frame, in the order of the classes.
    fn score(
        &mut self,
        look: u32,
        frame: &Frame,
        answers: &[Answer],
        truth: &Truth,
    ) -> anyhow::Result<()> {
        let look = StreetLook {
            number: look as usize,
            at: frame.times.received,
            seen: &truth.seen,
        };
        for (class, answer) in Class::ALL.iter().copied().zip(answers) {
            let missing = || format!("{}: no detection", class.name());
            let answer = self.tracker.update(frame, answer).with_context(missing)?;
            let boxes: Vec<NormBox> = answer.body.objects().iter().filter_map(bounds).collect();
            let things = truth.things(class, None);
            self.boxes.add(match_boxes(&boxes, &things).tally());
            let seen: Vec<&SeenObject> = truth.seen.iter().filter(|s| s.class == class).collect();
            let shown = shown_objects(answer.body.objects(), &seen, |identity| {
                self.stays.track(identity).cloned()
            });
            self.stays.add(look, class, &answer, |object| {
                let mut shown = shown.iter();
                let found = shown.find(|(track, _)| *track == object.track);
                found.map(|&(_, identity)| identity)
            });
        }
        Ok(())
    }

    fn frame(&self, look: u32, picture: Picture) -> Frame {
        let since_start = self.options.since_start(look);
        let received = Mono::default().after(since_start);
        Frame {
            camera: self.camera.id.clone(),
            number: u64::from(look) + 1,
            camera_size: (WIDTH, HEIGHT),
            key: true,
            times: FrameTimes {
                received,
                received_wall: moment(since_start),
                decoded: received,
                capture: None,
                rtp: None,
            },
            picture,
        }
    }
}

/// Which object of the truth each box shows. A track first keeps the object that it had at the last look if its box still
/// fits. That is the rule of CLEAR MOT: without it, two objects that cross would switch only because one box fits both. The
/// others are matched by overlap.
fn shown_objects(
    objects: &[TrackedObject],
    seen: &[&SeenObject],
    track_of: impl Fn(ObjectIdentity) -> Option<TrackId>,
) -> Vec<(TrackId, ObjectIdentity)> {
    let with_bounds = |object: &TrackedObject| Some((object.track.clone(), bounds(object)?));
    let mut objects: Vec<(TrackId, NormBox)> = objects.iter().filter_map(with_bounds).collect();
    let mut seen = seen.to_vec();
    let mut shown = Vec::new();
    seen.retain(|seen| {
        let same = |(track, bounds): &(TrackId, NormBox)| {
            track_of(seen.identity).as_ref() == Some(track)
                && bounds.iou(&seen.box_in_frame) >= MATCH_IOU
        };
        let Some(index) = objects.iter().position(same) else {
            return true;
        };
        shown.push((objects.swap_remove(index).0, seen.identity));
        false
    });
    let boxes: Vec<NormBox> = objects.iter().map(|&(_, bounds)| bounds).collect();
    // Ignored objects can be found too, and then they have a track id.
    let thing = |seen: &&SeenObject| TruthObject {
        bounds: seen.box_in_frame,
        ignored: false,
    };
    let things: Vec<TruthObject> = seen.iter().map(thing).collect();
    let matches = match_boxes(&boxes, &things).found.into_iter();
    shown.extend(matches.map(|m| (objects[m.answer].0.clone(), seen[m.thing].identity)));
    shown
}

fn bounds(object: &TrackedObject) -> Option<NormBox> {
    match object.location {
        Location::Box(bounds) => Some(bounds),
        Location::Point(_) => None,
    }
}

/// The camera as configured by a file, with a prompt for each class in their order.
fn camera(looks_per_s: u32) -> anyhow::Result<CameraConfig> {
    let mut text = format!(
        "mqtt.url = \"mqtt://127.0.0.1\"\n[camera.street]\nurl = \"test://\"\nrate = {looks_per_s}\n"
    );
    for &class in Class::ALL {
        let (id, words) = (class.name().replace(' ', "_"), class.name());
        text += &format!("prompt.{id}.detect = \"{words}\"\n");
    }
    let environment = Environment::new("eval", |_| None);
    let loaded = config::of_text("the street's camera", &text, &environment)?;
    loaded
        .config
        .cameras
        .into_iter()
        .next()
        .context("no camera")
}

fn answers(
    engine: &mut Engine,
    camera: &CameraConfig,
    frame: Frame,
) -> anyhow::Result<Vec<Answer>> {
    let prompts = camera.prompts.iter().map(|prompt| {
        let (id, task) = (prompt.id.clone(), prompt.task.clone());
        Prompt::new(id, 1, task)
    });
    let look = Look {
        moved: None,
        strips: Vec::new(),
        frame,
        prompts: prompts.map(Into::into).collect(),
        start_by: Mono::from_nanos(u64::MAX),
        answer_by: Mono::from_nanos(u64::MAX),
        token: spotter_core::LookToken::default(),
    };
    answers_of(engine.look(look)?)
}

type StreetPictures = Box<dyn Iterator<Item = anyhow::Result<Picture>>>;

/// The pictures of the looks, in order. Each `next` blocks until its picture is drawn, or encoded and decoded with all frames
/// since the look before.
fn pictures(options: &TrackOptions) -> anyhow::Result<StreetPictures> {
    let (seed, looks) = (options.seed, options.looks());
    let Some(kbit_per_s) = options.kbit_per_s else {
        let options = options.clone();
        let picture = move |look| drawn(&street_at(seed, options.since_start(look)));
        return Ok(Box::new((0..looks).map(picture)));
    };
    let frames_per_look = (FPS / options.looks_per_s).max(1);
    let fps = options.looks_per_s * frames_per_look;
    let pixels = (0..looks * frames_per_look).map(move |frame| {
        let scene = street_at(seed, Duration::from_secs(1) * frame / fps);
        draw_i420(&scene, WIDTH, HEIGHT)
    });
    let decoded = through_h264(encoding(fps, kbit_per_s), pixels)?;
    let looked_at = decoded.step_by(frames_per_look as usize);
    Ok(Box::new(looked_at.map(|picture| Ok(picture?))))
}

fn street_at(seed: u64, since_start: Duration) -> Scene {
    Street::new(seed).at(moment(since_start))
}

fn moment(since_start: Duration) -> WallTime {
    WallTime::from_unix_nanos(START_NS + since_start.as_nanos() as i64)
}

#[cfg(test)]
mod tests;
