//! Decides what is recorded.

use std::{mem, time::Duration};

use super::{
    encoding::ChunkWriter,
    entry::{RecordEntry, RecordedLook, RecordedVerification},
};
use spotter_core::{CameraId, EndReason, Mono, PromptId, TrackId, WallTime};

/// A part of a record. A replay needs all parts of its record from the first on.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordChunk {
    pub camera: CameraId,
    pub prompt: PromptId,
    /// The first look of the record, which names it among those of the prompt.
    pub record: WallTime,
    /// Of the parts of the record, from 0 on.
    pub number: u32,
    /// The last look of this part.
    pub until: WallTime,
    /// The tracks whose events started, in their order: a replay of the record with the same rules has the same events in this order.
    pub started: Vec<TrackId>,
    /// At most 64 KiB.
    pub bytes: Vec<u8>,
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
#[derive(Clone, Debug)]
pub struct LookRecorder {
    camera: CameraId,
    prompt: PromptId,
    rule: QuietRule,
    /// Objects with a lower score are left out.
    score_min: f64,
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
    /// There may be tracks that a replay would not have: the next record begins when it is quiet.
    Interrupted,
}

#[derive(Clone, Debug)]
struct OpenRecord {
    record: WallTime,
    number: u32,
    last_look: (Mono, WallTime),
    /// Since the last chunk.
    started: Vec<TrackId>,
    writer: ChunkWriter,
}

impl LookRecorder {
    /// Of a tracker without tracks.
    pub fn new(camera: CameraId, prompt: PromptId, rule: QuietRule, score_min: f64) -> Self {
        Self {
            camera,
            prompt,
            rule,
            score_min,
            stage: RecordStage::Quiet,
            quiet_looks: 0,
            last_candidate: Mono::default(),
            finished: Vec::new(),
        }
    }

    pub fn score_min(&self) -> f64 {
        self.score_min
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
            if matches!(self.stage, RecordStage::Quiet) {
                self.stage = RecordStage::Recording(OpenRecord {
                    record: look.wall,
                    number: 0,
                    last_look: (now, look.wall),
                    started: Vec::new(),
                    writer: ChunkWriter::new(0, now, look.wall),
                });
            }
        }
        self.add(RecordEntry::Look(look));
        let is_quiet = self.quiet_looks >= self.rule.looks
            && now.since(self.last_candidate) >= self.rule.time
            && !waits;
        if is_quiet {
            self.finish(RecordStage::Quiet);
        }
    }

    /// An event started with the last look, or with an answer after it.
    pub fn started(&mut self, track: &TrackId) {
        if let RecordStage::Recording(open) = &mut self.stage {
            open.started.push(track.clone());
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
    pub fn interrupt(&mut self, rule: QuietRule) {
        self.rule = rule;
        if !matches!(self.stage, RecordStage::Quiet) {
            self.finish(RecordStage::Interrupted);
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
            // More objects in one look than a chunk has room for.
            _ if !is_written => self.stage = RecordStage::Interrupted,
            RecordEntry::Look(look) => open.last_look = (look.received, look.wall),
            RecordEntry::Verified(_) | RecordEntry::Lost { .. } => {}
        }
    }

    fn finish(&mut self, next: RecordStage) {
        if let RecordStage::Recording(mut open) = mem::replace(&mut self.stage, next) {
            let chunk = open.chunk(open.writer.clone(), &self.camera, &self.prompt);
            self.finished.push(chunk);
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
            until: self.last_look.1,
            started: mem::take(&mut self.started),
            bytes: written.into_bytes(),
        }
    }
}
