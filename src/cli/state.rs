//! `spotter state`: the database of what survives a restart.

use super::{
    args::{StateBackupArgs, StateCommand},
    out::say,
};

pub fn state(command: &StateCommand) -> anyhow::Result<()> {
    match command {
        StateCommand::Backup(args) => backup(args),
    }
}

fn backup(args: &StateBackupArgs) -> anyhow::Result<()> {
    spotter_state::back_up(&args.state_dir, &args.target)?;
    say(format_args!("copied to {}", args.target.display()))?;
    Ok(())
}
