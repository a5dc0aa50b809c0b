//! What is shown of one camera. While somebody watches, it is the last look whose picture was copied, so that boxes and
//! picture are of one moment; else it is the last look. Pure.

use std::{sync::Arc, time::Duration};

use super::minute::Minute;
use crate::ops::page::{self, Still};
use spotter_core::{Answer, AnswerBody, CameraId, Frame, Mono, Task, WallTime, config};

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
fn asked(camera: &config::CameraConfig) -> Vec<Asked> {
    let enabled = camera.prompts.iter().filter(|prompt| prompt.enabled);
    let asked = enabled.map(|prompt| Asked::new(prompt.id.as_str(), &prompt.task));
    asked.collect()
}

impl Shown {
    /// Not looked at yet.
    pub fn new(camera: &config::CameraConfig) -> Self {
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
    pub fn ask(&mut self, camera: &config::CameraConfig) {
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
    pub fn answer(&mut self, frame: &Frame, answer: &Answer) {
        let Some(index) = self.prompt(answer) else {
            return;
        };
        self.prompts[index].answer = Some((frame.times.received, in_short(&answer.body)));
        let looks = [&mut self.shown, &mut self.next];
        for look in looks.into_iter().flatten() {
            if look.frame == frame.number {
                found(&answer.body, index, &mut look.found);
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
    fn prompt(&mut self, answer: &Answer) -> Option<usize> {
        let asked = Asked::new(answer.prompt.id.as_str(), &answer.prompt.task);
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

fn in_short(body: &AnswerBody) -> page::Answer {
    let best = |scores: &mut dyn Iterator<Item = f64>| scores.reduce(f64::max);
    let (text, score) = match body {
        AnswerBody::Boxes(found) => (None, best(&mut found.iter().map(|f| f.score))),
        AnswerBody::Points(found) => (None, best(&mut found.iter().map(|f| f.score))),
        AnswerBody::Text { text, score } => (Some(text.clone()), Some(*score)),
    };
    page::Answer {
        age_ms: 0,
        count: body.count(),
        text,
        score,
    }
}

/// Adds the things of an answer, with places as exact as a screen is.
fn found(body: &AnswerBody, prompt: usize, all: &mut Vec<page::Found>) {
    let exact = |share: f64| (share * 1e4).round() / 1e4;
    let mut add = |place, score: f64| {
        all.push(page::Found {
            prompt,
            place,
            score: (score * 1e3).round() / 1e3,
        });
    };
    match body {
        AnswerBody::Boxes(boxes) => {
            for f in boxes {
                let b = f.place;
                add(
                    page::Place::Box([b.x0, b.y0, b.x1, b.y1].map(exact)),
                    f.score,
                );
            }
        }
        AnswerBody::Points(points) => {
            for f in points {
                add(
                    page::Place::Point([f.place.x, f.place.y].map(exact)),
                    f.score,
                );
            }
        }
        AnswerBody::Text { .. } => {}
    }
}
