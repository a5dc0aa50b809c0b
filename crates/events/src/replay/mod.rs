//! The events that recorded looks would have led to with other rules: the tracker of the prompt runs again, the same code as live.
//!
//! Exact are another `min_score`, `min_area`, zones, `dwell`, lines and `still_after`, as long as every object that passes the new filter passed the one
//! that was in force ([`record`](crate::record)). What was filtered out while nothing was tracked is unknown, so a looser filter shows too
//! few events. Not exact:
//!
//! - `verify`: other rules confirm a track at another look, and the model was not asked then. The last answer before counts.
//! - `describe`: nothing is asked, so updates may come at other looks. Starts and ends are exact.
//! - `segment` with zones or lines: the foot of an outline is not recorded, so the middle of the box's lower edge decides.
//! - a record that was cut: where tracks from before had been decides about the first ones after them.
//! - added masks: the model would not have seen what they cover. An object with its middle under one is left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    record::{
        ChunkReader, FoundLocations, RecordEntry, RecordError, RecordedLook, RecordedObject,
        RecordedVerification,
    },
    track::{IdAllocator, PromptTracker, VERIFICATION_CHOICES},
};
use spotter_config::{CameraConfig, PromptConfig};
use spotter_core::{
    Answer, AnswerBody, CameraId, DetectionBody, Event, FoundObject, FrameInfo, FrameTimes,
    Location, Mono, NormPoint, Polygon, Prompt, StageTimes, TokenCounts, TrackId, WallTime,
};

/// The rules of a replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayRules<'a> {
    pub camera: &'a CameraConfig,
    pub prompt: &'a PromptConfig,
    /// Masks that the camera did not have when the looks were recorded.
    pub added_masks: &'a [Vec<(f64, f64)>],
}

/// An event of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayedEvent {
    /// Its messages, from its start on. Their track ids are those of the replay.
    pub messages: Vec<Event>,
    /// The looks that saw its object, also those before its start.
    pub looks: Vec<ReplayedLook>,
    /// Its object may have been there before the record, which continues another one: the event is none of this record.
    is_of_old_track: bool,
}

/// What a look saw of an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayedLook {
    pub wall: WallTime,
    pub location: Location,
    pub score: f64,
}

/// What events saw, by time: the events of a replay with other rules are found among them, however many looks both have.
pub struct SeenObjects<'a>(BTreeMap<WallTime, Vec<&'a ReplayedLook>>);

impl<'a> SeenObjects<'a> {
    pub fn of(events: &'a [ReplayedEvent]) -> Self {
        let mut by_time: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for look in events.iter().flat_map(|event| &event.looks) {
            by_time.entry(look.wall).or_default().push(look);
        }
        Self(by_time)
    }

    /// The same object was seen at the same place in a look: the event is one of these with other rules.
    pub fn has(&self, event: &ReplayedEvent) -> bool {
        let mut looks = event.looks.iter();
        looks.any(|look| {
            self.0
                .get(&look.wall)
                .is_some_and(|there| there.contains(&look))
        })
    }
}

/// The events of records, in the order of their starts. `chunks`: their bytes, in the order of [`RecordChunk::record`](crate::record::RecordChunk::record) and of their
/// numbers. Events of objects from before a record that continues another one are left out.
pub fn replay<'a>(
    rules: &ReplayRules,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<ReplayedEvent>, RecordError> {
    let mut events = Vec::new();
    let mut record: Option<RecordReplay> = None;
    for bytes in chunks {
        let reader = ChunkReader::new(bytes)?;
        let mut current = match (reader.chunk_number(), record.take()) {
            (0, before) => {
                events.extend(before.into_iter().flat_map(RecordReplay::own_events));
                RecordReplay::new(rules)
            }
            (number, Some(current)) if number == current.chunks => current,
            (_, before) => {
                let missing = before.map_or(0, |record| record.chunks);
                return Err(RecordError::Missing(missing));
            }
        };
        for entry in reader {
            current.take(entry?);
        }
        current.chunks += 1;
        record = Some(current);
    }
    events.extend(record.into_iter().flat_map(RecordReplay::own_events));
    Ok(events)
}

/// The replay of one record.
struct RecordReplay {
    camera: CameraId,
    masks: Vec<Polygon>,
    tracker: PromptTracker,
    ids: IdAllocator,
    prompt: Arc<Prompt>,
    /// The chunks that were taken.
    chunks: u32,
    verification: ReplayedVerification,
    events: Vec<ReplayedEvent>,
    /// The looks of tracks without an event yet.
    looks: BTreeMap<TrackId, Vec<ReplayedLook>>,
    old_tracks: OldTracks,
}

/// Tracks whose objects may have been there before the record.
#[derive(Default)]
struct OldTracks {
    /// Those that begin now.
    is_possible: bool,
    seen: BTreeSet<TrackId>,
}

/// The questions of `verify`: those of the record and those of the replay.
#[derive(Default)]
struct ReplayedVerification {
    /// The tracker of the replay waits for its result.
    asked: Option<Arc<Prompt>>,
    /// Its result comes later in the record.
    is_recorded_open: bool,
    last: Option<RecordedVerification>,
}

impl RecordReplay {
    fn new(rules: &ReplayRules) -> Self {
        let ReplayRules { camera, prompt, .. } = *rules;
        let config = PromptConfig {
            enabled: true,
            adapter_fault: None,
            describe: None,
            ..prompt.clone()
        };
        let asked = Prompt {
            view: camera.view_of(prompt),
            adapter: prompt.adapter.clone(),
            ..Prompt::new(prompt.id.clone(), 1, prompt.task.clone())
        };
        let masks = rules.added_masks.iter();
        Self {
            camera: camera.id.clone(),
            masks: masks.map(|corners| Polygon::new(corners)).collect(),
            tracker: PromptTracker::new(camera, &config),
            ids: IdAllocator::new("replay".into()),
            prompt: Arc::new(asked),
            chunks: 0,
            verification: ReplayedVerification::default(),
            events: Vec::new(),
            looks: BTreeMap::new(),
            old_tracks: OldTracks::default(),
        }
    }

    fn own_events(self) -> impl Iterator<Item = ReplayedEvent> {
        let events = self.events.into_iter();
        events.filter(|event| !event.is_of_old_track)
    }

    fn take(&mut self, entry: RecordEntry) {
        match entry {
            RecordEntry::Look(look) => self.look(&look),
            RecordEntry::Verified(verified) => {
                self.verification.is_recorded_open = false;
                self.verification.last = Some(verified);
                self.settle(verified);
            }
            RecordEntry::Lost { reason, wall } => {
                let change = self.tracker.lose(reason, wall);
                self.add_messages(change.events);
            }
            RecordEntry::Continues => self.old_tracks.is_possible = true,
            RecordEntry::Settled => self.old_tracks.is_possible = false,
        }
    }

    fn look(&mut self, look: &RecordedLook) {
        let frame = FrameInfo {
            camera_size: look.camera_size,
            ..self.frame(look.received, look.wall)
        };
        let answer = Answer {
            prompt: Arc::clone(&self.prompt),
            region: look.part,
            body: self.body(&look.found),
            reasoning: None,
            truncated: false,
            unchanged: false,
            tokens: TokenCounts::default(),
            marks: StageTimes::default(),
        };
        let Some(tracked) = self.tracker.look(&frame, &answer, &mut self.ids) else {
            return;
        };
        self.add_looks(&tracked.body, look.wall);
        self.add_messages(tracked.change.events);
        let verification = &mut self.verification;
        verification.is_recorded_open |= look.has_question;
        if let Some(question) = tracked.change.questions.into_iter().next() {
            verification.asked = Some(question);
        }
        // With the rules of the record both are asked at the same look.
        if !verification.is_recorded_open
            && let Some(last) = verification.last
        {
            let at = look.received;
            self.settle(RecordedVerification { at, ..last });
        }
    }

    fn settle(&mut self, verified: RecordedVerification) {
        let Some(question) = self.verification.asked.take() else {
            return;
        };
        let body = verified.is_yes.map(|is_yes| AnswerBody::Text {
            text: VERIFICATION_CHOICES[usize::from(!is_yes)].to_owned(),
            score: verified.score,
            source: verified.source,
        });
        let frame = self.frame(verified.at, WallTime::default());
        let (tracker, ids) = (&mut self.tracker, &mut self.ids);
        let change = tracker.settled(&question, body.as_ref(), &frame, ids);
        self.add_messages(change.map(|change| change.events).unwrap_or_default());
    }

    fn frame(&self, received: Mono, wall: WallTime) -> FrameInfo {
        FrameInfo {
            camera: self.camera.clone(),
            number: 0,
            camera_size: (0, 0),
            key: false,
            times: FrameTimes {
                received,
                received_wall: wall,
                ..FrameTimes::default()
            },
        }
    }

    /// What the model found outside of the added masks.
    fn body(&self, found: &FoundLocations) -> AnswerBody {
        match found {
            FoundLocations::Boxes(found) => {
                AnswerBody::Boxes(self.unmasked(found, |bounds| bounds.centre()))
            }
            FoundLocations::Points(found) => AnswerBody::Points(self.unmasked(found, |at| at)),
        }
    }

    fn unmasked<T: Copy>(
        &self,
        found: &[RecordedObject<T>],
        middle: fn(T) -> NormPoint,
    ) -> Vec<FoundObject<T>> {
        let is_masked = |object: &&RecordedObject<T>| {
            let middle = middle(object.place);
            self.masks.iter().any(|mask| mask.contains(middle))
        };
        let seen = found.iter().filter(|object| !is_masked(object));
        let object = |object: &RecordedObject<T>| FoundObject {
            place: object.place,
            score: object.score,
            source: object.source,
            sharpness: 0.0,
        };
        seen.map(object).collect()
    }

    fn add_looks(&mut self, body: &DetectionBody, wall: WallTime) {
        for object in body.objects() {
            if self.old_tracks.is_possible {
                self.old_tracks.seen.insert(object.track.clone());
            }
            let look = ReplayedLook {
                wall,
                location: object.location,
                score: object.score,
            };
            match event_of(&mut self.events, &object.track) {
                Some(event) => event.looks.push(look),
                None => {
                    let looks = self.looks.entry(object.track.clone());
                    looks.or_default().push(look);
                }
            }
        }
    }

    fn add_messages(&mut self, messages: Vec<Event>) {
        for message in messages {
            match event_of(&mut self.events, &message.track) {
                Some(event) => event.messages.push(message),
                None => self.events.push(ReplayedEvent {
                    looks: self.looks.remove(&message.track).unwrap_or_default(),
                    is_of_old_track: self.old_tracks.seen.contains(&message.track),
                    messages: vec![message],
                }),
            }
        }
    }
}

/// The event of a track; most messages are of the newest ones.
fn event_of<'a>(events: &'a mut [ReplayedEvent], track: &TrackId) -> Option<&'a mut ReplayedEvent> {
    let is_of_track = |event: &ReplayedEvent| {
        let first = event.messages.first();
        first.is_some_and(|message| message.track == *track)
    };
    events.iter_mut().rev().find(|event| is_of_track(event))
}

#[cfg(test)]
mod tests;
