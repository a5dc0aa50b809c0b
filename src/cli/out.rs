//! What a command has to say, on stdout, and remarks about it, on stderr.
//!
//! `println!` panics when nobody reads (`spotter detect … | head -0`), and a panic is a bug of ours. Here it is an error
//! of its own, with which the command ends quietly.

use std::{
    fmt,
    io::{self, Write as _},
};

/// A line could not be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The reader went away. No failure: it has seen what it wanted to.
    #[error("nobody reads the output any more")]
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

/// A line for the person at the terminal; what reads the answer does not see it. When nobody does, nothing is lost.
pub fn remark(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}
