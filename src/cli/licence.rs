//! The question whether the user accepts a model's licence.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use super::out::remark;
use spotter_core::plain_text;
use spotter_hub::LicenceText;

/// Shows the licence and asks at the terminal. False without one.
pub fn accept(licence: &LicenceText<'_>) -> bool {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return false;
    }
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
    for line in licence.text.lines() {
        remark(plain_text(line));
    }
    let _ = write!(io::stderr(), "\nDo you accept this licence? Type yes: ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).is_ok() && answer.trim() == "yes"
}
