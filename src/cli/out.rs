//! Output of a command on stdout, remarks about it on stderr.
//!
//! `println!` panics when stdout is closed (`spotter detect … | head -0`). Here that is an error of its own, and the command
//! ends without a message.

use std::{
    fmt,
    io::{self, Write as _},
};

/// A line could not be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The reader closed the pipe. No failure: it has read what it needs.
    #[error("standard output is closed")]
    Closed,
    /// For example, the disk is full.
    #[error("writing the output: {0}")]
    Io(io::Error),
}

impl From<io::Error> for OutputError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// A line of the answer.
pub fn say(line: impl fmt::Display) -> Result<(), OutputError> {
    Ok(writeln!(io::stdout(), "{line}")?)
}

/// A line on stderr, for the person at the terminal. A closed stderr is no error.
pub fn remark(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}
