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
    // `id`: the track. Events of one `place` have one camera and prompt, and boxes that overlap. `location`: a box or point of the picture, in JSON.
    // `bytes`: row and picture; `written`: all that was ever written of them. `picture`: the number of its pictures so far.
    "CREATE TABLE history (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, place INTEGER NOT NULL,
        camera TEXT NOT NULL, prompt TEXT NOT NULL, revision INTEGER NOT NULL, words TEXT NOT NULL,
        start_ms INTEGER NOT NULL, end_ms INTEGER, last_seen_ms INTEGER NOT NULL,
        score REAL NOT NULL, top_score REAL NOT NULL, location TEXT NOT NULL, width INTEGER NOT NULL, height INTEGER NOT NULL,
        zones TEXT NOT NULL, description TEXT, looks INTEGER NOT NULL,
        picture INTEGER NOT NULL, picture_bytes INTEGER NOT NULL, bytes INTEGER NOT NULL, written INTEGER NOT NULL, mark TEXT
    ) STRICT;
    CREATE INDEX history_start ON history (start_ms);
    CREATE INDEX history_place ON history (place, start_ms);
    CREATE INDEX history_prompt ON history (camera, prompt, start_ms);
    CREATE INDEX history_open ON history (number) WHERE end_ms IS NULL;
    -- The looks of an event in the order of their parts: crates/history/src/looks.rs.
    CREATE TABLE history_looks (number INTEGER NOT NULL, part INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (number, part)) STRICT, WITHOUT ROWID;",
    // `series`: what marks depend on, as a digest. `near`: an object below `min_score`, no alarm. `record_ms`: the record in which it began.
    // `drawn_ms`: when it was drawn by chance. Places in JSON: `others` are the other objects of its prompt on its picture, `objects` those that a
    // person says are right. `all_found`: a person says that the picture has no further ones.
    "ALTER TABLE history ADD COLUMN series TEXT NOT NULL DEFAULT '';
    ALTER TABLE history ADD COLUMN near INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE history ADD COLUMN record_ms INTEGER;
    ALTER TABLE history ADD COLUMN drawn_ms INTEGER;
    ALTER TABLE history ADD COLUMN judged_ms INTEGER;
    ALTER TABLE history ADD COLUMN others TEXT NOT NULL DEFAULT '[]';
    ALTER TABLE history ADD COLUMN objects TEXT;
    ALTER TABLE history ADD COLUMN all_found INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX history_unjudged ON history (near, start_ms) WHERE mark IS NULL;
    CREATE INDEX history_judged ON history (start_ms) WHERE mark IS NOT NULL;
    CREATE INDEX history_record ON history (camera, prompt, record_ms) WHERE record_ms IS NOT NULL;
    -- Recorded looks of prompts, while an event has them: crates/history/src/records.rs. `started`: the events that started in this part, each with
    -- the time of its first look, in JSON.
    CREATE TABLE history_records (
        number INTEGER PRIMARY KEY, camera TEXT NOT NULL, prompt TEXT NOT NULL, record_ms INTEGER NOT NULL, part INTEGER NOT NULL,
        is_last INTEGER NOT NULL, until_ms INTEGER NOT NULL, started TEXT NOT NULL, bytes INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE (camera, prompt, record_ms, part)
    ) STRICT;
    CREATE INDEX history_records_until ON history_records (until_ms, bytes);
    -- Times whose looks a person deleted, for a day: what waits in memory of them is not stored. NULL: any.
    CREATE TABLE history_deleted (camera TEXT, prompt TEXT, from_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL) STRICT;
    -- Alarms whose marks belong together. Those from before `counted_from_ms` count no more: some of their marks were removed. `percent`: so many of 100
    -- alarms are right, said a proposal whose `min_score` the series has since `promised_ms`.
    CREATE TABLE history_series (
        camera TEXT NOT NULL, prompt TEXT NOT NULL, series TEXT NOT NULL, counted_from_ms INTEGER NOT NULL DEFAULT 0, percent INTEGER, promised_ms INTEGER,
        PRIMARY KEY (camera, prompt, series)
    ) STRICT, WITHOUT ROWID;",
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
