//! Where answers become news: filtering, presence, and what is handed to the publisher.

use std::sync::Arc;

use super::{board::Board, cameras::Switched};
use crate::{
    config::Camera,
    domain::{Answer, AnswerBody, CameraId, Clock, Found, Frame, Outcome, Repeats},
    publish::{self, Detection, Publisher, Update},
    sampler::Sampler,
    track::{self, Change, Object, Tracker},
};

/// Owns what is believed of every prompt.
pub struct Desk {
    tracker: Tracker,
    publisher: Publisher,
    model: Arc<str>,
    clock: Arc<dyn Clock>,
    board: Board,
    failures: Repeats<CameraId>,
}

impl Desk {
    /// Nothing is believed yet, and the world is told so.
    pub fn new(
        cameras: &[Camera],
        publisher: Publisher,
        model: Arc<str>,
        clock: Arc<dyn Clock>,
        board: Board,
    ) -> Self {
        let desk = Self {
            tracker: Tracker::new(cameras),
            publisher,
            model,
            clock,
            board,
            failures: Repeats::default(),
        };
        for camera in cameras {
            for prompt in &camera.prompts {
                desk.presence(Change {
                    camera: camera.id.clone(),
                    prompt: prompt.id.clone(),
                    present: track::Presence::Unknown,
                });
            }
        }
        desk
    }

    /// A look at a frame of `sampler` ended. Never waits.
    pub fn outcome(&mut self, sampler: &Sampler, outcome: Outcome) {
        sampler.done(&outcome);
        self.board.look(&outcome);
        match outcome {
            Outcome::Answered {
                frame,
                model_size,
                answers,
            } => {
                for answer in answers {
                    self.answer(sampler, &frame, model_size, answer);
                }
            }
            // Counted in the books; a camera that is too slow for its budget would fill the log.
            Outcome::Late(_) => {}
            Outcome::Failed(look, reason) => {
                let camera = &look.frame.camera;
                if let Some(untold) = self.failures.tell(camera.clone(), self.clock.now()) {
                    let untold = (untold > 0).then_some(untold);
                    tracing::warn!(%camera, reason, untold, "a look failed");
                }
            }
        }
    }

    /// Time passed: what nobody has looked at for too long is unknown.
    pub fn tick(&mut self) {
        for change in self.tracker.tick(self.clock.now()) {
            self.presence(change);
        }
    }

    /// A camera that is off has seen nothing that is still known, and what it is asked about at this moment is not to be
    /// told either.
    pub fn switched(&mut self, switched: &Switched) {
        match switched {
            Switched::On(camera) => self.tracker.looks_again(camera),
            Switched::Off(camera) => {
                for change in self.tracker.stopped_looking(camera) {
                    self.presence(change);
                }
            }
        }
    }

    fn answer(&mut self, sampler: &Sampler, frame: &Frame, model_size: (u32, u32), answer: Answer) {
        let (camera, prompt) = (frame.camera.clone(), answer.prompt.id.clone());
        let Some(sighting) = self.tracker.update(&camera, &answer, self.clock.now()) else {
            return;
        };
        let zones = sighting
            .objects
            .iter()
            .map(|object| object.zones.clone())
            .collect();
        let answer = Answer {
            body: reported(answer.body, &sighting.objects),
            ..answer
        };
        self.board.answer(frame, &answer);
        let since_last = sampler.take_since_last(&camera, &prompt);
        let finished = self.clock.now();
        let detection =
            Detection::new(frame, Arc::clone(&self.model), model_size, answer, finished)
                .in_zones(zones)
                .after(since_last);
        self.publisher
            .publish(Update::Detection(Box::new(detection)));
        if let Some(count) = sighting.count {
            let (camera, prompt, count) = (camera.clone(), prompt.clone(), Some(u64::from(count)));
            self.publisher.publish(Update::Count {
                camera,
                prompt,
                count,
            });
        }
        if let Some(present) = sighting.present {
            self.presence(Change {
                camera,
                prompt,
                present,
            });
        }
    }

    /// A count is as unknown as the presence that it belongs to.
    fn presence(&self, change: Change) {
        if change.present == track::Presence::Unknown {
            let (camera, prompt) = (change.camera.clone(), change.prompt.clone());
            self.publisher.publish(Update::Count {
                camera,
                prompt,
                count: None,
            });
        }
        let presence = match change.present {
            track::Presence::On => publish::Presence::On,
            track::Presence::Off => publish::Presence::Off,
            track::Presence::Unknown => publish::Presence::Unknown,
        };
        let Change { camera, prompt, .. } = change;
        self.publisher.publish(Update::Present {
            camera,
            prompt,
            presence,
        });
    }
}

/// The answer with only the things that the prompt's filters let through.
fn reported(body: AnswerBody, objects: &[Object]) -> AnswerBody {
    match body {
        AnswerBody::Boxes(_) => {
            let found = |o: &Object| {
                Some(Found {
                    place: o.bounds?,
                    score: o.score,
                    source: o.score_source,
                    sharpness: o.sharpness,
                })
            };
            AnswerBody::Boxes(objects.iter().filter_map(found).collect())
        }
        AnswerBody::Points(_) => {
            let found = |o: &Object| Found {
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
mod tests {
    use super::*;
    use crate::{
        domain::{Marks, Mono, NormBox, NormPoint, Prompt, ScoreSource},
        testing,
    };

    fn found<T>(place: T) -> Found<T> {
        Found {
            place,
            score: 0.75,
            source: ScoreSource::Verify,
            sharpness: 0.25,
        }
    }

    #[test]
    fn what_passes_the_filters_is_reported_as_it_was_found() {
        let person = testing::prompt("person");
        let prompt = Arc::new(Prompt {
            id: person.id.clone(),
            revision: 1,
            task: person.task.clone(),
        });
        let camera = testing::camera("gate", vec![person]);
        let mut tracker = Tracker::new(std::slice::from_ref(&camera));
        for body in [
            AnswerBody::Boxes(vec![found(NormBox::from_corners(0.1, 0.2, 0.3, 0.4))]),
            AnswerBody::Points(vec![found(NormPoint::new(0.5, 0.25))]),
        ] {
            let answer = Answer {
                prompt: Arc::clone(&prompt),
                body: body.clone(),
                truncated: false,
                marks: Marks::default(),
            };
            let sighting = tracker.update(&camera.id, &answer, Mono::default());
            assert_eq!(reported(body.clone(), &sighting.unwrap().objects), body);
        }
    }
}
