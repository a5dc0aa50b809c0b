//! The prompt of a command: the keys of a prompt of the file, read by the same code.

use crate::{
    read::{prelude::*, problem::*, syntax},
    tables::{camera::CameraConfig, prompt::*},
};
use spotter_core::PromptId;

/// Mistakes of one prompt in a message; there may be hundreds.
const MISTAKES_MAX: usize = 8;

/// The prompt that a file with these keys has on this camera, or the mistakes that would be reported of the file.
pub fn prompt_of_keys(
    keys: &toml::Table,
    id: &PromptId,
    camera: &CameraConfig,
) -> Result<PromptConfig, String> {
    // A reader notes places in a text.
    let text = toml::to_string(keys).map_err(|error| format!("prompt: {error}"))?;
    let notes = Notes::new("", &text);
    let of_camera = PromptScope {
        rate: camera.rate,
        crops_max: camera.crops_max,
        events: camera.events,
        zones: &camera.zones,
        lines: &camera.lines,
    };
    let read = syntax::parse(&notes, &text).and_then(|document| {
        let table = Reader::new(&notes, "prompt", 0..0, Some(document.get_ref()));
        prompt(id.clone(), table, of_camera)
    });
    match (read, notes.into_result()) {
        (Some(prompt), Ok(_)) => Ok(prompt),
        (_, Err(problems)) => Err(mistakes(&problems)),
        // Not reached: what gives nothing has noted why.
        (None, Ok(_)) => Err("prompt: cannot be read".to_owned()),
    }
}

/// One line of all mistakes, the first ones in full.
fn mistakes(problems: &ConfigProblems) -> String {
    let all = problems
        .iter()
        .map(|wrong| format!("{}: {}", wrong.key, wrong.text));
    let all: Vec<String> = all.collect();
    let shown = all[..all.len().min(MISTAKES_MAX)].join("; ");
    match all.len().saturating_sub(MISTAKES_MAX) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}
