//! The pages of the project: every link has a target, and the first ones stay short.

#![expect(clippy::expect_used, reason = "a test that cannot read the pages ends")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use crate::sources::{files, root};

#[test]
fn relative_links_and_anchors_have_targets() {
    let mut broken = Vec::new();
    let mut count = 0;
    for page in files(&root(), &["md"]) {
        let text = fs::read_to_string(&page).expect("a page");
        for target in links(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            count += 1;
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = match path {
                "" => page.clone(),
                path => page.parent().expect("a folder").join(path),
            };
            let is_there = file.exists() && (anchor.is_empty() || anchors(&file).contains(anchor));
            if !is_there {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(count > 20, "the search is broken: {count} links");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn pages_list_all_sections_whose_change_restarts() {
    let source = fs::read_to_string(root().join("src/app/config_store.rs")).expect("the source");
    let sections = source.lines().filter_map(|line| {
        let name = line.trim().strip_prefix("(\"[")?;
        let (name, rest) = name.split_once("]\", ")?;
        rest.starts_with("old.").then(|| format!("`[{name}]`"))
    });
    let sections: Vec<String> = sections.collect();
    let (last, others) = sections.split_last().expect("sections");
    assert!(others.len() > 3, "the search is broken: {sections:?}");
    let list = format!("{} or {last}", others.join(", "));
    for page in ["architecture.md", "operations.md", "mqtt.md", "faults.md"] {
        let text = fs::read_to_string(root().join("docs").join(page)).expect("a page");
        assert!(text.contains(&list), "{page} does not have {list}");
    }
}

#[test]
fn first_pages_stay_short() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the page");
    assert!(readme.lines().count() <= 100);
    let long = readme.lines().filter(|line| line.chars().count() > 110);
    assert_eq!(Vec::from_iter(long), [""; 0]);
    let page = fs::read_to_string(root().join("docs/architecture.md")).expect("the page");
    let table = page.split("## Where is what").nth(1);
    let table = table.and_then(|rest| rest.split("\n## ").next());
    let rows = table.into_iter().flat_map(str::lines);
    // A head and a rule besides.
    let rows = rows.filter(|line| line.starts_with('|')).count() - 2;
    assert!((1..=25).contains(&rows), "{rows} rows");
}

#[test]
fn every_fault_has_tests_that_its_page_names() {
    let faults = fs::read_to_string(root().join("docs/faults.md")).expect("the page");
    let rows = faults.lines().filter_map(|line| line.strip_prefix("| "));
    let rows = rows.filter_map(|row| row.split_once(" | "));
    let is_id = |id: &str| id.starts_with(char::is_uppercase) && id.ends_with(char::is_numeric);
    let rows: BTreeMap<&str, &str> = rows.filter(|(id, _)| is_id(id)).collect();
    assert!(rows.len() > 150, "the search is broken: {rows:?}");
    let tests = tests_of_faults();
    for id in tests.keys() {
        assert!(rows.contains_key(id.as_str()), "docs/faults.md lacks {id}");
    }
    let mut page = String::from(
        "<!-- Generated from the comments `// Faults: ID` above tests, `//! Faults: ID` for all tests of a file. To update it:\n\
         SPOTTER_WRITE_DOCS=1 cargo test --test rules -->\n\n\
         # The tests of each fault\n\nThe faults are in [faults.md](faults.md).\n\n| fault | tests |\n| --- | --- |\n",
    );
    for (id, row) in in_order(&rows) {
        let is_by_hand = row.contains("(by hand)");
        let files = tests.get(id);
        assert!(
            files.is_some() || is_by_hand,
            "fault {id} has no test: {row}"
        );
        let listed = files.map_or_else(|| "by hand".to_owned(), list);
        writeln!(page, "| {id} | {listed} |").expect("a text takes all");
    }
    let path = root().join("docs/fault-tests.md");
    if std::env::var_os("SPOTTER_WRITE_DOCS").is_some() {
        fs::write(&path, &page).expect("the page");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/fault-tests.md is stale; run SPOTTER_WRITE_DOCS=1 cargo test --test rules"
    );
}

/// The rows by letter, then by number.
fn in_order<'a>(rows: &BTreeMap<&'a str, &'a str>) -> Vec<(&'a str, &'a str)> {
    let mut rows: Vec<_> = rows.iter().map(|(id, row)| (*id, *row)).collect();
    rows.sort_by_key(|(id, _)| (id.chars().next(), id[1..].parse::<u32>().ok()));
    rows
}

/// Names of tests by the file that has them; of a file whose tests all belong to a fault, none.
type TestsByFile = BTreeMap<String, BTreeSet<String>>;

fn tests_of_faults() -> BTreeMap<String, TestsByFile> {
    let mut found: BTreeMap<String, TestsByFile> = BTreeMap::new();
    for path in files(&root(), &["rs"]) {
        let text = fs::read_to_string(&path).expect("a source");
        let file = path.strip_prefix(root()).expect("a file of the project");
        let file = file.display().to_string();
        let mut ids: Vec<&str> = Vec::new();
        for line in text.lines().map(str::trim) {
            let of_file = line.strip_prefix("//! Faults: ");
            if let Some(listed) = of_file.or(line.strip_prefix("// Faults: ")) {
                ids = listed.trim_end_matches('.').split(", ").collect();
            }
            let name = line
                .split_once("fn ")
                .and_then(|(_, rest)| words(rest).next());
            if of_file.is_none() && name.is_none() {
                continue;
            }
            for id in ids.drain(..) {
                let names = found.entry(id.to_owned()).or_default().entry(file.clone());
                names.or_default().extend(name.map(str::to_owned));
            }
        }
    }
    found
}

fn list(files: &TestsByFile) -> String {
    let files = files.iter().map(|(file, names)| {
        let names = names.iter().map(|name| format!("`{name}`"));
        let names: Vec<String> = names.collect();
        let colon = if names.is_empty() { "" } else { ": " };
        format!("[{file}](../{file}){colon}{}", names.join(", "))
    });
    files.collect::<Vec<_>>().join("; ")
}

#[test]
fn items_of_core_that_clippy_names_exist() {
    let text = fs::read_to_string(root().join(".clippy.toml")).expect("the settings");
    let sources = fs::read_dir(root().join("crates/core/src")).expect("the sources");
    let sources = sources.map(|file| fs::read_to_string(file.expect("a file").path()));
    let core = sources.collect::<Result<String, _>>().expect("the source");
    let named = text.split("spotter_core::").skip(1);
    let exported: BTreeSet<&str> = words(&core).collect();
    for name in named.filter_map(|rest| words(rest).next()) {
        assert!(exported.contains(name), "spotter_core::{name}");
    }
}

/// Names of Rust.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c != '_' && !c.is_alphanumeric());
    words.filter(|word| !word.is_empty())
}

/// Targets of `[text](target)`, outside of code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let line: String = line.split('`').step_by(2).collect();
        for part in line.split("](").skip(1) {
            found.extend(part.split(')').next().map(str::to_owned));
        }
    }
    found
}

/// Lines outside of fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The anchors that a page's headings have on GitHub.
fn anchors(page: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(page).expect("a page");
    let headings = prose(&text).filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).collect()
}
