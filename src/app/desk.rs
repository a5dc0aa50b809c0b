//! Where answers become news: filtering, presence, and what is handed to the publisher.

use std::sync::Arc;

use super::{
    board::Board,
    camera_supervisor::CameraSwitch,
    pictures::Pictures,
    snapshot::Mark,
    snapshots::{SnapshotBooks, Taken},
};
use spotter_cameras::sampler::Sampler;
use spotter_core::{
    Answer, AnswerBody, CameraId, Clock, EndReason, FoundObject, Frame, LogThrottle, Outcome,
    PromptId, config::CameraConfig,
};
use spotter_events::track::{self, Change, News, Object, Sighting, Tracker};
use spotter_mqtt as publish;
use spotter_mqtt::{Detection, Publisher, Update};

/// Owns what is believed of every prompt.
pub struct Desk {
    tracker: Tracker,
    publisher: Publisher,
    model: Arc<str>,
    clock: Arc<dyn Clock>,
    board: Board,
    failures: LogThrottle<CameraId>,
    pictures: Pictures,
    sampler: Arc<Sampler>,
    cameras: Vec<CameraId>,
}

impl Desk {
    /// Nothing is believed yet, and the world is told so. `model` answers, `boot` names the run of the daemon.
    pub fn new(
        (cameras, pictures): (&[CameraConfig], Pictures),
        (publisher, sampler): (Publisher, Arc<Sampler>),
        (model, boot): (Arc<str>, Arc<str>),
        clock: Arc<dyn Clock>,
        board: Board,
    ) -> Self {
        let desk = Self {
            tracker: Tracker::new(boot, cameras),
            publisher,
            model,
            clock,
            board,
            failures: LogThrottle::default(),
            pictures,
            sampler,
            cameras: ids(cameras),
        };
        for change in desk.tracker.beliefs() {
            desk.tell(change);
        }
        desk
    }

    /// What became of wanted snapshots.
    pub fn snapshots(&self) -> SnapshotBooks {
        self.pictures.books()
    }

    /// A look ended. Never waits.
    pub fn outcome(&mut self, outcome: Outcome) {
        self.sampler.done(&outcome);
        self.board.look(&outcome);
        match outcome {
            Outcome::Answered {
                frame,
                model_size,
                answers,
            } => {
                let mut marks = Vec::new();
                for answer in answers {
                    match self.tracker.verdict(&frame, &answer) {
                        Some(change) => self.verified(&frame, change),
                        None => marks.extend(self.answer(&frame, model_size, answer)),
                    }
                }
                self.pictures.look(&frame, marks, self.clock.now());
            }
            // Counted in the books; a camera that is too slow for its budget would fill the log.
            Outcome::Late(look) => self.tracker.unanswered(&look),
            Outcome::Failed(look, reason) => {
                self.tracker.unanswered(&look);
                let camera = &look.frame.camera;
                if let Some(untold) = self.failures.admit(camera.clone(), self.clock.now()) {
                    let untold = (untold > 0).then_some(untold);
                    tracing::warn!(%camera, reason, untold, "a look failed");
                }
            }
        }
    }

    /// Time passed: what nobody has looked at for too long is unknown.
    pub fn tick(&mut self) {
        let changes = self.tracker.tick(self.clock.now(), self.clock.wall());
        changes.into_iter().for_each(|change| self.tell(change));
    }

    /// A camera that is off has seen nothing that is still known, and what it is asked about at this moment is not to be
    /// told either.
    pub fn switched(&mut self, switched: &CameraSwitch) {
        let changes = self.switch(switched);
        changes.into_iter().for_each(|change| self.tell(change));
    }

    fn switch(&mut self, switched: &CameraSwitch) -> Vec<Change> {
        let (camera, reason) = match switched {
            CameraSwitch::On(camera) => {
                self.tracker.looks_again(camera);
                return Vec::new();
            }
            CameraSwitch::Off(camera) => (camera, EndReason::Disabled),
            CameraSwitch::EngineLost(camera) => (camera, EndReason::CameraLost),
        };
        let wall = self.clock.wall();
        self.tracker.stopped_looking(camera, reason, wall)
    }

    /// These are the cameras from now on, as they are now: what is known of prompts that stay is kept.
    pub fn change(&mut self, cameras: &[CameraConfig], retain_snapshots: bool) {
        let wall = self.clock.wall();
        let before = std::mem::replace(&mut self.cameras, ids(cameras));
        let mut changes = Vec::new();
        for gone in before.iter().filter(|id| !self.cameras.contains(id)) {
            changes.extend(self.tracker.remove(gone, EndReason::Disabled, wall));
        }
        for camera in cameras {
            changes.extend(self.tracker.configure(camera, wall));
            for prompt in &camera.prompts {
                let (id, on) = (&prompt.id, prompt.enabled);
                changes.extend(self.tracker.enable(&camera.id, id, on, wall));
            }
        }
        self.pictures.change(cameras, retain_snapshots);
        changes.into_iter().for_each(|change| self.tell(change));
    }

    /// The daemon stops: what is open ends.
    pub fn shutdown(&mut self) {
        for event in self.tracker.shutdown(self.clock.wall()) {
            self.publisher.publish(Update::Event(Box::new(event)));
        }
    }

    /// A picture of the next look at the camera is published, with everything that it showed.
    pub fn picture_next(&mut self, camera: &CameraId) {
        self.pictures.want(camera);
    }

    /// The next picture that is made; never ready while none is being made. Dropping the future loses nothing.
    pub async fn next_picture(&mut self) -> Taken {
        self.pictures.next().await
    }

    /// Publishes a picture, or says why there is none.
    pub fn on_picture(&self, taken: Taken) {
        if let Some(update) = self.pictures.update(taken) {
            self.publisher.publish(update);
        }
    }

    /// What the answer shows, to be drawn.
    fn answer(&mut self, frame: &Frame, model_size: (u32, u32), answer: Answer) -> Vec<Mark> {
        let (camera, prompt) = (frame.camera.clone(), answer.prompt.id.clone());
        let Some(sighting) = self.tracker.update(frame, &answer) else {
            return Vec::new();
        };
        let Sighting {
            objects,
            mut news,
            question,
        } = sighting;
        if let Some(question) = question {
            self.sampler.ask_once(&camera, question);
        }
        let words = answer.prompt.task.text().to_owned();
        self.picture_events(frame, &mut news);
        let marks = objects
            .iter()
            .map(|o| Mark::of(o.place(), &words, o.score))
            .collect();
        let answer = Answer {
            body: reported(answer.body, &objects),
            ..answer
        };
        self.board.answer(frame, &answer);
        let since_last = self.sampler.take_since_last(&camera, &prompt);
        let finished = self.clock.now();
        let tracks = objects
            .iter()
            .filter_map(|o| Some((o.track.clone()?, o.age)));
        let zones = objects.iter().map(|o| o.zones.clone());
        let detection =
            Detection::new(frame, Arc::clone(&self.model), model_size, answer, finished)
                .in_zones(zones.collect())
                .followed(tracks.collect())
                .after(since_last);
        self.publisher
            .publish(Update::Detection(Box::new(detection)));
        self.tell(Change {
            camera,
            prompt,
            news,
        });
        marks
    }

    /// A second look at `frame` has ended: the events that waited for it.
    fn verified(&mut self, frame: &Frame, mut change: Change) {
        let (camera, prompt, begun) = (&change.camera, &change.prompt, change.news.len());
        tracing::debug!(%camera, %prompt, begun, "a second look");
        self.picture_events(frame, &mut change.news);
        self.tell(change);
    }

    /// Begins pictures of the events that are to have one, which say so from now on.
    fn picture_events(&mut self, frame: &Frame, news: &mut [News]) {
        for event in news.iter_mut().filter_map(News::event_mut) {
            if self.pictures.event(frame, event, self.clock.now()) {
                event.snapshot = true;
                self.tracker.pictured(event);
            }
        }
    }

    fn tell(&self, change: Change) {
        for news in change.news {
            let (camera, prompt) = (change.camera.clone(), change.prompt.clone());
            self.publisher.publish(update(camera, prompt, news));
        }
    }
}

fn ids(cameras: &[CameraConfig]) -> Vec<CameraId> {
    cameras.iter().map(|camera| camera.id.clone()).collect()
}

/// What the world is told.
fn update(camera: CameraId, prompt: PromptId, news: News) -> Update {
    match news {
        News::Present(presence) => Update::Present {
            camera,
            prompt,
            presence: match presence {
                track::Presence::On => publish::Presence::On,
                track::Presence::Off => publish::Presence::Off,
                track::Presence::Unknown => publish::Presence::Unknown,
            },
        },
        News::Count(count) => Update::Count {
            camera,
            prompt,
            count: count.map(u64::from),
        },
        News::Zone { zone, count } => Update::Zone {
            camera,
            zone,
            prompt,
            count: count.map(u64::from),
        },
        News::Answer(text) => Update::Answer {
            camera,
            prompt,
            text,
        },
        News::Event(event) => Update::Event(event),
    }
}

/// The answer with only the things that the prompt's filters let through.
fn reported(body: AnswerBody, objects: &[Object]) -> AnswerBody {
    match body {
        AnswerBody::Boxes(_) => {
            let found = |o: &Object| {
                Some(FoundObject {
                    place: o.bounds?,
                    score: o.score,
                    source: o.score_source,
                    sharpness: o.sharpness,
                })
            };
            AnswerBody::Boxes(objects.iter().filter_map(found).collect())
        }
        AnswerBody::Points(_) => {
            let found = |o: &Object| FoundObject {
                place: o.point,
                score: o.score,
                source: o.score_source,
                sharpness: o.sharpness,
            };
            AnswerBody::Points(objects.iter().map(found).collect())
        }
        text @ AnswerBody::Text { .. } => text,
    }
}

#[cfg(test)]
mod tests;
