//! Output of a command on stdout, remarks about it on stderr.
//!
//! `println!` panics when stdout is closed (`spotter detect … | head -0`). Here that is an error of its own, and the command
//! ends without a message.

use std::{
    fmt,
    io::{self, Write as _},
};

/// The reader closed the pipe. No failure: it has read what it needs.
#[derive(Debug, thiserror::Error)]
#[error("standard output is closed")]
pub struct OutputClosed;

/// A line of the answer.
pub fn say(line: impl fmt::Display) -> anyhow::Result<()> {
    say_part(format_args!("{line}\n"))
}

/// A part of a line, which is shown at once.
pub fn say_part(part: impl fmt::Display) -> anyhow::Result<()> {
    let mut out = io::stdout();
    let written = write!(out, "{part}").and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => anyhow::Error::new(OutputClosed),
        // For example, the disk is full.
        _ => anyhow::Error::new(error).context("writing the output"),
    })
}

/// `1 camera`, `2 cameras`.
pub fn counted(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}

/// Of an option of earlier versions that was given.
pub fn removed(option: &str, replacement: &str) {
    remark(format_args!(
        "warning: {option} was removed and will be an error; {replacement}"
    ));
}

/// A line on stderr, for the person at the terminal. A closed stderr is no error.
pub fn remark(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}
