//! The command line: what each command takes, and which part of the program runs it.
//!
//! Belongs here: arguments, exit codes, text for a person at a terminal. Not here: how anything is done.

pub mod args;
mod ask;
mod check;
mod draw;
pub mod out;
mod still;
mod truth;

use std::process::ExitCode;

pub use args::Arguments;
use args::Command;
use clap::Parser as _;

use crate::app;

/// The command did what it was asked to.
pub const EXIT_DONE: u8 = 0;
/// It could not; the reason is on stderr.
pub const EXIT_FAILED: u8 = 1;
/// The configuration is wrong (`EX_CONFIG` of sysexits.h); systemd does not restart on it.
pub const EXIT_CONFIG: u8 = 78;

/// Parses the process's arguments, runs the command and says how it ended.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(help) => return explain(&help),
    };
    let result = match arguments.command {
        Command::Run(run) => app::run(&run.config, run.verbose, run.json),
        Command::Demo(demo) => app::demo(&demo.into()),
        Command::Check(check) => check::check(&check),
        Command::Detect(ask) => ask::detect(&ask),
        Command::Point(ask) => ask::point(&ask),
        Command::Query(ask) => ask::query(&ask),
        Command::Caption(caption) => ask::caption(&caption),
        Command::Engine(engine) => app::serve(engine.verbose),
    };
    end(result)
}

/// Says how the command ended, on stderr and as the exit code.
pub fn end(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::from(EXIT_DONE),
        Err(error) if matches!(error.downcast_ref(), Some(out::OutputError::Closed)) => {
            ExitCode::from(EXIT_DONE)
        }
        Err(error) => {
            let code = if error.is::<spotter_core::config::ConfigProblems>() {
                EXIT_CONFIG
            } else {
                EXIT_FAILED
            };
            out::remark(format_args!("spotter: {error:#}"));
            ExitCode::from(code)
        }
    }
}

/// Shows the help that was asked for, or what is wrong with the arguments. clap's own exit code for that, 2, would be
/// one more to know.
pub fn explain(help: &clap::Error) -> ExitCode {
    // When the terminal is gone, nobody reads it.
    let _ = help.print();
    ExitCode::from(if help.use_stderr() {
        EXIT_FAILED
    } else {
        EXIT_DONE
    })
}
