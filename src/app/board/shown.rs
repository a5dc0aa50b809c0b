//! What is shown of one camera. While somebody watches, it is the last look whose picture was copied, so that boxes and
//! picture are of one moment; else it is the last look. Pure.

use std::{sync::Arc, time::Duration};

use super::minute::Minute;
use crate::ops::page::{self, Still};
use spotter_core::{
    CameraId, Detection, DetectionBody, Frame, Location, Mono, Task, TrackedObject, WallTime,
    config,
};

/// A picture is copied so often at most.
const PICTURE_EVERY: Duration = Duration::from_secs(1);
/// Prompts that are shown; the first ones stay.
const PROMPTS: usize = 32;

/// One camera.
pub struct Shown {
    /// Its name.
    pub id: CameraId,
    /// Its messages.
    pub minute: Minute,
    prompts: Vec<Asked>,
    shown: Option<Look>,
    /// Its picture is being copied.
    next: Option<Look>,
    pictured: Option<Mono>,
}

struct Asked {
    id: String,
    kind: &'static str,
    words: String,
    answer: Option<(Mono, page::Answer)>,
}

struct Look {
    frame: u64,
    received: Mono,
    wall: WallTime,
    size: (u32, u32),
    found: Vec<page::Found>,
    still: Option<Arc<Still>>,
}

/// The prompts that are asked of a camera, not answered yet.
fn asked(camera: &config::Camera) -> Vec<Asked> {
    let enabled = camera.prompts.iter().filter(|prompt| prompt.enabled);
    let asked = enabled.map(|prompt| Asked::new(prompt.id.as_str(), &prompt.task));
    asked.collect()
}

impl Shown {
    /// Not looked at yet.
    pub fn new(camera: &config::Camera) -> Self {
        Self {
            id: camera.id.clone(),
            minute: Minute::default(),
            prompts: asked(camera),
            shown: None,
            next: None,
            pictured: None,
        }
    }

    /// These prompts are asked from now on. The answer to one that stays as it was is still shown.
    pub fn ask(&mut self, camera: &config::Camera) {
        let mut before = std::mem::replace(&mut self.prompts, asked(camera));
        for prompt in &mut self.prompts {
            let same = |old: &Asked| old.id == prompt.id && old.words == prompt.words;
            if let Some(place) = before.iter().position(same) {
                prompt.answer = before.swap_remove(place).answer;
            }
        }
    }

    /// A look at `frame` ended. True when its picture is to be copied and handed to [`Shown::pictured`].
    pub fn look(&mut self, frame: &Frame, now: Mono, watched: bool) -> bool {
        let look = Look {
            frame: frame.number,
            received: frame.times.received,
            wall: frame.times.received_wall,
            size: (frame.picture.width() as u32, frame.picture.height() as u32),
            found: Vec::new(),
            still: None,
        };
        if !watched {
            (self.shown, self.next) = (Some(look), None);
            return false;
        }
        let recent = |at| now.since(at) < PICTURE_EVERY;
        if self.next.is_some() || self.pictured.is_some_and(recent) {
            return false;
        }
        self.pictured = Some(now);
        self.next = Some(look);
        true
    }

    /// An answer of a look that ended.
    pub fn answer(&mut self, detection: &Detection) {
        let Some(index) = self.prompt(detection) else {
            return;
        };
        let frame = &detection.frame;
        self.prompts[index].answer = Some((frame.times.received, in_short(&detection.body)));
        let looks = [&mut self.shown, &mut self.next];
        for look in looks.into_iter().flatten() {
            if look.frame == frame.number {
                let objects = detection.body.objects().iter();
                look.found
                    .extend(objects.map(|object| found(object, index)));
            }
        }
    }

    /// The picture was copied; nothing when it could not be.
    pub fn pictured(&mut self, still: Option<Still>) {
        // Taken away when nobody watches any more.
        if let Some(look) = self.next.take() {
            let still = still.map(Arc::new);
            self.shown = Some(Look { still, ..look });
        }
    }

    /// Lets go of the picture.
    pub fn nobody_watches(&mut self) {
        if let Some(look) = &mut self.shown {
            look.still = None;
        }
        self.pictured = None;
    }

    /// The picture of the shown look.
    pub fn still(&self) -> Option<Arc<Still>> {
        self.shown.as_ref()?.still.clone()
    }

    /// What is to be seen, to which the caller adds what it knows.
    pub fn view(&mut self, now: Mono) -> page::Camera {
        let age_ms = |received| now.since(received).as_millis() as u64;
        let look = self.shown.as_ref().map(|look| page::Look {
            frame: look.frame,
            time_ms: look.wall.unix_millis(),
            age_ms: age_ms(look.received),
            size: look.size,
            pictured: look.still.is_some(),
            found: look.found.clone(),
        });
        let prompt = |asked: &Asked| page::Prompt {
            id: asked.id.clone(),
            kind: asked.kind,
            words: asked.words.clone(),
            answer: asked
                .answer
                .as_ref()
                .map(|(received, answer)| page::Answer {
                    age_ms: age_ms(*received),
                    ..answer.clone()
                }),
        };
        page::Camera {
            id: self.id.to_string(),
            look,
            prompts: self.prompts.iter().map(prompt).collect(),
            latency: self.minute.view(now),
            ..page::Camera::default()
        }
    }

    /// The place of the answer's prompt, whose words may be new, as may be the prompt.
    fn prompt(&mut self, detection: &Detection) -> Option<usize> {
        let prompt = &detection.prompt;
        let asked = Asked::new(prompt.id.as_str(), &prompt.task);
        match self.prompts.iter().position(|known| known.id == asked.id) {
            Some(index) => {
                self.prompts[index] = asked;
                Some(index)
            }
            None if self.prompts.len() < PROMPTS => {
                self.prompts.push(asked);
                Some(self.prompts.len() - 1)
            }
            None => None,
        }
    }
}

impl Asked {
    fn new(id: &str, task: &Task) -> Self {
        Self {
            id: id.to_owned(),
            kind: task.kind(),
            words: task.text().to_owned(),
            answer: None,
        }
    }
}

fn in_short(body: &DetectionBody) -> page::Answer {
    let (text, score) = match body {
        DetectionBody::Objects(objects) => (None, objects.iter().map(|o| o.score).reduce(f64::max)),
        DetectionBody::Text { text, score } => (Some(text.clone()), Some(*score)),
    };
    page::Answer {
        age_ms: 0,
        count: body.count(),
        text,
        score,
    }
}

/// An object of the prompt with that index, with a location as exact as a screen is.
fn found(object: &TrackedObject, prompt: usize) -> page::Found {
    let exact = |share: f64| (share * 1e4).round() / 1e4;
    page::Found {
        prompt,
        place: match object.location {
            Location::Box(b) => page::Place::Box([b.x0, b.y0, b.x1, b.y1].map(exact)),
            Location::Point(p) => page::Place::Point([p.x, p.y].map(exact)),
        },
        score: (object.score * 1e3).round() / 1e3,
    }
}
