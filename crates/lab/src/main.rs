//! `spotter-lab`: measures Spotter.

use std::process::ExitCode;

use clap::Parser as _;
use spotter::cli;
use spotter_lab::{
    args::{LabArguments, LabCommand},
    fleet_box, measure, serve_cameras,
};

fn main() -> ExitCode {
    let arguments = match LabArguments::try_parse() {
        Ok(arguments) => arguments,
        Err(help) => return cli::explain(&help),
    };
    cli::end(match arguments.command {
        LabCommand::Engine(args) => measure::engine(&args),
        LabCommand::Load(args) => measure::load(&args),
        LabCommand::Steps(args) => measure::steps(&args),
        LabCommand::Cameras(args) => measure::cameras(&args),
        LabCommand::ServeCameras { cameras } => serve_cameras(cameras),
        LabCommand::Fleet(args) => measure::fleet(&args),
        LabCommand::FleetBox(args) => fleet_box(&args),
        LabCommand::Capacity(args) => measure::capacity(&args),
        LabCommand::Soak(args) => measure::soak(&args),
        LabCommand::Still(args) => measure::still(&args),
        LabCommand::Eval(args) => measure::eval(&args),
        LabCommand::Labels(args) => measure::labels(&args),
        LabCommand::Regions(args) => measure::regions(&args),
    })
}
