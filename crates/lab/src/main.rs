//! `spotter-lab`: measures Spotter.

use std::process::ExitCode;

use clap::Parser as _;
use spotter::cli;
use spotter_lab::{
    args::{Arguments, Command},
    measure, serve_cameras,
};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(help) => return cli::explain(&help),
    };
    cli::end(match arguments.command {
        Command::Looks(args) => measure::looks(&args),
        Command::Engine(args) => measure::engine(&args),
        Command::Load(args) => measure::load(&args),
        Command::Steps(args) => measure::steps(&args),
        Command::Cameras(args) => measure::cameras(&args),
        Command::ServeCameras { cameras } => serve_cameras(cameras),
        Command::Soak(args) => measure::soak(&args),
        Command::Eval(args) => measure::eval(&args),
    })
}
