//! The looks of one camera: the last one, and the last one with a thumbnail, so that boxes and picture are of one moment. Pure.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{super::costs::CostBasis, minute::Minute};
use crate::ops::page::{
    CameraStatus, LastAnswer, LineStatus, LookAnswer, LookStatus, PromptStatus, Thumbnail,
};
use spotter_core::{
    CameraId, Detection, DetectionBody, DirectionId, Frame, LineId, Mono, Prompt, PromptId,
    PromptState, config,
};

/// The shortest time between thumbnails while a browser shows the page.
const THUMBNAIL_WATCHED: Duration = Duration::from_secs(1);
/// The shortest time between thumbnails else: a first visitor sees a picture, and it costs next to nothing.
pub const THUMBNAIL_UNWATCHED: Duration = Duration::from_secs(30);
/// Bounds the memory; the first prompts are shown.
const PROMPTS_MAX: usize = 32;

/// Memory: answers of at most two looks, two JPEGs of some 40 kB, and the latencies of a minute.
pub struct CameraBoard {
    pub id: CameraId,
    pub minute: Minute,
    config: config::CameraConfig,
    prompts: Vec<PromptBoard>,
    line_counts: BTreeMap<(PromptId, LineId, DirectionId), u64>,
    last: Option<BoardLook>,
    pictured: Option<PicturedLook>,
    /// The thumbnail before: a browser that has the page with its look asks for it a moment later.
    previous: Option<Arc<Thumbnail>>,
    /// Its thumbnail is being made.
    pending: Option<BoardLook>,
    thumbnail_at: Option<Mono>,
}

struct PromptBoard {
    prompt: Arc<Prompt>,
    answer: Option<ReceivedAnswer>,
}

struct ReceivedAnswer {
    received: Mono,
    body: DetectionBody,
}

struct PicturedLook {
    look: BoardLook,
    thumbnail: Arc<Thumbnail>,
}

#[derive(Clone)]
struct BoardLook {
    received: Mono,
    /// Its age, and whether its picture is shown, are set for each reader.
    status: LookStatus,
}

/// The enabled prompts, without answers.
fn prompts(camera: &config::CameraConfig) -> Vec<PromptBoard> {
    let enabled = camera.prompts.iter().filter(|prompt| prompt.enabled);
    let board = enabled.map(|prompt| PromptBoard {
        prompt: Arc::new(Prompt {
            view: Default::default(),
            id: prompt.id.clone(),
            revision: Prompt::ONCE,
            task: prompt.task.clone(),
            adapter: None,
        }),
        answer: None,
    });
    board.collect()
}

impl CameraBoard {
    pub fn new(camera: &config::CameraConfig) -> Self {
        Self {
            id: camera.id.clone(),
            minute: Minute::default(),
            config: camera.clone(),
            prompts: prompts(camera),
            line_counts: BTreeMap::new(),
            last: None,
            pictured: None,
            previous: None,
            pending: None,
            thumbnail_at: None,
        }
    }

    /// Replaces the prompts. The answer to one with the same id and words is kept.
    pub fn set_prompts(&mut self, camera: &config::CameraConfig) {
        self.config = camera.clone();
        let has_line = |line: &LineId| camera.lines.iter().any(|known| known.id == *line);
        self.line_counts.retain(|(_, line, _), _| has_line(line));
        let mut before = std::mem::replace(&mut self.prompts, prompts(camera));
        for new in &mut self.prompts {
            let same = |old: &PromptBoard| {
                old.prompt.id == new.prompt.id && old.prompt.task.text() == new.prompt.task.text()
            };
            if let Some(index) = before.iter().position(same) {
                new.answer = before.swap_remove(index).answer;
            }
        }
    }

    /// A prompt of a look at `frame` was answered. True when the caller is to make its thumbnail and hand it to
    /// [`Self::set_thumbnail`]. A text may come after answers to later frames.
    pub fn look(&mut self, frame: &Frame, now: Mono, is_watched: bool) -> bool {
        let last = self.last.as_ref().map(|last| last.received);
        if last.is_some_and(|last| frame.times.received <= last) {
            return false;
        }
        let look = BoardLook {
            received: frame.times.received,
            status: LookStatus {
                frame: frame.number,
                time_ms: frame.times.received_wall.unix_millis(),
                size: (frame.picture.width() as u32, frame.picture.height() as u32),
                ..LookStatus::default()
            },
        };
        let pause = match is_watched {
            true => THUMBNAIL_WATCHED,
            false => THUMBNAIL_UNWATCHED,
        };
        let is_due = self.thumbnail_at.is_none_or(|at| now.since(at) >= pause);
        let is_wanted = is_due && self.pending.is_none();
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
        let Some(index) = self.index_of(&detection.prompt) else {
            return;
        };
        self.prompts[index].answer = Some(ReceivedAnswer {
            received: frame.times.received,
            body: detection.body.clone(),
        });
        let pictured = self.pictured.as_mut().map(|pictured| &mut pictured.look);
        let looks = [self.last.as_mut(), pictured, self.pending.as_mut()];
        for BoardLook { status: look, .. } in looks.into_iter().flatten() {
            if look.frame == frame.number {
                look.answers.push(LookAnswer {
                    prompt: index,
                    body: detection.body.clone(),
                });
            }
        }
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

    fn lines_of(&self, prompt: &PromptId) -> Vec<LineStatus> {
        let of_line = |line: &config::LineConfig| {
            let count = |way: &DirectionId| {
                let key = (prompt.clone(), line.id.clone(), way.clone());
                let count = self.line_counts.get(&key).copied();
                (way.clone(), count.unwrap_or_default())
            };
            LineStatus {
                line: line.id.clone(),
                counts: line.directions.iter().map(count).collect(),
            }
        };
        let mut prompts = self.config.prompts.iter();
        let configured = prompts.find(|configured| configured.id == *prompt);
        let lines = configured.map(|prompt| self.config.lines_counted(prompt).map(of_line));
        lines.into_iter().flatten().collect()
    }

    /// The thumbnail of the look that [`Self::look`] asked for; `None` when its picture cannot be read.
    pub fn set_thumbnail(&mut self, thumbnail: Option<Thumbnail>) {
        let Some((look, thumbnail)) = self.pending.take().zip(thumbnail) else {
            return;
        };
        let before = self.pictured.replace(PicturedLook {
            look,
            thumbnail: Arc::new(thumbnail),
        });
        self.previous = before.map(|before| before.thumbnail);
    }

    /// The one of this look if it is the last or the previous one, else the last one.
    pub fn thumbnail(&self, look: Option<u64>) -> Option<Arc<Thumbnail>> {
        let last = &self.pictured.as_ref()?.thumbnail;
        let previous = self.previous.as_ref();
        let previous = previous.filter(|previous| Some(previous.frame) == look);
        Some(Arc::clone(previous.unwrap_or(last)))
    }

    /// The camera's looks and answers; the caller adds health and frame counters. A browser gets the look with the
    /// thumbnail, a program the last one.
    pub fn status(
        &mut self,
        now: Mono,
        is_watched: bool,
        basis: Option<&CostBasis>,
    ) -> CameraStatus {
        let age_ms = |received| now.since(received).as_millis() as u64;
        let pictured = self.pictured.as_ref().map(|pictured| &pictured.look);
        let shown = match is_watched {
            true => pictured.or(self.last.as_ref()),
            false => self.last.as_ref(),
        };
        let look = shown.map(|look| LookStatus {
            age_ms: age_ms(look.received),
            pictured: pictured.is_some_and(|pictured| pictured.status.frame == look.status.frame),
            ..look.status.clone()
        });
        let size = self.last.as_ref().map(|look| look.status.size);
        let costs = basis.zip(size).map(|(basis, (width, height))| {
            let enabled = self.config.prompts.iter().filter(|prompt| prompt.enabled);
            let costs = basis.prompts(&self.config, (width as usize, height as usize));
            enabled.map(|prompt| &prompt.id).zip(costs).collect()
        });
        let costs: Vec<_> = costs.unwrap_or_default();
        let cost = |id: &PromptId| {
            costs
                .iter()
                .find(|(of, _)| *of == id)
                .map(|(_, cost)| *cost)
        };
        let prompt = |board: &PromptBoard| PromptStatus {
            cost: cost(&board.prompt.id),
            lines: self.lines_of(&board.prompt.id),
            prompt: Arc::clone(&board.prompt),
            answer: board.answer.as_ref().map(|answer| LastAnswer {
                age_ms: age_ms(answer.received),
                body: answer.body.clone(),
            }),
        };
        CameraStatus {
            id: self.id.to_string(),
            look,
            prompts: self.prompts.iter().map(prompt).collect(),
            zones: self.config.zones.clone(),
            lines: self.config.lines.clone(),
            latency: self.minute.status(now),
            ..CameraStatus::default()
        }
    }

    /// The index of the answer's prompt, whose words may have changed; a new prompt is added.
    fn index_of(&mut self, prompt: &Arc<Prompt>) -> Option<usize> {
        let board = PromptBoard {
            prompt: Arc::clone(prompt),
            answer: None,
        };
        let mut known = self.prompts.iter();
        match known.position(|known| known.prompt.id == prompt.id) {
            Some(index) => {
                self.prompts[index] = board;
                Some(index)
            }
            None if self.prompts.len() < PROMPTS_MAX => {
                self.prompts.push(board);
                Some(self.prompts.len() - 1)
            }
            None => None,
        }
    }
}
