//! Rules of the sources that the compiler does not check.

#[allow(dead_code, reason = "each test file uses a part of it")]
mod sources;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use sources::{files, root, shipped};
use spotter_engine::model::ModelConfig;

/// Modules of a crate, and the modules of the same crate that each may import. Cargo holds the rules between crates.
const IMPORTS: &[(&str, &str, &[&str])] = &[
    ("cameras", "ingest", &[]),
    ("cameras", "sampler", &[]),
    ("events", "track", &[]),
    ("events", "overrides", &[]),
    ("events", "triggers", &[]),
    ("engine", "model", &[]),
    ("engine", "scheduler", &["model"]),
    ("engine", "service", &["model", "scheduler"]),
    ("engine", "sim", &["scheduler", "step_check"]),
    ("engine", "step_check", &["scheduler"]),
    ("engine", "cpu", &["model", "scheduler", "step_check"]),
    ("engine", "cuda", &["model", "scheduler", "step_check"]),
];

/// Sources of all languages below `folder`.
fn sources_below(folder: &Path) -> Vec<PathBuf> {
    files(folder, &["rs", "py", "cu", "cuh"])
}

#[test]
fn modules_of_a_crate_import_only_what_they_may() {
    let mut wrong = Vec::new();
    for (owner, module, allowed) in IMPORTS {
        let known: Vec<&str> = IMPORTS
            .iter()
            .filter(|(crate_name, ..)| crate_name == owner)
            .map(|(_, module, _)| *module)
            .collect();
        let folder = root().join("crates").join(owner).join("src").join(module);
        for path in sources_below(&folder) {
            let within = path.strip_prefix(&folder).expect("a file of the module");
            // Tests may import every module.
            if within
                .iter()
                .any(|part| part == "tests" || part == "tests.rs")
            {
                continue;
            }
            let text = fs::read_to_string(&path).expect("source file");
            for (line, named) in imports(&shipped(&text)) {
                let named = named.as_str();
                if known.contains(&named) && named != *module && !allowed.contains(&named) {
                    wrong.push(format!(
                        "{}:{line}: {module} imports {named}",
                        path.display()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every name directly after `crate::`, by itself or in braces, and its line.
fn imports(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, path) in text.match_indices("crate::") {
        let behind = at + path.len();
        let mut depth = 0;
        // The next name is the first of its path.
        let mut begins = true;
        for (offset, character) in text[behind..].char_indices() {
            match character {
                '{' => depth += 1,
                '}' => (depth, begins) = (depth - 1, false),
                ',' => begins = depth == 1,
                _ if begins && is_of_name(character) => {
                    let name = text[behind + offset..].chars();
                    let name = name.take_while(|c| is_of_name(*c)).collect();
                    let line = text[..behind + offset].lines().count();
                    found.push((line, name));
                    begins = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

#[test]
fn imports_are_found_in_each_form_except_in_tests() {
    let text = "\
use crate::track::{Tracker, sampler};
use crate::{
    domain::{CameraId, engine::{service, Options}},
    // control,
    config, publish::Publisher,
};
use std::{fmt, sync::Arc};
#[cfg(test)]
use crate::sim::{
    Simulated,
};

impl Held {
    #[cfg(test)]
    pub fn seen(
        &self,
    ) -> crate::cpu::CpuDevice {
        self.0
    }

    pub fn both(&self) -> (crate::gpu_stats::Gauge, crate::model::Model) {
        let one = Some(crate::{ops});
    }
}
";
    let seen = imports(&shipped(text));
    let seen: Vec<(usize, &str)> = seen.iter().map(|(at, name)| (*at, name.as_str())).collect();
    let expected = [
        (1, "track"),
        (3, "domain"),
        (5, "config"),
        (5, "publish"),
        (21, "gpu_stats"),
        (21, "model"),
        (22, "ops"),
    ];
    assert_eq!(seen, expected);
}

/// Its memory room counts them, and a test on a GPU asserts the counts; calls elsewhere would not be seen by it.
#[test]
fn calls_that_allocate_or_wait_on_a_gpu_are_counted() {
    let room = root().join("crates/engine/src/cuda");
    for path in sources_below(&room) {
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
fn unsafe_code_is_in_cuda_only() {
    let cuda = root().join("crates/engine/src/cuda");
    for path in ["src", "crates"]
        .iter()
        .flat_map(|folder| sources_below(&root().join(folder)))
    {
        let text = fs::read_to_string(&path).expect("source file");
        let has_unsafe = text
            .lines()
            .any(|line| !line.trim_start().starts_with("//") && line.contains("unsafe {"));
        assert!(
            path.starts_with(&cuda) || !has_unsafe,
            "{}: unsafe outside of cuda/",
            path.display()
        );
    }
}

/// Backends read typed weights and fields of the configuration.
#[test]
fn tensor_names_and_token_ids_are_in_family_modules_only() {
    let engine = root().join("crates/engine/src");
    let templates = ModelConfig::default().tokenizer.templates;
    let caption = templates.caption;
    let around = [templates.query, templates.detect, templates.point];
    let around = around.iter().flat_map(|t| [&t.prefix, &t.suffix]);
    let ids: BTreeSet<u32> = around
        .chain([&caption.short, &caption.normal, &caption.long])
        .flatten()
        .copied()
        // Smaller numbers mean something else in most lines.
        .filter(|id| *id > 1024)
        .collect();
    assert!(ids.len() > 5, "{ids:?}");
    let tensors = [
        "\"text.wte",
        "\"text.blocks",
        "\"text.post_ln",
        "\"text.lm_head",
        "\"vision.patch_emb",
        "\"vision.pos_emb",
        "\"vision.blocks",
        "\"vision.post_ln",
        "\"vision.proj_mlp",
        "\"region.coord_",
        "\"region.size_",
    ];
    let (mut inside, mut wrong) = (0, Vec::new());
    for path in sources_below(&engine) {
        let within = path.strip_prefix(&engine).expect("a file of the engine");
        if within.iter().any(|part| {
            ["tests", "tests.rs", "testing"]
                .iter()
                .any(|name| part == *name)
        }) {
            continue;
        }
        let text = shipped(&fs::read_to_string(&path).expect("source file"));
        for (line, code) in (1..).zip(text.lines()) {
            let code = code.split("//").next().unwrap_or_default();
            let numbers = code
                .split(|c: char| !is_of_name(c))
                .map(|n| n.replace('_', ""));
            let has_id = numbers
                .flat_map(|n| n.parse())
                .any(|n: u32| ids.contains(&n));
            if has_id || tensors.iter().any(|name| code.contains(name)) {
                match within.starts_with("model/moondream2") {
                    true => inside += 1,
                    false => wrong.push(format!("{}:{line}: {code}", within.display())),
                }
            }
        }
    }
    assert!(inside > 20, "the search is broken: {inside} lines");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_test_named_in_the_docs_exists() {
    let folders = ["src", "crates", "tests"].map(|folder| sources_below(&root().join(folder)));
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

#[test]
fn each_path_of_the_architecture_page_exists() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).expect("the page");
    let quoted: Vec<&str> = page.split('`').skip(1).step_by(2).collect();
    let folders = ["crates", "kernels", "src", "systemd", "tests"];
    let is_path = |text: &&&str| {
        let first = text.split('/').next();
        folders.iter().any(|folder| first == Some(*folder)) && !text.contains("::")
    };
    let paths: Vec<&&str> = quoted.iter().filter(is_path).collect();
    assert!(paths.len() > 60, "the page has another form: {paths:?}");
    let missing: Vec<_> = paths
        .iter()
        .filter(|path| !root().join(path).exists())
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}
