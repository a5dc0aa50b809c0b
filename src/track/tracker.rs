//! All prompts of all cameras: answers in, sightings out.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    filter::{Filter, Object},
    hysteresis::{Hysteresis, Presence, Rules},
};
use crate::{
    config::{Camera, CameraPrompt},
    domain::{Answer, CameraId, Mono, PromptId},
};

/// Nobody has looked for so many of the longest expected pauses between two looks: nothing is known any more.
const STALE_PAUSES: u32 = 3;
/// But short interruptions, such as one reconnect of a camera, are waited out.
const STALE_MIN: Duration = Duration::from_secs(30);

/// What one answer says about now.
#[derive(Clone, Debug, PartialEq)]
pub struct Sighting {
    /// The things to report, in the model's order; empty for a text.
    pub objects: Vec<Object>,
    /// Set when presence changed with this answer.
    pub present: Option<Presence>,
    /// Set when the believed count changed with this answer.
    pub count: Option<u32>,
}

/// A prompt whose presence changed without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub camera: CameraId,
    /// Of what.
    pub prompt: PromptId,
    /// The new state.
    pub present: Presence,
}

/// What is known of every prompt.
#[derive(Clone, Debug)]
pub struct Tracker {
    prompts: BTreeMap<(CameraId, PromptId), Tracked>,
    /// Cameras that are not watched.
    off: BTreeSet<CameraId>,
}

#[derive(Clone, Debug)]
struct Tracked {
    filter: Filter,
    hysteresis: Hysteresis,
    revision: u32,
}

impl Tracker {
    /// Knows nothing of any prompt of these cameras yet.
    pub fn new(cameras: &[Camera]) -> Self {
        let entry = |(camera, prompt): (&Camera, &CameraPrompt)| {
            let key = (camera.id.clone(), prompt.id.clone());
            (key, Tracked::new(camera, prompt))
        };
        let all = cameras
            .iter()
            .flat_map(|camera| camera.prompts.iter().map(move |prompt| (camera, prompt)));
        Self {
            prompts: all.map(entry).collect(),
            off: BTreeSet::new(),
        }
    }

    /// An answer came. `now` must not run backwards for one prompt. `None` for a prompt that is not ours, for an
    /// answer to words that were changed since, and for one that was under way when its camera was switched off.
    pub fn update(&mut self, camera: &CameraId, answer: &Answer, now: Mono) -> Option<Sighting> {
        if self.off.contains(camera) {
            return None;
        }
        let key = (camera.clone(), answer.prompt.id.clone());
        let tracked = self.prompts.get_mut(&key)?;
        tracked.update(answer, now)
    }

    /// The camera is disabled, outside of its schedule or over: what it saw is no longer known, until
    /// [`looks_again`](Self::looks_again). Returns the prompts of which something was. One that is lost and comes back
    /// is not switched off: it is waited for until [`tick`](Self::tick) finds its answers too old.
    pub fn stopped_looking(&mut self, camera: &CameraId) -> Vec<Change> {
        self.off.insert(camera.clone());
        self.unknown_where(|(of, _), tracked| of == camera && tracked.hysteresis.forget())
    }

    /// The camera is switched on again.
    pub fn looks_again(&mut self, camera: &CameraId) {
        self.off.remove(camera);
    }

    /// Time passed. Returns the prompts that nobody has answered for too long. Call it every few seconds.
    pub fn tick(&mut self, now: Mono) -> Vec<Change> {
        self.unknown_where(|_, tracked| tracked.hysteresis.expire(now))
    }

    fn unknown_where(
        &mut self,
        mut forgotten: impl FnMut(&(CameraId, PromptId), &mut Tracked) -> bool,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        for (key, tracked) in &mut self.prompts {
            if forgotten(key, tracked) {
                changes.push(Change {
                    camera: key.0.clone(),
                    prompt: key.1.clone(),
                    present: Presence::Unknown,
                });
            }
        }
        changes
    }
}

impl Tracked {
    fn new(camera: &Camera, prompt: &CameraPrompt) -> Self {
        let rules = Rules {
            confirm: prompt.events.confirm,
            end_after: prompt.events.end_after,
            stale_after: stale_after(camera, prompt),
        };
        Self {
            filter: Filter::new(camera, prompt),
            hysteresis: Hysteresis::new(rules),
            revision: 1,
        }
    }

    fn update(&mut self, answer: &Answer, now: Mono) -> Option<Sighting> {
        let revision = answer.prompt.revision;
        if revision < self.revision {
            return None;
        }
        let before = (self.hysteresis.presence(), self.hysteresis.count());
        if revision > self.revision {
            // Other words: what was seen with the old ones says nothing.
            self.revision = revision;
            self.hysteresis.forget();
        }
        let objects = self.filter.objects(&answer.body);
        if let Some(objects) = &objects {
            let seen = u32::try_from(objects.len()).unwrap_or(u32::MAX);
            self.hysteresis.look(seen, now);
        }
        let after = (self.hysteresis.presence(), self.hysteresis.count());
        Some(Sighting {
            objects: objects.unwrap_or_default(),
            present: (before.0 != after.0).then_some(after.0),
            count: after.1.filter(|_| before.1 != after.1),
        })
    }
}

/// How long without a look until nothing is known: some of the pauses that the prompt's pace and the motion gate make,
/// so that a gate that is closed over a quiet scene keeps what is known.
fn stale_after(camera: &Camera, prompt: &CameraPrompt) -> Duration {
    let pace = Duration::from_secs_f64(1.0 / prompt.rate_hz.min(camera.rate_hz));
    let gate = if camera.motion.on {
        camera.motion.at_least_every
    } else {
        Duration::ZERO
    };
    ((pace + gate) * STALE_PAUSES).max(STALE_MIN)
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        domain::{AnswerBody, Marks, Prompt},
        testing::prompt,
        track::filter::tests::found,
    };

    pub(in crate::track) fn camera() -> Camera {
        crate::testing::camera("gate", vec![prompt("person"), prompt("dog")])
    }

    fn answer(revision: u32, body: AnswerBody) -> Answer {
        let asked = prompt("person");
        Answer {
            prompt: Arc::new(Prompt {
                id: asked.id,
                revision,
                task: asked.task,
            }),
            body,
            truncated: false,
            marks: Marks::default(),
        }
    }

    fn people(revision: u32, count: usize) -> Answer {
        let column = |i: usize| found(0.1 * i as f64, 0.2, 0.1 * i as f64 + 0.05, 0.5, 0.9);
        answer(
            revision,
            AnswerBody::Boxes((0..count).map(column).collect()),
        )
    }

    fn at(seconds: u64) -> Mono {
        Mono::default().after(Duration::from_secs(seconds))
    }

    /// Changes of presence and count after each answer, one a second.
    fn changes(
        tracker: &mut Tracker,
        from: u64,
        answers: &[Answer],
    ) -> Vec<(Option<Presence>, Option<u32>)> {
        let gate = CameraId::new("gate").unwrap();
        let mut seconds = from..;
        let mut next = |answer: &Answer| {
            let now = at(seconds.next().unwrap());
            let sighting = tracker.update(&gate, answer, now).unwrap();
            (sighting.present, sighting.count)
        };
        answers.iter().map(&mut next).collect()
    }

    #[test]
    fn presence_and_count_are_told_on_change_only() {
        let mut tracker = Tracker::new(&[camera()]);
        let none = (None, None);
        let seen = changes(
            &mut tracker,
            0,
            &[1, 1, 2, 2, 2, 0, 0, 0, 0].map(|n| people(1, n)),
        );
        let on = (Some(Presence::On), Some(1));
        let off = (Some(Presence::Off), Some(0));
        let expected = [none, on, none, (None, Some(2)), none, none, none, off, none];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_camera_that_is_switched_off_makes_its_prompts_unknown_once() {
        let mut tracker = Tracker::new(&[camera()]);
        let gate = CameraId::new("gate").unwrap();
        changes(&mut tracker, 0, &[people(1, 1), people(1, 1)]);
        let lost = tracker.stopped_looking(&gate);
        assert_eq!(lost.len(), 1, "nothing was known of the dog");
        assert_eq!(
            (lost[0].prompt.as_str(), lost[0].present),
            ("person", Presence::Unknown)
        );
        assert_eq!(tracker.stopped_looking(&gate), []);
        // Answers that were under way change nothing.
        for second in 3..6 {
            assert_eq!(tracker.update(&gate, &people(1, 1), at(second)), None);
        }
        assert_eq!(tracker.stopped_looking(&gate), []);
        // When it is back, the first confirmed look is told again.
        tracker.looks_again(&gate);
        let seen = changes(&mut tracker, 10, &[people(1, 1), people(1, 1)]);
        assert_eq!(seen[1], (Some(Presence::On), Some(1)));
    }

    #[test]
    fn silence_makes_unknown_but_a_closed_gate_does_not() {
        let mut gated = camera();
        gated.motion.on = true;
        gated.motion.at_least_every = Duration::from_secs(60);
        let answers = [people(1, 1), people(1, 1)];
        for (site, stays_s, gone_s) in [(camera(), 30, 33), (gated, 180, 186)] {
            let mut tracker = Tracker::new(&[site]);
            changes(&mut tracker, 0, &answers);
            assert_eq!(tracker.tick(at(stays_s)), []);
            assert_eq!(tracker.tick(at(gone_s)).len(), 1);
        }
    }

    #[test]
    fn new_words_start_from_nothing_and_old_answers_are_dropped() {
        let mut tracker = Tracker::new(&[camera()]);
        let gate = CameraId::new("gate").unwrap();
        changes(&mut tracker, 0, &[people(1, 1), people(1, 1)]);
        let seen = changes(&mut tracker, 2, &[people(2, 1)]);
        assert_eq!(seen, [(Some(Presence::Unknown), None)]);
        assert_eq!(tracker.update(&gate, &people(1, 3), at(3)), None);
        assert_eq!(
            changes(&mut tracker, 4, &[people(2, 1)])[0].0,
            Some(Presence::On)
        );
    }

    #[test]
    fn a_text_says_nothing_about_presence() {
        let mut tracker = Tracker::new(&[camera()]);
        let text = AnswerBody::Text {
            text: "Yes".into(),
            score: 0.9,
        };
        let seen = changes(
            &mut tracker,
            0,
            &[1, 1, 1, 1].map(|r| answer(r, text.clone())),
        );
        assert_eq!(seen, [(None, None); 4]);
        let gate = CameraId::new("gate").unwrap();
        assert_eq!(tracker.stopped_looking(&gate), [], "nothing was known");
    }
}
