//! The pages of the project: every link has a target.

#![expect(clippy::expect_used, reason = "a test that cannot read the pages ends")]

#[allow(dead_code, reason = "each test file uses a part of it")]
mod sources;

use std::{collections::BTreeSet, fs, path::Path};

use sources::{files, root};

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
