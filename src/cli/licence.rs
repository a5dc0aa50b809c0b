//! The question whether the user accepts a model's licence.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use super::out::remark;
use spotter_core::plain_text;
use spotter_hub::LicenceText;

/// Shows the licence and asks at the terminal; without one, only `--accept-licence` accepts it. The error says why it is not accepted.
pub fn accept(licence: &LicenceText<'_>, is_accepted: bool) -> Result<(), String> {
    let LicenceText {
        repository,
        file,
        page,
        ..
    } = licence;
    let changed = match licence.has_changed {
        true => "; it has changed since it was accepted",
        false => "",
    };
    remark(format_args!(
        "licence of {repository} ({file}{changed}): {page}"
    ));
    if is_accepted {
        remark("accepted with --accept-licence");
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(format!(
            "there is no terminal to ask at; read it at {page} and repeat the command with --accept-licence"
        ));
    }
    for line in licence.text.lines() {
        remark(plain_text(line));
    }
    let _ = write!(io::stderr(), "\nDo you accept this licence? Type yes: ");
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| format!("the answer cannot be read: {error}"))?;
    match answer.trim() {
        "yes" => Ok(()),
        _ => Err("the answer was not \"yes\"".to_owned()),
    }
}
