//! What the tracker of a prompt got of each look, in a few bytes, so that it can run again with other rules (`replay`).
//!
//! ```text
//!   nothing found ──object──▶ recording ──quiet──▶ nothing found
//!                                 └──▶ RecordChunk (≤ 64 KiB) … RecordChunk
//! ```
//!
//! A record begins with the first look that found something, and ends when no tracker of this prompt can have a track any more, however
//! strict its filter is ([`LookRecorder`] has the proof), or when it is long. So each record is replayed by a new tracker, and looks between
//! records cost nothing. Objects below the prompt's `min_score` are not recorded: a filter that is less strict would need them also while
//! nothing is tracked.

mod encoding;
mod entry;
mod recorder;

pub use encoding::{CHUNK_MAX_BYTES, ChunkReader, RecordError};
pub use entry::{FoundLocations, RecordEntry, RecordedLook, RecordedObject, RecordedVerification};
pub use recorder::{LookRecorder, QuietRule, RecordChunk, StartedEvent};
