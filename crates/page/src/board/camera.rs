//! The looks of one camera: the last one, and the last one with a thumbnail, so that boxes and picture are of one moment. Pure.

use std::{collections::BTreeMap, iter::repeat, sync::Arc, time::Duration};

use super::{PromptCosts, Thumbnail};
use crate::{
    minute::Minute,
    status::{AnswerStatus, CameraLooks, LookStatus, PictureMark, PromptStatus, rings},
};
use spotter_config::{CameraConfig, LineConfig, PromptConfig};
use spotter_core::{
    CameraId, Detection, DirectionId, Frame, LineId, Mono, ObjectOutline, PromptId, PromptState,
    TrackId,
};

/// A browser that asked for a thumbnail within this time still shows the camera.
pub const WATCHED_FOR: Duration = Duration::from_secs(10);
/// The shortest time between thumbnails while a browser shows the camera.
const THUMBNAIL_WATCHED: Duration = Duration::from_secs(1);
/// The shortest time between thumbnails else: a first visitor sees a picture, and it costs next to nothing.
pub const THUMBNAIL_UNWATCHED: Duration = Duration::from_secs(30);

/// Memory: the marks of at most three looks, two JPEGs of some 40 kB, and the latencies of a minute.
pub struct CameraBoard {
    pub minute: Minute,
    config: CameraConfig,
    /// The enabled ones, without what is added for each reader: ages, lines and costs.
    prompts: Vec<PromptStatus>,
    line_counts: BTreeMap<(PromptId, LineId, DirectionId), u64>,
    last: Option<LookStatus>,
    pictured: Option<(LookStatus, Arc<Thumbnail>)>,
    /// The thumbnail before: a browser that has the figures of its look asks for it a moment later.
    previous: Option<Arc<Thumbnail>>,
    /// Its thumbnail is being made.
    pending: Option<LookStatus>,
    thumbnail_at: Option<Mono>,
    asked_at: Option<Mono>,
    /// Also of a camera that is rarely looked at, the next thumbnail is made then.
    is_last_asked: bool,
    /// The mask is this one since then: pictures of frames before are not shown.
    masked_at: Option<Mono>,
}

fn enabled(camera: &CameraConfig) -> impl Iterator<Item = &PromptConfig> {
    camera.prompts.iter().filter(|prompt| prompt.is_asked())
}

/// Without answers.
fn prompts(camera: &CameraConfig) -> Vec<PromptStatus> {
    let new = |prompt: &PromptConfig| PromptStatus::new(&camera.model_prompt(prompt));
    enabled(camera).map(new).collect()
}

impl CameraBoard {
    pub fn new(camera: &CameraConfig) -> Self {
        Self {
            minute: Minute::default(),
            config: camera.clone(),
            prompts: prompts(camera),
            line_counts: BTreeMap::new(),
            last: None,
            pictured: None,
            previous: None,
            pending: None,
            thumbnail_at: None,
            asked_at: None,
            is_last_asked: false,
            masked_at: None,
        }
    }

    pub fn id(&self) -> &CameraId {
        &self.config.id
    }

    pub fn config(&self) -> &CameraConfig {
        &self.config
    }

    /// Replaces prompts, zones and lines. The answer to a prompt with the same id and words is kept. With another mask, pictures are not.
    pub fn configure(&mut self, camera: &CameraConfig, now: Mono) {
        if camera.mask != self.config.mask {
            (self.pictured, self.previous, self.pending) = (None, None, None);
            (self.thumbnail_at, self.masked_at) = (None, Some(now));
        }
        self.config = camera.clone();
        let has_line = |line: &LineId| camera.lines.iter().any(|known| known.id == *line);
        self.line_counts.retain(|(_, line, _), _| has_line(line));
        let mut before = std::mem::replace(&mut self.prompts, prompts(camera));
        for new in &mut self.prompts {
            let same = |old: &PromptStatus| old.id == new.id && old.words == new.words;
            if let Some(index) = before.iter().position(same) {
                new.answer = before.swap_remove(index).answer;
            }
        }
    }

    /// A prompt of a look at `frame` was answered. True when the caller is to make its thumbnail and hand it to
    /// [`Self::set_thumbnail`]. A text may come after answers to later frames.
    pub fn look(&mut self, frame: &Frame, now: Mono) -> bool {
        let received = frame.times.received;
        let last = self.last.as_ref();
        if last.is_some_and(|last| received <= last.received) {
            return false;
        }
        let look = LookStatus {
            frame: frame.number,
            time_ms: frame.times.received_wall.unix_millis(),
            size: (frame.picture.width() as u32, frame.picture.height() as u32),
            received,
            ..LookStatus::default()
        };
        let is_watched = self.asked_at.is_some_and(|at| now.since(at) < WATCHED_FOR);
        let pause = match is_watched || self.is_last_asked {
            true => THUMBNAIL_WATCHED,
            false => THUMBNAIL_UNWATCHED,
        };
        let is_due = self.thumbnail_at.is_none_or(|at| now.since(at) >= pause);
        let is_masked = self.masked_at.is_none_or(|at| received > at);
        let is_wanted = is_due && is_masked && self.pending.is_none();
        if is_wanted {
            self.thumbnail_at = Some(now);
            self.pending = Some(look.clone());
        }
        self.last = Some(look);
        is_wanted
    }

    /// An answer of a look that ended.
    pub fn answer(&mut self, detection: &Detection) {
        let frame = &detection.frame;
        let of_answer = |prompt: &PromptStatus| prompt.id == detection.prompt.id;
        let Some(index) = self.prompts.iter().position(of_answer) else {
            return;
        };
        let answer = AnswerStatus::new(&detection.body, frame.times.received);
        self.prompts[index].answer = Some(answer);
        for look in self.looks_at(frame.number) {
            look.found.extend(PictureMark::all(index, detection));
        }
    }

    /// An object of a look got an outline.
    pub fn outlined(&mut self, track: &TrackId, outline: &ObjectOutline) {
        let looks = self.looks_at(outline.frame);
        let marks = looks.flat_map(|look| &mut look.found);
        for mark in marks.filter(|mark| mark.track == *track) {
            mark.polygon = Some(rings(outline));
        }
    }

    fn looks_at(&mut self, frame: u64) -> impl Iterator<Item = &mut LookStatus> {
        let pictured = self.pictured.as_mut().map(|(look, _)| look);
        let looks = [self.last.as_mut(), pictured, self.pending.as_mut()];
        let looks = looks.into_iter().flatten();
        looks.filter(move |look| look.frame == frame)
    }

    /// States of a prompt have new values; the page shows those of lines.
    pub fn states(&mut self, prompt: &PromptId, states: &[PromptState]) {
        for state in states {
            if let PromptState::LineCount {
                line,
                direction,
                count,
            } = state
            {
                let key = (prompt.clone(), line.clone(), direction.clone());
                self.line_counts.insert(key, *count);
            }
        }
    }

    /// The thumbnail of the look that [`Self::look`] asked for; `None` when its picture cannot be read.
    pub fn set_thumbnail(&mut self, thumbnail: Option<Thumbnail>) {
        let made = self.pending.take().zip(thumbnail);
        // One that was begun before the mask changed is of another frame.
        let made = made.filter(|(look, thumbnail)| look.frame == thumbnail.frame);
        let Some((look, thumbnail)) = made else {
            return;
        };
        self.is_last_asked = false;
        let before = self.pictured.replace((look, Arc::new(thumbnail)));
        self.previous = before.map(|(_, thumbnail)| thumbnail);
    }

    /// The one of this look if it is the last or the previous one, else the last one.
    pub fn thumbnail(&mut self, look: Option<u64>, now: Mono) -> Option<Arc<Thumbnail>> {
        self.asked_at = Some(now);
        let (_, last) = self.pictured.as_ref()?;
        let previous = self.previous.as_ref();
        let previous = previous.filter(|previous| Some(previous.frame) == look);
        self.is_last_asked |= previous.is_none();
        Some(Arc::clone(previous.unwrap_or(last)))
    }

    /// With `is_pictured`, the look with the thumbnail if there is one; else the last one.
    pub fn looks(
        &mut self,
        now: Mono,
        is_pictured: bool,
        costs: Option<&PromptCosts>,
    ) -> CameraLooks {
        let latency = self.minute.status(now);
        let age_ms = |received| now.since(received).as_millis() as u64;
        let pictured = self.pictured.as_ref().map(|(look, _)| look);
        let shown = pictured.filter(|_| is_pictured).or(self.last.as_ref());
        let look = shown.map(|look| LookStatus {
            age_ms: age_ms(look.received),
            pictured: pictured.is_some_and(|pictured| pictured.frame == look.frame),
            ..look.clone()
        });
        // They depend on the size of the frames.
        let sized = costs.zip(self.last.as_ref().map(|look| look.size));
        let costs = sized.map(|(costs, (w, h))| costs(&self.config, (w as usize, h as usize)));
        let costs = costs.into_iter().flatten().map(Some).chain(repeat(None));
        let prompts = self.prompts.iter().zip(enabled(&self.config)).zip(costs);
        let prompt = |((prompt, config), cost): ((&PromptStatus, _), _)| PromptStatus {
            cost,
            lines: self.lines_of(config),
            answer: prompt.answer.clone().map(|answer| AnswerStatus {
                age_ms: age_ms(answer.received),
                ..answer
            }),
            ..prompt.clone()
        };
        CameraLooks {
            look,
            prompts: prompts.map(prompt).collect(),
            zones: self.config.zones.clone(),
            lines: self.config.lines.clone(),
            latency,
        }
    }

    /// The counts of a prompt at the lines that count it.
    fn lines_of(&self, prompt: &PromptConfig) -> BTreeMap<LineId, BTreeMap<DirectionId, u64>> {
        let of_line = |line: &LineConfig| {
            let count = |way: &DirectionId| {
                let key = (prompt.id.clone(), line.id.clone(), way.clone());
                let count = self.line_counts.get(&key).copied();
                (way.clone(), count.unwrap_or_default())
            };
            let counts = line.directions.iter().map(count);
            (line.id.clone(), counts.collect())
        };
        self.config.lines_counted(prompt).map(of_line).collect()
    }
}
