//! Which snapshots are made, and their encoding in blocking threads, apart from the path of frames and answers.
//!
//! ```text
//!   an event begins or its score improves ─┐             one encoder per camera; up to eight
//!                                          ├─▶ begin ─▶  orders wait, further ones are       ─▶ next ─▶ JPEG
//!   a command requests a snapshot ─────────┘             declined and counted
//! ```
//!
//! With `segment`, the first snapshot of an event shows the object's box, because its outline takes the model some time. A small copy of the
//! picture waits for the outline of the same frame, and is published with it.
//!
//! `snapshot` draws and encodes. A declined snapshot of an event is not made up for. A command's snapshot is taken from the next look instead.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::pending,
    panic::resume_unwind,
    sync::Arc,
    time::Duration,
};

use tokio::task::JoinSet;

use super::snapshot::{Mark, jpeg, small_copy};
use spotter_config::{CameraConfig, ConfigChange, PromptConfig};
use spotter_core::{CameraId, Event, Frame, Mono, ObjectOutline, Picture, PromptId, TrackId};
use spotter_events::track::OutlinedTrack;
use spotter_mqtt::Update;

/// Shortest interval of two snapshots of a topic (docs/mqtt.md section 4).
const TOPIC_EVERY: Duration = Duration::from_secs(1);
/// An outline that takes longer comes too late for a snapshot.
const OUTLINE_WITHIN: Duration = Duration::from_secs(10);
/// Orders of a camera that wait while one is encoded. Objects of several prompts may appear on one look and share its picture:
/// a camera holds at most `WAITING_MAX + 1` pictures, usually one.
const WAITING_MAX: usize = 8;

/// Requested snapshots since the start.
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

/// A snapshot that is to be made; published at the topic of its prompt.
#[derive(Clone, Debug)]
struct SnapshotOrder {
    camera: CameraId,
    prompt: PromptId,
    /// Of the event, for a step that [begins one](spotter_core::EventStep::begins_picture); `None`: of the command `snapshot`.
    track: Option<TrackId>,
    /// The picture of a look, masked as the look was.
    picture: Picture,
    /// Drawn into the picture.
    marks: Vec<Mark>,
    /// The number of the frame, when the object may get an outline on it: a small copy of the picture is made besides.
    outlined_frame: Option<u64>,
}

#[derive(Debug)]
pub struct FinishedSnapshot {
    order: SnapshotOrder,
    jpeg: anyhow::Result<Vec<u8>>,
    copy: Option<Picture>,
}

/// The last event of a prompt, when its object may get an outline on the frame of the snapshot.
struct AwaitedOutline {
    track: TrackId,
    frame: u64,
    since: Mono,
    mark: Mark,
    /// When it is made.
    copy: Option<Picture>,
    /// When it is drawn.
    outline: Option<Arc<ObjectOutline>>,
}

/// A JPEG, and the track of its event.
type EventPicture = (TrackId, Arc<[u8]>);

/// All cameras' snapshots. Needs a tokio runtime.
#[derive(Default)]
pub struct Snapshots {
    /// At most one task per camera.
    making: JoinSet<FinishedSnapshot>,
    /// Orders behind the one that is encoded, oldest first; an entry for each camera with an encoding task.
    waiting: HashMap<CameraId, VecDeque<SnapshotOrder>>,
    /// The topics that had one in the last second.
    last: HashMap<(CameraId, PromptId), Mono>,
    /// Copies are some 3 MB each: one of a prompt.
    awaited: HashMap<(CameraId, PromptId), AwaitedOutline>,
    counters: SnapshotCounters,
    prompts: HashMap<CameraId, Vec<PromptConfig>>,
    /// Cameras whose next look is wanted by a command.
    wanted: HashSet<CameraId>,
    /// The broker retains the last snapshot of each prompt's events.
    retain: bool,
}

impl Snapshots {
    pub fn new(cameras: &[CameraConfig], retain: bool) -> Self {
        Self {
            prompts: cameras.iter().map(prompts_of).collect(),
            retain,
            ..Self::default()
        }
    }

    /// Orders of cameras and prompts that are gone are dropped.
    pub fn apply(&mut self, change: &ConfigChange) {
        for removed in change.removed() {
            self.prompts.remove(removed);
            self.wanted.remove(removed);
        }
        self.prompts.extend(change.configured().map(prompts_of));
        for orders in self.waiting.values_mut() {
            orders.retain(|order| find(&self.prompts, &order.camera, &order.prompt).is_some());
        }
        self.awaited
            .retain(|(camera, prompt), _| find(&self.prompts, camera, prompt).is_some());
    }

    /// The prompt of an event. `None`: it was removed.
    pub fn prompt(&self, camera: &CameraId, prompt: &PromptId) -> Option<&PromptConfig> {
        find(&self.prompts, camera, prompt)
    }

    /// Requests a snapshot of the camera's next look with all its objects.
    pub fn request(&mut self, camera: &CameraId) {
        self.wanted.insert(camera.clone());
    }

    /// Orders a snapshot of an event's object if its prompt has snapshots and the step is worth one. True if it was ordered. With
    /// `gets_outlines`, the object may get an outline on this frame.
    pub fn event(&mut self, frame: &Frame, event: &Event, gets_outlines: bool, now: Mono) -> bool {
        let prompt = find(&self.prompts, &event.camera, &event.prompt);
        let Some(prompt) = prompt.filter(|prompt| prompt.snapshot && event.step.begins_picture())
        else {
            return false;
        };
        let mark = Mark::of(event.location, prompt.task.text(), event.score);
        let shot = SnapshotOrder {
            camera: event.camera.clone(),
            prompt: prompt.id.clone(),
            picture: frame.picture.clone(),
            marks: vec![mark.clone()],
            track: Some(event.track.clone()),
            outlined_frame: gets_outlines.then_some(frame.number),
        };
        let topic = (shot.camera.clone(), shot.prompt.clone());
        let is_ordered = self.begin(shot, now);
        if is_ordered && gets_outlines {
            let awaited = AwaitedOutline {
                track: event.track.clone(),
                frame: frame.number,
                since: now,
                mark,
                copy: None,
                outline: None,
            };
            self.awaited.insert(topic, awaited);
        }
        is_ordered
    }

    /// A track of a prompt got an outline.
    pub fn outlined(&mut self, camera: &CameraId, prompt: &PromptId, outlined: &OutlinedTrack) {
        let topic = (camera.clone(), prompt.clone());
        let awaited = self.awaited.get_mut(&topic);
        let of_frame = |awaited: &&mut AwaitedOutline| {
            (&awaited.track, awaited.frame) == (&outlined.track, outlined.outline.frame)
        };
        if let Some(awaited) = awaited.filter(of_frame) {
            awaited.outline = Some(Arc::clone(&outlined.outline));
            self.draw_outline(topic);
        }
    }

    /// Orders the snapshot with the outline when both the copy of its picture and the outline are there.
    fn draw_outline(&mut self, topic: (CameraId, PromptId)) {
        let Some(awaited) = self.awaited.get(&topic) else {
            return;
        };
        if let (Some(picture), Some(outline)) = (&awaited.copy, &awaited.outline) {
            let order = SnapshotOrder {
                camera: topic.0.clone(),
                prompt: topic.1.clone(),
                track: Some(awaited.track.clone()),
                picture: picture.clone(),
                marks: vec![Mark {
                    outline: Some(Arc::clone(outline)),
                    ..awaited.mark.clone()
                }],
                outlined_frame: None,
            };
            self.enqueue(order);
            self.awaited.remove(&topic);
        }
    }

    /// Orders a snapshot of a look that a command waits for.
    pub fn look(&mut self, frame: &Frame, marks: Vec<Mark>, now: Mono) {
        let camera = &frame.camera;
        let first = self.prompts.get(camera).and_then(|all| all.first());
        let Some(prompt) = first.filter(|_| self.wanted.remove(camera)) else {
            return;
        };
        let shot = SnapshotOrder {
            camera: camera.clone(),
            prompt: prompt.id.clone(),
            picture: frame.picture.clone(),
            marks,
            track: None,
            outlined_frame: None,
        };
        if !self.begin(shot, now) {
            // The next look is used instead.
            self.wanted.insert(camera.clone());
        }
    }

    /// The message of a snapshot, and the picture of an event. `None` if the encoding failed, which is logged, or if the prompt was removed
    /// meanwhile.
    pub fn update(&self, finished: FinishedSnapshot) -> Option<(Update, Option<EventPicture>)> {
        let FinishedSnapshot { order, jpeg, .. } = finished;
        let SnapshotOrder {
            camera,
            prompt,
            track,
            ..
        } = order;
        find(&self.prompts, &camera, &prompt)?;
        match jpeg {
            Ok(jpeg) => {
                let jpeg: Arc<[u8]> = jpeg.into();
                let of_event = track.map(|track| (track, Arc::clone(&jpeg)));
                let update = Update::Snapshot {
                    camera,
                    prompt,
                    jpeg,
                    // A command's snapshot shows no event and must not replace the retained one of an event.
                    retain: self.retain && of_event.is_some(),
                };
                Some((update, of_event))
            }
            Err(error) => {
                tracing::warn!(%camera, %prompt, "no snapshot: {error:#}");
                None
            }
        }
    }

    /// Starts or queues the encoding. False when it is declined: the topic had one less than a second ago, or as many of the
    /// camera as may wait are waiting. Does not block.
    fn begin(&mut self, shot: SnapshotOrder, now: Mono) -> bool {
        let is_of_event = shot.track.is_some();
        let topic = is_of_event.then(|| (shot.camera.clone(), shot.prompt.clone()));
        self.last
            .retain(|_, &mut last| now.since(last) < TOPIC_EVERY);
        self.awaited
            .retain(|_, awaited| now.since(awaited.since) < OUTLINE_WITHIN);
        if topic.as_ref().is_some_and(|it| self.last.contains_key(it)) {
            self.counters.too_soon += 1;
            return false;
        }
        let is_queued = self.enqueue(shot);
        if is_queued {
            self.last.extend(topic.map(|topic| (topic, now)));
        }
        is_queued
    }

    /// False when as many of the camera as may wait are waiting.
    fn enqueue(&mut self, shot: SnapshotOrder) -> bool {
        match self.waiting.get_mut(&shot.camera) {
            Some(waiting) if waiting.len() >= WAITING_MAX => {
                self.counters.busy += 1;
                return false;
            }
            Some(waiting) => waiting.push_back(shot),
            None => {
                self.waiting.insert(shot.camera.clone(), VecDeque::new());
                self.make(shot);
            }
        }
        true
    }

    /// The next finished snapshot; pending while none is encoded. Cancel safe.
    pub async fn next(&mut self) -> FinishedSnapshot {
        let Some(finished) = self.making.join_next().await else {
            return pending().await;
        };
        let mut finished = finished.unwrap_or_else(|e| resume_unwind(e.into_panic()));
        self.make_next(&finished.order.camera);
        self.set_copy(&mut finished);
        match &finished.jpeg {
            Ok(_) => self.counters.taken += 1,
            Err(_) => self.counters.failed += 1,
        }
        finished
    }

    /// The copy of a finished snapshot's picture waits for the outline, if that is still awaited.
    fn set_copy(&mut self, finished: &mut FinishedSnapshot) {
        let Some(copy) = finished.copy.take() else {
            return;
        };
        let topic = (finished.order.camera.clone(), finished.order.prompt.clone());
        let awaited = self.awaited.get_mut(&topic);
        let of_event = |awaited: &&mut AwaitedOutline| {
            (Some(&awaited.track), Some(awaited.frame))
                == (finished.order.track.as_ref(), finished.order.outlined_frame)
        };
        if let Some(awaited) = awaited.filter(of_event) {
            awaited.copy = Some(copy);
            self.draw_outline(topic);
        }
    }

    /// What became of those that were wanted.
    pub fn counters(&self) -> SnapshotCounters {
        self.counters
    }

    fn make(&mut self, order: SnapshotOrder) {
        self.making.spawn_blocking(move || FinishedSnapshot {
            jpeg: jpeg(&order.picture, &order.marks),
            copy: (order.outlined_frame).and_then(|_| small_copy(&order.picture)),
            order,
        });
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
}

fn prompts_of(camera: &CameraConfig) -> (CameraId, Vec<PromptConfig>) {
    (camera.id.clone(), camera.prompts.clone())
}

fn find<'a>(
    prompts: &'a HashMap<CameraId, Vec<PromptConfig>>,
    camera: &CameraId,
    id: &PromptId,
) -> Option<&'a PromptConfig> {
    prompts.get(camera)?.iter().find(|prompt| prompt.id == *id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::testing;
    use spotter_config::testing::{camera, prompt};
    use spotter_core::{EndReason, EventStep, UpdateReason, testing::event as event_of};

    type Purpose = (PromptId, Option<TrackId>);

    fn shot(camera: &str, (prompt, track): Purpose) -> SnapshotOrder {
        SnapshotOrder {
            camera: CameraId::new(camera).unwrap(),
            prompt,
            track,
            picture: Picture::from_rgb(64, 36, vec![90; 64 * 36 * 3]).unwrap(),
            marks: Vec::new(),
            outlined_frame: None,
        }
    }

    fn purpose(of: FinishedSnapshot) -> Purpose {
        (of.order.prompt, of.order.track)
    }

    fn event(prompt: &str) -> Purpose {
        (
            PromptId::new(prompt).unwrap(),
            Some(TrackId::new("b7c1", &CameraId::new("gate").unwrap(), 1)),
        )
    }

    fn asked(prompt: &str) -> Purpose {
        (PromptId::new(prompt).unwrap(), None)
    }

    fn at(ms: u64) -> Mono {
        Mono::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_new_and_a_better_picture_are_worth_one() {
        assert!(EventStep::New.begins_picture());
        assert!(EventStep::Update(UpdateReason::Better).begins_picture());
        assert!(!EventStep::Update(UpdateReason::Moved).begins_picture());
        assert!(!EventStep::End(EndReason::Left).begins_picture());
    }

    #[tokio::test]
    async fn events_begin_one_snapshot_per_topic_and_second() {
        let mut snapshots = Snapshots::default();
        let gate = || shot("gate", event("person"));
        assert!(snapshots.begin(gate(), at(0)));
        assert!(!snapshots.begin(gate(), at(2)));
        // Another prompt's event on the same look, a command, and another camera.
        for other in [shot("gate", event("dog")), shot("gate", asked("person"))] {
            assert!(snapshots.begin(other, at(0)));
        }
        assert!(snapshots.begin(shot("yard", event("person")), at(0)));
        let mut made = Vec::new();
        for _ in 0..4 {
            let taken = snapshots.next().await;
            assert_eq!(taken.jpeg.as_ref().unwrap()[..2], [0xff, 0xd8]);
            made.push((taken.order.camera.to_string(), purpose(taken)));
        }
        made.retain(|(camera, _)| camera == "gate");
        let purposes = made.into_iter().map(|(_, purpose)| purpose);
        let in_order = [event("person"), event("dog"), asked("person")];
        assert!(purposes.eq(in_order), "one after the other");

        assert!(!snapshots.begin(gate(), at(999)));
        assert!(snapshots.begin(gate(), at(1000)));
        snapshots.next().await;
        let counters = SnapshotCounters {
            taken: 5,
            busy: 0,
            too_soon: 2,
            failed: 0,
        };
        assert_eq!(snapshots.counters(), counters);
    }

    /// The queue of a camera may be so long that the next event of the track comes before the copy is made.
    #[tokio::test]
    async fn copy_waits_for_the_outline_of_its_own_frame() {
        let person = PromptConfig {
            snapshot: true,
            ..prompt("person")
        };
        let mut snapshots = Snapshots::new(&[camera("gate", vec![person])], false);
        let gate = CameraId::new("gate").unwrap();
        let seen = event_of("gate", 1, EventStep::New);
        for (number, now) in [(1, at(0)), (2, at(1000))] {
            assert!(snapshots.event(&testing::frame(&gate, number, now), &seen, true, now));
        }
        let mut has_copy = async || {
            snapshots.next().await;
            snapshots
                .awaited
                .values()
                .any(|awaited| awaited.copy.is_some())
        };
        assert_eq!((has_copy().await, has_copy().await), (false, true));
    }

    #[tokio::test]
    async fn waiting_orders_of_a_camera_are_bounded() {
        let mut snapshots = Snapshots::default();
        let of = |number: usize| shot("gate", event(&format!("thing-{number}")));
        for number in 0..=WAITING_MAX {
            assert!(snapshots.begin(of(number), at(0)));
        }
        let too_many = of(WAITING_MAX + 1);
        assert!(!snapshots.begin(too_many, at(0)));
        assert_eq!(snapshots.counters().busy, 1);
        let yard = snapshots.begin(shot("yard", event("person")), at(0));
        assert!(yard, "another camera has its own");
        for _ in 0..WAITING_MAX + 2 {
            snapshots.next().await;
        }
        assert!(snapshots.begin(of(WAITING_MAX + 1), at(0)), "again");
        assert_eq!(snapshots.counters().taken, WAITING_MAX as u64 + 2);
    }

    #[tokio::test]
    async fn picture_without_jpeg_is_counted_and_blocks_nothing() {
        let mut snapshots = Snapshots::default();
        let mut ribbon = shot("gate", asked("person"));
        let noise = (0..300 * 9000 * 3_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8);
        ribbon.picture = Picture::from_rgb(300, 9000, noise.collect()).unwrap();
        assert!(snapshots.begin(ribbon, at(0)));
        let taken = snapshots.next().await;
        assert!(taken.jpeg.is_err());
        assert_eq!(snapshots.counters().failed, 1);
        let next = shot("gate", asked("dog"));
        assert!(snapshots.begin(next, at(0)));
    }
}
