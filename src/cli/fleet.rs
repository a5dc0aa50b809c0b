//! `spotter fleet`: `status` of the nodes and fleets below a broker's base; `apply` and `get` of a fleet's list of cameras.

mod camera_list;
mod status;

use super::args::FleetCommand;

pub use status::FleetTrouble;

pub fn fleet(command: &FleetCommand) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match command {
        FleetCommand::Status(args) => runtime.block_on(status::status(args)),
        FleetCommand::Apply(args) => runtime.block_on(camera_list::apply(args)),
        FleetCommand::Get(args) => runtime.block_on(camera_list::get(args)),
    }
}
