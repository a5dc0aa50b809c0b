//! Statements of another crate, on the thread that alone writes.

use std::{fmt, path::Path, sync::mpsc};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::database::{OpenError, open_existing, truncate_log};

/// Statements were not executed and the file has nothing of them; or, with `Read`, its log could not be cut.
#[derive(Debug, thiserror::Error)]
pub enum StatementsError {
    #[error("the state database cannot be written: {0}")]
    Database(#[from] OpenError),
    #[error(
        "another program reads the state database; texts of deleted rows leave its log when that ends"
    )]
    Read,
    #[error("the state database is closed")]
    Closed,
}

/// Runs with the open database, or with the reason why there is none, and reports to the one that waits.
pub(crate) struct QueuedStatements(ExecuteStatements);

/// Returns whether the file is damaged.
type ExecuteStatements = Box<dyn FnOnce(Result<&mut Connection, OpenError>) -> bool + Send>;

impl QueuedStatements {
    /// Returns whether the file is damaged.
    pub(crate) fn execute(self, connection: Result<&mut Connection, OpenError>) -> bool {
        (self.0)(connection)
    }
}

impl fmt::Debug for QueuedStatements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueuedStatements")
    }
}

/// The statements, and where their result comes; it never comes when they are dropped.
pub(crate) fn queued<T: Send + 'static>(
    run: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
) -> (QueuedStatements, mpsc::Receiver<Result<T, StatementsError>>) {
    let (sender, receiver) = mpsc::channel();
    let execute = move |connection: Result<&mut Connection, OpenError>| {
        let done = match connection {
            Ok(connection) => run(connection).map_err(OpenError::from),
            Err(error) => Err(error),
        };
        let is_damaged = done.as_ref().is_err_and(OpenError::is_damage);
        // The one that waited may have ended.
        _ = sender.send(done.map_err(StatementsError::from));
        is_damaged
    };
    (QueuedStatements(Box::new(execute)), receiver)
}

/// What another process executed.
#[derive(Debug, PartialEq, Eq)]
pub struct ExecutedBeside<T> {
    pub value: T,
    /// The log has nothing of what was deleted. False: another program reads the database for longer than five seconds.
    pub is_log_cut: bool,
}

/// Runs statements that delete from another process, beside a daemon or without one: `None` where there is no database.
pub fn execute_beside<T>(
    state_dir: &Path,
    run: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> Result<Option<ExecutedBeside<T>>, StatementsError> {
    let Some(mut connection) = open_existing(state_dir)? else {
        return Ok(None);
    };
    let executed = execute_once(&mut connection, run);
    Ok(Some(executed.map_err(OpenError::from)?))
}

fn execute_once<T>(
    connection: &mut Connection,
    run: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<ExecutedBeside<T>> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    // SQLite waits for the daemon here and not in the middle.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let value = run(&transaction)?;
    transaction.commit()?;
    let is_log_cut = truncate_log(connection)?;
    Ok(ExecutedBeside { value, is_log_cut })
}
