//! The project's own files, for tests that read them.

use std::fs;
use std::path::{Path, PathBuf};

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All files below `folder` with one of these extensions, in order. Build output and hidden folders are left out.
pub fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" {
                found.extend(files(&path, extensions));
            }
        } else if path
            .extension()
            .is_some_and(|e| extensions.iter().any(|wanted| e == *wanted))
        {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Rust files of the program and its crates, with their text. Test files, test doubles and examples are left out, and so are
/// comments and items that only tests see.
pub fn production_code() -> Vec<(PathBuf, String)> {
    let folders = ["src", "crates"].map(|folder| files(&root().join(folder), &["rs"]));
    let all = folders.into_iter().flatten();
    let is_production = |path: &PathBuf| {
        let within = path.strip_prefix(root()).unwrap_or(path);
        let is_of_tests = |part: &str| {
            let name = part.trim_end_matches(".rs");
            matches!(
                name,
                "tests" | "testing" | "scripted" | "examples" | "rig" | "testbed"
            ) || name.ends_with("_tests")
        };
        !within
            .iter()
            .any(|part| is_of_tests(&part.to_string_lossy()))
    };
    all.filter(is_production)
        .map(|path| {
            let text =
                fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            (path, shipped(&text))
        })
        .collect()
}

/// The text with empty lines in place of comments and of items that only tests see. `cargo fmt` has set it: such an item ends
/// where a line at the depth of its attribute does.
pub fn shipped(text: &str) -> String {
    let mut hidden = None;
    let mut lines = Vec::new();
    for line in text.lines() {
        let code = line.trim();
        let depth = line.len() - line.trim_start().len();
        let shown = hidden.is_none() && code != "#[cfg(test)]" && !code.starts_with("//");
        lines.push(if shown { line } else { "" });
        if code == "#[cfg(test)]" {
            hidden = hidden.or(Some(depth));
        } else if hidden == Some(depth)
            && !code.starts_with(['#', '/'])
            && code.ends_with([';', ',', '}'])
        {
            hidden = None;
        }
    }
    lines.join("\n")
}
