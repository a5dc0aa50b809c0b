//! Which snapshots are made, and their encoding in blocking threads, apart from the path of frames and answers.
//!
//! ```text
//!   an event begins or its score improves ─┐             one encoder per camera; up to eight
//!                                          ├─▶ begin ─▶  orders wait, further ones are       ─▶ next ─▶ JPEG
//!   a command requests a snapshot ─────────┘             declined and counted
//! ```
//!
//! A declined snapshot of an event is not made up for. A command's snapshot is taken from the next look instead.

use std::{
    collections::{HashMap, VecDeque},
    future::pending,
    time::Duration,
};

use tokio::task::{Id, JoinSet};

use super::snapshot::{Mark, SnapshotError, jpeg};
use spotter_core::{CameraId, EventStep, Mono, Picture, PromptId, UpdateReason};

/// Shortest interval of two snapshots of a topic (docs/mqtt.md section 4).
const TOPIC_EVERY: Duration = Duration::from_secs(1);
/// Orders of a camera that wait while one is encoded. Objects of several prompts may appear on one look and share its picture:
/// a camera holds at most `WAITING_MAX + 1` pictures, usually one.
const WAITING_MAX: usize = 8;

/// True for the begin of an event and for each better score: one snapshot each, so the last snapshot of an event is its best
/// and the first one comes at once.
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
pub enum SnapshotPurpose {
    /// The topic of a prompt, for a step that [`is_worth_one`].
    Event(PromptId),
    /// The command `snapshot`; published at the topic of this prompt.
    Command(PromptId),
}

impl SnapshotPurpose {
    pub fn prompt(&self) -> &PromptId {
        match self {
            Self::Event(prompt) | Self::Command(prompt) => prompt,
        }
    }
}

#[derive(Clone, Debug)]
pub struct SnapshotOrder {
    pub camera: CameraId,
    pub purpose: SnapshotPurpose,
    /// The picture of a look, masked as the look was.
    pub picture: Picture,
    /// Drawn into the picture.
    pub marks: Vec<Mark>,
}

#[derive(Debug, PartialEq)]
pub struct FinishedSnapshot {
    pub camera: CameraId,
    pub purpose: SnapshotPurpose,
    pub jpeg: Result<Vec<u8>, SnapshotError>,
}

/// Why a snapshot is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotDeclined {
    /// As many of the camera as may wait are waiting.
    #[error("{WAITING_MAX} snapshots of this camera wait to be made; ask again")]
    Busy,
    /// The topic had one less than a second ago.
    #[error("this topic had a snapshot less than a second ago")]
    TooSoon,
}

/// Orders by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotCounters {
    pub taken: u64,
    pub busy: u64,
    pub too_soon: u64,
    /// Not encoded.
    pub failed: u64,
}

impl SnapshotCounters {
    /// With the label values of the metric.
    pub fn by_outcome(&self) -> [(&'static str, u64); 4] {
        [
            ("taken", self.taken),
            ("busy", self.busy),
            ("too_soon", self.too_soon),
            ("failed", self.failed),
        ]
    }
}

/// All cameras' snapshots. Needs a tokio runtime.
#[derive(Default)]
pub struct Snapshots {
    making: JoinSet<FinishedSnapshot>,
    /// The camera of each encoding task: at most one task per camera.
    cameras: HashMap<Id, CameraId>,
    /// Orders behind the one that is encoded, oldest first; an entry for each camera with an encoding task.
    waiting: HashMap<CameraId, VecDeque<SnapshotOrder>>,
    last: HashMap<(CameraId, PromptId), Mono>,
    counters: SnapshotCounters,
}

impl Snapshots {
    /// Starts or queues the encoding. Does not block.
    pub fn begin(&mut self, shot: SnapshotOrder, now: Mono) -> Result<(), SnapshotDeclined> {
        self.allow(&shot, now).inspect_err(|declined| {
            match declined {
                SnapshotDeclined::Busy => self.counters.busy += 1,
                SnapshotDeclined::TooSoon => self.counters.too_soon += 1,
            };
        })?;
        if let SnapshotPurpose::Event(prompt) = &shot.purpose {
            let topic = (shot.camera.clone(), prompt.clone());
            self.last.insert(topic, now);
        }
        match self.waiting.get_mut(&shot.camera) {
            Some(waiting) => waiting.push_back(shot),
            None => {
                let camera = shot.camera.clone();
                self.waiting.insert(camera, VecDeque::new());
                self.make(shot);
            }
        }
        Ok(())
    }

    /// The next finished snapshot; pending while none is encoded. Cancel safe.
    pub async fn next(&mut self) -> FinishedSnapshot {
        loop {
            let Some(ended) = self.making.join_next_with_id().await else {
                pending().await
            };
            let id = match &ended {
                Ok((id, _)) => *id,
                Err(abnormal) => abnormal.id(),
            };
            if let Some(camera) = self.cameras.remove(&id) {
                self.make_next(&camera);
            }
            match ended {
                Ok((_, taken)) => {
                    match &taken.jpeg {
                        Ok(_) => self.counters.taken += 1,
                        Err(_) => self.counters.failed += 1,
                    }
                    return taken;
                }
                // The encoder panicked; the panic hook has logged it.
                Err(_) => self.counters.failed += 1,
            }
        }
    }

    /// What became of those that were wanted.
    pub fn counters(&self) -> SnapshotCounters {
        self.counters
    }

    /// Forgets topics of cameras and prompts that are gone, and what waits for them.
    pub fn keep(&mut self, is_there: impl Fn(&CameraId, &PromptId) -> bool) {
        self.last
            .retain(|(camera, prompt), _| is_there(camera, prompt));
        for waiting in self.waiting.values_mut() {
            waiting.retain(|shot| is_there(&shot.camera, shot.purpose.prompt()));
        }
    }

    fn make(&mut self, shot: SnapshotOrder) {
        let camera = shot.camera.clone();
        let task = self.making.spawn_blocking(move || FinishedSnapshot {
            jpeg: jpeg(&shot.picture, &shot.marks),
            camera: shot.camera,
            purpose: shot.purpose,
        });
        self.cameras.insert(task.id(), camera);
    }

    /// One of the camera's is made.
    fn make_next(&mut self, camera: &CameraId) {
        match self.waiting.get_mut(camera).and_then(VecDeque::pop_front) {
            Some(shot) => self.make(shot),
            None => {
                self.waiting.remove(camera);
            }
        }
    }

    fn allow(&self, shot: &SnapshotOrder, now: Mono) -> Result<(), SnapshotDeclined> {
        if let SnapshotPurpose::Event(prompt) = &shot.purpose {
            let topic = (shot.camera.clone(), prompt.clone());
            let last = self.last.get(&topic);
            if last.is_some_and(|&last| now.since(last) < TOPIC_EVERY) {
                return Err(SnapshotDeclined::TooSoon);
            }
        }
        let waiting = self.waiting.get(&shot.camera).map_or(0, VecDeque::len);
        match waiting >= WAITING_MAX {
            true => Err(SnapshotDeclined::Busy),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::EndReason;

    fn shot(camera: &str, purpose: SnapshotPurpose) -> SnapshotOrder {
        SnapshotOrder {
            camera: CameraId::new(camera).unwrap(),
            purpose,
            picture: Picture::from_rgb(64, 36, vec![90; 64 * 36 * 3]).unwrap(),
            marks: Vec::new(),
        }
    }

    fn event(prompt: &str) -> SnapshotPurpose {
        SnapshotPurpose::Event(PromptId::new(prompt).unwrap())
    }

    fn asked(prompt: &str) -> SnapshotPurpose {
        SnapshotPurpose::Command(PromptId::new(prompt).unwrap())
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
    async fn everybody_on_a_look_gets_one_and_a_topic_one_a_second() {
        let mut snapshots = Snapshots::default();
        let gate = || shot("gate", event("person"));
        assert_eq!(snapshots.begin(gate(), at(0)), Ok(()));
        assert_eq!(
            snapshots.begin(gate(), at(2)),
            Err(SnapshotDeclined::TooSoon)
        );
        // Another prompt's event on the same look, a command, and another camera.
        for other in [shot("gate", event("dog")), shot("gate", asked("person"))] {
            assert_eq!(snapshots.begin(other, at(0)), Ok(()));
        }
        assert_eq!(
            snapshots.begin(shot("yard", event("person")), at(0)),
            Ok(())
        );
        let mut made = Vec::new();
        for _ in 0..4 {
            let taken = snapshots.next().await;
            assert_eq!(taken.jpeg.unwrap()[..2], [0xff, 0xd8]);
            made.push((taken.camera.to_string(), taken.purpose));
        }
        made.retain(|(camera, _)| camera == "gate");
        let purposes = made.into_iter().map(|(_, purpose)| purpose);
        let in_order = [event("person"), event("dog"), asked("person")];
        assert!(purposes.eq(in_order), "one after the other");

        assert_eq!(
            snapshots.begin(gate(), at(999)),
            Err(SnapshotDeclined::TooSoon)
        );
        assert_eq!(snapshots.begin(gate(), at(1000)), Ok(()));
        snapshots.next().await;
        let counters = SnapshotCounters {
            taken: 5,
            busy: 0,
            too_soon: 2,
            failed: 0,
        };
        assert_eq!(snapshots.counters(), counters);
        snapshots.keep(|camera, _| camera.as_str() == "yard");
        assert_eq!(snapshots.begin(gate(), at(1001)), Ok(()), "a new topic");
    }

    #[tokio::test]
    async fn only_so_many_wait_and_those_of_a_prompt_that_is_gone_do_not() {
        let mut snapshots = Snapshots::default();
        let of = |number: usize| shot("gate", event(&format!("thing-{number}")));
        for number in 0..=WAITING_MAX {
            assert_eq!(snapshots.begin(of(number), at(0)), Ok(()));
        }
        let too_many = of(WAITING_MAX + 1);
        assert_eq!(
            snapshots.begin(too_many, at(0)),
            Err(SnapshotDeclined::Busy)
        );
        assert_eq!(snapshots.counters().busy, 1);
        let yard = snapshots.begin(shot("yard", event("person")), at(0));
        assert_eq!(yard, Ok(()), "another camera has its own");
        snapshots.keep(|_, prompt| prompt.as_str() != "thing-1");
        let mut made = Vec::new();
        for _ in 0..=WAITING_MAX {
            made.push(snapshots.next().await.purpose.prompt().to_string());
        }
        assert!(!made.contains(&"thing-1".to_owned()), "{made:?}");
        assert_eq!(snapshots.begin(of(1), at(0)), Ok(()), "no camera is busy");
        assert_eq!(snapshots.next().await.purpose, event("thing-1"));
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
        assert_eq!(snapshots.counters().failed, 1);
        let next = shot("gate", asked("dog"));
        assert_eq!(snapshots.begin(next, at(0)), Ok(()));
    }
}
