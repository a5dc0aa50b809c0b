//! What survives a restart, in one SQLite database: `<state_dir>/state.db` (docs/state.md).
//!
//! ```text
//!   settings, counts, lists ──put──▶ StateStore: the newest ──▶ its own thread ──▶ Database ──▶ state.db
//!   of the daemon's loop   ◀─get──  text of each document      one transaction     check, move, copy
//! ```
//!
//! A caller on the daemon's loop never waits for the disk: [`StateStore::put`] replaces the text in memory and returns. The reply of a
//! command waits for its [`PendingWrite`]. While the disk fails, the newest texts are in memory and are tried again.
//!
//! Events go from [`EventLog`] to the queues of their receivers in memory, and by the same thread to a table of the database.
//!
//! Belongs here: the file, its tables, its faults, the event log. Does not belong here: what a document means. Its owner
//! checks the text, because the file is a border: a user can write to it.

mod backup;
mod database;
mod document;
mod event_log;
mod event_table;
mod file_system;
mod former_events;
mod logged_event;
mod schema;
mod statements;
mod store;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, reason = "test helpers panic with what is wrong")]
pub mod testing;

pub use backup::{BackupError, back_up};
pub use database::{OpenError, open_reader, stored_text};
pub use document::Document;
pub use event_log::{EventLog, OpenedEvents};
pub use event_table::{EventReceiver, FoundEvent, FoundEvents, OfferEvent};
pub use logged_event::LoggedEvent;
pub use statements::{ExecutedBeside, StatementsError, execute_beside};
pub use store::{PendingWrite, StateStore};
