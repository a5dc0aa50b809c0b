//! The log of a process that can be killed at any write, for tests of its receivers.

use rusqlite::Connection;

use crate::{
    event_log::{EventLog, OpenedEvents},
    event_table::EventTable,
    schema,
};

/// A disk in memory, which outlives the processes of a test.
#[derive(Debug)]
pub struct MemoryLog {
    connection: Connection,
    table: EventTable,
}

impl Default for MemoryLog {
    fn default() -> Self {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection, schema::STEPS).unwrap();
        let table = EventTable::default();
        Self { connection, table }
    }
}

impl MemoryLog {
    /// A process begins.
    pub fn open(&mut self) -> OpenedEvents {
        let (table, found) = EventTable::open(&self.connection).unwrap();
        self.table = table;
        OpenedEvents::new(None, found)
    }

    /// Writes what the process has appended, as the state thread does.
    pub fn write(&mut self, log: &EventLog) {
        let changes = log.take_changes();
        self.table.write(&mut self.connection, &changes).unwrap();
    }
}
