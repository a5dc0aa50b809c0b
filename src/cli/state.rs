//! `spotter state`: the database of what survives a restart.

use super::{args::StateCommand, out::say};

pub fn state(command: &StateCommand) -> anyhow::Result<()> {
    let StateCommand::Backup { target, state_dir } = command;
    spotter_state::back_up(state_dir, target)?;
    say(format_args!("copied to {}", target.display()))
}
