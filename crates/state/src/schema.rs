//! The tables, and how those of an earlier version become them.

use rusqlite::Connection;

/// The steps from each version of the tables to the next; `PRAGMA user_version` is the number of those that were taken.
pub(crate) const STEPS: &[&str] = &[
    // Texts in JSON, each replaced as a whole. No release had the other tables of this version, which had no rows.
    "CREATE TABLE document (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;",
    "DROP TABLE IF EXISTS event;
    DROP TABLE IF EXISTS event_picture;
    DROP TABLE IF EXISTS cursor;
    -- Events for which a receiver waits, and the last one of each track that has not ended. `waiting`: the receivers, such as 'mqtt webhook/door'.
    CREATE TABLE event (number INTEGER PRIMARY KEY, waiting TEXT NOT NULL, body TEXT NOT NULL) STRICT;
    CREATE TABLE event_picture (number INTEGER PRIMARY KEY, jpeg BLOB NOT NULL) STRICT;",
];
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
