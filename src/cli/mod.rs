//! The command line: arguments of each command, and which part of the program runs it.
//!
//! Belongs here: arguments, exit codes, text for a person at a terminal. Not here: how anything is done.

pub mod args;
mod ask;
mod check;
mod discover;
mod fleet;
mod history;
mod licence;
mod model;
mod model_remove;
pub mod out;
mod proxy;
mod self_test;
mod state;
pub mod table;
mod times;
mod tools;

use std::process::ExitCode;

pub use args::CliArguments;
use args::CliCommand;
use clap::Parser as _;

use crate::app;
use spotter_core::{GpuPrecision, Task};
use spotter_state::OpenError;

pub const EXIT_DONE: u8 = 0;
/// The command failed; the reason is on stderr.
pub const EXIT_FAILED: u8 = 1;
/// `spotter fleet status`: something is wrong with a node; it is on stdout.
pub const EXIT_TROUBLE: u8 = 2;
/// The configuration is wrong (`EX_CONFIG` of sysexits.h), or the state database is of a newer version; systemd does not restart on it.
pub const EXIT_CONFIG: u8 = 78;

/// Parses the arguments of the process and runs the command.
pub fn main() -> ExitCode {
    let arguments = match CliArguments::try_parse() {
        Ok(arguments) => arguments,
        Err(help) => return explain(&help),
    };
    if arguments.command.opens_cameras() {
        proxy::leave_out();
    }
    let result = match arguments.command {
        CliCommand::Run(run) => app::run(&run.config, run.verbose, run.json),
        CliCommand::Demo(demo) => app::demo(&demo),
        CliCommand::Discover(args) => discover::discover(&args),
        CliCommand::Check(check) => check::check(&check),
        CliCommand::Model(model) => model::model(&model),
        CliCommand::SelfTest(test) => self_test::self_test(&test),
        CliCommand::Bench(bench) => tools::bench(&bench),
        CliCommand::Fleet(fleet) => fleet::fleet(&fleet),
        CliCommand::State(state) => state::state(&state),
        CliCommand::History(history) => history::history(&history),
        CliCommand::Eval(args) => tools::eval(&args),
        CliCommand::Compare(args) => {
            out::remark(
                "spotter compare is spotter eval --against bf16 now; the name compare will be an error",
            );
            tools::eval(&args::EvalPicturesArgs {
                against: Some(GpuPrecision::Bf16),
                ..args
            })
        }
        CliCommand::Detect(ask) => ask::find(&ask, |object| Task::Detect { object }),
        CliCommand::Point(ask) => ask::find(&ask, |object| Task::Point { object }),
        CliCommand::Query(ask) => ask::query(&ask),
        CliCommand::Segment(segment) => ask::segment(&segment),
        CliCommand::Caption(caption) => ask::caption(&caption),
        CliCommand::Engine { verbose } => app::serve(verbose),
    };
    end(result)
}

/// The exit code of a result; writes an error to stderr.
pub fn end(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::from(EXIT_DONE),
        Err(error) if error.is::<out::OutputClosed>() => ExitCode::from(EXIT_DONE),
        Err(error) if error.is::<fleet::FleetTrouble>() => ExitCode::from(EXIT_TROUBLE),
        Err(error) => {
            let is_newer = matches!(error.downcast_ref(), Some(OpenError::Newer { .. }));
            let code = if is_newer || error.is::<spotter_config::ConfigProblems>() {
                EXIT_CONFIG
            } else {
                EXIT_FAILED
            };
            out::remark(format_args!("spotter: {error:#}"));
            ExitCode::from(code)
        }
    }
}

/// Prints the requested help, or what is wrong with the arguments. An error exits with [`EXIT_FAILED`], not clap's 2.
pub fn explain(help: &clap::Error) -> ExitCode {
    // A closed terminal is no error.
    let _ = help.print();
    ExitCode::from(if help.use_stderr() {
        EXIT_FAILED
    } else {
        EXIT_DONE
    })
}
