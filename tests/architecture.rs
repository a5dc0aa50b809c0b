//! Rules of the sources that the compiler does not check.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::sources::{files, root, shipped, shipped_below};
use spotter_engine::model::ModelConfig;

/// Modules of a crate, and the modules of the same crate that each may import. Cargo holds the rules between crates.
const IMPORTS: &[(&str, &str, &[&str])] = &[
    ("cameras", "ingest", &[]),
    ("cameras", "sampler", &[]),
    ("events", "record", &[]),
    ("events", "track", &["record"]),
    ("events", "replay", &["record", "track"]),
    ("events", "triggers", &[]),
    ("mqtt", "contract", &[]),
    ("mqtt", "delivery", &["contract"]),
    ("mqtt", "link", &["contract", "delivery"]),
    ("engine", "network", &[]),
    ("engine", "model", &["network"]),
    ("engine", "ranks", &["scheduler"]),
    ("engine", "scheduler", &["model"]),
    ("engine", "service", &["model", "scheduler"]),
    ("engine", "sim", &["scheduler", "step_check"]),
    ("engine", "step_check", &["scheduler"]),
    (
        "engine",
        "cpu",
        &["model", "network", "ranks", "scheduler", "step_check"],
    ),
    (
        "engine",
        "cuda",
        &["model", "network", "ranks", "scheduler", "step_check"],
    ),
    (
        "engine",
        "open",
        &[
            "model",
            "network",
            "ranks",
            "scheduler",
            "service",
            "cpu",
            "cuda",
        ],
    ),
];

fn sources_below(folder: &Path) -> Vec<PathBuf> {
    files(folder, &["rs"])
}

#[test]
fn modules_of_a_crate_import_only_what_they_may() {
    let mut wrong = Vec::new();
    for (owner, module, allowed) in IMPORTS {
        let of_crate = IMPORTS.iter().filter(|(name, ..)| name == owner);
        let known: Vec<&str> = of_crate.map(|(_, module, _)| *module).collect();
        // A module is a folder with a `mod.rs`, or a file, with a folder beside it or without.
        let sources = shipped_below(&root().join("crates").join(owner).join("src"));
        let of_module = sources.iter().filter(|(path, _)| {
            path.starts_with(module) || *path == Path::new(module).with_extension("rs")
        });
        for (path, text) in of_module {
            for (line, named) in imports(text, "crate::") {
                let named = named.get(1).map_or("", String::as_str);
                if known.contains(&named) && named != *module && !allowed.contains(&named) {
                    let place = path.display();
                    wrong.push(format!("{owner} {place}:{line}: {module} imports {named}"));
                }
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn contract_of_mqtt_knows_no_task_and_no_client() {
    let files = shipped_below(&root().join("crates/mqtt/src/contract"));
    assert!(files.len() > 10, "{}", files.len());
    for (path, text) in files {
        for outside in ["tokio", "rumqttc", "std::fs", "std::net"] {
            let place = path.display();
            assert!(!text.contains(outside), "{place} names {outside}");
        }
    }
}

/// A folder's modules as one: a module beside them may be imported by them or may import them, not both.
#[test]
fn modules_beside_each_other_import_in_no_circle() {
    let crates = fs::read_dir(root().join("crates")).expect("the crates");
    let crates = crates.map(|entry| entry.expect("a crate").path());
    let (mut imports, mut circles) = (0, Vec::new());
    for owner in crates.chain([root()]) {
        let files = modules_of(&owner.join("src"));
        let all: Vec<_> = files
            .iter()
            .flat_map(|(module, text)| {
                let imported = imported_files("", &files, module, text);
                imported
                    .into_iter()
                    .map(move |other| (module.as_slice(), other))
            })
            .collect();
        imports += all.len();
        let folders: BTreeSet<&[String]> = files
            .keys()
            .flat_map(|m| m.split_last())
            .map(|(_, folder)| folder)
            .collect();
        for folder in folders {
            let part = |module: &&'_ [String]| module.strip_prefix(folder)?.first().cloned();
            let beside = all
                .iter()
                .filter_map(|(from, to)| Some((part(from)?, part(to)?)));
            let beside = beside.filter(|(from, to)| from != to);
            for name in in_circles(beside.collect()) {
                circles.push(format!("{} {}/{name}", owner.display(), folder.join("/")));
            }
        }
    }
    assert!(imports > 500, "the search is broken: {imports}");
    assert_eq!(circles, [""; 0]);
}

/// Where modules are so many that a child which imports its parent hides a circle, that is one too.
#[test]
fn modules_of_these_folders_import_in_no_circle() {
    for (owner, name) in [
        ("", "app"),
        ("crates/engine", "cuda"),
        ("crates/engine", "model"),
        ("crates/config", ""),
        ("crates/control", ""),
        ("crates/events", ""),
        ("crates/state", ""),
    ] {
        let files = modules_of(&root().join(owner).join("src").join(name));
        assert!(files.len() > 8, "{owner} {name}: {}", files.len());
        let imported = files.iter().flat_map(|(module, text)| {
            // A module has its children, so a child that imports it closes a circle.
            let is_child = move |child: &&Vec<String>| {
                child
                    .split_last()
                    .is_some_and(|(_, parent)| parent == module)
            };
            let children = files.keys().filter(is_child).map(Vec::as_slice);
            let imported = imported_files(name, &files, module, text)
                .into_iter()
                .chain(children);
            imported.map(|other| (module.join("/"), other.join("/")))
        });
        assert_eq!(in_circles(imported.collect()), [""; 0], "{owner} {name}");
    }
}

#[test]
fn main_loop_is_small_and_names_no_feature() {
    let code = |name: &str| {
        let path = root().join("src/app").join(name);
        shipped(&fs::read_to_string(path).expect("source file"))
    };
    let (daemon, stages) = (code("daemon.rs"), code("stages.rs"));
    let fields = |text: &str, name: &str| -> Vec<String> {
        let text = text.split_once(name).expect(name).1;
        let text = text.split_once("\n}").expect("the end of the type").0;
        let lines = text.lines().filter_map(|line| line.split_once(": "));
        let names = lines.map(|(name, _)| name.trim().trim_start_matches("pub "));
        names.map(str::to_owned).collect()
    };
    let own = fields(&daemon, "pub struct Daemon {");
    assert!((1..=12).contains(&own.len()), "{own:?}");
    let lines = daemon.lines().filter(|line| !line.trim().is_empty());
    assert!(lines.clone().count() <= 300, "{}", lines.count());
    let features = fields(&stages, "pub struct Stages {");
    assert!(features.len() > 8, "{features:?}");
    for feature in features {
        let names = [format!("stages.{feature}"), format!("Stages {{ {feature}")];
        let is_named = names.iter().any(|name| daemon.contains(name));
        assert!(!is_named, "daemon.rs names the stage {feature}");
    }
}

type ModuleFiles = BTreeMap<Vec<String>, String>;

/// The shipped code of each module of a folder, by its path from there.
fn modules_of(folder: &Path) -> ModuleFiles {
    let module = |path: PathBuf| {
        let parts = path.with_extension("");
        let parts = parts.iter().map(|part| part.to_string_lossy().into_owned());
        parts
            .filter(|part| part != "mod" && part != "lib")
            .collect()
    };
    let files = shipped_below(folder).into_iter();
    files.map(|(path, text)| (module(path), text)).collect()
}

/// The other modules of these that a module imports.
fn imported_files<'a>(
    name: &str,
    files: &'a ModuleFiles,
    module: &[String],
    text: &str,
) -> Vec<&'a [String]> {
    let paths = imports_within(name, text, module).into_iter();
    let found = paths.filter_map(|path| Some(file_of(files, path)?.as_slice()));
    found.filter(|file| *file != module).collect()
}

/// The file that has what a path names, or that it exports from a child of its own.
fn file_of(files: &ModuleFiles, path: Vec<String>) -> Option<&Vec<String>> {
    let mut lengths = (0..=path.len()).rev();
    let (file, text) = lengths.find_map(|len| files.get_key_value(&path[..len]))?;
    let Some(name) = path.get(file.len()) else {
        return Some(file);
    };
    let child = |inner: &[String]| [&file[..], inner].concat();
    let exports = text.match_indices("pub use ");
    let exports = exports.flat_map(|(at, found)| paths_from(text, at + found.len()));
    let exported = exports.map(|(_, inner)| inner).find(|inner| {
        let is_glob = inner.len() == 1 && text.contains(&format!("{}::*", inner[0]));
        let definitions = ["struct", "enum", "trait", "type", "const", "fn"];
        let defines = |text: &String| {
            let has = |kind: &&str| words_follow(text, kind, name);
            definitions.iter().any(has)
        };
        match files.get(&child(&inner[..1])) {
            Some(_) if inner.len() > 1 => inner.last() == Some(name),
            Some(text) => is_glob && defines(text),
            None => false,
        }
    });
    match exported {
        Some(inner) if inner.len() > 1 => file_of(files, child(&inner)),
        Some(inner) => files.get_key_value(&child(&inner)).map(|(file, _)| file),
        None => Some(file),
    }
}

/// Whether `kind name` is defined in a text.
fn words_follow(text: &str, kind: &str, name: &str) -> bool {
    let start = format!("{kind} {name}");
    let mut ends = text
        .match_indices(&start)
        .map(|(at, _)| &text[at + start.len()..]);
    ends.any(|rest| !rest.starts_with(is_of_name))
}

/// Of pairs of who imports and what is imported, those that import themselves by way of others, and those above them.
fn in_circles(mut imports: BTreeSet<(String, String)>) -> Vec<String> {
    // Takes away who imports nothing that imports; a circle stays.
    loop {
        let importers: BTreeSet<String> = imports.iter().map(|(from, _)| from.clone()).collect();
        let before = imports.len();
        imports.retain(|(_, to)| importers.contains(to));
        if imports.len() == before {
            return importers.into_iter().collect();
        }
    }
}

/// What a module of a folder of a crate imports of that folder, from its root.
fn imports_within(folder: &str, text: &str, module: &[String]) -> Vec<Vec<String>> {
    let of_crate = imports(text, "crate::")
        .into_iter()
        .filter_map(|(_, path)| match folder {
            "" => Some(path[1..].to_vec()),
            _ => (path.get(1)? == folder).then(|| path[2..].to_vec()),
        });
    let of_parent = imports(text, "super::")
        .into_iter()
        .filter_map(|(_, path)| {
            let up = path.iter().take_while(|part| *part == "super").count();
            let from = module.get(..module.len().checked_sub(up)?)?;
            Some([from, &path[up..]].concat())
        });
    of_crate.chain(of_parent).collect()
}

/// Every path that begins with `start`, by itself or in braces, and its line.
fn imports(text: &str, start: &str) -> Vec<(usize, Vec<String>)> {
    let begins = text.match_indices(start).map(|(at, _)| at);
    let is_begin = |at: &usize| !text[..*at].ends_with(|c| is_of_name(c) || c == ':');
    begins
        .filter(is_begin)
        .flat_map(|at| paths_from(text, at))
        .collect()
}

fn paths_from(text: &str, at: usize) -> Vec<(usize, Vec<String>)> {
    let (mut found, mut path, mut line) = (Vec::new(), Vec::new(), 0);
    // How much of the path is in front of each open brace.
    let mut prefixes: Vec<usize> = Vec::new();
    let (mut rest, mut is_next) = (at, true);
    while let Some(character) = text[rest..].chars().next() {
        if is_of_name(character) {
            let name = text[rest..].chars().take_while(|c| is_of_name(*c));
            let name: String = name.collect();
            rest += name.len();
            if is_next {
                (line, is_next) = (text[..rest].lines().count(), false);
                path.push(name);
            }
            continue;
        }
        rest += character.len_utf8();
        match (character, prefixes.last()) {
            (':', _) => is_next = true,
            ('{', _) if is_next => prefixes.push(path.len()),
            (_, None) => break,
            (',' | '}', Some(prefix)) => {
                if path.len() > *prefix {
                    found.push((line, path.clone()));
                }
                is_next = character == ',';
                if character == '}' {
                    prefixes.pop();
                }
                let Some(prefix) = prefixes.last() else {
                    return found;
                };
                path.truncate(*prefix);
            }
            _ => {}
        }
    }
    found.push((line, path));
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

    pub fn both(&self) -> (crate::ops::Gauge, crate::model::Model) {
        let one = Some(crate::{ops});
    }
}
";
    let seen: Vec<_> = imports(&shipped(text), "crate::")
        .into_iter()
        .map(|(line, path)| (line, path[1..].join("::")))
        .collect();
    let expected = [
        (1, "track::Tracker"),
        (1, "track::sampler"),
        (3, "domain::CameraId"),
        (3, "domain::engine::service"),
        (3, "domain::engine::Options"),
        (5, "config"),
        (5, "publish::Publisher"),
        (21, "ops::Gauge"),
        (21, "model::Model"),
        (22, "ops"),
    ]
    .map(|(line, path)| (line, path.to_owned()));
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
    let sources = ["src", "crates"].map(|folder| sources_below(&root().join(folder)));
    for path in sources
        .iter()
        .flatten()
        .filter(|path| !path.starts_with(&cuda))
    {
        let text = fs::read_to_string(path).expect("source file");
        let mut code = text.lines().map(str::trim_start);
        let has_unsafe = code.any(|line| !line.starts_with("//") && line.contains("unsafe {"));
        assert!(!has_unsafe, "{}: unsafe outside of cuda/", path.display());
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
        // Others that begin so are keys of a configuration.
        "\"region.coord_features",
        "\"region.coord_encoder",
        "\"region.coord_decoder",
        "\"region.size_features",
        "\"region.size_encoder",
        "\"region.size_decoder",
        "\"region.ln",
    ];
    let (mut inside, mut wrong) = (0, Vec::new());
    for (within, text) in shipped_below(&engine) {
        for (line, code) in (1..).zip(text.lines()) {
            let code = code.split("//").next().unwrap_or_default();
            let numbers = code
                .split(|c: char| !is_of_name(c))
                .map(|n| n.replace('_', ""));
            let has_id = numbers
                .flat_map(|n| n.parse())
                .any(|n: u32| ids.contains(&n));
            // Large layers have the same names in `calibration.toml`, of each family.
            let is_named_here = within == Path::new("network/layers.rs");
            let has_name = tensors.iter().any(|name| code.contains(name)) && !is_named_here;
            if has_id || has_name {
                match within.starts_with("model/moondream") {
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
fn each_test_named_in_the_lessons_exists() {
    let folders = ["src", "crates", "tests"].map(|folder| sources_below(&root().join(folder)));
    let texts = folders.iter().flatten();
    let code: String = texts
        .map(|path| fs::read_to_string(path).expect("source file"))
        .collect();
    let mut named = 0;
    let mut missing = Vec::new();
    let text = fs::read_to_string(root().join("docs/lessons.md")).expect("page of the docs");
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
                missing.push(format!("{}::{}", test.0, test.1));
            }
        }
    }
    assert!(named > 50, "the table has another form: {named} names");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn each_test_file_is_in_a_test_binary() {
    let read = |name| fs::read_to_string(root().join(name)).expect("source file");
    let binaries = ["Cargo.toml", "tests/program.rs", "tests/rules.rs"].map(read);
    let binaries = binaries.concat();
    let entries = fs::read_dir(root().join("tests")).expect("the folder");
    let files = entries.flatten().map(|entry| entry.file_name());
    let files = files.filter_map(|file| Some(file.to_str()?.strip_suffix(".rs")?.to_owned()));
    let is_in_none = |file: &String| {
        let names = [format!("mod {file};\n"), format!("name = \"{file}\"\n")];
        !names.iter().any(|name| binaries.contains(name))
    };
    let files: Vec<String> = files.collect();
    assert!(files.len() > 10, "the search is broken: {files:?}");
    let missing = Vec::from_iter(files.iter().filter(|file| is_in_none(file)));
    assert!(
        missing.is_empty(),
        "tests/program.rs lacks `mod` of {missing:?}"
    );
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
