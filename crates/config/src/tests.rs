//! The messages that configuration.md promises, the shipped files, secrets that stay secret, and inputs that are no
//! configuration at all.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use proptest::prelude::*;

use super::{
    forms::scope::{ReadPurpose, Scope},
    load::file::read_text,
    *,
};
use spotter_core::Task;

mod examples;
mod mistakes;
mod prompt_keys;
mod secrets;
mod services;
mod shapes;
mod values;

/// An environment with the given variables and nothing else.
fn environment(variables: &[(&str, &str)]) -> Environment {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let variables: Vec<_> = variables.iter().map(owned).collect();
    Environment::new("Edge.Box", move |name| {
        let found = variables.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    })
}

fn read(
    text: &[u8],
    purpose: ReadPurpose,
    environment: &Environment,
) -> Result<LoadedConfig, ConfigProblems> {
    let scope = Scope::new(environment, Path::new("/nowhere"), purpose);
    read_text("site.toml", text, scope)
}

/// A correct file at a start.
fn loaded(text: &str) -> LoadedConfig {
    read(text.as_bytes(), ReadPurpose::Run, &environment(&[])).unwrap()
}

fn problems(text: &str, environment: &Environment) -> Vec<ConfigProblem> {
    match read(text.as_bytes(), ReadPurpose::Run, environment) {
        Ok(loaded) => loaded.warnings,
        Err(problems) => problems.iter().cloned().collect(),
    }
}

/// The errors and warnings about a file at a start, one per line and without the name of the file; empty for a correct file.
fn said(text: &str) -> Vec<String> {
    let problems = problems(text, &environment(&[])).into_iter();
    let lines = problems.map(|problem| problem.to_string());
    let rest = |line: String| line.strip_prefix("site.toml:").unwrap().to_owned();
    lines.map(rest).collect()
}

/// A good file around `extra` lines of camera gate (from line 5 on) and more tables after it.
fn gate(extra: &str) -> String {
    let head = "[mqtt]\nurl = \"mqtt://broker\"\n[camera.gate]\nurl = \"rtsp://192.0.2.1/0\"\n";
    format!("{head}{extra}\n[camera.gate.prompt.person]\ndetect = \"person\"\n")
}

/// A good file with `extra` lines below its only prompt (from line 7 on).
fn person(extra: &str) -> String {
    format!("{}{extra}\n", gate(""))
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes, ReadPurpose::Run, &environment(&[]));
    }

    /// Lines of a real file in any order, some of them with a piece of their text replaced.
    #[test]
    fn mutated_files_never_panic_and_always_say_why(
        picks in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..40, "[\\[\\]\"={}.,0-9a-z #é-]{0,4}"), 1..80),
    ) {
        let lines: Vec<_> = include_str!("../../../configs/three-cameras.toml").lines().collect();
        let mut text = String::new();
        for (index, at, piece) in picks {
            let mut line = index.get(&lines).to_string();
            if piece.len() > 2 && line.is_char_boundary(at.min(line.len())) {
                line.insert_str(at.min(line.len()), &piece);
            }
            text += &line;
            text.push('\n');
        }
        match read(text.as_bytes(), ReadPurpose::Check, &environment(&[])) {
            Ok(loaded) => prop_assert!(!loaded.config.cameras.is_empty()),
            Err(problems) => prop_assert!(problems.iter().any(|p| p.severity == Severity::Error)),
        }
    }
}
