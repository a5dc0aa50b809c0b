//! Rules of the sources that the compiler does not check.

#[allow(dead_code, reason = "each test file uses a part of it")]
mod sources;

use std::{
    collections::{BTreeMap, BTreeSet},
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
    ("events", "triggers", &[]),
    ("state", "schema", &[]),
    ("state", "file_system", &[]),
    ("state", "document", &[]),
    ("state", "event_table", &[]),
    ("state", "former_events", &["event_table"]),
    (
        "state",
        "database",
        &["schema", "file_system", "document", "former_events"],
    ),
    ("state", "backup", &["database"]),
    ("state", "store", &["database", "document", "event_table"]),
    ("state", "event_log", &["event_table", "store"]),
    ("mqtt", "contract", &[]),
    ("mqtt", "delivery", &["contract"]),
    ("mqtt", "link", &["contract", "delivery"]),
    ("engine", "network", &[]),
    ("engine", "model", &["network"]),
    ("engine", "scheduler", &["model"]),
    ("engine", "service", &["model", "scheduler"]),
    ("engine", "sim", &["scheduler", "step_check"]),
    ("engine", "step_check", &["scheduler"]),
    (
        "engine",
        "cpu",
        &["model", "network", "scheduler", "step_check"],
    ),
    (
        "engine",
        "cuda",
        &["model", "network", "scheduler", "step_check"],
    ),
    (
        "engine",
        "open",
        &["model", "network", "scheduler", "service", "cpu", "cuda"],
    ),
    (
        "engine",
        "testing",
        &["model", "network", "scheduler", "service", "sim"],
    ),
];

/// Modules of the models from the ground up: each may import those before it.
const MODEL: &[&str] = &[
    "bins",
    "colour",
    "resize",
    "grammar",
    "output",
    "pickle",
    "tensor",
    "source",
    "tokenizer",
    "prompt",
    "config",
    "family",
    "weights",
    "random",
    "endless",
    "calibration",
    "formats",
    "moondream",
    "families",
    "adapter",
    "files",
];

/// The same of the CUDA backend.
const CUDA: &[&str] = &[
    "arch",
    "error",
    "memory",
    "compile",
    "library",
    "tensor",
    "record",
    "reuse",
    "program",
    "fp8",
    "kernels",
    "products",
    "weights",
    "adapters",
    "network",
    "graphs",
    "frames",
    "foreign",
    "stage",
    "slot",
    "clock",
    "backend",
    "footprint",
    "ceilings",
];

/// The same of the configuration: its layers.
const CONFIG: &[&str] = &["read", "forms", "tables", "change", "load", "testing"];

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
        let sources = root().join("crates").join(owner).join("src");
        let folder = sources.join(module);
        // A module is a folder with a `mod.rs`, or a file, with a folder beside it or without.
        let mut of_module = Vec::new();
        if folder.is_dir() {
            of_module = sources_below(&folder);
        }
        of_module.extend(Some(folder.with_extension("rs")).filter(|file| file.is_file()));
        for path in of_module {
            let within = path.strip_prefix(&sources).expect("a file of the crate");
            // Tests may import every module.
            if within
                .iter()
                .any(|part| part == "tests" || part == "tests.rs")
            {
                continue;
            }
            let text = fs::read_to_string(&path).expect("source file");
            for (line, named) in imports(&shipped(&text), "crate::") {
                let named = named.get(1).map_or("", String::as_str);
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

#[test]
fn contract_of_mqtt_knows_no_task_and_no_client() {
    let folder = root().join("crates/mqtt/src/contract");
    let files = sources_below(&folder);
    assert!(files.len() > 10, "{}", folder.display());
    let is_test = |path: &PathBuf| path.to_string_lossy().ends_with("tests.rs");
    for path in files.into_iter().filter(|path| !is_test(path)) {
        let text = shipped(&fs::read_to_string(&path).expect("source file"));
        for outside in ["tokio", "rumqttc", "std::fs", "std::net"] {
            let place = path.display();
            assert!(!text.contains(outside), "{place} names {outside}");
        }
    }
}

#[test]
fn engine_modules_import_those_below_them_in_no_circle() {
    no_circle_in("engine", "cuda", CUDA);
    no_circle_in("engine", "model", MODEL);
}

#[test]
fn config_layers_import_those_below_them_in_no_circle() {
    no_circle_in("config", "", CONFIG);
}

#[test]
fn parts_of_the_daemon_import_each_other_in_no_circle() {
    let files = modules_of(&root().join("src/app"));
    assert!(files.len() > 40, "{}", files.len());
    assert_eq!(imported_in_circles("app", &files), [""; 0]);
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
    let mut files = BTreeMap::new();
    for path in sources_below(folder) {
        let module = path.strip_prefix(folder).unwrap_or(&path);
        let module = module.with_extension("");
        let parts = module
            .iter()
            .map(|part| part.to_string_lossy().into_owned());
        let parts: Vec<String> = parts
            .filter(|part| part != "mod" && part != "lib")
            .collect();
        let is_test = |part: &String| ["tests", "testbed", "test_support"].contains(&part.as_str());
        if !parts.iter().any(is_test) {
            let text = fs::read_to_string(&path);
            let text = text.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            files.insert(parts, shipped(&text));
        }
    }
    files
}

/// `order` has the modules of a folder of a crate from the ground up.
fn no_circle_in(crate_name: &str, name: &str, order: &[&str]) {
    let folder = root().join("crates").join(crate_name).join("src");
    let files = modules_of(&folder.join(name));
    let tops: BTreeSet<&str> = files
        .keys()
        .filter_map(|module| module.first())
        .map(String::as_str)
        .collect();
    assert_eq!(tops, order.iter().copied().collect(), "the list of modules");
    let of_top = |module: &[String]| {
        order
            .iter()
            .position(|top| module.first().is_some_and(|m| m == top))
    };
    let mut wrong = Vec::new();
    for (module, text) in &files {
        for file in imported_files(name, &files, module, text) {
            if !module.is_empty() && of_top(file) > of_top(module) {
                wrong.push(format!("{} imports {}", module.join("/"), file.join("/")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(imported_in_circles(name, &files), [""; 0]);
}

/// The other modules of these that a module imports.
fn imported_files<'a>(
    name: &str,
    files: &'a ModuleFiles,
    module: &[String],
    text: &str,
) -> Vec<&'a [String]> {
    let paths = imports_within(name, text, module).into_iter();
    let found = paths.filter_map(|path| {
        let mut lengths = (0..=path.len()).rev();
        let (file, _) = lengths.find_map(|len| files.get_key_value(&path[..len]))?;
        Some(file.as_slice()).filter(|file| *file != module)
    });
    found.collect()
}

/// The modules that import themselves by way of others, and those above them.
fn imported_in_circles(name: &str, files: &ModuleFiles) -> Vec<String> {
    let mut open: BTreeMap<&[String], BTreeSet<&[String]>> = BTreeMap::new();
    for (module, text) in files {
        // A module has its children, so a child that imports it closes a circle.
        let children = files.keys().filter(|child| {
            child
                .split_last()
                .is_some_and(|(_, parent)| parent == module)
        });
        let imported = open.entry(module).or_default();
        imported.extend(children.map(Vec::as_slice));
        imported.extend(imported_files(name, files, module, text));
    }
    // Takes away what imports nothing that is left; a circle stays.
    loop {
        let done: Vec<&[String]> = open
            .iter()
            .filter(|(_, imported)| imported.is_empty())
            .map(|(module, _)| *module)
            .collect();
        if done.is_empty() {
            break;
        }
        for module in done {
            open.remove(module);
            open.values_mut().for_each(|imported| {
                imported.remove(module);
            });
        }
    }
    open.keys().map(|module| module.join("/")).collect()
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
