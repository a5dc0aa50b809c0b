//! Which snapshots are taken, and their making, off the way of frames and answers.
//!
//! ```text
//!   an event begins or gets better ─┐             one at a time a camera,
//!                                   ├─▶ begin ─▶  in a thread that may block  ─▶ next ─▶ the JPEG
//!   somebody asks for a camera's ───┘             else declined and counted
//! ```
//!
//! Nothing waits: who is declined goes without. A best picture comes again, and who asked is told so.

use std::{
    collections::{HashMap, HashSet},
    future::pending,
    time::Duration,
};

use tokio::task::{Id, JoinSet};

use super::snapshot::{Mark, SnapshotError, jpeg};
use crate::domain::{CameraId, EventStep, Mono, Picture, PromptId, UpdateReason};

/// A topic gets a snapshot so often at most (mqtt-contract section 2).
const TOPIC_EVERY: Duration = Duration::from_secs(1);

/// True for the steps of an event that show its thing as never before: one snapshot each.
pub fn is_worth_one(step: EventStep) -> bool {
    match step {
        EventStep::New | EventStep::Update(UpdateReason::Better) => true,
        EventStep::Update(
            UpdateReason::Zones | UpdateReason::Moved | UpdateReason::Still | UpdateReason::Minute,
        )
        | EventStep::End(_) => false,
    }
}

/// What a snapshot is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The topic of a prompt, for a step that [`is_worth_one`].
    Event(PromptId),
    /// Somebody asked; the topic of that prompt.
    Asked(PromptId),
}

/// A snapshot that is wanted.
#[derive(Clone, Debug)]
pub struct Shot {
    /// Whose picture.
    pub camera: CameraId,
    /// What for.
    pub purpose: Purpose,
    /// The picture of a look, masked as the look was.
    pub picture: Picture,
    /// What is drawn into it.
    pub marks: Vec<Mark>,
}

/// A snapshot that was made, or could not be.
#[derive(Debug, PartialEq)]
pub struct Taken {
    /// Whose picture.
    pub camera: CameraId,
    /// What for.
    pub purpose: Purpose,
    /// The file.
    pub jpeg: Result<Vec<u8>, SnapshotError>,
}

/// Why a snapshot is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Declined {
    /// The last one of the camera is still being made.
    #[error("the last snapshot of this camera is still being made; ask again")]
    Busy,
    /// The topic had one less than a second ago.
    #[error("this topic had a snapshot less than a second ago")]
    TooSoon,
}

/// What became of the snapshots that were wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotBooks {
    /// Made.
    pub taken: u64,
    /// Declined, because the camera's last one was being made.
    pub busy: u64,
    /// Declined, because the topic had one just before.
    pub too_soon: u64,
    /// Could not be made.
    pub failed: u64,
}

/// All cameras' snapshots. Needs a tokio runtime.
#[derive(Default)]
pub struct Snapshots {
    making: JoinSet<Taken>,
    /// Whose, by the task that makes it: there is one for each camera at most.
    of: HashMap<Id, CameraId>,
    busy: HashSet<CameraId>,
    last: HashMap<(CameraId, PromptId), Mono>,
    books: SnapshotBooks,
}

impl Snapshots {
    /// Begins to make it, or says why not. Does not block.
    pub fn begin(&mut self, shot: Shot, now: Mono) -> Result<(), Declined> {
        self.allow(&shot, now).inspect_err(|declined| {
            match declined {
                Declined::Busy => self.books.busy += 1,
                Declined::TooSoon => self.books.too_soon += 1,
            };
        })?;
        if let Purpose::Event(prompt) = &shot.purpose {
            let topic = (shot.camera.clone(), prompt.clone());
            self.last.insert(topic, now);
        }
        let camera = shot.camera.clone();
        self.busy.insert(camera.clone());
        let task = self.making.spawn_blocking(move || Taken {
            jpeg: jpeg(&shot.picture, &shot.marks),
            camera: shot.camera,
            purpose: shot.purpose,
        });
        self.of.insert(task.id(), camera);
        Ok(())
    }

    /// The next one that is made. Never ready while none is being made. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Taken {
        loop {
            let Some(ended) = self.making.join_next_with_id().await else {
                pending().await
            };
            let id = match &ended {
                Ok((id, _)) => *id,
                Err(abnormal) => abnormal.id(),
            };
            if let Some(camera) = self.of.remove(&id) {
                self.busy.remove(&camera);
            }
            match ended {
                Ok((_, taken)) => {
                    match &taken.jpeg {
                        Ok(_) => self.books.taken += 1,
                        Err(_) => self.books.failed += 1,
                    }
                    return taken;
                }
                // A panic, which the log has.
                Err(_) => self.books.failed += 1,
            }
        }
    }

    /// What became of those that were wanted.
    pub fn books(&self) -> SnapshotBooks {
        self.books
    }

    /// Forgets topics of cameras and prompts that are gone.
    pub fn keep(&mut self, is_there: impl Fn(&CameraId, &PromptId) -> bool) {
        self.last
            .retain(|(camera, prompt), _| is_there(camera, prompt));
    }

    fn allow(&self, shot: &Shot, now: Mono) -> Result<(), Declined> {
        if let Purpose::Event(prompt) = &shot.purpose {
            let topic = (shot.camera.clone(), prompt.clone());
            let last = self.last.get(&topic);
            if last.is_some_and(|&last| now.since(last) < TOPIC_EVERY) {
                return Err(Declined::TooSoon);
            }
        }
        match self.busy.contains(&shot.camera) {
            true => Err(Declined::Busy),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::EndReason;

    fn shot(camera: &str, purpose: Purpose) -> Shot {
        Shot {
            camera: CameraId::new(camera).unwrap(),
            purpose,
            picture: Picture::from_rgb(64, 36, vec![90; 64 * 36 * 3]).unwrap(),
            marks: Vec::new(),
        }
    }

    fn event(prompt: &str) -> Purpose {
        Purpose::Event(PromptId::new(prompt).unwrap())
    }

    fn asked(prompt: &str) -> Purpose {
        Purpose::Asked(PromptId::new(prompt).unwrap())
    }

    fn at(ms: u64) -> Mono {
        Mono::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_new_and_a_better_picture_are_worth_one() {
        assert!(is_worth_one(EventStep::New));
        for reason in [
            UpdateReason::Zones,
            UpdateReason::Moved,
            UpdateReason::Still,
            UpdateReason::Minute,
        ] {
            assert!(!is_worth_one(EventStep::Update(reason)));
        }
        assert!(is_worth_one(EventStep::Update(UpdateReason::Better)));
        assert!(!is_worth_one(EventStep::End(EndReason::Left)));
    }

    #[tokio::test]
    async fn one_at_a_time_a_camera_and_one_a_second_a_topic() {
        let mut snapshots = Snapshots::default();
        let gate = || shot("gate", event("person"));
        assert_eq!(snapshots.begin(gate(), at(0)), Ok(()));
        // Until it has been handed over its camera is busy, however quick the thread is.
        let wanted = shot("gate", asked("person"));
        assert_eq!(snapshots.begin(wanted.clone(), at(1)), Err(Declined::Busy));
        assert_eq!(snapshots.begin(gate(), at(2)), Err(Declined::TooSoon));
        let yard = snapshots.begin(shot("yard", event("person")), at(3));
        assert_eq!(yard, Ok(()), "another camera");
        let (one, two) = (snapshots.next().await, snapshots.next().await);
        for taken in [&one, &two] {
            let jpeg = taken.jpeg.as_ref().unwrap();
            assert_eq!(jpeg[..2], [0xff, 0xd8]);
        }
        assert_ne!(one.camera, two.camera);

        assert_eq!(snapshots.begin(gate(), at(999)), Err(Declined::TooSoon));
        assert_eq!(snapshots.begin(wanted, at(999)), Ok(()), "no topic's pace");
        assert_eq!(snapshots.next().await.purpose, asked("person"));
        assert_eq!(snapshots.begin(gate(), at(1000)), Ok(()));
        snapshots.next().await;
        let books = SnapshotBooks {
            taken: 4,
            busy: 1,
            too_soon: 2,
            failed: 0,
        };
        assert_eq!(snapshots.books(), books);

        snapshots.keep(|camera, _| camera.as_str() == "yard");
        assert_eq!(snapshots.begin(gate(), at(1001)), Ok(()), "a new topic");
    }

    #[tokio::test]
    async fn a_picture_that_gives_none_is_counted_and_blocks_nothing() {
        let mut snapshots = Snapshots::default();
        let mut ribbon = shot("gate", asked("person"));
        let noise = (0..300 * 9000 * 3_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8);
        ribbon.picture = Picture::from_rgb(300, 9000, noise.collect()).unwrap();
        assert_eq!(snapshots.begin(ribbon, at(0)), Ok(()));
        let taken = snapshots.next().await;
        assert!(matches!(
            taken.jpeg,
            Err(SnapshotError::TooLarge(300, 9000))
        ));
        assert_eq!(snapshots.books().failed, 1);
        let next = shot("gate", asked("dog"));
        assert_eq!(snapshots.begin(next, at(0)), Ok(()));
    }
}
