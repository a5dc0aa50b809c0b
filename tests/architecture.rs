//! The rules of the house that a compiler does not check: which room may import which, and how long a file may be.

#![expect(
    clippy::expect_used,
    reason = "a test that cannot read the sources has nothing to say"
)]

use std::fs;
use std::path::{Path, PathBuf};

/// Room, and the rooms it may import besides itself.
const IMPORTS: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("config", &["domain"]),
    ("ingest", &["domain", "config"]),
    ("sampler", &["domain", "config"]),
    ("track", &["domain", "config"]),
    ("publish", &["domain", "config"]),
    ("control", &["domain", "config"]),
    ("ops", &["domain", "config"]),
    ("gauge", &["domain"]),
    ("model", &["domain", "config"]),
    ("engine", &["domain", "model"]),
    ("front", &["domain", "model", "engine"]),
    ("sim", &["domain", "engine"]),
    ("contract", &["engine"]),
    ("cpu", &["domain", "config", "contract", "model", "engine"]),
    ("cuda", &["domain", "config", "contract", "model", "engine"]),
    ("demo", &["domain", "config"]),
    (
        "bench",
        // `track` and the `config` it takes: what is followed is measured too.
        &[
            "domain", "config", "gauge", "model", "engine", "front", "sim", "track", "demo",
        ],
    ),
];

/// Longest source file, in lines.
const FILE_MAX_LINES: usize = 500;

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)
        .expect("folder of the sources")
        .flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path
            .extension()
            .is_some_and(|e| e == "rs" || e == "py" || e == "cu" || e == "cuh")
        {
            found.push(path);
        }
    }
    found
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_stage_never_imports_another_stage() {
    let mut wrong = Vec::new();
    for (room, allowed) in IMPORTS {
        for path in sources(&root().join("src").join(room)) {
            // A test may set up whatever it needs.
            if path.file_name().is_some_and(|name| name == "tests.rs") {
                continue;
            }
            let text = fs::read_to_string(&path).expect("source file");
            let shipped = text.split("#[cfg(test)]").next().unwrap_or_default();
            for (number, line) in shipped.lines().enumerate() {
                let Some(at) = line.find("crate::") else {
                    continue;
                };
                if line.trim_start().starts_with("//") {
                    continue;
                }
                let named: String = line[at + 7..]
                    .chars()
                    .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                    .collect();
                let known = IMPORTS.iter().any(|(other, _)| *other == named);
                if known && named != *room && !allowed.contains(&named.as_str()) {
                    wrong.push(format!(
                        "{}:{}: {room} imports {named}",
                        path.display(),
                        number + 1
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "what two stages share is a noun and goes to domain:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn files_stay_readable() {
    let mut long = Vec::new();
    for folder in ["src", "tests", "models", "kernels"] {
        for path in sources(&root().join(folder)) {
            let lines = fs::read_to_string(&path)
                .expect("source file")
                .lines()
                .count();
            if lines > FILE_MAX_LINES {
                long.push(format!("{}: {lines} lines", path.display()));
            }
        }
    }
    assert!(
        long.is_empty(),
        "a file of more than {FILE_MAX_LINES} lines has two subjects:\n{}",
        long.join("\n")
    );
}

/// Its memory room counts them, and a test on a GPU asserts the counts; calls elsewhere would not be seen by it.
#[test]
fn what_allocates_or_waits_on_a_gpu_is_counted() {
    let room = root().join("src/cuda");
    for path in sources(&room) {
        let name = path.strip_prefix(&room).expect("a file of the room");
        if name == Path::new("memory.rs") || name.starts_with("tests") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("source file");
        for call in [
            ".synchronize(",
            "cuCtxSynchronize(",
            "elapsed_ms(",
            "alloc_zeros(",
            ".alloc::<",
            "malloc_",
            "clone_htod(",
            "clone_dtoh(",
            ".memcpy_",
        ] {
            assert!(
                !text.contains(call),
                "{}: {call} outside of memory.rs",
                path.display()
            );
        }
    }
}

#[test]
fn unsafe_lives_in_cuda_alone() {
    for path in sources(&root().join("src")) {
        let text = fs::read_to_string(&path).expect("source file");
        let is_cuda = path
            .strip_prefix(root().join("src"))
            .is_ok_and(|p| p.starts_with("cuda"));
        let has_unsafe = text
            .lines()
            .any(|line| !line.trim_start().starts_with("//") && line.contains("unsafe {"));
        assert!(
            is_cuda || !has_unsafe,
            "{}: unsafe outside of cuda/",
            path.display()
        );
    }
}

#[test]
fn every_test_that_the_docs_name_is_there() {
    let folders = ["src", "tests"].map(|folder| sources(&root().join(folder)));
    let texts = folders.iter().flatten();
    let code: String = texts
        .map(|path| fs::read_to_string(path).expect("source file"))
        .collect();
    let mut named = 0;
    let mut missing = Vec::new();
    for page in ["docs/faults.md", "docs/lessons.md"] {
        let text = fs::read_to_string(root().join(page)).expect("page of the docs");
        for row in text.lines().filter(|line| line.starts_with('|')) {
            let cell = row.trim_end_matches([' ', '|']).rsplit('|').next();
            let quoted = cell.unwrap_or_default().split('`').skip(1).step_by(2);
            for test in quoted.filter_map(|name| name.rsplit_once("::")) {
                // A name may be cut short, and may be that of a module.
                let name = test.1.trim_end_matches('…');
                let is_cut = test.1.ends_with('…');
                let ends = if is_cut {
                    vec![""]
                } else {
                    vec!["(", " {", ";"]
                };
                let places = ["fn ", "mod "];
                let found = ends.iter().any(|end| {
                    let is_there = |place: &&str| code.contains(&format!("{place}{name}{end}"));
                    places.iter().any(is_there)
                });
                named += 1;
                if !found {
                    missing.push(format!("{page}: {}::{}", test.0, test.1));
                }
            }
        }
    }
    assert!(named > 100, "the tables have another form: {named} names");
    assert!(missing.is_empty(), "{missing:#?}");
}
