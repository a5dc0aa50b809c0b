//! The tables, and how those of an earlier version become them.

use rusqlite::Connection;

/// The steps from each version of the tables to the next; `PRAGMA user_version` is the number of those that were taken.
pub(crate) const STEPS: &[&str] = &["
    -- Texts in JSON, each replaced as a whole.
    CREATE TABLE document (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;
    -- Events that a receiver still needs, and the last one of each track that has not ended.
    CREATE TABLE event (number INTEGER PRIMARY KEY, expires_ms INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
    CREATE TABLE event_picture (number INTEGER PRIMARY KEY, jpeg BLOB NOT NULL) STRICT;
    -- A receiver is done with the events up to `done_to`, and with those in `done_beyond`: '7-9,12'.
    CREATE TABLE cursor (receiver TEXT PRIMARY KEY, done_to INTEGER NOT NULL, done_beyond TEXT NOT NULL) STRICT, WITHOUT ROWID;
"];

pub(crate) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Takes the steps that are missing, in one transaction.
pub(crate) fn migrate(connection: &mut Connection, steps: &[&str]) -> rusqlite::Result<()> {
    let from = version(connection)?;
    let transaction = connection.transaction()?;
    for (version, step) in (1..).zip(steps).skip(from as usize) {
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", version)?;
    }
    transaction.commit()
}
