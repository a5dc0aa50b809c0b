//! Records as bytes: exact, because a replay decides as the tracker did, and small, because a parked car is seen 86,400 times a day.
//!
//! ```text
//!   chunk:   version u8 │ number in its record u32 │ received u64, wall i64 of the time 0 │ entries
//!   look:    tag │ Δ received │ Δ wall − Δ received │ size? │ part? │ number of objects, objects?
//!   object:  flags: source, which numbers fit in an f32 │ four or two numbers of the place │ score
//!   result:  tag with the result │ Δ received │ score and source of a yes
//!   lost:    tag │ reason │ Δ wall
//!   continues, settled: tag
//! ```
//!
//! Differences are to the look before, in nanoseconds, as variable-length integers whose lowest bit is the sign. Integers and numbers are
//! little-endian. A look that found the same objects as the one before has a bit for them.

use std::{ops::RangeInclusive, sync::Arc};

use super::entry::{
    FoundLocations, RecordEntry, RecordedLook, RecordedObject, RecordedVerification,
};
use spotter_core::{EndReason, Mono, NormBox, NormPoint, ScoreSource, WallTime};

const VERSION: u8 = 1;
/// The most bytes of a chunk.
pub const CHUNK_MAX_BYTES: usize = 64 * 1024;

/// The kind of an entry: the two lowest bits of its tag.
const KIND: u8 = 0b11;
const LOOK: u8 = 0;
const VERIFIED: u8 = 1;
const LOST: u8 = 2;
const MARK: u8 = 3;
/// Tags of marks.
const CONTINUES: u8 = MARK;
const SETTLED: u8 = MARK | 1 << 2;
/// Bits of the tag of a look.
const POINTS: u8 = 1 << 2;
const SAME_OBJECTS: u8 = 1 << 3;
const HAS_PART: u8 = 1 << 4;
const SAME_PART: u8 = 1 << 5;
const NEW_SIZE: u8 = 1 << 6;
const HAS_QUESTION: u8 = 1 << 7;
/// Of a result, above its kind.
const RESULT_SHIFT: u8 = 2;

/// In the order of their codes, which never changes.
const SOURCES: [ScoreSource; 4] = [
    ScoreSource::TokenProb,
    ScoreSource::Verify,
    ScoreSource::Calibrated,
    ScoreSource::VerifyCalibrated,
];
const REASONS: [EndReason; 8] = [
    EndReason::Left,
    EndReason::CameraLost,
    EndReason::EngineLost,
    EndReason::PromptChanged,
    EndReason::Disabled,
    EndReason::Shutdown,
    EndReason::Moved,
    EndReason::Restart,
];

/// Shares of a picture and scores; a margin for sums that were not rounded.
const NUMBERS: RangeInclusive<f64> = -0.01..=1.01;

/// Why a chunk cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("recorded looks are of version {0}, this program reads version {VERSION}")]
    Version(u8),
    #[error("recorded looks have {0} bytes, limit {CHUNK_MAX_BYTES}")]
    TooLong(usize),
    #[error("recorded looks are damaged at byte {0}")]
    Damaged(usize),
    #[error("part {0} of recorded looks is missing")]
    Missing(u32),
}

/// What differences refer to: the look before.
#[derive(Clone, Debug, Default, PartialEq)]
struct LookBefore {
    received: u64,
    wall: i64,
    camera_size: (u32, u32),
    part: Option<NormBox>,
    found: Option<FoundLocations>,
}

impl LookBefore {
    fn set(&mut self, look: &RecordedLook) {
        *self = Self {
            received: look.received.as_nanos(),
            wall: look.wall.unix_nanos(),
            camera_size: look.camera_size,
            part: look.part.or(self.part),
            found: Some(look.found.clone()),
        };
    }
}

/// Writes one chunk.
#[derive(Clone, Debug)]
pub struct ChunkWriter {
    bytes: Vec<u8>,
    before: LookBefore,
}

impl ChunkWriter {
    /// `number`: of the chunks of a record, from 0 on. Times are near `received` and `wall`.
    pub fn new(number: u32, received: Mono, wall: WallTime) -> Self {
        let before = LookBefore {
            received: received.as_nanos(),
            wall: wall.unix_nanos(),
            ..LookBefore::default()
        };
        let mut bytes = vec![VERSION];
        bytes.extend(number.to_le_bytes());
        bytes.extend(before.received.to_le_bytes());
        bytes.extend(before.wall.to_le_bytes());
        Self { bytes, before }
    }

    /// False when the chunk has no room for the entry, which is left out then.
    #[must_use]
    pub fn add(&mut self, entry: &RecordEntry) -> bool {
        let length = self.bytes.len();
        match entry {
            RecordEntry::Look(look) => self.add_look(look),
            RecordEntry::Verified(verified) => self.add_verified(verified),
            RecordEntry::Lost { reason, wall } => {
                self.bytes.push(LOST);
                self.bytes.push(code(&REASONS, reason));
                let since = wall.unix_nanos().wrapping_sub(self.before.wall);
                put_signed(&mut self.bytes, since);
            }
            RecordEntry::Continues => self.bytes.push(CONTINUES),
            RecordEntry::Settled => self.bytes.push(SETTLED),
        }
        let has_room = self.bytes.len() <= CHUNK_MAX_BYTES;
        match entry {
            _ if !has_room => self.bytes.truncate(length),
            RecordEntry::Look(look) => self.before.set(look),
            _ => {}
        }
        has_room
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn add_look(&mut self, look: &RecordedLook) {
        let (before, out) = (&self.before, &mut self.bytes);
        let is_same = before.found.as_ref() == Some(&look.found);
        let is_new_size = look.camera_size != before.camera_size;
        let is_new_part = look.part.is_some() && look.part != before.part;
        let bits = [
            (matches!(look.found, FoundLocations::Points(_)), POINTS),
            (is_same, SAME_OBJECTS),
            (look.part.is_some(), HAS_PART),
            (look.part.is_some() && !is_new_part, SAME_PART),
            (is_new_size, NEW_SIZE),
            (look.has_question, HAS_QUESTION),
        ];
        let bits = bits.iter().filter(|(is, _)| *is).map(|(_, bit)| bit);
        out.push(bits.fold(LOOK, |tag, bit| tag | bit));
        let received = look.received.as_nanos().wrapping_sub(before.received) as i64;
        put_signed(out, received);
        let wall = look.wall.unix_nanos().wrapping_sub(before.wall);
        put_signed(out, wall.wrapping_sub(received));
        if is_new_size {
            put(out, u64::from(look.camera_size.0));
            put(out, u64::from(look.camera_size.1));
        }
        if let Some(part) = look.part.filter(|_| is_new_part) {
            out.extend(corners(part).iter().flat_map(|number| number.to_le_bytes()));
        }
        match &look.found {
            _ if is_same => {}
            FoundLocations::Boxes(found) => put_objects(out, found, corners),
            FoundLocations::Points(found) => put_objects(out, found, |at| [at.x, at.y]),
        }
    }

    fn add_verified(&mut self, verified: &RecordedVerification) {
        let result = match verified.is_yes {
            Some(true) => 0,
            Some(false) => 1,
            None => 2,
        };
        let out = &mut self.bytes;
        out.push(VERIFIED | result << RESULT_SHIFT);
        let at = verified.at.as_nanos().wrapping_sub(self.before.received);
        put_signed(out, at as i64);
        if verified.is_yes == Some(true) {
            out.push(code(&SOURCES, &verified.source));
            out.extend(verified.score.to_le_bytes());
        }
    }
}

fn corners(bounds: NormBox) -> [f64; 4] {
    [bounds.x0, bounds.y0, bounds.x1, bounds.y1]
}

/// The place of a value in the list of all of its kind.
fn code<T: PartialEq>(all: &[T], value: &T) -> u8 {
    all.iter().position(|other| other == value).unwrap_or(0) as u8
}

/// Seven bits a byte, the lowest first; the highest bit of a byte says that more follow.
fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, (value << 1 ^ value >> 63) as u64);
}

/// Bits of an object's flags: its source in the lowest two, then one for each number that is exact as an f32.
fn put_objects<T: Copy, const N: usize>(
    out: &mut Vec<u8>,
    found: &[RecordedObject<T>],
    numbers_of: fn(T) -> [f64; N],
) {
    put(out, found.len() as u64);
    for object in found {
        let numbers = numbers_of(object.place);
        let numbers = numbers.iter().chain([&object.score]);
        let mut flags = code(&SOURCES, &object.source);
        let flags_at = out.len();
        out.push(0);
        for (index, number) in numbers.enumerate() {
            let short = *number as f32;
            if f64::from(short).to_bits() == number.to_bits() {
                flags |= 1 << (2 + index);
                out.extend(short.to_le_bytes());
            } else {
                out.extend(number.to_le_bytes());
            }
        }
        out[flags_at] = flags;
    }
}

/// Reads the entries of one chunk, which may have been changed by anyone. Ends after the first error.
#[derive(Clone, Debug)]
pub struct ChunkReader<'a> {
    bytes: &'a [u8],
    /// Bytes that were read.
    at: usize,
    before: LookBefore,
    number: u32,
}

impl<'a> ChunkReader<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<Self, RecordError> {
        if bytes.len() > CHUNK_MAX_BYTES {
            return Err(RecordError::TooLong(bytes.len()));
        }
        let mut reader = Self {
            bytes,
            at: 0,
            before: LookBefore::default(),
            number: 0,
        };
        match reader.byte() {
            Some(VERSION) => {}
            Some(other) => return Err(RecordError::Version(other)),
            None => return Err(RecordError::Damaged(0)),
        }
        reader.header().ok_or(RecordError::Damaged(reader.at))?;
        Ok(reader)
    }

    /// Of the chunks of its record, from 0 on.
    pub fn chunk_number(&self) -> u32 {
        self.number
    }

    fn header(&mut self) -> Option<()> {
        self.number = u32::from_le_bytes(self.array()?);
        self.before.received = u64::from_le_bytes(self.array()?);
        self.before.wall = i64::from_le_bytes(self.array()?);
        Some(())
    }

    fn entry(&mut self) -> Option<RecordEntry> {
        let tag = self.byte()?;
        let entry = match tag & KIND {
            LOOK => RecordEntry::Look(self.look(tag)?),
            VERIFIED => RecordEntry::Verified(self.verified(tag >> RESULT_SHIFT)?),
            LOST => {
                let reason = *REASONS.get(usize::from(self.byte()?))?;
                let wall = self.before.wall.checked_add(self.signed()?)?;
                let wall = WallTime::from_unix_nanos(wall);
                RecordEntry::Lost { reason, wall }
            }
            _ => match tag {
                CONTINUES => RecordEntry::Continues,
                SETTLED => RecordEntry::Settled,
                _ => return None,
            },
        };
        Some(entry)
    }

    fn look(&mut self, tag: u8) -> Option<RecordedLook> {
        let has = |bit| tag & bit != 0;
        let received = self.signed()?;
        let wall = received.checked_add(self.signed()?)?;
        let received = self.before.received.checked_add_signed(received)?;
        let wall = self.before.wall.checked_add(wall)?;
        let camera_size = match has(NEW_SIZE) {
            true => (self.u32()?, self.u32()?),
            false => self.before.camera_size,
        };
        let part = match (has(HAS_PART), has(SAME_PART)) {
            (false, _) => None,
            (true, true) => Some(self.before.part?),
            (true, false) => Some(self.norm_box([false; 4])?),
        };
        let found = match (has(SAME_OBJECTS), has(POINTS)) {
            (true, is_points) => {
                let same = self.before.found.clone()?;
                (matches!(same, FoundLocations::Points(_)) == is_points).then_some(same)?
            }
            (false, false) => FoundLocations::Boxes(self.objects(Self::norm_box)?),
            (false, true) => FoundLocations::Points(self.objects(|reader, short: [bool; 2]| {
                let [x, y] = [reader.number(short[0])?, reader.number(short[1])?];
                Some(NormPoint { x, y })
            })?),
        };
        let look = RecordedLook {
            received: Mono::from_nanos(received),
            wall: WallTime::from_unix_nanos(wall),
            camera_size,
            part,
            found,
            has_question: has(HAS_QUESTION),
        };
        self.before.set(&look);
        Some(look)
    }

    fn verified(&mut self, result: u8) -> Option<RecordedVerification> {
        let at = self.before.received.checked_add_signed(self.signed()?)?;
        let is_yes = match result {
            0 => Some(true),
            1 => Some(false),
            2 => None,
            _ => return None,
        };
        let (source, score) = match is_yes {
            Some(true) => (
                *SOURCES.get(usize::from(self.byte()?))?,
                self.number(false)?,
            ),
            _ => (ScoreSource::Verify, 0.0),
        };
        Some(RecordedVerification {
            at: Mono::from_nanos(at),
            is_yes,
            score,
            source,
        })
    }

    fn objects<T, const N: usize>(
        &mut self,
        place: impl Fn(&mut Self, [bool; N]) -> Option<T>,
    ) -> Option<Arc<[RecordedObject<T>]>> {
        let count = self.unsigned()?;
        // Each has a byte at least, so a false number ends with the bytes.
        let objects = (0..count).map(|_| {
            let flags = self.byte()?;
            let is_short = |index: usize| flags & 1 << (2 + index) != 0;
            let source = *SOURCES.get(usize::from(flags & 0b11))?;
            let place = place(self, std::array::from_fn(is_short))?;
            let score = self.number(is_short(N))?;
            Some(RecordedObject {
                place,
                score,
                source,
            })
        });
        objects.collect()
    }

    fn norm_box(&mut self, short: [bool; 4]) -> Option<NormBox> {
        let mut number = |index: usize| self.number(short[index]);
        Some(NormBox {
            x0: number(0)?,
            y0: number(1)?,
            x1: number(2)?,
            y1: number(3)?,
        })
    }

    fn number(&mut self, is_short: bool) -> Option<f64> {
        let number = match is_short {
            true => f64::from(f32::from_le_bytes(self.array()?)),
            false => f64::from_le_bytes(self.array()?),
        };
        NUMBERS.contains(&number).then_some(number)
    }

    fn u32(&mut self) -> Option<u32> {
        u32::try_from(self.unsigned()?).ok()
    }

    fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = *self.bytes.get(self.at..)?.first_chunk()?;
        self.at += N;
        Some(bytes)
    }
}

impl Iterator for ChunkReader<'_> {
    type Item = Result<RecordEntry, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let entry = self.entry();
        let at = self.at;
        if entry.is_none() {
            self.at = self.bytes.len();
        }
        Some(entry.ok_or(RecordError::Damaged(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(second: u64, found: FoundLocations) -> RecordedLook {
        RecordedLook {
            received: Mono::from_nanos(second * 1_000_000_123),
            wall: WallTime::from_unix_nanos((second * 1_000_000_123 + second * 7) as i64),
            camera_size: (2560, 1440),
            part: None,
            found,
            has_question: false,
        }
    }

    fn boxes(found: &[(f64, f64)]) -> FoundLocations {
        let object = |&(x0, score): &(f64, f64)| RecordedObject {
            place: NormBox::from_corners(x0, 0.25, x0 + 0.125, 0.75),
            score,
            source: ScoreSource::Calibrated,
        };
        FoundLocations::Boxes(found.iter().map(object).collect())
    }

    /// The bytes of each entry, and of the chunk; it is read as it was written.
    fn lengths(entries: &[RecordEntry]) -> Vec<usize> {
        let mut writer = ChunkWriter::new(3, Mono::from_nanos(5), WallTime::from_unix_nanos(-5));
        let mut lengths = Vec::new();
        for entry in entries {
            let before = writer.bytes.len();
            assert!(writer.add(entry));
            lengths.push(writer.bytes.len() - before);
        }
        let bytes = writer.into_bytes();
        let reader = ChunkReader::new(&bytes).unwrap();
        assert_eq!(reader.chunk_number(), 3);
        let read = Vec::from_iter(reader.map(Result::unwrap));
        assert_eq!(read, entries);
        lengths
    }

    #[test]
    fn entries_are_read_as_written_and_take_few_bytes() {
        let part = NormBox::from_corners(0.1, 0.2, 0.7, 0.9);
        let in_part = |second, found| RecordedLook {
            part: Some(part),
            has_question: true,
            ..look(second, found)
        };
        let points = [(0.3, 0.1), (0.7, 0.9)].map(|(x, score)| RecordedObject {
            place: NormPoint::new(x, 0.5),
            score,
            source: ScoreSource::TokenProb,
        });
        let points = FoundLocations::Points(Arc::new(points));
        let found = boxes(&[(0.1, 0.7), (0.25, f64::from(0.3f32))]);
        let verified = |is_yes, score, source| {
            RecordEntry::Verified(RecordedVerification {
                at: Mono::from_nanos(5),
                is_yes,
                score,
                source,
            })
        };
        let lost = |reason| RecordEntry::Lost {
            reason,
            wall: WallTime::from_unix_nanos(i64::MAX / 2),
        };
        let found_lengths = lengths(&[
            RecordEntry::Continues,
            RecordEntry::Look(look(1, found.clone())),
            RecordEntry::Look(look(2, found.clone())),
            RecordEntry::Look(look(3, boxes(&[]))),
            RecordEntry::Look(look(4, boxes(&[]))),
            RecordEntry::Look(in_part(5, boxes(&[]))),
            RecordEntry::Look(look(5, boxes(&[]))),
            RecordEntry::Look(in_part(4, found)),
            RecordEntry::Settled,
            RecordEntry::Look(look(7, points)),
            verified(Some(true), 0.7, ScoreSource::VerifyCalibrated),
            verified(Some(false), 0.0, ScoreSource::Verify),
            verified(None, 0.0, ScoreSource::Verify),
            lost(EndReason::Moved),
        ]);
        // The same objects, none, and again none: flags and times.
        assert_eq!(found_lengths[2..5], [7, 8, 7]);
        // One object has two numbers of eight bytes, and one has none.
        assert_eq!(found_lengths[1], 11 + 1 + (1 + 3 * 8 + 2 * 4) + (1 + 5 * 4));
    }

    #[test]
    fn newer_version_and_too_many_bytes_are_refused() {
        let of = |bytes: &[u8]| ChunkReader::new(bytes).err();
        assert_eq!(of(&[VERSION + 1; 40]), Some(RecordError::Version(2)));
        assert_eq!(of(&[VERSION; 9]), Some(RecordError::Damaged(5)));
        assert_eq!(of(&[]), Some(RecordError::Damaged(0)));
        let long = vec![VERSION; CHUNK_MAX_BYTES + 1];
        assert_eq!(of(&long), Some(RecordError::TooLong(long.len())));
    }
}
