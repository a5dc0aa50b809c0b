//! `spotter-package DIR`: writes the manual pages and the shell completions of `spotter` into DIR.

use std::{env, ffi::OsString, fs, path::Path};

use anyhow::{Context as _, bail};
use clap::CommandFactory as _;
use clap_complete::{Shell, generate_to};
use spotter::cli::CliArguments;

/// The shells for which Debian has a directory of completions.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Fish, Shell::Zsh];

fn main() -> anyhow::Result<()> {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let [directory] = arguments.as_slice() else {
        bail!("usage: spotter-package DIR");
    };
    let directory = Path::new(directory);
    write(directory).with_context(|| format!("writing into {}", directory.display()))
}

fn write(directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory)?;
    clap_mangen::generate_to(CliArguments::command(), directory)?;
    for shell in SHELLS {
        generate_to(shell, &mut CliArguments::command(), "spotter", directory)?;
    }
    Ok(())
}
