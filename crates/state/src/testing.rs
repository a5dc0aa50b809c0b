//! The log of a process that can be killed at any write, for tests of its receivers.

use rusqlite::Connection;

use crate::{
    event_log::{EventLog, OpenedEvents},
    event_table::EventTable,
    schema,
};

/// A disk in memory, which outlives the processes of a test.
#[derive(Debug)]
pub struct MemoryLog(Connection);

impl Default for MemoryLog {
    fn default() -> Self {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection, schema::STEPS).unwrap();
        Self(connection)
    }
}

impl MemoryLog {
    /// A process begins.
    pub fn open(&mut self) -> OpenedEvents {
        let (table, found) = EventTable::open(&self.0).unwrap();
        let log = EventLog::default();
        log.shared.lock().events = table;
        OpenedEvents { log, found }
    }

    /// Writes what the process has appended, as the state thread does.
    pub fn write(&mut self, log: &EventLog) {
        let batch = log.shared.lock().events.take();
        batch.write(&mut self.0).unwrap();
        log.shared.lock().events.finish(batch, true);
    }
}
