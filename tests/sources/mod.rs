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

/// Rust files of the program and its crates, as [`shipped_below`].
pub fn production_code() -> Vec<(PathBuf, String)> {
    let below = |folder| {
        let folder = root().join(folder);
        let files = shipped_below(&folder).into_iter();
        files.map(move |(path, text)| (folder.join(path), text))
    };
    ["src", "crates"].into_iter().flat_map(below).collect()
}

/// Rust files below `folder` by their paths from there, with their text. Test files, test doubles and examples are left out, and
/// so are comments and items that only tests see.
pub fn shipped_below(folder: &Path) -> Vec<(PathBuf, String)> {
    let of_tests = [
        "tests",
        "testing",
        "testbed",
        "test_support",
        "scripted",
        "examples",
        "rig",
    ];
    let is_of_tests = |part: &str| of_tests.contains(&part) || part.ends_with("_tests");
    let mut found = Vec::new();
    for path in files(folder, &["rs"]) {
        let within = path.strip_prefix(folder).unwrap_or(&path).to_owned();
        let mut parts = within.iter().map(|part| part.to_string_lossy());
        if !parts.any(|part| is_of_tests(part.trim_end_matches(".rs"))) {
            let text = fs::read_to_string(&path);
            let text = text.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            found.push((within, shipped(&text)));
        }
    }
    found
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
