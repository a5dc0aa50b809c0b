//! Events on disk: rows in `state.db`, their best pictures in `<state_dir>/history`.
//!
//! ```text
//!   daemon's loop ──event, looks──▶ History ──▶ its thread ──▶ HistoryFolder: JPEG files
//!                   │ frame                       ▲    └─────▶ the thread of state.db: rows
//!                   ├──────▶ encoder's thread ────┘ JPEG
//!                   └──records▶ RecordQueue ──▶ its thread
//!   page, API, command line ──HistoryFilter──▶ HistoryReader: a connection for each query
//! ```
//!
//! A caller on the daemon's loop never waits for the disk or an encoder. While the disk fails, open events are in memory and are written later;
//! pictures and ended events beyond a bound are dropped and counted.
//!
//! Belongs here: what is stored, its limits, queries, deletion, export. Does not belong here: HTTP and the command line.

mod deletion;
mod export;
mod filter;
mod folder;
mod frame_queue;
mod judged_set;
mod limits;
mod looks;
mod marks;
mod masks;
mod message;
mod near;
mod reader;
mod recorded;
mod recorder;
mod records;
mod row;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, reason = "test helpers panic with what is wrong")]
pub mod testing;
#[cfg(test)]
mod tests;
mod time_zone;
mod writer;

pub use deletion::{DeletedBeside, DeletedEvents, HistorySelection, delete_beside};
pub use export::export;
pub use filter::HistoryFilter;
pub use judged_set::JudgedSet;
pub use marks::{JudgingError, SeriesKey, StoredAlarm, StoredPromise, StoredSeries};
pub use masks::{MaskAreas, is_covered};
pub use message::HistoryMessage;
pub use reader::{EventJson, EventsPage, HistoryError, HistoryReader, PictureLinks, StoredPicture};
pub use recorded::{EncodePicture, HistoryStatus};
pub use recorder::History;
pub use records::{RecordFilter, StoredRecord};
pub use time_zone::time_zone;

/// Why a request for stored events is refused where there is no history.
pub const NO_HISTORY: &str = "no events are stored; add [history] to the configuration";
