//! Decides what is recorded.

use std::{mem, time::Duration};

use super::{
    encoding::ChunkWriter,
    entry::{RecordEntry, RecordedLook, RecordedVerification},
};
use spotter_core::{CameraId, EndReason, Event, Mono, PromptId, TrackId, WallTime};

/// A record that does not end by itself, such as that of a parked car, is cut after so many parts or so long.
const CHUNKS_MAX: u32 = 8;
const RECORD_MAX: Duration = Duration::from_hours(6);

/// A part of a record. A replay needs all parts of its record from the first on.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordChunk {
    pub camera: CameraId,
    pub prompt: PromptId,
    /// The first look of the record, which names it among those of the prompt.
    pub record: WallTime,
    /// Of the parts of the record, from 0 on.
    pub number: u32,
    /// The record ends with this part.
    pub is_last: bool,
    /// The last look of this part.
    pub until: WallTime,
    /// The events that started, in their order: a replay of the record with the same rules has the same events in this order.
    pub started: Vec<StartedEvent>,
    /// At most 64 KiB.
    pub bytes: Vec<u8>,
}

/// An event that a record has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedEvent {
    pub track: TrackId,
    /// The first look that saw its object.
    pub first_look: WallTime,
}

/// When no track can be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuietRule {
    /// Looks in a row that found nothing: the `n` of "`m` of the last `n` looks confirm a track".
    pub looks: u32,
    /// Time without an object: `end_after`.
    pub time: Duration,
}

/// Records the looks of one prompt.
///
/// # A record is replayed by a new tracker, also with a stricter filter
///
/// A record ends after `n` looks in a row without a candidate (an object that passes the prompt's filter) that saw all that the
/// prompt ever sees, when `end_after` has passed since the last candidate. No tracker with the same `confirm`, `end_after` and looks, whose
/// candidates are some of these, has a track then:
///
/// - A track was seen last at the last candidate or before. None of these looks saw it, and each counts for it: a track waits only where a
///   look saw another part of the picture. No two of these looks are farther apart than the time after which tracks are lost, so none of
///   them makes a presence unknown, but for the first one: from it on, `n` looks follow.
/// - A confirmed track ends when the last `m` looks and the last `end_after` did not see it. That is so.
/// - An unconfirmed track ends when `n` looks have not confirmed it. There were so many.
///
/// An open question of `verify` keeps the record open too, because it delays the next one. Without these rules the end of the prompt's own
/// tracks would not do: of `confirm = [3, 5]`, a track that was seen in looks 1 and 5 ends at look 5, while a stricter filter that drops
/// the object of look 1 has a track from look 5 on.
///
/// # A record that is cut
///
/// A thing that stays keeps a record open. It is cut then, so that the history can remove what is old, and also when the rules change:
/// a record has one set of rules. At the beginning of the record that follows there are tracks that a replay does not have: it takes their
/// objects for new ones. By the same proof, a track from before was seen within the next `n` looks and `end_after`, or has ended: with the
/// rules of now, because both are decided by the looks since then and by no rule of before. So events of objects that were seen first within
/// this time are no events of the record, and a replay leaves them out ([`RecordEntry::Settled`]).
#[derive(Clone, Debug)]
pub struct LookRecorder {
    camera: CameraId,
    prompt: PromptId,
    rule: QuietRule,
    stage: RecordStage,
    /// Looks in a row without a candidate, and the last look with one.
    quiet_looks: u32,
    last_candidate: Mono,
    finished: Vec<RecordChunk>,
}

#[derive(Clone, Debug)]
enum RecordStage {
    /// There is no track.
    Quiet,
    Recording(OpenRecord),
    /// The next look begins the record that continues the one before.
    Cut,
    /// A look has more objects than a part has room for: the next record begins when it is quiet.
    Overfull,
}

#[derive(Clone, Debug)]
struct OpenRecord {
    record: WallTime,
    number: u32,
    begun: Mono,
    old_tracks: TracksBefore,
    last_look: (Mono, WallTime),
    /// Since the last chunk.
    started: Vec<StartedEvent>,
    writer: ChunkWriter,
}

/// Tracks from before the record.
#[derive(Clone, Copy, Debug)]
enum TracksBefore {
    None,
    /// So many looks that saw all were since the cut.
    Possible {
        whole_looks: u32,
    },
    /// Objects that were seen first after this look have none.
    SeenUntil(WallTime),
}

impl LookRecorder {
    /// Of a tracker without tracks.
    pub fn new(camera: CameraId, prompt: PromptId, rule: QuietRule) -> Self {
        Self {
            camera,
            prompt,
            rule,
            stage: RecordStage::Quiet,
            quiet_looks: 0,
            last_candidate: Mono::default(),
            finished: Vec::new(),
        }
    }

    /// The tracker had a look. `candidates`: of its objects, those that passed the filter; `waits`: a question of `verify` is under way.
    pub fn look(&mut self, look: RecordedLook, candidates: usize, waits: bool) {
        let (now, is_whole) = (look.received, look.part.is_none());
        self.quiet_looks = match candidates {
            0 if is_whole => self.quiet_looks.saturating_add(1),
            _ => 0,
        };
        if candidates > 0 {
            self.last_candidate = now;
        }
        match self.stage {
            RecordStage::Quiet if candidates > 0 => self.begin(&look, TracksBefore::None),
            RecordStage::Cut => {
                self.begin(&look, TracksBefore::Possible { whole_looks: 0 });
                self.add(RecordEntry::Continues);
            }
            _ => {}
        }
        let wall = look.wall;
        self.add(RecordEntry::Look(look));
        let is_quiet = self.quiet_looks >= self.rule.looks
            && now.since(self.last_candidate) >= self.rule.time
            && !waits;
        if is_quiet {
            self.finish(RecordStage::Quiet);
        } else if self.is_long(now) {
            self.finish(RecordStage::Cut);
        } else if is_whole {
            self.settle(now, wall);
        }
    }

    fn begin(&mut self, look: &RecordedLook, old_tracks: TracksBefore) {
        self.stage = RecordStage::Recording(OpenRecord {
            record: look.wall,
            number: 0,
            begun: look.received,
            old_tracks,
            last_look: (look.received, look.wall),
            started: Vec::new(),
            writer: ChunkWriter::new(0, look.received, look.wall),
        });
    }

    fn is_long(&self, now: Mono) -> bool {
        let RecordStage::Recording(open) = &self.stage else {
            return false;
        };
        open.number >= CHUNKS_MAX || now.since(open.begun) >= RECORD_MAX
    }

    /// A look that saw all is recorded.
    fn settle(&mut self, now: Mono, wall: WallTime) {
        let rule = self.rule;
        if let RecordStage::Recording(open) = &mut self.stage
            && let TracksBefore::Possible { whole_looks } = &mut open.old_tracks
        {
            *whole_looks += 1;
            if *whole_looks >= rule.looks && now.since(open.begun) >= rule.time {
                open.old_tracks = TracksBefore::SeenUntil(wall);
                self.add(RecordEntry::Settled);
            }
        }
    }

    /// An event started with the last look, or with an answer after it.
    pub fn started(&mut self, event: &Event) {
        let RecordStage::Recording(open) = &mut self.stage else {
            return;
        };
        let is_own = match open.old_tracks {
            TracksBefore::None => true,
            TracksBefore::Possible { .. } => false,
            TracksBefore::SeenUntil(last) => event.started > last,
        };
        if is_own {
            open.started.push(StartedEvent {
                track: event.track.clone(),
                first_look: event.started,
            });
        }
    }

    pub fn verified(&mut self, verified: RecordedVerification) {
        self.add(RecordEntry::Verified(verified));
    }

    /// All tracks have ended.
    pub fn lost(&mut self, reason: EndReason, wall: WallTime) {
        self.add(RecordEntry::Lost { reason, wall });
        self.finish(RecordStage::Quiet);
    }

    /// The tracker has other rules from now on. What is recorded so far was right with the old ones.
    pub fn change_rule(&mut self, rule: QuietRule) {
        self.rule = rule;
        if !matches!(self.stage, RecordStage::Quiet) {
            self.finish(RecordStage::Cut);
        }
    }

    /// The parts that are complete, once.
    pub fn take_finished(&mut self) -> Vec<RecordChunk> {
        mem::take(&mut self.finished)
    }

    fn add(&mut self, entry: RecordEntry) {
        let RecordStage::Recording(open) = &mut self.stage else {
            return;
        };
        let mut is_written = open.writer.add(&entry);
        if !is_written {
            let (received, wall) = open.last_look;
            let next = ChunkWriter::new(open.number + 1, received, wall);
            let full = mem::replace(&mut open.writer, next);
            let chunk = open.chunk(full, &self.camera, &self.prompt);
            self.finished.push(chunk);
            open.number += 1;
            is_written = open.writer.add(&entry);
        }
        match &entry {
            _ if !is_written => self.finish(RecordStage::Overfull),
            RecordEntry::Look(look) => open.last_look = (look.received, look.wall),
            _ => {}
        }
    }

    fn finish(&mut self, next: RecordStage) {
        if let RecordStage::Recording(mut open) = mem::replace(&mut self.stage, next) {
            let chunk = open.chunk(open.writer.clone(), &self.camera, &self.prompt);
            self.finished.push(RecordChunk {
                is_last: true,
                ..chunk
            });
        }
    }
}

impl OpenRecord {
    fn chunk(&mut self, written: ChunkWriter, camera: &CameraId, prompt: &PromptId) -> RecordChunk {
        RecordChunk {
            camera: camera.clone(),
            prompt: prompt.clone(),
            record: self.record,
            number: self.number,
            is_last: false,
            until: self.last_look.1,
            started: mem::take(&mut self.started),
            bytes: written.into_bytes(),
        }
    }
}
